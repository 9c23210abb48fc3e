package driver

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// insider is a command of Task.Enter in a container. Its parent there, see package inside, kills it and all its
// descendants when the link is closed, as it is by the agent's death.
type insider struct {
	step initStep

	mu     sync.Mutex
	reaped bool
}

// enter starts the command in the container, and waits until it runs.
func (b besideContainer) enter(p plan, terminal *Size) (command entered, ours stdio, err error) {
	in := p.insidePlan()
	in.Session, in.Terminal = true, terminal
	var theirs stdio
	if terminal == nil {
		ours, theirs, err = pipes()
	} else { // the terminal is made inside, so that programs there find it in /dev/pts
		theirs.in, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		theirs.out, theirs.err = theirs.in, theirs.in
	}
	if err != nil {
		return nil, stdio{}, err
	}
	defer theirs.close()
	step, err := b.fork(in, p.marks(), theirs.in, theirs.out, theirs.err)
	if err != nil {
		ours.close()
		return nil, stdio{}, err
	}
	c := &insider{step: step}
	master, err := step.link.awaitTerminal(initTimeout)
	if err == nil && terminal != nil {
		if ours.out = master; master == nil {
			err = errors.New("its container was started by an earlier version, which has no terminals; restart it")
		}
	}
	if err != nil {
		ours.close()
		c.kill()
		_, _ = c.wait() // it ends as soon as the command has
		return nil, stdio{}, err
	}
	return c, ours, nil
}

func (c *insider) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped { // another process may have its pid otherwise
		c.step.kill()
	}
}

func (c *insider) wait() (int, error) {
	waitNoReap(c.step.pid)
	how, said := <-c.step.link.ended // the parent inside may outlive the runtime
	c.mu.Lock()
	defer c.mu.Unlock()
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(c.step.pid, &ws, 0, nil) // does not block, because the process has ended
	c.reaped = true
	c.step.link.close()
	if said {
		ws = how
	}
	if ws.Signaled() {
		return 128 + int(ws.Signal()), err
	}
	return ws.ExitStatus(), err
}
