package driver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/driver/oci"
)

// A command beside the program has its user, namespaces, cgroup and environment.
func TestKindsCommand(t *testing.T) {
	kinds(t, func(t *testing.T, k kind) {
		task := k.start(k.script("id -u; exec sleep 1000", func(s *driver.Spec) {
			s.Env = map[string]string{"A": "spec", "B": "spec"}
			if k.root != "" {
				s.User = "app"
			}
		}))
		k.says(task, "\n")
		uid := strings.TrimSpace(k.logs(task, driver.Stdout))
		var out, errs strings.Builder
		code, err := task.Exec(t.Context(), driver.Command{
			Argv: []string{"sh", "-c", "pwd; id -u; echo $A $B; for n in mnt pid ipc uts net cgroup; do " +
				"readlink /proc/self/ns/$n; done; grep -E 'NoNewPrivs' /proc/self/status; echo oops >&2; exit 5"},
			Env: map[string]string{"B": "command"}, Stdout: &out, Stderr: &errs,
		})
		want := uid + "\nspec command\n"
		for _, ns := range []string{"mnt", "pid", "ipc", "uts", "net", "cgroup"} {
			link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", task.Process().PID, ns))
			must(t, err)
			want += link + "\n"
		}
		want = task.Dir() + "\n" + want + "NoNewPrivs:\t1\n"
		if err != nil || code != 5 || out.String() != want || errs.String() != "oops\n" {
			t.Errorf("code %d, %v, stdout %q, want %q, stderr %q", code, err, out.String(), want, errs.String())
		}
		if code, err := task.Exec(t.Context(), driver.Command{Argv: []string{"sh", "-c", "kill -TERM $$"}}); err != nil ||
			code != 143 {
			t.Errorf("killed: %d, %v", code, err)
		}
		_, err = task.Exec(t.Context(), driver.Command{Argv: []string{"/no/such/program"}})
		wantCode(t, err, driver.CodeStartFailed)
		if !strings.Contains(err.Error(), "no such file") {
			t.Errorf("it says %v", err)
		}
		// A command that is given up leaves nothing, and is in the cgroup while it runs.
		ctx, cancel := context.WithCancel(t.Context())
		began := filepath.Join(filepath.Dir(k.file(task, "x")), "began")
		ended := make(chan error, 1)
		go func() {
			_, err := task.Exec(ctx, driver.Command{
				Argv: []string{"sh", "-c", "trap '' TERM; touch began; sleep 1000 & sleep 1000"}})
			ended <- err
		}()
		eventually(t, "the command to run", func() bool { _, err := os.Stat(began); return err == nil })
		eventually(t, "the command to be counted", func() bool {
			s, err := task.Stats()
			return err == nil && s.Processes >= 3
		})
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		eventually(t, "only the program to be left", func() bool {
			s, err := task.Stats()
			return err == nil && s.Processes == 1
		})
	})
}

func TestKindsLimits(t *testing.T) {
	kinds(t, func(t *testing.T, k kind) {
		needCgroup(t, k.bench)
		task := k.start(k.script("ulimit -n; dd if=/dev/zero of=/dev/null bs=200M count=1; exit $?", func(s *driver.Spec) {
			s.Limits = driver.Limits{MemoryBytes: 48 << 20, CPUShares: 250,
				Rlimits: map[string]driver.Rlimit{"nofile": {Soft: 77, Hard: 99}}}
		}))
		e := wait(t, task)
		if e.Reason != driver.ReasonOOMKilled || !e.OOMKilled {
			t.Errorf("exit = %+v, %s", e, k.logs(task, driver.Stderr))
		}
		if out := k.logs(task, driver.Stdout); out != "77\n" {
			t.Errorf("nofile = %q", out)
		}
		task = k.start(k.script(`i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; echo all; wait`,
			func(s *driver.Spec) { s.Limits.PidsMax = 20 }))
		eventually(t, "the limit to be met", func() bool {
			return strings.Contains(strings.ToLower(k.logs(task, driver.Stderr)), "fork")
		})
		if strings.Contains(k.logs(task, driver.Stdout), "all") {
			t.Error("all 60 were started")
		}
	})
}

// The smallest limits let a container start, and run a command beside it.
func TestSmallestContainer(t *testing.T) {
	k := newContainers(t)
	task := k.start(k.script("echo fine; exec sleep 1000", func(s *driver.Spec) {
		s.Limits = driver.Limits{MemoryBytes: driver.MinContainerMemory, PidsMax: driver.MinPids}
	}))
	k.says(task, "fine")
	if code, err := task.Exec(t.Context(), driver.Command{Argv: []string{"true"}}); code != 0 || err != nil {
		t.Errorf("command: %d, %v", code, err)
	}
	s, err := task.Stats()
	t.Logf("an idle container uses %+v, %v", s, err)
}

