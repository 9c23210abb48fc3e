package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// relatives starts and reaps the descendants of this process.
var relatives = &procs.Family{}

// output runs a command and returns everything that the command printed. After the time limit it kills the command and
// returns an error.
func output(cmd *exec.Cmd, limit time.Duration) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := runWithin(cmd, limit)
	return out.String(), err
}

func runWithin(cmd *exec.Cmd, limit time.Duration) error {
	cmd.WaitDelay = 2 * time.Second // don't wait for grandchildren that keep the output open
	if err := relatives.Start(cmd); err != nil {
		return err
	}
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	err := relatives.Wait(cmd)
	if !timer.Stop() {
		return fmt.Errorf("%w after %s: %w", context.DeadlineExceeded, limit, err)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return err
}

func reapUntil(stopped <-chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stopped:
			return
		case <-tick.C:
			relatives.Reap()
		}
	}
}

func environment(p procs.Row) map[string]string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
	env := map[string]string{}
	for _, entry := range strings.Split(string(b), "\x00") {
		if key, value, ok := strings.Cut(entry, "="); ok {
			env[key] = value
		}
	}
	return env
}

// belonging returns the processes whose program, OUTSPAN_DIR or TRY has a path that begins with dir. It skips this
// process.
func belonging(dir string) []int {
	var pids []int
	for pid, p := range procs.Table() {
		if pid == os.Getpid() || p.Zombie {
			continue
		}
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		env := environment(p)
		if strings.HasPrefix(exe, dir) || strings.HasPrefix(env["OUTSPAN_DIR"], dir) || strings.HasPrefix(env["TRY"], dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}
