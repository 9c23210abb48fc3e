package door

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/driver"
)

const (
	// handOverTimeout limits how long a door waits for the other door during a hand-over.
	handOverTimeout = 10 * time.Second
	// descriptorsAtOnce is how many descriptors are sent in one message; the kernel allows 253.
	descriptorsAtOnce = 100
)

// predecessor is the connection to the running door that this process replaces. The old door listens until this process
// serves, so that no connection is lost. If this process fails before it serves, the old door continues.
type predecessor struct{ conn *net.UnixConn }

// takeOver gives the relay the order and the listeners of the running door. If no door runs, it returns nil without an
// error. It returns an error if the running door does not answer or refuses.
func takeOver(dir string, relay *Relay) (*predecessor, error) {
	conn, err := dial(dir)
	if err != nil {
		return nil, nil //nolint:nilerr // no door runs
	}
	p := &predecessor{conn}
	_ = conn.SetDeadline(time.Now().Add(handOverTimeout))
	var r reply
	err = driver.WriteFrame(conn, request{Op: opHandOver})
	if err == nil {
		err = driver.ReadFrame(conn, &r, messageLimit)
	}
	if err == nil && r.Message != "" {
		err = errors.New(r.Message)
	}
	var listeners []*net.TCPListener
	if err == nil {
		listeners, err = receive(conn, r.Listeners)
	}
	if err != nil {
		return nil, fmt.Errorf("take over from the door that is there: %w", errors.Join(err, conn.Close()))
	}
	relay.inherit(listeners)
	if len(r.Order.Services) > 0 {
		relay.Set(r.Order)
	}
	return p, nil
}

// taken makes the old door stop listening. It does nothing on a nil predecessor.
func (p *predecessor) taken() {
	if p != nil {
		_ = driver.WriteFrame(p.conn, request{Op: opTaken}) // the old door may have exited already
		_ = p.conn.Close()
	}
}

func receive(conn *net.UnixConn, n int) (list []*net.TCPListener, err error) {
	defer func() {
		if err != nil {
			for _, l := range list {
				_ = l.Close()
			}
		}
	}()
	for len(list) < n {
		one, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*descriptorsAtOnce))
		got, oobn, _, _, err := conn.ReadMsgUnix(one, oob)
		if err == nil && got == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return list, fmt.Errorf("%d of %d listeners were handed over: %w", len(list), n, err)
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return list, err
		}
		before := len(list)
		for _, m := range messages {
			fds, err := unix.ParseUnixRights(&m)
			if err != nil {
				return list, err
			}
			for _, fd := range fds {
				f := os.NewFile(uintptr(fd), "listener")
				l, err := net.FileListener(f)
				_ = f.Close()
				if tcp, ok := l.(*net.TCPListener); ok {
					list = append(list, tcp)
				} else if err == nil {
					_ = l.Close()
				}
			}
		}
		if len(list) == before {
			return list, errors.New("a message without a listener")
		}
	}
	return list, nil
}

// handOver sends the order and the listeners to the next door. Once the next door confirms that it serves, this door
// stops listening. If no confirmation arrives within handOverTimeout, this door continues to listen. A second hand-over
// at the same time is refused.
func (c *control) handOver(conn *net.UnixConn) {
	c.mu.Lock()
	busy := c.handing
	c.handing = true
	c.mu.Unlock()
	if busy {
		_ = driver.WriteFrame(conn, reply{Message: "another door is taking over already"})
		return
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.handing = false
	}()
	fds := c.relay.descriptors()
	defer func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
	}()
	if driver.WriteFrame(conn, reply{Version: c.version, Order: c.relay.ordered(), Listeners: len(fds)}) != nil {
		return
	}
	for rest := fds; len(rest) > 0; {
		n := min(len(rest), descriptorsAtOnce)
		if _, _, err := conn.WriteMsgUnix([]byte{0}, unix.UnixRights(rest[:n]...), nil); err != nil {
			return
		}
		rest = rest[n:]
	}
	_ = conn.SetReadDeadline(time.Now().Add(handOverTimeout))
	var r request
	if driver.ReadFrame(conn, &r, messageLimit) != nil || r.Op != opTaken {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.handed {
		c.handed = true
		close(c.given)
	}
}

// descriptors returns copies of the descriptors of all listeners. The caller must close the copies.
func (r *Relay) descriptors() (fds []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.services {
		s.mu.Lock()
		l := s.listener
		s.mu.Unlock()
		if l == nil {
			continue
		}
		raw, err := l.SyscallConn()
		if err != nil {
			continue
		}
		_ = raw.Control(func(fd uintptr) { // fails if the listener was closed after the lock was released
			if dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
				fds = append(fds, dup)
			}
		})
	}
	return fds
}

func (r *Relay) idle() bool { return r.open.Load() == 0 }
