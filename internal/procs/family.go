package procs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Family remembers the children that its method Start has started, so that Reap leaves them to Wait. All other children
// were handed to this process when their own parent died, and Reap reaps them, as init would. The zero value is ready
// to use. Family is safe for concurrent use.
type Family struct {
	mu      sync.Mutex
	started map[int]bool
}

// Start starts a command. Until Wait returns, Reap does not reap the command's process. Errors: those of exec.Cmd.
func (f *Family) Start(cmd *exec.Cmd) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started == nil {
		f.started = map[int]bool{}
	}
	err := cmd.Start()
	if err == nil {
		f.started[cmd.Process.Pid] = true
	}
	return err
}

// Wait blocks until a command exits. Start must have started the command. Errors: those of exec.Cmd.
func (f *Family) Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.started, cmd.Process.Pid)
	return err
}

// Reap reaps all exited children except those that Start has started. It does not block.
func (f *Family) Reap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for pid, p := range Table() {
		if p.Parent == os.Getpid() && p.Zombie && !f.started[pid] {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // still a zombie, because nobody else waits for it
		}
	}
}

// End kills all descendants of this process, whoever started them. It blocks until no descendant is left. After 20 s it
// gives up and returns an error.
func (f *Family) End() error {
	return Until(context.Background(), 20*time.Second, 10*time.Millisecond, func(context.Context) error {
		left := 0
		for pid, p := range Descendants() {
			if !p.Zombie {
				Kill(pid)
				left++
			}
		}
		f.Reap()
		if left > 0 {
			return fmt.Errorf("%d processes are left", left)
		}
		return nil
	})
}
