package driver_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/driver/oci"
)

// TestMain runs the hidden subcommands, since the driver starts the test binary as its own binary. With `helper`, the
// binary is one of the programs that tests start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(driver.ShimMain(os.Args[2:]))
		case "shim-init":
			os.Exit(driver.InitMain(os.Args[2:]))
		case "shim-enter":
			os.Exit(driver.EnterMain(os.Args[2:]))
		case "helper":
			os.Exit(helper(os.Args[2:]))
		}
	}
	cleanUp := goleak.Cleanup(func(code int) {
		_ = os.Remove(initPath()) // only tests of containers make it
		os.Exit(code)
	})
	goleak.VerifyTestMain(m, cleanUp) // also fails if a closed driver has left a goroutine
}

// helper is a program that instances and tests run. args[0] says what it does.
func helper(args []string) int {
	switch args[0] {
	case "sweep-with-few":
		return sweepWithFew(args[1])
	case "ignore-term":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		select {}
	case "grow": // allocates 4 GiB in steps of 1 MiB
		var hold [][]byte
		for range 4096 {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			hold = append(hold, b)
		}
		fmt.Println("held", len(hold))
		return 0
	case "agent":
		return killedAgent(args)
	}
	fmt.Fprintln(os.Stderr, "unknown helper", args)
	return 2
}

