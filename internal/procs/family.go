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

// Family knows which children this process has started itself: whoever waits for them gets their exit status. All other
// children came here when their own parent died, and are reaped here as init would. The zero value is ready. It is safe
// for concurrent use.
type Family struct {
	mu      sync.Mutex
	started map[int]bool
}

// Start starts a command that Reap leaves alone until Wait. Errors: those of exec.Cmd.
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

// Wait blocks until a command that Start has started ends. Errors: those of exec.Cmd.
func (f *Family) Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.started, cmd.Process.Pid)
	return err
}

// Reap reaps the children that have ended and that this process has not started. It does not block.
func (f *Family) Reap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for pid, p := range Table() {
		if p.Parent == os.Getpid() && p.Zombie && !f.started[pid] {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // it is there still: nobody else waits for it
		}
	}
}

// End kills everything below this process, whoever started it. It blocks until nothing is left. After 20 s it returns
// an error.
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
