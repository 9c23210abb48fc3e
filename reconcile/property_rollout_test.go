package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// TestRolloutProperties runs, scales, promotes and fails jobs at random. Meanwhile a machine may be dead, another
// cordoned or drained, decisions paused, HOLD active, or the rate of a budget used up. A version that has failed gets
// no new instances, and a version that is not promoted gets no more than its canaries. A version that works fails only
// if a user fails it. At the end, each group has all its instances, and all are ready and of the newest version.
func TestRolloutProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := &rollouts{world: newWorld(rt), rt: rt, count: 3, failed: map[model.DeploymentID]bool{}}
		r.run("node n1 n2 n3 n4")
		r.step("run web main count=3")
		r.step("run mon main role=system")
		r.step("run db main count=2 volume=data")
		r.settleAll()
		for range rapid.IntRange(3, 25).Draw(rt, "steps") {
			r.step(r.draw())
			if rapid.Bool().Draw(rt, "settles") {
				r.settleAll()
			}
		}
		r.inTheEnd()
	})
}

// rollouts is a world with three groups: web/main is scaled, mon/main has an instance on every node, and db/main has
// local volumes. Programs with the argument bad fail immediately.
type rollouts struct {
	*world
	rt     *rapid.T
	lines  []string
	count  int  // count of web/main that users last asked for
	scaled bool // whether web was scaled after it was last run
	dead   string
	paused bool
	hold   bool
	drains int
	failed map[model.DeploymentID]bool // deployments that a user failed
}

func (r *rollouts) step(line string) {
	r.lines = append(r.lines, line)
	r.at = strings.Join(r.lines, "\n")
	r.run(line)
	r.decideTrusted()
}

func (r *rollouts) draw() string {
	node := rapid.SampledFrom([]string{"n1", "n2", "n3", "n4"}).Draw(r.rt, "node")
	job := rapid.SampledFrom([]string{"web", "mon", "db"}).Draw(r.rt, "job")
	switch rapid.IntRange(0, 12).Draw(r.rt, "what") {
	case 0, 1, 2:
		return r.drawRun(job)
	case 3, 4:
		r.count, r.scaled = rapid.IntRange(1, 6).Draw(r.rt, "count"), true
		return fmt.Sprintf("scale web/main %d", r.count)
	case 5:
		if j, ok := r.state.Jobs.Get(model.JobName(job)); ok {
			r.failed[j.Deployment] = true
			return fmt.Sprintf("fail %s", j.Deployment)
		}
	case 6:
		if j, ok := r.state.Jobs.Get(model.JobName(job)); ok {
			return fmt.Sprintf("promote %s", j.Deployment)
		}
	case 7:
		if r.dead == "" {
			r.dead = node
			return "silent 70s " + node
		}
		back := r.dead
		r.dead = ""
		r.run("heard " + back)
		return "return " + back
	case 8:
		if r.cordoned() == "" {
			return "cordon " + node
		}
		return "uncordon " + r.cordoned()
	case 9:
		r.paused = !r.paused
		return fmt.Sprintf("settings paused=%t", r.paused)
	case 10:
		if r.hold = !r.hold; r.hold {
			return "hold on"
		}
		return "hold off"
	case 11:
		if r.cordoned() == "" {
			r.drains++
			return fmt.Sprintf("drain d%d %s deadline=10m", r.drains, node)
		}
		return "uncordon " + r.cordoned()
	}
	r.settleAll()
	return "advance 61m"
}

func (r *rollouts) drawRun(job string) string {
	cmd := rapid.SampledFrom([]string{"v1", "v2", "v3", "bad"}).Draw(r.rt, "cmd")
	options := rapid.SampledFrom([]string{
		"", " canary=1", " auto_revert", " update_order=stop_first", " rate=1/2h auto_revert",
		" canary=1 auto_revert update_order=stop_first",
	}).Draw(r.rt, "options")
	options += " deadline=" + rapid.SampledFrom([]string{"10m", "1h"}).Draw(r.rt, "deadline") + " reschedule=1/10m"
	switch job {
	case "mon":
		return "run mon main role=system cmd=" + cmd + options
	case "db":
		return "run db main count=2 volume=data cmd=" + cmd + options
	}
	r.count, r.scaled = rapid.IntRange(1, 5).Draw(r.rt, "count"), false
	return fmt.Sprintf("run web main count=%d cmd=%s%s", r.count, cmd, options)
}

func (r *rollouts) cordoned() string {
	for n := range r.state.OutOfService() {
		return n.Name
	}
	return ""
}

// settleAll makes decisions and lets agents work until nothing changes. It also waits for 6 s, which is longer than the
// min_healthy of every group, so that instances of a new version prove healthy.
func (r *rollouts) settleAll() {
	for waited, i := false, 0; i < 200; i++ {
		before := r.state.Index
		r.decideTrusted()
		r.fail()
		r.work(nil)
		switch {
		case r.state.Index != before:
			waited = false
		case waited:
			return
		default:
			r.run("advance 6s")
			waited = true
		}
	}
	r.rt.Fatalf("%s: it does not settle:\n%s", r.at, r.run("show instances"))
}

