package driver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
)

func wantCode(t *testing.T, err error, code model.Code) {
	t.Helper()
	if !errors.Is(err, &model.Error{Code: code}) {
		t.Fatalf("error = %v, want code %s", err, code)
	}
}

func TestExit(t *testing.T) {
	tests := []struct {
		name, script string
		reason       driver.Reason
		code         int
		signal       syscall.Signal
	}{
		{"clean", "exit 0", driver.ReasonExited, 0, 0},
		{"code", "exit 7", driver.ReasonExited, 7, 0},
		{"signal", "kill -SEGV $$", driver.ReasonSignaled, 139, syscall.SIGSEGV},
		{"kill of its own", "kill -KILL $$", driver.ReasonSignaled, 137, syscall.SIGKILL},
	}
	b := newBench(t)
	for _, tt := range tests {
		before := time.Now()
		task, e := b.run(tt.script)
		if e.Reason != tt.reason || e.Code != tt.code || e.Signal != tt.signal || e.OOMKilled {
			t.Errorf("%s: exit = %+v", tt.name, e)
		}
		if e.StartedAt.Before(before.Add(-time.Second)) || e.EndedAt.Before(e.StartedAt.Add(-time.Second)) ||
			e.EndedAt.After(time.Now().Add(time.Second)) {
			t.Errorf("%s: ran from %v to %v, now is %v", tt.name, e.StartedAt, e.EndedAt, time.Now())
		}
		if task.Alive() {
			t.Errorf("%s: alive after its end", tt.name)
		}
		if e.Failed() != (tt.code != 0) {
			t.Errorf("%s: failed = %v", tt.name, e.Failed())
		}
	}
}

// A program gets its own working directory, user, limits, environment and descriptors.
func TestSurroundings(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		t.Setenv("SECRET_OF_THE_AGENT", "x")
		signal.Ignore(syscall.SIGHUP) // as nohup does; the program must not inherit the ignored signal
		defer signal.Reset(syscall.SIGHUP)
		task, e := b.run(`pwd; id -u; cut -d' ' -f5,6 /proc/$$/stat; grep -E '^(NoNewPrivs|SigIgn|SigBlk|CapEff)' /proc/self/status
			ulimit -n; ulimit -c; umask; cat /proc/self/oom_score_adj; ls /proc/self/fd; env; echo to-stderr >/dev/stderr; echo $$`,
			func(s *driver.Spec) {
				s.Env = map[string]string{"GREETING": "hello world", "OUTSPAN_INSTANCE_ID": "forged"}
				s.Limits.Rlimits = map[string]driver.Rlimit{"nofile": {Soft: 77, Hard: 99}, "core": {}}
			})
		out := b.logs(task, driver.Stdout)
		if e.Code != 0 {
			t.Fatalf("exit = %+v, %s%s", e, out, b.logs(task, driver.Stderr))
		}
		pid := task.Process().PID
		for _, want := range []string{
			b.d.WorkDir(task.ID()) + "\n", fmt.Sprintf("\n%d\n", task.User()), fmt.Sprintf("\n%d ", pid), "NoNewPrivs:\t1",
			"SigIgn:\t0000000000000000",
			"SigBlk:\t0000000000000000", "\n77\n0\n0022\n0\n", "GREETING=hello world",
			"OUTSPAN_INSTANCE_ID=" + string(task.ID()),
			"OUTSPAN_DIR=" + task.Dir(), "\n0\n1\n2\n3\n", // ls itself opens descriptor 3
		} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in:\n%s", want, out)
			}
		}
		if strings.Contains(out, "SECRET_OF_THE_AGENT") {
			t.Error("the agent's environment leaked into the instance")
		}
		if strings.Contains(out, "\n4\n") {
			t.Error("a descriptor of the shim leaked into the program")
		}
		if os.Geteuid() == 0 && !strings.Contains(out, "CapEff:\t0000000000000000") {
			t.Errorf("the program has capabilities:\n%s", out)
		}
		if got := b.logs(task, driver.Stderr); got != "to-stderr\n" {
			t.Errorf("stderr = %q", got)
		}
	})
}

