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

// Family knows which children this process has started itself. Whoever waits for those gets their exit status. All
// other children were handed to this process when their own parent died; Reap reaps them, as init would. The zero value
// is ready. It is safe for concurrent use.
type Family struct {
	mu      sync.Mutex
	started map[int]bool
}

// Start starts a command. Reap leaves its process alone until Wait returns. Errors: those of exec.Cmd.
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

// Wait blocks until a command exits that Start has started. Errors: those of exec.Cmd.
func (f *Family) Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.started, cmd.Process.Pid)
	return err
}

// Reap reaps the children that have exited and that Start has not started. It does not block.
func (f *Family) Reap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for pid, p := range Table() {
		if p.Parent == os.Getpid() && p.Zombie && !f.started[pid] {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // still a zombie, because nobody else waits for it
		}
	}
}

// End kills all descendants of this process, whoever started them. It blocks until none is left, and returns an error
// after 20 s.
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
