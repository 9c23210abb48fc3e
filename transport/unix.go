package transport

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/outspan/outspan/model"
)

// maxSocketPath is how many bytes the kernel allows in the path of a socket, without the final zero byte.
const maxSocketPath = 107

// PeerCred identifies the process that connected to a unix socket, as the kernel recorded it when the process
// connected.
type PeerCred struct {
	UID, GID uint32
	PID      int32
}

// UnixListener accepts connections only from root and from the user that its own process runs as.
type UnixListener struct {
	raw   *net.UnixListener
	path  string
	made  fs.FileInfo
	owner string // name of the server or node
	once  sync.Once
	err   error
}

// UnixConn is a connection whose peer the kernel identified.
type UnixConn struct {
	*net.UnixConn
	subject model.Subject
	cred    PeerCred
}

// Subject returns the peer, such as uid:0@s1.
func (c *UnixConn) Subject() model.Subject { return c.subject }

// PeerCred returns the user and process that the kernel reported.
func (c *UnixConn) PeerCred() PeerCred { return c.cred }

// ListenUnix opens a socket at path with mode 0600. It makes a missing parent directory with mode 0700. It replaces an
// existing socket file if no process listens on it. The argument owner is the name of the server or node, which
// is a part of the subjects of peers. Codes: address_in_use, listen_failed, file_error.
func ListenUnix(path, owner string) (*UnixListener, error) {
	dir := filepath.Dir(path)
	tmp := filepath.Join(dir, ".s"+randomHex())
	if len(path) > maxSocketPath || len(tmp) > maxSocketPath {
		return nil,
			model.Refuse(model.CodeListen, "socket path %s is too long: the system allows %d bytes", path, maxSocketPath).
				WithHint("set a shorter listen.socket")
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	if err := checkStale(path); err != nil {
		return nil, err
	}
	return openUnix(path, tmp, owner)
}

// openUnix binds a socket under a temporary name, removes other users' access to it, and renames it to path.
func openUnix(path, tmp, owner string) (*UnixListener, error) {
	raw, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, model.Refuse(model.CodeListen, "can't open socket %s: %v", path, err).
			WithHint("check listen.socket and the rights on its directory")
	}
	raw.SetUnlinkOnClose(false) // otherwise, Close would remove the temporary name
	made, err := settle(tmp, path)
	if err != nil {
		_ = raw.Close()
		_ = os.Remove(tmp)
		return nil, model.Refuse(model.CodeListen, "can't open socket %s: %v", path, err).
			WithHint("check the rights on its directory")
	}
	return &UnixListener{raw: raw, path: path, made: made, owner: owner}, nil
}

func settle(tmp, path string) (fs.FileInfo, error) {
	if err := os.Chmod(tmp, 0o600); err != nil {
		return nil, err
	}
	info, err := os.Lstat(tmp)
	if err != nil {
		return nil, err
	}
	return info, os.Rename(tmp, path)
}

func checkStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fileError("look at", path, err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return model.Refuse(model.CodeListen, "%s is there already and is not a socket", path).
			WithHint("set another listen.socket, or move the file away")
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		c.Close()
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil // a process that is gone left the file
	case errors.Is(err, fs.ErrPermission):
		return fileError("open", path, err)
	}
	return model.Refuse(model.CodeAddressInUse, "another process listens on socket %s", path).
		WithHint("stop it, or set another listen.socket")
}

// Accept waits for the next connection whose peer may use the socket. The mode of the file already keeps other users
// out, but a file system or a passed descriptor can bypass the mode. So Accept also asks the kernel who the peer is.
func (l *UnixListener) Accept() (net.Conn, error) {
	for {
		c, err := l.raw.AcceptUnix()
		if err != nil {
			return nil, err
		}
		cred, err := peerCred(c)
		if err != nil || cred.UID != 0 && int(cred.UID) != os.Geteuid() {
			_ = c.Close()
			continue
		}
		subject := model.Subject{Kind: model.SubjectUID, Name: fmt.Sprintf("%d@%s", cred.UID, l.owner)}
		return &UnixConn{UnixConn: c, subject: subject, cred: cred}, nil
	}
}

// Close stops accepting and removes the socket file, unless another process has replaced the file by its own.
func (l *UnixListener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
			_ = os.Remove(l.path)
		}
		l.err = l.raw.Close()
	})
	return l.err
}

// Addr returns the path of the socket.
func (l *UnixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

func randomHex() string {
	var b [3]byte
	rand.Read(b[:]) // never fails: without randomness, the runtime aborts the process
	return hex.EncodeToString(b[:])
}