// Shim and program run outside the agent's session, so Ctrl-C in the agent's terminal reaches neither of them. Signals
// to the shim do not end it.
func TestOwnSession(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh("echo ready; exec sleep 1000"))
	sid := func(pid int) int {
		n, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
		return int(n)
	}
	if sid(task.Process().PID) == sid(os.Getpid()) {
		t.Fatal("the program is in the agent's session")
	}
	pgid, err := syscall.Getpgid(task.Process().PID)
	if err != nil || pgid != task.Process().PID {
		t.Fatalf("process group = %d, %v; want its own, %d", pgid, err, task.Process().PID)
	}
	shim := parent(t, task.Process().PID)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE,
		syscall.SIGQUIT, syscall.SIGUSR1} {
		must(t, syscall.Kill(shim, sig))
	}
	must(t, task.Signal(t.Context(), syscall.SIGCONT)) // the shim answers this call after it got the signals
	if !task.Alive() || !running(shim) {
		t.Fatal("a signal to the shim ended it")
	}
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	var state string
	var ppid int
	_, err = fmt.Sscanf(string(b[strings.LastIndexByte(string(b), ')')+2:]), "%s %d", &state, &ppid)
	must(t, err)
	return ppid
}

func TestStartFailed(t *testing.T) {
	b := newBench(t)
	dir := openDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "plain"), []byte("x"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "script"), []byte("#!/no/such/interpreter\n"), 0o755))
	closedDir := filepath.Join(dir, "closed")
	must(t, os.Mkdir(closedDir, 0o000))
	tests := []struct {
		name string
		spec func(*driver.Spec)
		says string
	}{
		{"no such path", func(s *driver.Spec) { s.Command = "/no/such/program" }, "/no/such/program"},
		{"not in PATH", func(s *driver.Spec) { s.Command = "no-such-program" }, "not found in PATH"},
		{"not executable", func(s *driver.Spec) { s.Command = filepath.Join(dir, "plain") }, "permission denied"},
		{"no interpreter", func(s *driver.Spec) { s.Command = filepath.Join(dir, "script") }, "no such file"},
		{"no such directory", func(s *driver.Spec) { s.Dir = "/no/such/dir" }, "working directory"},
		{"closed directory", func(s *driver.Spec) { s.Dir = closedDir }, "working directory"},
		{"lease over", func(s *driver.Spec) { s.LeaseUntil = 1 }, "lease"},
	}
	for _, tt := range tests {
		spec := b.sh("echo ran")
		tt.spec(&spec)
		task, err := b.d.Start(t.Context(), spec)
		wantCode(t, err, driver.CodeStartFailed)
		if task != nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: task %v, error %v; want it to say %q", tt.name, task, err, tt.says)
		}
		b.nothingLeftOf(spec.ID)
	}
}

// nothingLeftOf checks that no files and processes of one instance are left. The driver may be in use.
func (b *bench) nothingLeftOf(id driver.ID) {
	b.t.Helper()
	for _, root := range []string{"state", "work"} {
		if _, err := os.Lstat(filepath.Join(b.cfg.Dir, root, string(id))); !errors.Is(err, os.ErrNotExist) {
			b.t.Errorf("%s of %s is left: %v", root, id, err)
		}
	}
	if pids := processesOf(string(id), map[driver.ID]bool{id: true}); len(pids) > 0 {
		b.t.Errorf("processes of %s are left: %v", id, pids)
	}
}

