package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// relatives are the processes below this one.
var relatives = &family{started: map[int]bool{}}

// family knows which children this process has started itself. Their exit status goes to the code that waits for them.
// All other children came here because their own parent died, and are reaped as init would do.
type family struct {
	mu      sync.Mutex
	started map[int]bool
}

func (f *family) start(cmd *exec.Cmd) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	f.started[cmd.Process.Pid] = true
	return nil
}

func (f *family) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.started, cmd.Process.Pid)
	return err
}

// output runs a command for at most limit, and returns everything that it printed.
func (f *family) output(cmd *exec.Cmd, limit time.Duration) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := f.runWithin(cmd, limit)
	return out.String(), err
}

func (f *family) runWithin(cmd *exec.Cmd, limit time.Duration) error {
	cmd.WaitDelay = 2 * time.Second // don't wait for grandchildren that keep the output open
	if err := f.start(cmd); err != nil {
		return err
	}
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	err := f.wait(cmd)
	if !timer.Stop() {
		return fmt.Errorf("%w after %s: %w", context.DeadlineExceeded, limit, err)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return err
}

func (f *family) reapUntil(stopped <-chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stopped:
			return
		case <-tick.C:
			f.reap()
		}
	}
}

func (f *family) reap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range processes() {
		if p.parent == os.Getpid() && p.zombie && !f.started[p.pid] {
			var status syscall.WaitStatus
			_, _ = syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil)
		}
	}
}

// killAll ends all processes below this one.
func (f *family) killAll() {
	for range 500 {
		left := 0
		for pid, p := range descendants() {
			if !p.zombie {
				left++
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		f.reap()
		if left == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// process is one row of the kernel's process table.
type process struct {
	pid, parent int
	start       string // start time; together with pid it identifies a process forever
	zombie      bool
}

func (p process) String() string { return strconv.Itoa(p.pid) + "@" + p.start }

// args returns the command line, with a zero byte after each argument.
func (p process) args() string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	return string(b)
}

func (p process) environment() map[string]string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	env := map[string]string{}
	for _, entry := range strings.Split(string(b), "\x00") {
		if key, value, ok := strings.Cut(entry, "="); ok {
			env[key] = value
		}
	}
	return env
}

// processes reads the kernel's process table.
func processes() map[int]process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := make(map[int]process, len(entries))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProcess(pid); ok {
				all[pid] = p
			}
		}
	}
	return all
}

// readProcess reads one row; it returns false if the process does not exist any more.
func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return process{}, false
	}
	parent, _ := strconv.Atoi(fields[1])
	return process{pid: pid, parent: parent, start: fields[19], zombie: fields[0] == "Z" || fields[0] == "X"}, true
}

// descendants returns all processes below this one.
func descendants() map[int]process {
	all := processes()
	below := map[int]process{}
	for pid, p := range all {
		for q, ok := p, true; ok && q.pid > 1; q, ok = all[q.parent] {
			if q.parent == os.Getpid() {
				below[pid] = p
				break
			}
		}
	}
	return below
}

// belonging returns the processes that run a program from a directory or have the directory in their environment. This
// process is left out.
func belonging(dir string) []int {
	var pids []int
	for pid, p := range processes() {
		if pid == os.Getpid() || p.zombie {
			continue
		}
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		env := p.environment()
		if strings.HasPrefix(exe, dir) || strings.HasPrefix(env["OUTSPAN_DIR"], dir) || strings.HasPrefix(env["TRY"], dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// usage returns what a process has used so far: CPU time in seconds, and resident memory in bytes.
func (p process) usage() (cpu float64, rss int64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	pages, _ := strconv.ParseInt(fields[21], 10, 64)
	return (user + system) / 100, pages * int64(os.Getpagesize())
}
