package driver_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
)

// enter runs a script in an instance and returns what it prints.
func enter(t *testing.T, task *driver.Task, s driver.Session, script string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	s.Argv, s.Stdout, s.Stderr = []string{"sh", "-c", script}, &stdout, &stderr
	code, err := task.Enter(t.Context(), s)
	must(t, err)
	return code, stdout.String(), stderr.String()
}

// A command has the user, directory, environment and cgroup of the instance, and its three streams stay apart.
func TestEnter(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		task := b.start(b.sh("cat /proc/self/cgroup; exec sleep 1000",
			func(s *driver.Spec) { s.Env = map[string]string{"A": "spec", "B": "spec"} }))
		s := driver.Session{Env: map[string]string{"B": "mine"}, Stdin: strings.NewReader("typed\n")}
		code, out, errs := enter(t, task, s, "pwd; id -u; echo $A $B; cat; echo oops >&2; cat /proc/self/cgroup; exit 5")
		b.says(task, ":/")
		want := fmt.Sprintf("%s\n%d\nspec mine\ntyped\n%s", task.Dir(), task.User(), b.logs(task, driver.Stdout))
		if code != 5 || out != want || errs != "oops\n" {
			t.Errorf("code %d, stdout %q, want %q, stderr %q", code, out, want, errs)
		}
		if code, _, _ := enter(t, task, driver.Session{}, "kill -TERM $$"); code != 143 {
			t.Errorf("killed: %d", code)
		}
		if code, out, _ := enter(t, task, driver.Session{}, "cat; tty"); code != 1 || out != "not a tty\n" {
			t.Errorf("without input: %d, %q", code, out)
		}
		_, err := task.Enter(t.Context(), driver.Session{Argv: []string{"/no/such/program"}})
		wantCode(t, err, driver.CodeStartFailed)
	})
}

// A command on a terminal sees its size and each change of it, and Ctrl-C reaches it as a signal.
func TestEnterTerminal(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh("exec sleep 1000"))
	in, keys := io.Pipe()
	sizes := make(chan driver.Size)
	out := new(screen)
	code := make(chan int, 1)
	go func() {
		got, err := task.Enter(t.Context(), driver.Session{Terminal: &driver.Size{Rows: 30, Columns: 99}, Resize: sizes,
			Argv: []string{"sh", "-c", "tty >/dev/null && stty size; trap 'stty size' WINCH; trap 'echo int; exit 7' INT; " +
				"echo ready </dev/tty; while :; do sleep 0.05; done"}, Stdin: in, Stdout: out})
		if err != nil {
			t.Error(err)
		}
		code <- got
	}()
	eventually(t, "the first size", func() bool { return strings.Contains(out.String(), "30 99\r\nready") })
	sizes <- driver.Size{Rows: 12, Columns: 34}
	eventually(t, "the next size", func() bool { return strings.Contains(out.String(), "12 34\r\n") })
	_, _ = keys.Write([]byte{3})
	eventually(t, "the signal", func() bool { return strings.Contains(out.String(), "int\r\n") })
	if got := <-code; got != 7 {
		t.Errorf("code %d, want 7", got)
	}
	keys.Close()
	// The end of the input ends a shell, as Ctrl-D does.
	s := driver.Session{Terminal: &driver.Size{}, Stdin: strings.NewReader("typed\n"), Stdout: out}
	s.Argv = []string{"sh", "-c", "cat; exit 4"}
	if got, err := task.Enter(t.Context(), s); err != nil || got != 4 {
		t.Errorf("at the end of the input: %d, %v", got, err)
	}
}

// screen collects output. Safe for concurrent use.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// All bytes arrive in both directions, in order, also if the command ends while much of its output is not read yet.
func TestEnterPassesAllBytes(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh("exec sleep 1000"))
	const size = 64 << 20
	sent, got := sha256.New(), sha256.New()
	n, err := task.Enter(t.Context(), driver.Session{Argv: []string{"cat"}, Stdout: got,
		Stdin: io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sent)})
	if err != nil || n != 0 || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d, %v: what came back differs", n, err)
	}
	slow := new(slowReader)
	if _, err := task.Enter(t.Context(), driver.Session{Argv: []string{"head", "-c", "40000", "/dev/zero"},
		Stdout: slow}); err != nil || slow.n != 40000 {
		t.Errorf("a slow reader got %d bytes of 40000: %v", slow.n, err)
	}
}

type slowReader struct{ n int }

func (s *slowReader) Write(p []byte) (int, error) {
	time.Sleep(1500 * time.Millisecond) // longer than outliveTime
	s.n += len(p)
	return len(p), nil
}

// Whatever ends a session, nothing of it stays, even processes that left its process group, session and environment.
func TestEnterLeavesNothing(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		task := b.start(b.sh("exec sleep 1000"))
		file := filepath.Join(openDir(t), "pids")
		must(t, os.WriteFile(file, nil, 0o666)) //nolint:gosec // the instance's user writes it
		must(t, os.Chmod(file, 0o666))          //nolint:gosec // as above
		brood := "trap '' TERM HUP INT; env -i setsid sh -c 'trap \"\" HUP TERM; echo $$ >>" + file +
			"; while :; do sleep 1; done' & sleep 1001 & echo $! >>" + file + "; "
		pids := func() []int {
			defer os.Truncate(file, 0)
			return pidsIn(t, file, 2)
		}

		code, _, _ := enter(t, task, driver.Session{},
			brood+"while [ $(wc -l <"+file+") -lt 2 ]; do sleep 0.01; done; exit 3")
		if code != 3 {
			t.Errorf("code %d, want 3", code)
		}
		goneAll(t, pids())

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		begin := func(ctx context.Context, terminal *driver.Size) {
			go func() {
				_, err := task.Enter(ctx, driver.Session{Terminal: terminal, Argv: []string{"sh", "-c", brood + "sleep 1000"}})
				done <- err
			}()
		}
		begin(ctx, nil)
		victims := pids()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		goneAll(t, victims)

		begin(t.Context(), &driver.Size{})
		victims = pids()
		stop(t, task, 0, 0)
		wantCode(t, <-done, driver.CodeNotRunning)
		goneAll(t, victims)
		_, err := task.Enter(t.Context(), driver.Session{Argv: []string{"true"}})
		wantCode(t, err, driver.CodeNotRunning)
	})
}

// An agent that is killed takes its sessions along, and its instances go on.
func TestEnterEndsWithTheAgent(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(openDir(t), "pids")
	must(t, os.WriteFile(file, nil, 0o666)) //nolint:gosec // the instance's user writes it
	must(t, os.Chmod(file, 0o666))          //nolint:gosec // as above
	must(t, b.d.Close())
	id := filepath.Base(filepath.Dir(b.cfg.Dir)) + "-killed"
	b.ids[driver.ID(id)] = true
	agent := exec.Command(os.Args[0], "helper", "enter", b.cfg.Dir, b.cfg.CgroupParent, id, "exec sleep 1000",
		"trap '' HUP TERM; setsid sleep 1002 & echo $! >>"+file+"; echo $$ >>"+file+"; sleep 1000")
	must(t, agent.Start())
	pids := pidsIn(t, file, 2)
	must(t, agent.Process.Kill())
	_ = agent.Wait()
	eventually(t, "the session to end", func() bool { return !running(pids[0]) && !running(pids[1]) })
	b.open()
	if tasks := b.adopt(); len(tasks) != 1 || !tasks[0].Alive() {
		t.Errorf("the instance did not go on: %v", tasks)
	}
}
