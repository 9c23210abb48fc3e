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
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
)

// sessions runs a test for programs in a cgroup, programs without one, and containers.
func sessions(t *testing.T, test func(*testing.T, kind)) {
	modes(t, func(t *testing.T, b *bench) { test(t, kind{bench: b, name: "exec"}) })
	t.Run("container", func(t *testing.T) { test(t, newContainers(t)) })
}

// shared makes an empty file that the instance can write, and returns its paths for the instance and for the test.
func (k kind) shared(t *testing.T, name string) (inside, outside string) {
	outside = filepath.Join(openDir(t), name)
	inside = outside
	if k.root != "" {
		outside, inside = filepath.Join(k.root, "tmp", name), "/tmp/"+name
	}
	must(t, os.WriteFile(outside, nil, 0o666)) //nolint:gosec // the instance's user writes it
	must(t, os.Chmod(outside, 0o666))          //nolint:gosec // as above
	return inside, outside
}

// onNode returns the pids that the node has for pids of an instance.
func (k kind) onNode(t *testing.T, id driver.ID, pids []int) (found []int) {
	if k.root == "" {
		return pids
	}
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/status")
	must(t, err)
	for _, file := range all {
		cgroup, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		status, _ := os.ReadFile(file)
		_, list, ok := strings.Cut(string(status), "NSpid:")
		if !ok || !strings.Contains(string(cgroup), string(id)) {
			continue // it has ended, or is of another instance
		}
		line, _, _ := strings.Cut(list, "\n")
		numbers := strings.Fields(line)
		inside, _ := strconv.Atoi(numbers[len(numbers)-1])
		if outside, _ := strconv.Atoi(numbers[0]); slices.Contains(pids, inside) {
			found = append(found, outside)
		}
	}
	if len(found) != len(pids) {
		t.Fatalf("of the processes %v of the container, the node has only %v", pids, found)
	}
	return found
}

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
	sessions(t, func(t *testing.T, k kind) {
		task := k.start(k.script("cat /proc/self/cgroup; exec sleep 1000",
			func(s *driver.Spec) { s.Env = map[string]string{"A": "spec", "B": "spec"} }))
		s := driver.Session{Env: map[string]string{"B": "mine"}, Stdin: strings.NewReader("typed\n")}
		code, out, errs := enter(t, task, s, "pwd; id -u; echo $A $B; cat; echo oops >&2; cat /proc/self/cgroup; exit 5")
		k.says(task, ":/")
		want := fmt.Sprintf("%s\n%d\nspec mine\ntyped\n%s", task.Dir(), task.User(), k.logs(task, driver.Stdout))
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
	kinds(t, func(t *testing.T, k kind) {
		task := k.start(k.script("exec sleep 1000"))
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
	})
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
	kinds(t, func(t *testing.T, k kind) { passesAllBytes(t, k.start(k.script("exec sleep 1000"))) })
}

func passesAllBytes(t *testing.T, task *driver.Task) {
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
	sessions(t, func(t *testing.T, k kind) {
		task := k.start(k.script("exec sleep 1000"))
		file, outside := k.shared(t, "pids")
		brood := "trap '' TERM HUP INT; env -i setsid sh -c 'trap \"\" HUP TERM; echo $$ >>" + file +
			"; while :; do sleep 1; done' & sleep 1001 & echo $! >>" + file + "; "
		pids := func() []int {
			defer os.Truncate(outside, 0)
			return k.onNode(t, task.ID(), pidsIn(t, outside, 2))
		}

		until, end := io.Pipe()
		code := make(chan int, 1)
		go func() {
			got, err := task.Enter(t.Context(), driver.Session{Stdin: until, Argv: []string{"sh", "-c", brood + "cat; exit 3"}})
			if err != nil {
				t.Error(err)
			}
			code <- got
		}()
		victims := pids()
		end.Close()
		if got := <-code; got != 3 {
			t.Errorf("code %d, want 3", got)
		}
		goneAll(t, victims)

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		begin := func(ctx context.Context, terminal *driver.Size) {
			go func() {
				_, err := task.Enter(ctx, driver.Session{Terminal: terminal, Argv: []string{"sh", "-c", brood + "sleep 1000"}})
				done <- err
			}()
		}
		begin(ctx, nil)
		victims = pids()
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
	kinds(t, func(t *testing.T, k kind) {
		file, outside := k.shared(t, "pids")
		must(t, k.d.Close())
		id := filepath.Base(filepath.Dir(k.cfg.Dir)) + "-killed"
		k.ids[driver.ID(id)] = true
		args := []string{"helper", "agent", k.cfg.Dir, k.cfg.CgroupParent, id, "exec sleep 1000",
			"trap '' HUP TERM; setsid sleep 1002 & echo $! >>" + file + "; echo $$ >>" + file + "; sleep 1000"}
		if k.root != "" {
			args = append(args, k.root, k.cfg.ContainerInit)
		}
		agent := exec.Command(os.Args[0], args...)
		must(t, agent.Start())
		pids := k.onNode(t, driver.ID(id), pidsIn(t, outside, 2))
		if k.root != "" {
			must(t, os.Remove(filepath.Join(k.root, "proc"))) // which takes the mount away
		}
		must(t, agent.Process.Kill())
		_ = agent.Wait()
		eventually(t, "the session to end", func() bool { return !running(pids[0]) && !running(pids[1]) })
		k.open()
		if tasks := k.adopt(); len(tasks) != 1 || !tasks[0].Alive() {
			t.Errorf("the instance did not go on: %v", tasks)
		}
	})
}
