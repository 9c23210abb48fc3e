package door

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/driver"
)

const (
	// answerWithin is how long a door may take to answer a request. A door that takes longer is killed.
	answerWithin = 10 * time.Second
	openWithin   = 20 * time.Second
)

// Client is an agent's connection to its door. Only one goroutine may use it.
type Client struct {
	dir, binary, version string

	conn      *net.UnixConn
	hasNewest bool  // whether the door has the newest order
	children  []int // pids of doors that this process started and has not reaped
}

// NewClient makes the client of the door in dir. Follow starts doors from the program binary, and replaces a running
// door of another version.
func NewClient(dir, binary, version string) *Client {
	return &Client{dir: dir, binary: binary, version: version}
}

// Follow makes the door carry out an order, and returns the status of the door's services. The parameter news must be
// true if the order differs from that of the last call. If no door runs, Follow starts one, unless the order has no
// services. It blocks for less than a minute.
func (c *Client) Follow(ctx context.Context, o Order, news bool) ([]Status, error) {
	c.reap()
	c.hasNewest = c.hasNewest && !news
	if len(o.Services) == 0 && (c.hasNewest || c.conn == nil && !exists(filepath.Join(c.dir, fileControl))) {
		return nil, nil // a door without services and requests exits by itself
	}
	list, err := c.tell(ctx, o)
	if err != nil {
		c.Close()
		c.hasNewest = false
		return nil, err
	}
	c.hasNewest = true
	if len(o.Services) == 0 {
		c.Close()
	}
	return list, nil
}

func (c *Client) tell(ctx context.Context, o Order) ([]Status, error) {
	if c.conn == nil {
		if err := c.connect(ctx, o); err != nil {
			return nil, err
		}
	}
	if c.conn == nil { // no door runs, and none is needed
		return nil, nil
	}
	r := request{Op: opStatus}
	if !c.hasNewest {
		r = request{Op: opSet, Order: o}
	}
	answer, err := c.call(ctx, r)
	return answer.Status, err
}

// connect connects to the door. If no door runs, or the door has another version, connect starts a new door. But for an
// order without services it never starts one, so c.conn stays nil if no door runs.
func (c *Client) connect(ctx context.Context, o Order) error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	c.hasNewest = false
	conn, err := dial(c.dir)
	if err == nil {
		c.conn = conn
		answer, err := c.call(ctx, request{Op: opStatus})
		if err == nil && answer.Version == c.version || len(o.Services) == 0 {
			return err
		}
		c.Close()
	} else if len(o.Services) == 0 {
		_ = os.Remove(filepath.Join(c.dir, fileControl)) // the socket of a door that died
		return nil
	}
	if err := c.open(ctx); err != nil {
		return err
	}
	c.conn, err = dial(c.dir)
	return err
}

// call sends a request and returns the answer. It kills a door that does not answer within answerWithin. The next call
// of Follow starts another door.
func (c *Client) call(ctx context.Context, r request) (answer reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	conn := c.conn
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err = driver.WriteFrame(conn, r); err == nil {
		err = driver.ReadFrame(conn, &answer, messageLimit)
	}
	switch {
	case err == nil && answer.Message != "":
		return answer, errors.New(answer.Message)
	case errors.Is(err, os.ErrDeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded):
		id, idErr := driver.Listener(conn)
		if idErr == nil {
			idErr = id.Kill()
		}
		return answer,
			fmt.Errorf("the door did not answer within %s and was ended (%w)", answerWithin, errors.Join(err, idErr))
	}
	return answer, err
}

// open starts a door and waits until it serves.
func (c *Client) open(ctx context.Context) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	out, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	pid, err := syscall.ForkExec(c.binary, []string{"outspan", "door", c.dir, c.version}, &syscall.ProcAttr{
		// The agent's environment is not passed on, since it may contain secrets.
		Dir: "/", Env: []string{"GOTRACEBACK=single", "PATH=/usr/bin:/bin"},
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd(), w.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("start the door %s: %w", c.binary, err)
	}
	c.children = append(c.children, pid)
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		said, _ := os.ReadFile(filepath.Join(c.dir, "log"))
		return fmt.Errorf("the door did not open: %w; it said: %.500s", err, said)
	}
	return nil
}

// reap reaps doors that have exited, so that they leave no zombies.
func (c *Client) reap() {
	var left []int
	for _, pid := range c.children {
		if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); got == 0 && err == nil ||
			errors.Is(err, syscall.EINTR) {
			left = append(left, pid)
		}
	}
	c.children = left
}

// Busy returns true if doors that this process started are not reaped yet. The caller must then call Follow again,
// which reaps doors that have exited.
func (c *Client) Busy() bool { return len(c.children) > 0 }

// Close closes the connection to the door, which continues to run.
func (c *Client) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func dial(dir string) (*net.UnixConn, error) {
	path, closer, err := driver.ShortSocket(dir, fileControl)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
}

func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }
