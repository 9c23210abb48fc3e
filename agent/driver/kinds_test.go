package driver_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/driver/oci"
	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/model"
)

// A kind starts scripts as instances of one kind. The conformance tests run for each kind.
type kind struct {
	*bench
	name string
	root string // of the container's files on the node; "" for programs of the node
}

// containerInit builds the static binary for containers once.
var containerInit = sync.OnceValues(func() (string, error) {
	path := initPath()
	cmd := exec.Command("go", "build", "-o", path, "./testdata/containerinit")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &buildError{string(out), err}
	}
	return path, nil
})

// initPath is where containerInit puts the binary. TestMain removes it.
func initPath() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("driver-test-init-%d", os.Getpid()))
}

type buildError struct {
	out string
	err error
}

func (e *buildError) Error() string { return e.err.Error() + ": " + e.out }

// kinds runs a test for programs of the node in a cgroup, and for containers.
func kinds(t *testing.T, test func(*testing.T, kind)) {
	t.Run("exec", func(t *testing.T) {
		b := newBench(t)
		if b.d.Capabilities().CgroupVersion == 0 {
			missing(t, "needs root and cgroups")
		}
		test(t, kind{bench: b, name: "exec"})
	})
	t.Run("container", func(t *testing.T) { test(t, newContainers(t)) })
}

// missing skips the test, or fails it where everything must be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("OUTSPAN_E2E_REQUIRED") == "1" {
		t.Fatal(what)
	}
	t.Skip("skipped: " + what)
}

// newContainers makes a bench with a root file system of busybox.
func newContainers(t *testing.T, change ...func(*driver.Config)) kind {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		missing(t, "needs a static busybox")
	}
	if os.Geteuid() != 0 {
		missing(t, "needs root")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		missing(t, "needs runc")
	}
	initBinary, err := containerInit()
	must(t, err)
	b := newBench(t, append(change, func(c *driver.Config) { c.ContainerInit = initBinary })...)
	if why := b.d.Capabilities().NoContainers; why != "" {
		missing(t, why)
	}
	root := filepath.Join(filepath.Dir(b.cfg.Dir), "root")
	for _, dir := range []string{"bin", "etc", "tmp", "home", "data"} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must(t, os.Chmod(root, 0o755))
	must(t, os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky))
	content, err := os.ReadFile(busybox)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "bin", "busybox"), content, 0o755))
	for _, name := range []string{"sh", "sleep", "cat", "id", "echo", "ls", "kill", "setsid", "env", "grep", "ps",
		"touch", "rm", "pwd", "true", "wc", "head", "dd", "hostname", "mkdir", "mount", "chroot", "ip", "cut", "yes",
		"printf", "df", "seq", "tr", "readlink", "tty", "stty", "nohup"} {
		must(t, os.Symlink("busybox", filepath.Join(root, "bin", name)))
	}
	must(t, os.WriteFile(filepath.Join(root, "etc", "passwd"),
		[]byte("root:x:0:0:root:/root:/bin/sh\napp:x:1001:1002:app:/home:/bin/sh\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(root, "etc", "group"),
		[]byte("root:x:0:\napp:x:1002:\nextra:x:1003:app\n"), 0o644))
	return kind{bench: b, name: "container", root: root}
}

// script returns a spec that runs a shell script, in the directory /tmp of a container.
func (k kind) script(script string, change ...func(*driver.Spec)) driver.Spec {
	return k.sh(script, append([]func(*driver.Spec){k.contain}, change...)...)
}

func (k kind) contain(s *driver.Spec) {
	if k.root != "" {
		s.Dir = "/tmp"
		s.Container = &driver.Container{Image: "busybox", Rootfs: []oci.Mount{{Source: k.root}}}
	}
}

// file returns the node's path of a file in the working directory.
func (k kind) file(task *driver.Task, name string) string {
	if k.root != "" {
		return filepath.Join(k.root, "tmp", name)
	}
	return filepath.Join(task.Dir(), name)
}

func seccompProfile(caps []string) ([]byte, error) { return image.Seccomp(caps) }

func errCode(code model.Code) error { return &model.Error{Code: code} }
