package door

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
)

// op is the kind of a request to a door. Doors outlive agents, so numbers of kinds and fields of messages are only
// added, never changed.
type op int

const (
	opStatus   op = 1 // answered with version and status
	opSet      op = 2 // carries an Order; answered like opStatus
	opHandOver op = 3 // sent by the next door; answered with the order and the listeners
	opTaken    op = 4 // sent by the next door once it serves, so that the old door stops listening
)

type request struct {
	Op    op    `cbor:"1,keyasint"`
	Order Order `cbor:"2,keyasint"`
}

type reply struct {
	Message   string   `cbor:"1,keyasint"` // why the request failed; "" if it succeeded
	Version   string   `cbor:"2,keyasint"`
	Status    []Status `cbor:"3,keyasint"`
	Order     Order    `cbor:"4,keyasint"` // for opHandOver
	Listeners int      `cbor:"5,keyasint"` // for opHandOver: how many listeners follow as descriptors
}

// messageLimit bounds one message, in bytes. It is enough for about 100,000 backends.
const messageLimit = 16 << 20

// control is the server of a door's control socket.
type control struct {
	dir      string
	version  string
	relay    *Relay
	listener *net.UnixListener
	socket   os.FileInfo
	given    chan struct{} // closed when the next door has confirmed that it serves
	wg       sync.WaitGroup

	mu      sync.Mutex
	last    time.Time // when the last request arrived, or the socket was made
	handing bool      // whether the next door is taking over
	handed  bool      // whether the next door has confirmed that it serves
}

// listenControl makes the socket under a name of its own and renames it to fileControl. With the rename this process
// becomes the door of the directory.
func listenControl(dir, version string, relay *Relay) (*control, error) {
	name := fmt.Sprintf("%s.%d", fileControl, os.Getpid())
	path, closer, err := driver.ShortSocket(dir, name)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	_ = os.Remove(path) // an earlier process with this pid may have left it
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on the control socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // because the name may belong to another door when this one exits
	c := &control{dir: dir, version: version, relay: relay, listener: l, given: make(chan struct{}), last: time.Now()}
	own := filepath.Join(dir, name)
	if c.socket, err = os.Stat(own); err == nil {
		err = os.Rename(own, filepath.Join(dir, fileControl))
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return c, nil
}

func (c *control) heard() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *control) accept(ctx context.Context) {
	slots := make(chan struct{}, 8)
	for {
		conn, err := c.listener.AcceptUnix()
		if err != nil {
			// Other errors may be temporary, for example if the process is out of descriptors.
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) || !pause(ctx, 50*time.Millisecond, nil) {
				return
			}
			continue
		}
		select {
		case slots <- struct{}{}:
			c.wg.Go(func() {
				defer func() { _ = conn.Close(); <-slots }()
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				if driver.PeerAllowed(conn) {
					c.serve(conn)
				}
			})
		default:
			_ = conn.Close()
		}
	}
}

// serve answers the requests of one connection in order until the peer closes the connection. A hand-over is the last
// request of its connection.
func (c *control) serve(conn *net.UnixConn) {
	for {
		var r request
		if driver.ReadFrame(conn, &r, messageLimit) != nil {
			return
		}
		c.mu.Lock()
		c.last = time.Now()
		handed := c.handed
		c.mu.Unlock()
		answer := reply{Version: c.version}
		switch {
		case handed:
			answer.Message = "another door has taken over"
		case r.Op == opHandOver:
			c.handOver(conn)
			return
		case r.Op == opSet:
			if answer.Message = r.Order.flaw(); answer.Message == "" {
				c.relay.Set(r.Order)
			}
		case r.Op != opStatus:
			answer.Message = fmt.Sprintf("this door does not know request %d", r.Op)
		}
		answer.Status = c.relay.Status()
		if driver.WriteFrame(conn, answer) != nil {
			return
		}
	}
}

// flaw returns why an order can't be carried out, or "" if it can.
func (o Order) flaw() string {
	names, ports := map[model.ServiceName]bool{}, map[int]bool{}
	for _, s := range o.Services {
		switch {
		case s.Expose < 1 || s.Expose > 65535:
			return fmt.Sprintf("port %d of service %q can't be listened on", s.Expose, s.Name)
		case names[s.Name]:
			return fmt.Sprintf("service %q is there twice", s.Name)
		case ports[s.Expose]:
			return fmt.Sprintf("port %d is there twice", s.Expose)
		}
		names[s.Name], ports[s.Expose] = true, true
	}
	if net.ParseIP(o.Address) == nil && len(o.Services) > 0 {
		return fmt.Sprintf("%q is no address to listen at", o.Address)
	}
	return ""
}
