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
	ready chan error              // receives once: nil when the program was executed
	ended chan syscall.WaitStatus // receives at most once, and is closed when the other end is closed
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
	l := &link{file: os.NewFile(uintptr(fds[0]), "link"), ready: make(chan error, 1),
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
	defer func() { l.answer(errors.New("the container's init died before it could execute the program")) }()
	buf := make([]byte, 8<<10)
	for {
		n, err := l.file.Read(buf)
		if err != nil || n == 0 {
			return
		}
		switch text := string(buf[1:n]); buf[0] {
		case inside.Ready:
			l.answer(nil)
		case inside.Failed:
			l.answer(errors.New(text))
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

// answer sets what await returns, unless it is set already.
func (l *link) answer(err error) {
	select {
	case l.ready <- err:
	default:
	}
}

// await returns nil once the program was executed.
func (l *link) await(timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-l.ready:
		return err
	case <-timer.C:
		return fmt.Errorf("the container's init took longer than %v", timeout)
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