func TestInvalidSpec(t *testing.T) {
	b := newBench(t)
	for name, change := range map[string]func(*driver.Spec){
		"id with a slash": func(s *driver.Spec) { s.ID = "a/b" },
		"id of dots":      func(s *driver.Spec) { s.ID = ".." },
		"empty id":        func(s *driver.Spec) { s.ID = "" },
		"no command":      func(s *driver.Spec) { s.Command = "" },
		"relative dir":    func(s *driver.Spec) { s.Dir = "x" },
		"zero byte":       func(s *driver.Spec) { s.Args = []string{"a\x00b"} },
		"environment":     func(s *driver.Spec) { s.Env = map[string]string{"A=B": "c"} },
		"tiny memory":     func(s *driver.Spec) { s.Limits.MemoryBytes = 1 << 20 },
		"shares":          func(s *driver.Spec) { s.Limits.CPUShares = 1 },
		"pids":            func(s *driver.Spec) { s.Limits.PidsMax = 2 },
		"rlimit name":     func(s *driver.Spec) { s.Limits.Rlimits = map[string]driver.Rlimit{"files": {}} },
		"rlimit order":    func(s *driver.Spec) { s.Limits.Rlimits = map[string]driver.Rlimit{"nofile": {Soft: 2, Hard: 1}} },
		"signal":          func(s *driver.Spec) { s.Stop.Signal = 99 },
		"grace":           func(s *driver.Spec) { s.Stop.Grace = -1 },
		"log size":        func(s *driver.Spec) { s.Logs.MaxBytes = 10 },
	} {
		spec := b.sh("true")
		change(&spec)
		_, err := b.d.Start(t.Context(), spec)
		if !errors.Is(err, &model.Error{Code: driver.CodeInvalidSpec}) {
			t.Errorf("%s: error = %v, want %s", name, err, driver.CodeInvalidSpec)
		}
	}
}

func TestUsers(t *testing.T) {
	b := newBench(t)
	root := os.Geteuid() == 0
	start := func(name string) (*driver.Task, error) {
		return b.d.Start(t.Context(), b.sh("id -u; id -g; id -G; exec sleep 1000", func(s *driver.Spec) { s.User = name }))
	}
	_, err := start("no-such-user-here")
	wantCode(t, err, driver.CodeUserUnknown)
	for _, name := range []string{"root", "0"} {
		_, err = start(name)
		wantCode(t, err, driver.CodeRootNotAllowed)
	}
	if !root {
		_, err = start("daemon")
		wantCode(t, err, driver.CodeUserNotAllowed)
		task, err := start("")
		must(t, err)
		if task.User() != os.Getuid() {
			t.Fatalf("uid = %d, want our own", task.User())
		}
		return
	}
	nobody, err := user.Lookup("nobody")
	must(t, err)
	for _, name := range []string{"", "nobody", nobody.Uid} {
		task, err := start(name)
		must(t, err)
		b.says(task, nobody.Uid+"\n"+nobody.Gid+"\n")
		st, err := os.Stat(task.Dir())
		must(t, err)
		if uid := st.Sys().(*syscall.Stat_t).Uid; fmt.Sprint(uid) != nobody.Uid || st.Mode().Perm() != 0o700 {
			t.Errorf("working directory has uid %d and mode %v", uid, st.Mode())
		}
	}
	task, err := start("54321") // a number without an account
	must(t, err)
	b.says(task, "54321\n65534\n65534\n")
}

// A spec may name only users that AllowUsers or MinUID allow, or any user but root if neither is set. The default user
// needs no permission.
func TestAllowUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to run an instance as another user")
	}
	for _, tt := range []struct {
		allow []string
		min   int
		user  string
		ok    bool
	}{
		{user: "daemon", ok: true},
		{allow: []string{"bin"}, user: "daemon"},
		{allow: []string{"bin"}, user: "54321"},
		{allow: []string{"bin"}, user: "bin", ok: true},
		{allow: []string{"bin"}, user: "", ok: true},
		{allow: []string{"54321"}, user: "54321", ok: true},
		{min: 1000, user: "daemon"},
		{min: 1000, user: "54321", ok: true},
		{allow: []string{"daemon"}, min: 1000, user: "daemon", ok: true},
		{allow: []string{"daemon"}, min: 1000, user: "54321", ok: true},
	} {
		b := newBench(t, func(c *driver.Config) { c.AllowUsers, c.MinUID = tt.allow, tt.min })
		_, err := b.d.Start(t.Context(), b.sh("exec sleep 1000", func(s *driver.Spec) { s.User = tt.user }))
		if tt.ok && err != nil || !tt.ok && !errors.Is(err, &model.Error{Code: driver.CodeUserNotAllowed}) {
			t.Errorf("allow_users %v, min_uid %d: an instance as %q: %v", tt.allow, tt.min, tt.user, err)
		}
	}
}

func TestAllowRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root")
	}
	b := newBench(t, func(c *driver.Config) { c.AllowRoot = true })
	task, _ := b.run("id -u", func(s *driver.Spec) { s.User = "root" })
	if got := b.logs(task, driver.Stdout); got != "0\n" {
		t.Fatalf("uid = %q", got)
	}
	// Although root is allowed, it is not the default user.
	task, _ = b.run("id -u")
	if got := b.logs(task, driver.Stdout); got == "0\n" {
		t.Fatal("an instance without a user runs as root")
	}
}

func TestStartTwice(t *testing.T) {
	b := newBench(t)
	spec := b.sh("exec sleep 1000")
	task := b.start(spec)
	_, err := b.d.Start(t.Context(), spec)
	wantCode(t, err, driver.CodeStillRunning)
	wantCode(t, task.Remove(), driver.CodeStillRunning)
	if !task.Alive() {
		t.Fatal("the refusals ended it")
	}
}

// A restart on the same node keeps the working directory and continues the logs.
func TestStartAgain(t *testing.T) {
	b := newBench(t)
	spec := b.sh(`echo run $(ls); touch mark; exit 3`)
	first := b.start(spec)
	wait(t, first)
	second := b.start(spec)
	if e := wait(t, second); e.Code != 3 || second.Run() != 2 {
		t.Fatalf("run %d ended with %+v", second.Run(), e)
	}
	if got, want := b.logs(second, driver.Stdout), "run\nrun mark\n"; got != want {
		t.Fatalf("logs = %q, want %q", got, want)
	}
	bad := spec
	bad.Command = "/no/such/program"
	_, err := b.d.Start(t.Context(), bad)
	wantCode(t, err, driver.CodeStartFailed)
	third, _ := b.d.Task(spec.ID)
	if e, ok := third.Exit(); !ok || e.Reason != driver.ReasonStartFailed || third.Run() != 3 {
		t.Fatalf("run %d: exit = %+v, %v", third.Run(), e, ok)
	}
	if got := b.logs(third, driver.Stdout); got != "run\nrun mark\n" {
		t.Fatalf("a failed restart lost the logs: %q", got)
	}
	adopted := b.restart()
	if len(adopted) != 1 || adopted[0].Run() != 3 {
		t.Fatalf("adopted %v", adopted)
	}
	if e := wait(t, b.start(spec)); e.Code != 3 {
		t.Fatalf("fourth run: %+v", e)
	}
}

// The driver's directory may have a path that is longer than the 108 bytes of a unix socket's address.
func TestLongPath(t *testing.T) {
	deep := filepath.Join(openDir(t), strings.Repeat("a-long-name/", 20))
	must(t, os.MkdirAll(deep, 0o711))
	b := newBench(t, func(c *driver.Config) { c.Dir = filepath.Join(deep, "d") })
	task := b.start(b.sh("exec sleep 1000"))
	must(t, task.Signal(t.Context(), syscall.SIGTERM))
	if e := wait(t, task); e.Reason != driver.ReasonSignaled || e.Signal != syscall.SIGTERM {
		t.Fatalf("exit = %+v", e)
	}
}

func TestDriverLocked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := driver.New(b.cfg)
	wantCode(t, err, driver.CodeDriverLocked)
}

func TestStartGivenUp(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.d.Start(ctx, b.sh("exec sleep 1000"))
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error = %v", err)
	}
	// The timeouts are so short that some of them expire while the instance starts.
	for i := range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*3*time.Millisecond)
		spec := b.sh("exec sleep 1000")
		if task, err := b.d.Start(ctx, spec); err != nil {
			wantCode(t, err, driver.CodeStartFailed)
			b.nothingLeftOf(spec.ID)
		} else if !task.Alive() {
			t.Error("started, but not alive")
		}
		cancel()
	}
}

func TestParseSignal(t *testing.T) {
	for _, name := range []string{"SIGUSR1", "usr1", "USR1"} {
		if sig, err := driver.ParseSignal(name); err != nil || sig != syscall.SIGUSR1 {
			t.Errorf("%s = %v, %v", name, sig, err)
		}
	}
	_, err := driver.ParseSignal("SIGNONSENSE")
	wantCode(t, err, driver.CodeInvalidSpec)
}