// fail reports that the bad programs on all reachable nodes have failed.
func (r *rollouts) fail() {
	for _, inst := range r.state.Instances.All() {
		if r.bad(inst) && inst.Desired == model.DesiredRunning && inst.Status.Observed == model.ObservedPending &&
			r.reach(inst.Node) {
			r.status(inst, model.ObservedFailed, "crash_loop")
		}
	}
}

func (r *rollouts) bad(inst *fsm.Instance) bool { return r.badVersion(inst.Group, inst.Version) }

func (r *rollouts) badVersion(group model.GroupID, version uint64) bool {
	spec, ok := r.state.Spec(group, version)
	return ok && slices.ContainsFunc(spec.Exec.Args, func(arg string) bool { return strings.Contains(arg, "bad") })
}

// decideTrusted makes a decision. It checks that a failed version gets no new instances, that an unpromoted version
// gets no more than its canaries, and that no deployment of a working version fails unless a user made it fail.
func (r *rollouts) decideTrusted() {
	before := r.state
	r.decide()
	for id, g := range before.Groups.All() {
		name, _ := id.Split()
		job, _ := before.Jobs.Get(name)
		d, ok := before.Deployments.Get(job.Deployment)
		stable, known := before.StableVersion(id)
		if !ok || !known || stable == g.Version {
			continue
		}
		spec, _ := before.Policy(id)
		canaries := spec.Update.Canary
		for inst := range r.state.InstancesOf(id) {
			if before.Instances.Has(inst.ID) || inst.Version != g.Version || d.Status != model.DeploymentFailed {
				continue
			}
			r.rt.Fatalf("%s: instance %s of version %d, which has failed, was made:\n%s", r.at, r.names[inst.ID],
				inst.Version, r.run("show instances"))
		}
		if d.Status.Ended() || d.Promoted || canaries == 0 {
			continue
		}
		if now, was := slotsOf(r.state, id, g.Version), slotsOf(before, id, g.Version); now > max(was, canaries) {
			r.rt.Fatalf("%s: version %d of %s has %d slots, and %d canaries are wanted:\n%s", r.at, g.Version, id, now,
				canaries, r.run("show instances"))
		}
	}
	for id, d := range r.state.Deployments.All() {
		if d.Status != model.DeploymentFailed || r.failed[id] {
			continue
		}
		if !r.badVersion(model.NewGroupID(d.Job, "main"), d.Version) {
			r.rt.Fatalf("%s: version %d of %s works, and failed: %s\n%s", r.at, d.Version, d.Job,
				d.Reason, r.run("show instances"))
		}
	}
}

// slotsOf returns the number of slots that have an instance of the version that should run.
func slotsOf(s fsm.State, group model.GroupID, version uint64) int {
	slots := map[int]bool{}
	for inst := range s.InstancesOf(group) {
		if inst.Desired == model.DesiredRunning && inst.Version == version {
			slots[inst.Slot] = true
		}
	}
	return len(slots)
}

// wanted returns the count that web/main should have. After an automatic revert, this is the count of the earlier
// version, unless web was scaled after it was last run. Otherwise it is the count that users last asked for.
func (r *rollouts) wanted() int {
	job, _ := r.state.Jobs.Get("web")
	current, _ := r.state.JobVersion("web", job.Version)
	if current.Reverts == 0 || r.scaled {
		return r.count
	}
	spec, ok := r.state.Spec("web/main", current.Reverts)
	if !ok {
		r.rt.Fatalf("%s: version %d, the target of the revert, is gone", r.at, current.Reverts)
	}
	return spec.Count
}

// inTheEnd checks the count of web/main, ends all trouble, and runs a working version of each job. All instances of
// this version must become ready.
func (r *rollouts) inTheEnd() {
	r.settleAll()
	if web, _ := r.state.Groups.Get("web/main"); web.Count != r.wanted() {
		r.rt.Fatalf("%s: web/main wants %d instances, want %d", r.at, web.Count, r.wanted())
	}
	r.step("settings paused=false")
	r.step("hold off")
	if r.dead != "" {
		r.run("heard " + r.dead)
		r.step("return " + r.dead)
	}
	if name := r.cordoned(); name != "" {
		r.step("uncordon " + name)
	}
	r.step(fmt.Sprintf("run web main count=%d cmd=v9", r.count))
	r.step("run mon main role=system cmd=v9")
	r.step("run db main count=2 volume=data cmd=v9")
	for range 4 {
		r.settleAll()
		r.step("advance 61m")
	}
	for id, want := range map[model.GroupID]int{"web/main": r.count, "mon/main": 4, "db/main": 2} {
		g, _ := r.state.Groups.Get(id)
		if g.Ready != want || slotsOf(r.state, id, g.Version) != want || g.Running != want {
			r.rt.Fatalf("%s: %s has %d ready and %d running, %d of them of version %d, want %d:\n%s",
				r.at, id, g.Ready, g.Running, slotsOf(r.state, id, g.Version), g.Version, want, r.run("show instances"))
		}
	}
}
