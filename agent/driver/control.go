package driver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// op is the kind of a request to a shim. Shims outlive agents, so numbers of kinds and fields of messages are only
// added, never changed.
type op int

const (
	opWatch  op = 1 // answered at once; the connection stays open until the shim exits
	opStop   op = 2 // uses Signal and GraceMS; a grace of 0 kills at once
	opSignal op = 3 // sends Signal to the process group
	opLease  op = 4 // extends the lease to Until
	opNote   op = 5 // writes Text to the stderr log of the program
)

type request struct {
	Op      op       `cbor:"1,keyasint"`
	Signal  int      `cbor:"2,keyasint"`
	GraceMS int64    `cbor:"3,keyasint"`
	Until   BootTime `cbor:"4,keyasint"`
	Text    string   `cbor:"5,keyasint,omitempty"`
}

type reply struct {
	Code    model.Code `cbor:"1,keyasint"` // why the request failed; "" if it succeeded
	Message string     `cbor:"2,keyasint"`
	Shim    Identity   `cbor:"3,keyasint"` // for opWatch: the shim
	Main    Identity   `cbor:"4,keyasint"` // for opWatch: the program
}

func (r reply) err() error {
	if r.Code == "" {
		return nil
	}
	return model.Refuse(r.Code, "%s", r.Message)
}

// frameLimit is the limit of a message between shim and agent, in bytes.
const frameLimit = 64 << 10

// WriteFrame writes v as CBOR, with its length before it. It returns an error if c does not take the bytes within two
// seconds.
func WriteFrame(c net.Conn, v any) error {
	body, err := cbor.Marshal(v)
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// ReadFrame reads what WriteFrame wrote into v. It returns an error if the length is above limit bytes.
func ReadFrame(c io.Reader, v any, limit uint32) error {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > limit {
		return fmt.Errorf("frame of %d bytes is above the limit", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	return cbor.Unmarshal(body, v)
}

// ShortSocket returns a short path for the socket called name in dir. The caller must close the io.Closer after use.
// The path leads through /proc/self/fd, because a socket address has room for 108 bytes and dir may be longer.
func ShortSocket(dir, name string) (string, io.Closer, error) {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), name), f, nil
}

func dialControl(ctx context.Context, dir stateDir) (net.Conn, error) {
	path, closer, err := ShortSocket(string(dir), fileControl)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	d := net.Dialer{Timeout: 2 * time.Second}
	return d.DialContext(ctx, "unix", path)
}

// call is a request that waits for the shim's main goroutine, which handles all requests.
type call struct {
	req   request
	reply chan reply // capacity 1
}

type controlServer struct {
	calls  chan call
	ln     *net.UnixListener
	closer io.Closer
	done   chan struct{}
	wg     sync.WaitGroup
}

func listenControl(dir stateDir) (*controlServer, error) {
	path, closer, err := ShortSocket(string(dir), fileControl)
	if err != nil {
		return nil, err
	}
	_ = os.Remove(path) // an earlier run may have left it; the shim of that run has ended
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		closer.Close()
		return nil, fmt.Errorf("listen on the control socket: %w", err)
	}
	s := &controlServer{calls: make(chan call), ln: ln, closer: closer, done: make(chan struct{})}
	s.wg.Add(1)
	go s.accept()
	return s, nil
}

func (s *controlServer) accept() {
	defer s.wg.Done()
	slots := make(chan struct{}, 32)
	for {
		c, err := s.ln.AcceptUnix()
		if err != nil {
			select {
			case <-s.done:
				return
			case <-time.After(50 * time.Millisecond): // the process may be out of descriptors
				continue
			}
		}
		select {
		case slots <- struct{}{}:
			s.wg.Add(1)
			go func() {
				defer func() { <-slots; s.wg.Done() }()
				s.serve(c)
			}()
		default:
			_ = c.Close()
		}
	}
}

// serve answers the requests of one connection in order, until the peer closes the connection or the shim stops.
func (s *controlServer) serve(c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	stop := make(chan struct{})
	defer close(stop)
	s.wg.Add(1)
	go func() { // interrupts the read below when the shim stops
		defer s.wg.Done()
		select {
		case <-s.done:
			_ = c.Close()
		case <-stop:
		}
	}()
	if !PeerAllowed(c) {
		return
	}
	for {
		var req request
		if ReadFrame(c, &req, frameLimit) != nil {
			return
		}
		cl := call{req: req, reply: make(chan reply, 1)}
		select {
		case s.calls <- cl:
		case <-s.done:
			return
		}
		select {
		case r := <-cl.reply:
			if WriteFrame(c, r) != nil {
				return
			}
		case <-s.done:
			return
		}
	}
}

// PeerAllowed reports whether the peer is root or the user of this process. The socket's directory has mode 0700. This
// check also protects the socket if somebody gives other users access to the directory.
func PeerAllowed(c *net.UnixConn) bool {
	cred, err := peer(c)
	return err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid())
}

// Listener identifies the process that listens at the other end of a connection, even if it does not answer.
func Listener(c *net.UnixConn) (Identity, error) {
	cred, err := peer(c)
	if err != nil {
		return Identity{}, err
	}
	return identify(int(cred.Pid))
}

func peer(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(cerr, err)
}

// close closes every connection, and waits for the goroutines. An agent sees from a closed connection that the instance
// has ended.
func (s *controlServer) close() {
	close(s.done)
	_ = s.ln.Close()
	s.wg.Wait()
	s.closer.Close()
}

// callShim sends one request to the shim and waits at most timeout for the answer. If the shim refuses, the error is a
// *model.Error.
func callShim(ctx context.Context, dir stateDir, req request, timeout time.Duration) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var r reply
	c, err := dialControl(ctx, dir)
	if err != nil {
		return r, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := WriteFrame(c, req); err != nil {
		return r, err
	}
	if err := ReadFrame(c, &r, frameLimit); err != nil {
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		return r, err
	}
	return r, r.err()
}

// noShim reports whether an error of callShim means that no shim listens on the socket any more.
func noShim(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
