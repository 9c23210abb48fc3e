package driver_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/driver/oci"
	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/internal/testbed/ctrd"
)

// busyboxImage is an image of the files below root.
func busyboxImage(t *testing.T, root string) ctrd.Image {
	t.Helper()
	var files []ctrd.File
	must(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		if err != nil || name == "." {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		f := ctrd.File{Name: name, Mode: int64(st.Mode().Perm())}
		switch {
		case e.IsDir():
			f.Name += "/"
		case e.Type()&os.ModeSymlink != 0:
			f.Link, err = os.Readlink(path)
		default:
			f.Body, err = os.ReadFile(path)
		}
		if name == "tmp" {
			f.Mode = 0o1777
		}
		files = append(files, f)
		return err
	}))
	i, err := ctrd.NewImage(files, ctrd.Config{Cmd: []string{"/bin/sh"}})
	must(t, err)
	return i
}

// A container from an image of containerd runs on while containerd is killed and started again: its logs, commands,
// adoption, stop and exit need no containerd. In the end nothing is left in containerd either.
func TestContainerdKilled(t *testing.T) {
	if _, err := exec.LookPath("containerd"); err != nil {
		missing(t, "needs containerd")
	}
	k := newContainers(t, func(c *driver.Config) { c.Seccomp = seccompProfile })
	dir, err := os.MkdirTemp("", "ctrd-") //nolint:usetesting // a socket's path must be short
	must(t, err)
	daemon, err := ctrd.Start(dir)
	must(t, err)
	t.Cleanup(func() {
		_ = daemon.Kill()
		must(t, os.RemoveAll(dir))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	store, err := image.Open(image.Config{Socket: daemon.Socket, Namespace: "outspan-test"})
	must(t, err)
	defer store.Close()
	i := busyboxImage(t, k.root)
	archive, err := i.Archive("example.test/busybox:1")
	must(t, err)
	_, err = store.Import(ctx, bytes.NewReader(archive))
	must(t, err)
	spec := k.script("echo begun; trap 'echo asked; exit 3' TERM; touch written; while :; do sleep 0.01; done")
	mounts, err := store.Mounts(ctx, string(spec.ID), i.Digest)
	must(t, err)
	spec.Container.Rootfs = nil
	for _, m := range mounts {
		spec.Container.Rootfs = append(spec.Container.Rootfs, oci.Mount{Type: m.Type, Source: m.Source, Options: m.Options})
	}
	t.Logf("root: %+v", mounts)
	task := k.start(spec)
	k.says(task, "begun")
	must(t, daemon.Kill())
	var out strings.Builder
	code, err := task.Exec(t.Context(), driver.Command{Argv: []string{"sh", "-c", "ls /tmp"}, Stdout: &out})
	if code != 0 || err != nil || !strings.Contains(out.String(), "written") {
		t.Errorf("command without containerd: %d, %v, %q", code, err, out.String())
	}
	tasks := k.restart()
	if len(tasks) != 1 || !tasks[0].Alive() || tasks[0].Process() != task.Process() {
		t.Fatalf("adopted %v", tasks)
	}
	must(t, daemon.Restart())
	for ctx.Err() == nil {
		if _, err := store.Check(ctx); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !tasks[0].Alive() {
		t.Fatal("the new containerd ended it")
	}
	stop(t, tasks[0], 0, 5*time.Second)
	if e, _ := tasks[0].Exit(); e.Reason != driver.ReasonStopped || e.Code != 3 {
		t.Errorf("exit = %+v", e)
	}
	// Another run has the same layer.
	spec.Args = []string{"-c", "[ -e written ]"}
	if e := wait(t, k.start(spec)); e.Code != 0 {
		t.Errorf("the second run does not see what the first wrote: %+v", e)
	}
	again, _ := k.d.Task(spec.ID)
	must(t, again.Remove())
	must(t, store.Release(ctx, string(spec.ID)))
	_, err = image.Prune(ctx, store, false, func(string) bool { return true })
	must(t, err)
	for _, what := range []string{"snapshots", "leases", "containers", "tasks"} {
		args := []string{"--address", daemon.Socket, "--namespace", "outspan-test", what, "list", "-q"}
		if what == "snapshots" {
			args = args[:len(args)-1]
		}
		left, err := exec.Command("ctr", args...).CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(left)), "\n")
		if what == "snapshots" {
			lines = lines[1:] // the head
		}
		if err != nil || strings.Join(lines, "") != "" {
			t.Errorf("%s are left: %s, %v", what, left, err)
		}
	}
}

// A directory that is mounted belongs to the user of the image. What is in it keeps its owners.
func TestVolumeBelongsToTheUser(t *testing.T) {
	k := newContainers(t)
	dir := filepath.Join(filepath.Dir(k.cfg.Dir), "volume")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "old"), nil, 0o600))
	task := k.start(k.script("touch /data/new", func(s *driver.Spec) {
		s.User = "app"
		s.Binds = []driver.Bind{{Source: dir, Target: "/data"}}
	}))
	if e := wait(t, task); e.Code != 0 {
		t.Fatalf("%+v: %s", e, k.logs(task, driver.Stderr))
	}
	for path, want := range map[string][2]uint32{dir: {1001, 1002}, filepath.Join(dir, "new"): {1001, 1002},
		filepath.Join(dir, "old"): {0, 0}} {
		st, err := os.Stat(path)
		must(t, err)
		if s := st.Sys().(*syscall.Stat_t); [2]uint32{s.Uid, s.Gid} != want {
			t.Errorf("%s belongs to %d:%d, want %v", path, s.Uid, s.Gid, want)
		}
	}
}
