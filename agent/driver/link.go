package driver

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/driver/inside"
)

// link is the owner's end of the socket to a process of package inside.
type link struct {
	file  *os.File
	ready chan readiness          // receives once
	ended chan syscall.WaitStatus // receives at most once, and is closed when the other end is closed
}

// readiness says how the start of the program went.
type readiness struct {
	err      error    // nil if the program was executed
	terminal *os.File // of a session with a terminal
}

// newLink makes both ends. The caller passes the other end on as descriptor inside.FD, and closes its own copy.
func newLink() (*link, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the link to the container: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that close interrupts a read
		return nil, nil, err
	}
	l := &link{file: os.NewFile(uintptr(fds[0]), "link"), ready: make(chan readiness, 1),
		ended: make(chan syscall.WaitStatus, 1)}
	return l, os.NewFile(uintptr(fds[1]), "link"), nil
}

// send sends the plan, after which the other side executes the program, and begins to read the answers.
func (l *link) send(p inside.Plan) error {
	body, err := cbor.Marshal(p)
	if err != nil {
		return err
	}
	if len(body) > inside.Limit {
		return fmt.Errorf("arguments and environment have %d bytes, more than %d", len(body), inside.Limit)
	}
	if _, err := l.file.Write(body); err != nil {
		return fmt.Errorf("send the plan to the container's init: %w", err)
	}
	go l.listen()
	return nil
}

// listen reads packets until the other end or this one is closed.
func (l *link) listen() {
	defer close(l.ended)
	defer func() {
		l.answer(readiness{err: errors.New("the container's init died before it could execute the program")})
	}()
	buf := make([]byte, 8<<10)
	for {
		n, terminal, err := l.receive(buf)
		if err != nil || n == 0 {
			return
		}
		switch text := string(buf[1:n]); buf[0] {
		case inside.Ready:
			l.answer(readiness{terminal: terminal})
		case inside.Failed:
			l.answer(readiness{err: errors.New(text)})
		case inside.Ended:
			if status, err := strconv.ParseUint(text, 10, 32); err == nil {
				select {
				case l.ended <- syscall.WaitStatus(status):
				default:
				}
			}
		}
	}
}

// receive reads a packet. It returns the descriptor that came with the packet Ready, or nil.
func (l *link) receive(buf []byte) (n int, terminal *os.File, err error) {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	oob := make([]byte, unix.CmsgSpace(4))
	var oobn int
	readErr := raw.Read(func(fd uintptr) bool {
		n, oobn, _, _, err = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if readErr != nil || err != nil {
		return 0, nil, errors.Join(readErr, err)
	}
	messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m) // it has none if the message is of another kind
		for _, fd := range fds {
			if terminal == nil && n > 0 && buf[0] == inside.Ready && unix.SetNonblock(fd, true) == nil {
				terminal = os.NewFile(uintptr(fd), "terminal")
			} else {
				_ = unix.Close(fd)
			}
		}
	}
	return n, terminal, nil
}

// answer sets what await returns, unless it is set already.
func (l *link) answer(r readiness) {
	select {
	case l.ready <- r:
	default:
		if r.terminal != nil {
			r.terminal.Close()
		}
	}
}

// await returns nil once the program was executed.
func (l *link) await(timeout time.Duration) error {
	_, err := l.awaitTerminal(timeout)
	return err
}

// awaitTerminal is await for a session with a terminal, which it returns. It returns nil if none came.
func (l *link) awaitTerminal(timeout time.Duration) (*os.File, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-l.ready:
		return r.terminal, r.err
	case <-timer.C:
		return nil, fmt.Errorf("the container's init took longer than %v", timeout)
	}
}

// status returns how the program ended, once the other side has ended, or otherwise if it said nothing about it.
func (l *link) status(otherwise syscall.WaitStatus) syscall.WaitStatus {
	if ws, said := <-l.ended; said {
		return ws
	}
	return otherwise
}

func (l *link) close() { l.file.Close() }
