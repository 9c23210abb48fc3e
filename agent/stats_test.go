package agent

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// cpuOf returns the CPU time that the kernel counts for a process.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	f := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	user, err := strconv.Atoi(f[11])
	must(t, err)
	system, err := strconv.Atoi(f[12])
	must(t, err)
	return time.Duration(user+system) * time.Second / 100
}

// stats asks the agent what instances use.
func (b *bench) stats(base string, query url.Values) (all []transport.InstanceUse) {
	b.t.Helper()
	code, text, _ := fetch(b.t, base+transport.PathAgentStats+"?"+query.Encode())
	if code != 200 || json.Unmarshal([]byte(text), &all) != nil {
		b.t.Fatalf("%d %s", code, text)
	}
	return all
}

// A busy loop uses what the kernel says, and its files take the space that they have. An ended instance has no numbers.
func TestStats(t *testing.T) {
	b := newBench(t, allowRoot)
	srv := front(t, b, model.SubjectServer)
	pidFile := filepath.Join(b.dir, "pid")
	busy := sh("head -c 1000000 /dev/zero > grown; echo $$ > " + pidFile + "; while :; do :; done")
	busy.Resources.DiskBytes = 3 << 20
	id := b.run("web", busy, nil)
	idle := b.run("other", sh("exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	b.await(idle, model.ObservedReady)
	pid := pidOf(t, pidFile)

	const slack = 100 * time.Millisecond // clock ticks, and the age of the numbers of processes
	before := cpuOf(t, pid)
	all := b.stats(srv.URL, url.Values{"job": {"web"}})
	time.Sleep(slack / 2)
	after := cpuOf(t, pid)
	if len(all) != 1 || all[0].ID != id || all[0].Use == nil {
		t.Fatalf("%+v", all)
	}
	u := all[0].Use
	if used := seconds(*u.CPU.Seconds); used < before-slack || used > after+time.Second { // it also wrote a file
		t.Errorf("it used %v, the kernel says %v to %v", used, before, after)
	}
	over := seconds(*u.CPU.Cores * (time.Duration(*u.CPU.Interval) * time.Millisecond).Seconds())
	if over <= 0 || over > after-before+slack || *u.CPU.Cores > float64(runtime.NumCPU()) {
		t.Errorf("it used %v in %v, the kernel says %v", over, u.CPU.Interval, after-before)
	}
	if u.Processes.Count != 1 || *u.Processes.Threads != 1 || *u.Memory.Bytes <= 0 || u.Uptime == nil {
		t.Errorf("use: %+v", u)
	}
	if *u.Disk.Bytes < 1000000 || *u.Disk.Bytes > 1100000 || *u.Disk.LimitBytes != 3<<20 || u.Disk.AtLeast {
		t.Errorf("disk: %+v", u.Disk)
	}
	if limited := b.cfg.Exec.CgroupParent != "none" && u.Source == api.StatsOfCgroup; limited !=
		(u.Memory.LimitBytes != nil) || limited && *u.Memory.LimitBytes < 64<<20 {
		t.Errorf("source %s, memory %+v", u.Source, u.Memory)
	}

	b.stop(id, nil)
	b.await(id, model.ObservedStopped)
	all = b.stats(srv.URL, url.Values{"instance": {string(id)}})
	// The agent may have forgotten it already.
	if len(all) == 1 && (all[0].Use != nil || all[0].Problem.Code != model.CodeNotRunning ||
		!strings.Contains(all[0].Problem.Message, "has ended")) || len(all) > 1 {
		t.Errorf("of an ended instance: %+v", all)
	}
	if all = b.stats(srv.URL, url.Values{"instance": {"nothing"}}); len(all) != 0 {
		t.Errorf("of an unknown instance: %+v", all)
	}
	for _, query := range []string{"", "?job=web&instance=" + string(id)} {
		if code, text, _ := fetch(t, srv.URL+transport.PathAgentStats+query); code != 400 {
			t.Errorf("%q: %d %s", query, code, text)
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Without cgroups the answer says what is not known.
func TestStatsWithoutCgroups(t *testing.T) {
	b := newBench(t, allowRoot, func(c *Config) { c.Exec.CgroupParent = "none"; c.DiskCheckEvery = -1 })
	id := b.run("web", sh("sleep 1000 & while :; do :; done"), nil)
	b.await(id, model.ObservedReady)
	eventually(t, "both processes", func() bool { return b.uses()["web/g"].Processes == 2 })
	u := b.stats(front(t, b, model.SubjectServer).URL, url.Values{"instance": {string(id)}})[0].Use
	if u == nil || u.Source != api.StatsOfProcesses || u.Processes.Count != 2 || *u.Memory.Bytes <= 0 ||
		*u.CPU.Seconds <= 0 || u.Memory.PeakBytes != nil || u.Memory.LimitBytes != nil ||
		u.Processes.ThreadsLimit != nil || u.Disk.Bytes != nil {
		t.Errorf("use: %+v", u)
	}
	for _, want := range []string{"no cgroup:", "memory.peak:", "disk:"} {
		if !strings.Contains(strings.Join(u.Notes, "\n"), want) {
			t.Errorf("no note says %q: %q", want, u.Notes)
		}
	}
}

// uses returns what the groups use, by id.
func (b *bench) uses() map[model.GroupID]GroupUse {
	all := map[model.GroupID]GroupUse{}
	for _, g := range b.agent.GroupUses() {
		all[g.Group] = g
	}
	return all
}

// The CPU time of a group never shrinks, also when an instance of it ends. It begins at 0 with the agent.
func TestGroupUses(t *testing.T) {
	b := newBench(t, allowRoot)
	g := plainUser(sh("while :; do :; done"))
	g.Count = 2
	group := b.submit("web", g)
	first, second := b.place(group, 0, b.node(), nil), b.place(group, 1, b.node(), nil)
	b.await(first, model.ObservedReady)
	b.await(second, model.ObservedReady)
	cpu := func() time.Duration { return b.uses()["web/g"].CPU }
	eventually(t, "both to have used a second", func() bool { return cpu() > time.Second })
	if u := b.uses()["web/g"]; u.Processes != 2 || u.MemoryBytes <= 0 {
		t.Errorf("two instances use %+v", u)
	}
	last := cpu()
	b.stop(first, nil)
	for b.instance(first).Status.Observed != model.ObservedStopped {
		now := cpu()
		if now < last {
			t.Fatalf("it was %v, and is %v", last, now)
		}
		last = now
	}
	eventually(t, "the other to go on", func() bool { return cpu() > last })
	if u := b.uses()["web/g"]; u.Processes != 1 {
		t.Errorf("one instance uses %+v", u)
	}

	b.stopAgent()
	b.start()
	if u, ok := b.uses()["web/g"]; !ok || u.CPU != 0 {
		t.Errorf("the next agent begins with %+v", u)
	}
	eventually(t, "it to be counted", func() bool { return cpu() > 0 })
	b.stop(second, nil)
	b.await(second, model.ObservedStopped)
	eventually(t, "the group to be gone", func() bool {
		u, there := b.uses()["web/g"]
		if there && (u.Processes != 0 || u.MemoryBytes != driver.Unknown || u.CPU <= 0) {
			t.Errorf("after the end: %+v", u)
		}
		return !there
	})
}
