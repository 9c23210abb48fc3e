package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// socketDir returns a directory with a short path, because socket paths are limited to 107 bytes.
func socketDir(t *testing.T) string {
	//nolint:usetesting // a path of t.TempDir carries the name of the test and can be too long
	dir := must(os.MkdirTemp("", "sock"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func unixClient(t *testing.T, path string) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(socketDir(t), "run", "api.sock")
	l := must(transport.ListenUnix(path, "s1"))(t)
	for p, want := range map[string]os.FileMode{path: os.ModeSocket | 0o600, filepath.Dir(path): os.ModeDir | 0o700} {
		if got := must(os.Lstat(p))(t).Mode(); got != want {
			t.Errorf("%s has mode %s, want %s", p, got, want)
		}
	}
	if l.Addr().String() != path {
		t.Errorf("address is %s", l.Addr())
	}
	stop := background(func(ctx context.Context) error {
		return transport.NewHTTPServer(http.HandlerFunc(whoami), transport.HTTPConfig{}).Run(ctx, l)
	})
	defer stop()
	want := fmt.Sprintf("HTTP/1.1 uid:%d@s1", os.Getuid())
	if got, err := get(t.Context(), unixClient(t, path), "http://outspan/"); err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	_, err := transport.ListenUnix(path, "s1")
	wantCode(t, err, model.CodeAddressInUse, path)
	if err := stop(); err != nil {
		t.Error(err)
	}
	left := must(os.ReadDir(filepath.Dir(path)))(t)
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestUnixPeerCred(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	l := must(transport.ListenUnix(path, "s1"))(t)
	defer l.Close()
	c := must(net.Dial("unix", path))(t)
	defer c.Close()
	got := must(l.Accept())(t).(*transport.UnixConn)
	defer got.Close()
	want := transport.PeerCred{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), PID: int32(os.Getpid())}
	if got.PeerCred() != want {
		t.Errorf("got %+v, want %+v", got.PeerCred(), want)
	}
	if want := fmt.Sprintf("uid:%d@s1", os.Getuid()); got.Subject().String() != want {
		t.Errorf("the subject is %s, want %s", got.Subject(), want)
	}
}

// TestUnixOtherUser: a user other than the server's is refused because of the credentials that the kernel reports, even
// if the mode of the socket lets that user connect.
func TestUnixOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it connects as another user")
	}
	dir := socketDir(t)
	path := filepath.Join(dir, "s")
	l := must(transport.ListenUnix(path, "s1"))(t)
	defer l.Close()
	for p, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} {
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
		close(accepted)
	}()
	if out := connectAs(t, 65534, path); out != "closed" {
		t.Errorf("uid 65534 got %q, want to be turned away", out)
	}
	c := must(net.Dial("unix", path))(t)
	defer c.Close()
	got := (<-accepted).(*transport.UnixConn)
	defer got.Close()
	if got.PeerCred().UID != 0 {
		t.Errorf("let in: %+v", got.PeerCred())
	}
}

func TestUnixStale(t *testing.T) {
	dir := socketDir(t)
	t.Run("left by a dead process", func(t *testing.T) {
		path := filepath.Join(dir, "dead")
		dead := must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
		dead.SetUnlinkOnClose(false)
		dead.Close()
		l := must(transport.ListenUnix(path, "s1"))(t)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(dir, "file")
		writeAll(t, map[string][]byte{path: []byte("precious")})
		_, err := transport.ListenUnix(path, "s1")
		wantCode(t, err, model.CodeListen, path, "not a socket")
		if got := string(readAll(t, path)); got != "precious" {
			t.Errorf("the file now holds %q", got)
		}
	})
	t.Run("replaced meanwhile", func(t *testing.T) {
		path := filepath.Join(dir, "two")
		old := must(transport.ListenUnix(path, "s1"))(t)
		os.Remove(path)
		l := must(transport.ListenUnix(path, "s1"))(t)
		defer l.Close()
		old.Close()
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("closing the old one removed the new one's socket: %v", err)
		}
	})
	t.Run("too long", func(t *testing.T) {
		_, err := transport.ListenUnix(filepath.Join(dir, strings.Repeat("x", 120)), "c1")
		wantCode(t, err, model.CodeListen, "too long")
	})
	t.Run("no such place", func(t *testing.T) {
		_, err := transport.ListenUnix("/proc/none/s", "c1")
		wantCode(t, err, model.CodeFile, "/proc/none")
	})
	if left := must(os.ReadDir(dir))(t); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestConnectHelper runs in the process that connectAs starts. It prints "closed" if the server closes the connection.
func TestConnectHelper(t *testing.T) {
	path := os.Getenv("TEST_SOCKET")
	if path == "" {
		t.Skip("it is only run by TestUnixOtherUser")
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		os.Stdout.WriteString("closed\n")
	} else {
		os.Stdout.WriteString(err.Error() + "\n")
	}
}

// connectAs connects as another user and returns the first line of what TestConnectHelper prints.
func connectAs(t *testing.T, uid uint32, path string) string {
	t.Helper()
	// The test binary is in a directory that only root may enter, so connectAs runs a copy.
	bin := filepath.Join(filepath.Dir(path), "bin")
	if err := os.WriteFile(bin, readAll(t, os.Args[0]), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin, "-test.run=^TestConnectHelper$")
	cmd.Env = append(os.Environ(), "TEST_SOCKET="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.SplitN(string(out), "\n", 2)[0]
}