func TestContainerSurroundings(t *testing.T) {
	k := newContainers(t, func(c *driver.Config) { c.Seccomp = seccompProfile })
	data := filepath.Join(filepath.Dir(k.root), "data")
	must(t, os.Mkdir(data, 0o777))
	must(t, os.WriteFile(filepath.Join(data, "file"), []byte("content\n"), 0o644))
	// runc before 1.2 gives a tmpfs the mode of the directory below it.
	must(t, os.Mkdir(filepath.Join(k.root, "scratch"), 0o777))
	must(t, os.Chmod(filepath.Join(k.root, "scratch"), 0o777))
	hosts := filepath.Join(filepath.Dir(k.root), "hosts")
	must(t, os.WriteFile(hosts, []byte("127.0.0.1 me\n"), 0o644))
	const look = `hostname; cat /etc/hosts; id -u; id -g; id -G; echo $HOME; grep -E '^(CapBnd|CapEff|NoNewPrivs|Seccomp):' /proc/self/status
		cat /data/file; touch /data/x 2>/dev/null || echo data is read-only; touch /x 2>/dev/null || echo root is read-only
		touch /scratch/x && echo scratch is writable; df -k /dev/shm | grep -c 8192; mount -t tmpfs x /mnt 2>/dev/null || echo no mount
		ls /proc | grep -c '^[0-9]'; cat /proc/self/oom_score_adj; ls /proc/self/fd`
	for _, tt := range []struct {
		user string
		want []string
	}{
		{"app", []string{"box\n127.0.0.1 me\n1001\n1002\n1002 1003\n/home\n", "CapEff:\t0000000000000400\n",
			"CapBnd:\t00000000000404eb\n"}},
		{"app:extra", []string{"\n1001\n1003\n1003\n"}},
		{"4000:5000", []string{"\n4000\n5000\n"}},
		{"", []string{"\n0\n0\n0\n", "CapEff:\t00000000000404eb\n"}},
	} {
		task := k.start(k.script(look, func(s *driver.Spec) {
			s.User = tt.user
			s.Container.ReadOnly, s.Container.Hostname, s.Container.Hosts = true, "box", hosts
			s.Container.ShmBytes, s.Container.Tmpfs = 8<<20, []oci.Tmpfs{{Target: "/scratch", Bytes: 1 << 20}}
			s.Container.Mounts = []oci.Mount{{Source: data, Target: "/data", Options: []string{"ro"}}}
			s.Container.CapAdd, s.Container.CapDrop = []string{"net_bind_service"}, []string{"CAP_SETFCAP", "FSETID", "setpcap"}
		}))
		wait(t, task)
		out := k.logs(task, driver.Stdout)
		for _, want := range append(tt.want, "NoNewPrivs:\t1\n", "Seccomp:\t2\n",
			"content\ndata is read-only\nroot is read-only\n",
			"scratch is writable\n1\nno mount\n", "\n0\n0\n1\n2\n3\n") {
			if !strings.Contains(out, want) {
				t.Errorf("user %q: no %q in:\n%s%s", tt.user, want, out, k.logs(task, driver.Stderr))
			}
		}
	}
}

// A container in a network namespace of its own sees only that network, and so do commands beside it. Its user may
// listen on any port there.
func TestContainerNetwork(t *testing.T) {
	k := newContainers(t)
	name := fmt.Sprintf("driver-test-%d", os.Getpid())
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip("netns", "add", name)
	t.Cleanup(func() { ip("netns", "del", name) })
	ip("-n", name, "link", "set", "lo", "up")
	ip("-n", name, "address", "add", "192.0.2.77/32", "dev", "lo")
	resolv := filepath.Join(filepath.Dir(k.root), "resolv.conf")
	must(t, os.WriteFile(resolv, []byte("nameserver 192.0.2.53\n"), 0o644))
	const script = "id -u; cat /etc/resolv.conf; hostname; echo hello | nc -l -p 80; exec sleep 1000"
	must(t, os.Symlink("busybox", filepath.Join(k.root, "bin", "nc")))
	task := k.start(k.script(script, func(s *driver.Spec) {
		s.User = "app"
		s.Container.NetNS, s.Container.Resolv, s.Container.Hostname = "/run/netns/"+name, resolv, "web-1"
	}))
	k.says(task, "1001\nnameserver 192.0.2.53\nweb-1\n")
	var out strings.Builder
	ask := driver.Command{Argv: []string{"sh", "-c", "ip -o address; nc 192.0.2.77 80 </dev/null"}, Stdout: &out}
	eventually(t, "an answer on port 80", func() bool {
		out.Reset()
		code, err := task.Exec(t.Context(), ask)
		return code == 0 && err == nil && strings.HasSuffix(out.String(), "hello\n")
	})
	if strings.Contains(out.String(), "eth0") || !strings.Contains(out.String(), "192.0.2.77") {
		t.Errorf("it sees %s", out.String())
	}
	tasks := k.restart()
	if len(tasks) != 1 || !tasks[0].Alive() {
		t.Fatalf("adopted %v", tasks)
	}
	stop(t, tasks[0], 0, 5*time.Second)
}

