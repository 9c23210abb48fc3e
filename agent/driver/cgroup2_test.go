package driver

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// unified returns the directory of a cgroup2 mount, whatever its controllers. Without root or a cgroup2 mount, it skips
// the test.
func unified(t *testing.T) string {
	t.Helper()
	mounts, err := cgroupMounts("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if m.version == 2 && os.Geteuid() == 0 {
			return m.dir
		}
	}
	t.Skip("skipped: needs root and a cgroup2 mount")
	return ""
}

// storm starts a shell in the cgroup g that keeps forking, and waits until g has several processes.
func storm(t *testing.T, g *cgroup) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read go; while :; do ( sleep 0.02 & ); done")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for _, file := range g.joinFiles() {
		if err := os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if pids, err := g.procs(); err == nil && len(pids) > 3 {
			return cmd
		} else if time.Now().After(deadline) {
			t.Fatalf("the storm does not begin: %v, %v", pids, err)
		}
	}
}

func TestKillAllV2(t *testing.T) {
	dir := filepath.Join(unified(t), "outspan-test-"+strconv.Itoa(os.Getpid()))
	for name, kill := range map[string]func(cgroup2, *cgroup) error{"cgroup.kill": cgroup2.killAll,
		"freeze": cgroup2.killFrozen} {
		g := cgroupRef{Version: 2, Dirs: map[string]string{"": dir}}.open()
		if err := g.create(Limits{}); err != nil {
			t.Fatal(err)
		}
		storm(t, g)
		if g.empty() {
			t.Fatalf("%s: empty in a storm", name)
		}
		for deadline := time.Now().Add(10 * time.Second); !g.empty(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not empty after 10 s", name)
			}
			if err := kill(cgroup2(dir), g); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if _, err := g.ctrl.usage(); err != nil {
			t.Errorf("%s: usage: %v", name, err)
		}
		if err := g.remove(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !g.empty() || g.remove() != nil {
			t.Errorf("%s: what is removed must count as empty and removed", name)
		}
	}
}

// On a node with a cgroup2 mount, an instance runs in a v2 cgroup, whatever controllers the mount has.
func TestInstanceV2(t *testing.T) {
	mount := unified(t)
	root, err := os.MkdirTemp("", "driver-v2-") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{Dir: filepath.Join(root, "d")})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	parent := "outspan-test/" + filepath.Base(root)
	if d.host, err = hostV2(mount, parent); err != nil {
		t.Fatal(err)
	}
	var caps Capabilities
	if err := d.host.probe(&caps); err != nil {
		t.Fatal(err)
	}
	if has := lists(mount, "cgroup.controllers", "memory"); caps.MemoryCap != has {
		t.Errorf("memory cap = %v, the mount has the controller = %v", caps.MemoryCap, has)
	}
	task, err := d.Start(t.Context(), Spec{ID: "v2", Command: "/bin/sh", Args: []string{"-c",
		`setsid env -i sh -c 'trap "" TERM; while :; do sleep 0.05; done' & trap '' TERM; echo ready; while :; do sleep 0.05; done`}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := task.OpenLog(t.Context(), Stdout, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	g := task.launch.Cgroup.open()
	if pids, err := g.procs(); err != nil || !slices.Contains(pids, task.Process().PID) ||
		slices.Contains(pids, task.shim.PID) {
		t.Errorf("inside are %v, %v; the program is %d, the shim %d", pids, err, task.Process().PID, task.shim.PID)
	}
	if err := task.Stop(t.Context(), 0, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if e, _ := task.Exit(); e.Reason != ReasonKilledAfterGrace {
		t.Errorf("exit = %+v", e)
	}
	if err := task.Remove(); err != nil {
		t.Error(err)
	}
	d.host.sweep(nil)
	d.host.removeParents(parent)
	if _, err := os.Stat(filepath.Join(mount, parent)); !os.IsNotExist(err) {
		t.Errorf("the parent cgroup is left: %v", err)
	}
}

func TestCgroupMounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	content := strings.Join([]string{
		"24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
		"31 24 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate",
		"35 24 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 master:3 - cgroup cgroup rw,cpu,cpuacct",
		"36 24 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
		"broken line", "",
	}, "\n")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := cgroupMounts(file)
	want := []cgroupMount{
		{dir: "/sys/fs/cgroup/unified", version: 2},
		{dir: "/sys/fs/cgroup/cpu,cpuacct", version: 1, options: []string{"rw", "cpu", "cpuacct"}},
		{dir: "/sys/fs/cgroup/memory", version: 1, options: []string{"rw", "memory"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(cgroupMount{})); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
}

// Two controllers of one mount share a directory, so a process joins that directory once.
func TestSharedMountIsJoinedOnce(t *testing.T) {
	g := cgroupRef{Version: 1, Dirs: map[string]string{"cpu": "/c/x", "cpuacct": "/c/x", "memory": "/m/x"}}.open()
	if diff := cmp.Diff([]string{"/c/x/cgroup.procs", "/m/x/cgroup.procs"}, g.joinFiles()); diff != "" {
		t.Error(diff)
	}
}