// killedAgent is an agent that the test kills. The arguments are DIR CGROUP_PARENT ID SCRIPT SESSION [ROOT INIT]. If
// SESSION is not empty, it is a script that runs beside the program.
func killedAgent(args []string) int {
	cfg := driver.Config{Dir: args[1], CgroupParent: args[2]}
	spec := driver.Spec{ID: driver.ID(args[3]), Command: "/bin/sh", Args: []string{"-c", args[4]}}
	if len(args) > 6 {
		cfg.ContainerInit = args[7]
		spec.Container = &driver.Container{Rootfs: []oci.Mount{{Source: args[6]}}}
	}
	d, err := driver.New(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("starting")
	task, err := d.Start(context.Background(), spec)
	if err == nil {
		fmt.Println("started")
		if args[5] == "" {
			select {}
		}
		_, err = task.Enter(context.Background(), driver.Session{Argv: []string{"sh", "-c", args[5]}})
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

const patience = 10 * time.Second // far longer than any condition needs

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openDir returns a directory that other users may enter, unlike t.TempDir.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "driver-test-") //nolint:usetesting // t.TempDir is closed to other users
	must(t, err)
	must(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// bench is an open driver with a directory of its own. At the end of the test, finish checks that nothing is left.
type bench struct {
	t   *testing.T
	cfg driver.Config
	d   *driver.Driver
	ids map[driver.ID]bool
}

// newBench makes a bench. Each function in change may alter the driver's configuration. By default, the driver uses
// cgroups if this process may create them.
func newBench(t *testing.T, change ...func(*driver.Config)) *bench {
	t.Helper()
	dir := openDir(t)
	b := &bench{t: t, cfg: driver.Config{Dir: filepath.Join(dir, "d"), CgroupParent: "outspan-test/" + filepath.Base(dir)},
		ids: make(map[driver.ID]bool)}
	for _, c := range change {
		c(&b.cfg)
	}
	b.open()
	t.Cleanup(b.finish)
	return b
}

func noCgroups(c *driver.Config) { c.CgroupParent = "" }

func (b *bench) open() {
	b.t.Helper()
	d, err := driver.New(b.cfg)
	must(b.t, err)
	b.d = d
}

// restart closes the driver and makes another one, as when an agent restarts. It returns the adopted tasks.
func (b *bench) restart() []*driver.Task {
	b.t.Helper()
	must(b.t, b.d.Close())
	b.open()
	return b.adopt()
}

func (b *bench) adopt() []*driver.Task {
	b.t.Helper()
	tasks, _, err := b.d.Adopt(b.t.Context())
	must(b.t, err)
	for _, task := range tasks {
		b.ids[task.ID()] = true
	}
	return tasks
}

// sh returns a spec that runs a shell script. Its id is unique among all tests.
func (b *bench) sh(script string, change ...func(*driver.Spec)) driver.Spec {
	s := driver.Spec{ID: driver.ID(fmt.Sprintf("%s-%d", filepath.Base(filepath.Dir(b.cfg.Dir)), len(b.ids))),
		Command: "/bin/sh", Args: []string{"-c", script}}
	b.ids[s.ID] = true
	for _, c := range change {
		c(&s)
	}
	return s
}

func (b *bench) start(s driver.Spec) *driver.Task {
	b.t.Helper()
	b.ids[s.ID] = true
	task, err := b.d.Start(b.t.Context(), s)
	must(b.t, err)
	return task
}

// run starts a script and waits until the instance has ended.
func (b *bench) run(script string, change ...func(*driver.Spec)) (*driver.Task, driver.Exit) {
	b.t.Helper()
	task := b.start(b.sh(script, change...))
	return task, wait(b.t, task)
}

func wait(t *testing.T, task *driver.Task) driver.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e, err := task.Wait(ctx)
	if err != nil {
		t.Fatalf("instance %s did not end: %v", task.ID(), err)
	}
	return e
}

func (b *bench) logs(task *driver.Task, s driver.Stream) string {
	b.t.Helper()
	r, err := task.OpenLog(b.t.Context(), s, 0, false)
	must(b.t, err)
	defer r.Close()
	var out strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		out.Write(buf[:n])
		if err != nil {
			return out.String()
		}
	}
}

// says waits until the program has written text to its stdout.
func (b *bench) says(task *driver.Task, text string) {
	b.t.Helper()
	eventually(b.t, "stdout to contain "+strconv.Quote(text), func() bool {
		return strings.Contains(b.logs(task, driver.Stdout), text)
	})
}

// finish stops and removes everything, then checks that nothing is left.
func (b *bench) finish() {
	for id := range b.ids {
		task, ok := b.d.Task(id)
		if !ok {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := task.Stop(ctx, 0, 0); err != nil {
			b.t.Errorf("stop %s: %v", id, err)
		}
		cancel()
		if err := task.Remove(); err != nil {
			b.t.Errorf("remove %s: %v", id, err)
		}
	}
	if err := b.d.Close(); err != nil {
		b.t.Error(err)
	}
	b.nothingLeft()
}

// nothingLeft checks that no processes, files or cgroups are left. It asks the kernel and the disk, not the driver. It
// waits for shims, because an adopted shim may still run for a moment after it has recorded its program's exit.
func (b *bench) nothingLeft() {
	b.t.Helper()
	isShim := func(pid int) bool {
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return strings.Contains(string(cmd), "\x00shim\x00")
	}
	eventually(b.t, "the shims to end", func() bool { return !slices.ContainsFunc(processesOf(b.cfg.Dir, b.ids), isShim) })
	for _, pid := range processesOf(b.cfg.Dir, b.ids) {
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		b.t.Errorf("process %d is left: %q", pid, cmd)
	}
	for _, dir := range []string{"state", "work"} {
		entries, err := os.ReadDir(filepath.Join(b.cfg.Dir, dir))
		if err != nil {
			b.t.Error(err)
		}
		for _, e := range entries {
			b.t.Errorf("%s/%s is left", dir, e.Name())
		}
	}
	if b.cfg.CgroupParent == "" {
		return
	}
	left, _ := filepath.Glob("/sys/fs/cgroup/*/" + b.cfg.CgroupParent)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(b.t, err)
	if strings.Contains(string(mounts), b.cfg.Dir) {
		b.t.Errorf("a mount is left:\n%s", mounts)
	}
	left2, _ := filepath.Glob("/sys/fs/cgroup/" + b.cfg.CgroupParent)
	for _, dir := range append(left, left2...) {
		b.t.Errorf("cgroup %s is left", dir)
	}
}

// processesOf returns the pids of running processes that name dir on their command line, as shims do, or one of the ids
// in their environment.
func processesOf(dir string, ids map[driver.ID]bool) []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !running(pid) {
			continue
		}
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		mine := strings.Contains(string(cmd), dir)
		for _, v := range strings.Split(string(env), "\x00") {
			id, ok := strings.CutPrefix(v, "OUTSPAN_INSTANCE_ID=")
			mine = mine || ok && ids[driver.ID(id)]
		}
		if mine {
			found = append(found, pid)
		}
	}
	return found
}

// running reports whether a process exists and is not a zombie.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := string(b[strings.LastIndexByte(string(b), ')')+2:])
	return rest[0] != 'Z' && rest[0] != 'X'
}

// pidsIn waits until a script has written at least n process ids to the file, and returns them.
func pidsIn(t *testing.T, path string, n int) []int {
	t.Helper()
	var pids []int
	eventually(t, fmt.Sprintf("%d process ids in %s", n, path), func() bool {
		b, _ := os.ReadFile(path)
		pids = nil
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
		return len(pids) >= n && strings.HasSuffix(string(b), "\n")
	})
	return pids
}

func goneAll(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if running(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

// modes runs a test twice: with cgroups, if this process may use them, and without.
func modes(t *testing.T, test func(*testing.T, *bench)) {
	t.Run("cgroup", func(t *testing.T) {
		b := newBench(t)
		if b.d.Capabilities().CgroupVersion == 0 {
			t.Skipf("skipped: needs root and cgroups: %v", b.d.Capabilities().Notes)
		}
		test(t, b)
	})
	t.Run("subreaper", func(t *testing.T) { test(t, newBench(t, noCgroups)) })
}