func TestContainerRefused(t *testing.T) {
	k := newContainers(t)
	for name, change := range map[string]func(*driver.Spec){
		"no root":       func(s *driver.Spec) { s.Container.Rootfs = nil },
		"memory":        func(s *driver.Spec) { s.Limits.MemoryBytes = 8 << 20 },
		"capability":    func(s *driver.Spec) { s.Container.CapAdd = []string{"FLY"} },
		"host name":     func(s *driver.Spec) { s.Container.Hostname = "a/b" },
		"mount of proc": func(s *driver.Spec) { s.Container.Tmpfs = []oci.Tmpfs{{Target: "/proc/x"}} },
		"relative":      func(s *driver.Spec) { s.Container.Mounts = []oci.Mount{{Source: "x", Target: "/y"}} },
		"target":        func(s *driver.Spec) { s.Binds = []driver.Bind{{Source: "/tmp", Target: "/a/../b"}} },
	} {
		_, err := k.d.Start(t.Context(), k.script("true", change))
		if !errors.Is(err, errCode(driver.CodeInvalidSpec)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	spec := k.script("true", func(s *driver.Spec) { s.User = "nobody-here" })
	_, err := k.d.Start(t.Context(), spec)
	wantCode(t, err, driver.CodeStartFailed)
	if !strings.Contains(err.Error(), "not in the image's /etc/passwd") {
		t.Error(err)
	}
	k.nothingLeftOf(spec.ID)
	spec = k.script("true", func(s *driver.Spec) {
		s.Container.Mounts = []oci.Mount{{Source: "/srv/none/certs", Target: "/certs"}}
	})
	_, err = k.d.Start(t.Context(), spec)
	wantCode(t, err, driver.CodeMountMissing)
	if !strings.Contains(err.Error(), "mount /certs: this node has no /srv/none/certs") {
		t.Error(err)
	}
	k.nothingLeftOf(spec.ID)
	none := newBench(t, func(c *driver.Config) { c.Runtime = "no-such-runtime" })
	_, err = none.d.Start(t.Context(), k.script("true"))
	wantCode(t, err, driver.CodeNoContainers)
}

// The init of a container is out of reach of the program, which runs as the same user.
func TestContainerInitIsSafe(t *testing.T) {
	k := newContainers(t)
	task := k.start(k.script(`kill -KILL 1; kill -STOP 1; readlink /proc/1/exe || echo out of reach; cat /proc/1/environ; ( : > /dev/outspan-init ); rm /dev/outspan-init; echo alive; exec sleep 1000`))
	k.says(task, "alive")
	wantCode(t, task.Signal(t.Context(), syscall.SIGSTOP), driver.CodeSignalFailed)
	if errs := k.logs(task, driver.Stderr); strings.Count(errs, "\n") < 3 ||
		!strings.Contains(k.logs(task, driver.Stdout), "out of reach") {
		t.Errorf("stdout = %q, stderr = %q", k.logs(task, driver.Stdout), errs)
	}
	if !task.Alive() {
		t.Error("it has ended")
	}
}

// The agent, the shim or the runtime is killed at random moments of a start. Nothing stays, or all runs.
func TestContainerKilledWhileStarting(t *testing.T) {
	k := newContainers(t)
	exe, err := os.Executable()
	must(t, err)
	rng := rand.New(rand.NewPCG(11, 11))
	adopted, nothing := 0, 0
	for i := range 12 {
		must(t, k.d.Close())
		id := driver.ID(fmt.Sprintf("%s-k%d", filepath.Base(filepath.Dir(k.cfg.Dir)), i))
		k.ids[id] = true
		agent := exec.Command(exe, "helper", "agent", k.cfg.Dir, k.cfg.CgroupParent, string(id), "exec sleep 1000", "",
			k.root, k.cfg.ContainerInit)
		out, err := agent.StdoutPipe()
		must(t, err)
		must(t, agent.Start())
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "starting" {
			t.Fatalf("the agent said %q", lines.Text())
		}
		time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond) // the random moment is the point of the test
		switch i % 3 {
		case 0:
			must(t, agent.Process.Kill())
		default: // the shim, or the runtime
			for _, pid := range processesOf(string(id), map[driver.ID]bool{id: true}) {
				cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				if word := []string{"", "\x00shim\x00", "--pid-file"}[i%3]; strings.Contains(string(cmd), word) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			must(t, agent.Process.Kill())
		}
		_ = agent.Wait()
		k.open()
		k.adopt()
		task, ok := k.d.Task(id)
		if !ok {
			nothing++
			eventually(t, "a late shim to see that it was given up", func() bool {
				return len(processesOf(string(id), map[driver.ID]bool{id: true})) == 0
			})
			k.nothingLeftOf(id)
			continue
		}
		adopted++
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		must(t, task.Stop(ctx, 0, 0))
		cancel()
		must(t, task.Remove())
		k.nothingLeftOf(id)
	}
	t.Logf("killed in mid-start 12 times: %d adopted, %d without a trace", adopted, nothing)
}
