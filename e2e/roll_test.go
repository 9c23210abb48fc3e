package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// bootFile returns the path of the file with the boot id that the member sees. The file exists only after the first
// reboot of the member.
func (m *member) bootFile() string { return m.c.path(m.Name + ".boot") }

// inOwnBoot wraps the command args. The wrapped command runs in its own mount namespace, and sees the boot id in the
// member's bootFile instead of the real one.
func (m *member) inOwnBoot(args []string) []string {
	return append([]string{
		"unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, m.bootFile(),
	}, args...)
}

// reboot kills everything that the member runs, and starts the member again with a boot id that is made from n.
func (m *member) reboot(t testing.TB, n int) {
	t.Helper()
	m.die(t)
	id := fmt.Sprintf("0000000%d-%s-4000-8000-%012d\n", n%10, strings.Repeat("0", 4), n)
	if err := os.WriteFile(m.bootFile(), []byte(id), 0o644); err != nil {
		t.Fatal(err)
	}
	m.start(t)
}

// reboots carries out the reboots that the command of a roll requests. Before it reboots a machine, it makes the prober
// skip that machine.
type reboots struct {
	c    *cluster
	dir  string // has a file for each requested reboot, named after the machine
	mu   sync.Mutex
	done []string        // names of the machines in the order of their reboots
	out  map[string]bool // machines that the prober must skip
}

// script returns the command of a roll. The command requests a reboot of {node} and waits until serve has rebooted it.
func (r *reboots) script() string {
	return fmt.Sprintf("touch %[1]s/{node} && while [ -e %[1]s/{node} ]; do sleep 0.05; done", r.dir)
}

// serve carries out requested reboots until ctx is canceled.
func (r *reboots) serve(ctx context.Context, t *testing.T) {
	for n := 1; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		asked, _ := os.ReadDir(r.dir)
		for _, f := range asked {
			m := r.c.member(f.Name())
			r.leaveOut(m.Name, true)
			time.Sleep(300 * time.Millisecond) // time for the requests that the machine still forwards
			m.reboot(t, n)
			n++
			_ = os.Remove(filepath.Join(r.dir, f.Name()))
		}
	}
}

func (r *reboots) leaveOut(name string, out bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out[name] = out
	if out {
		r.done = append(r.done, name)
	}
}

func (r *reboots) isOut(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out[name]
}

func (r *reboots) order() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.done)
}

// TestRoll reboots, in turn, four machines that run a service. In the middle of the roll, the command that controls it
// is killed, and another command resumes the roll. Every node is rebooted once, and no request to the service fails.
//
// proves P39, L23
func TestRoll(t *testing.T) {
	long(t)
	t.Parallel()
	require(t, "unshare", "mount")
	c := startCluster(t, options{servers: 3, agents: 4})
	port := c.freePort(t)
	c.run(t, job{name: "web", count: 8, expose: port, more: "    budget { min_ready = 7 }"})
	r := &reboots{c: c, dir: c.path("reboot"), out: map[string]bool{}}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c.cli(t, "node", "roll", "n1", "n2", "n3", "n4").want(t, 2, "--exec")
	c.cli(t, "node", "roll", "n1", "n9", "--wait-reboot").want(t, 4, "n9")
	dry := c.cli(t, "node", "roll", "n1", "n2", "n3", "n4", "--dry-run")
	dry.want(t, 0)
	if lines := strings.Count(dry.out, "\nn"); lines != 4 {
		t.Errorf("the forecast has %d nodes:\n%s", lines, dry.out)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { r.serve(ctx, t) })
	defer serving.Wait()
	defer cancel()
	stop := c.probeExcept(port, r.isOut, c.agents...)
	first := c.beginRoll(t, r.script())
	waitFor(t, "the second node to be rebooted", 2*patience, func() error {
		for _, name := range r.order() { // the prober uses a rebooted machine again once the machine forwards
			if n := c.node(t, c.member(name)); n.Eligible && c.member(name).Running() && c.forwards(c.member(name), port) {
				r.leaveOut(name, false)
			}
		}
		if got := r.order(); len(got) < 2 {
			return fmt.Errorf("rebooted: %v", got)
		}
		return nil
	})
	_ = first.Process.Kill() // the roll is at any step of the second node
	_ = relatives.Wait(first)

	id := c.rollID(t)
	var result struct {
		Roll  string
		Nodes []struct{ Node, State, Drain, Error string }
	}
	out := c.cli(t, "node", "roll", "--resume", id, "-o", "json")
	out.want(t, 0)
	if err := json.Unmarshal([]byte(out.out), &result); err != nil {
		t.Fatalf("%v: %s", err, out.out)
	}
	probed := stop()
	if result.Roll != id || len(result.Nodes) != 4 {
		t.Errorf("%s", out.out)
	}
	for _, n := range result.Nodes {
		if n.State != "done" {
			t.Errorf("node %s is %s: %s", n.Node, n.State, n.Error)
		}
	}
	boots := map[string]bool{}
	for _, n := range c.nodes(t) {
		boots[n.BootID] = true
		if !n.Eligible || !strings.HasPrefix(n.BootID, "0000000") {
			t.Errorf("node %s: eligible %t, boot id %s", n.Name, n.Eligible, n.BootID)
		}
	}
	if done := r.order(); !slices.Equal(done, []string{"n1", "n2", "n3", "n4"}) || len(boots) != 4 {
		t.Errorf("rebooted %v, boot ids %v", done, boots)
	}
	probed.perfect(t)
	t.Logf("%v; %s", probed, strings.TrimSpace(out.err))
	if again := c.cli(t, "node", "roll", "--resume", id); again.code != 0 || !strings.Contains(again.out, "4 of 4 done") {
		t.Errorf("%v", again)
	}
}

// beginRoll starts node roll for n1 to n4 with the given script. It does not wait for the command.
func (c *cluster) beginRoll(t testing.TB, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(c.bin, "node", "roll", "n1", "n2", "n3", "n4", "--exec", script, "--within", "40s")
	cmd.Env = append(os.Environ(), c.environment()...)
	cmd.Dir = c.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := relatives.Start(cmd); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// rollID returns the id of the only roll. The options of each drain that belongs to the roll contain this id.
func (c *cluster) rollID(t testing.TB) string {
	t.Helper()
	type drain struct {
		Options struct{ Roll *struct{ ID string } }
	}
	for _, d := range list[drain](t, c, "/v1/drains") {
		if d.Options.Roll != nil {
			return d.Options.Roll.ID
		}
	}
	t.Fatal("no drain is a step of a roll")
	return ""
}

// forwards reports whether a request to the exposed port of m's machine succeeds.
func (c *cluster) forwards(m *member, port int) bool {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return fetch(client, "http://"+net.JoinHostPort(m.address, strconv.Itoa(port))+"/") == nil
}
