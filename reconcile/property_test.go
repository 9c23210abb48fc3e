package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// TestProperties checks decisions while people, agents and the network do random things. The log never refuses a plan
// on the state that the plan was made for. Deciding again gives the same plan. No voluntary stop takes a group below
// its budget. Every invariant of fsm.Check holds after every entry. Once nothing happens from outside, drains end and
// the cluster settles. A group that then lacks instances has a reason.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		w.run("settings offline_after=6s start_timeout=20s rescheduler=eager min_age=5s cooldown=5s")
		w.run("node n1 n2 rack=a")
		w.run("node n3 n4 rack=b")
		w.run("node n5 memory=400MiB rack=c")
		w.run("budget both max_down=50%")
		for _, id := range w.nodes[:4] {
			w.run("runtime " + string(id) + rapid.SampledFrom([]string{" pulls", " pulls", ""}).Draw(rt, "runtime"))
		}
		var lines []string
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			line := drawLine(rt, w)
			lines = append(lines, line)
			w.at = strings.Join(lines, "\n")
			w.run(line)
			if rapid.Bool().Draw(rt, "decides") {
				lines = append(lines, "decide")
				w.at = strings.Join(lines, "\n")
				w.decideChecked(rt)
			}
		}
		w.at = strings.Join(lines, "\n") + "\n(quiet)"
		w.comeToRest(rt)
	})
}

// drawLine returns a random event, as a line of a scenario.
func drawLine(rt *rapid.T, w *world) string {
	node := func() string { return rapid.SampledFrom([]string{"n1", "n2", "n3", "n4", "n5"}).Draw(rt, "node") }
	job := func() string {
		return rapid.SampledFrom([]string{"web", "db", "mon", "lock", "roll", "kv", "img", "img"}).Draw(rt, "job")
	}
	instance := func() string {
		var names []string
		for _, inst := range w.state.Instances.All() {
			if n, _ := w.state.Nodes.Get(inst.Node); !inst.Terminal() && n.Health != model.HealthOffline {
				names = append(names, w.names[inst.ID])
			}
		}
		if len(names) == 0 {
			return ""
		}
		slices.Sort(names)
		return rapid.SampledFrom(names).Draw(rt, "instance")
	}
	count := rapid.IntRange(0, 4).Draw(rt, "count")
	switch rapid.IntRange(0, 32).Draw(rt, "what") {
	case 31, 32:
		return "registry " + rapid.SampledFrom([]string{"slow", "up", "no such host", node() + " slow", node()}).
			Draw(rt, "registry")
	case 29, 30:
		return drawLimit(rt)
	case 25, 26, 27, 28:
		return drawMember(rt, w)
	case 0, 1, 2:
		return jobLine(job(), count, rapid.IntRange(1, 3).Draw(rt, "cmd"), rapid.IntRange(0, 3).Draw(rt, "variant"))
	case 3:
		return fmt.Sprintf("scale %s/main %d", job(), count)
	case 4:
		return "stop " + job()
	case 5, 6, 7:
		options := rapid.SampledFrom([]string{"", "deadline=30s", "deadline=30s force_at_deadline", "parallel=1",
			"downtime=*", "force", "ignore_system"}).Draw(rt, "options")
		return fmt.Sprintf("drain d%d %s %s %s", w.state.Index, node(), node(), options)
	case 8:
		return "uncordon " + node()
	case 9:
		return rapid.SampledFrom([]string{"cordon ", "disable ", "enable ", "ack "}).Draw(rt, "intent") + node()
	case 10, 11:
		return fmt.Sprintf("silent 7s %s", node())
	case 12, 13:
		return rapid.SampledFrom([]string{"return ", "return ", "reboot "}).Draw(rt, "return") + node()
	case 14:
		return fmt.Sprintf("gossip %s %s", node(), rapid.SampledFrom([]string{"suspect", "alive"}).Draw(rt, "gossip"))
	case 15, 16, 17:
		if name := instance(); name != "" {
			return "report " + name + " " +
				rapid.SampledFrom([]string{"booting", "ready", "unready", "failed crash_loop", "stopped"}).Draw(rt, "status")
		}
	case 18, 19:
		return "agents " + node()
	case 20, 21:
		return "advance " + rapid.SampledFrom([]string{"1s", "5s", "20s", "5m"}).Draw(rt, "time")
	case 22:
		if name := instance(); name != "" {
			return "evict " + name
		}
	case 23:
		return rapid.SampledFrom([]string{"pause ", "resume ", "cancel "}).Draw(rt, "drain") + lastDrain(w)
	case 24:
		return rapid.SampledFrom([]string{"confirm-dead " + node(), "failover", "settings paused", "settings paused=false"}).
			Draw(rt, "other")
	}
	return "agents"
}

func lastDrain(w *world) string {
	id, _, ok := w.state.Drains.Max()
	if !ok {
		return "none"
	}
	return string(id)
}

// jobLine returns the line that runs a job. The number variant, 0 to 3, selects the job's limits and how its versions
// are rolled out.
func jobLine(job string, count, cmd, variant int) string {
	more := [...]string{"", "order=stop_first", "min_ready=50% budget=both", "rate=1/10s max_down=3"}[variant]
	switch job {
	case "db":
		more = "volume=data"
	case "kv":
		more = "volume=data:replicated " +
			[...]string{"", "update_order=stop_first", "max_down=3 blocking", "unreachable=0s"}[variant]
	case "mon":
		more = "role=system"
	case "img":
		more = fmt.Sprintf("image=reg/app%d ", cmd) + [...]string{"", "order=stop_first update_order=stop_first",
			"role=system", "exclusive port=p:8080"}[variant]
	case "lock":
		more = "exclusive"
	case "roll":
		more += [...]string{" unavailable=1 budget=both", " canary=1", " auto_revert min_healthy=5s",
			" update_order=stop_first port=p:8080"}[variant]
		if variant == 1 {
			count = max(count, 1)
		}
	}
	return fmt.Sprintf("run %s main count=%d cmd=v%d deadline=1m reschedule=2/1m %s", job, count, cmd, more)
}

// decideChecked does what decide does. It also checks that the decision is the same with a cache, with a scan of all
// rows and with a view for each slot, and that its stops respect the budgets and the last copies.
func (w *world) decideChecked(t rapid.TB) {
	one := reconcile.Decide(w.input())
	for _, seen := range []*reconcile.Cache{&w.seen, &w.followed} {
		again := w.input()
		again.Cache = seen
		if diff := cmp.Diff(one, reconcile.Decide(again)); diff != "" {
			t.Fatalf("%s: decided twice:\n%s", w.at, diff)
		}
	}
	if indexed, scanned := reconcile.Surveys(w.input()); indexed != scanned {
		t.Fatalf("%s: the indexes find\n%s\na scan of every row finds\n%s", w.at, indexed, scanned)
	}
	if diff := reconcile.SlotsDiffer(w.input()); diff != "" {
		t.Fatalf("%s: slots that share a view: %s", w.at, diff)
	}
	before := w.state
	free := map[model.GroupID]bool{} // groups with a planned stop that no budget limits
	for _, e := range one.Entries {
		for _, group := range e.Groups {
			for _, c := range group {
				if stop, ok := c.(*fsm.InstanceStop); ok {
					inst, _ := before.Instances.Get(stop.ID)
					if stop.Bypass || stop.Cause == model.CauseNodeDisabled || stop.Cause == model.CauseJobStopped || inst == nil {
						free[groupOf(before, stop.ID)] = true
					}
				}
			}
		}
	}
	w.decide()
	w.lastCopiesHold(t, before)
	w.sharedHold(t, before, free)
	for id, g := range w.state.Groups.All() {
		old, ok := before.Groups.Get(id)
		if !ok || free[id] || g.Role == model.RoleSystem || g.Ready >= old.Ready || wentOffline(before, w.state, id) {
			continue
		}
		if g.Ready < g.Budget.MinReady {
			t.Fatalf("%s: %s went from %d ready to %d by decisions, and must keep %d", w.at, id, old.Ready,
				g.Ready, g.Budget.MinReady)
		}
	}
}

func groupOf(s fsm.State, id model.InstanceID) model.GroupID {
	if inst, ok := s.Instances.Get(id); ok {
		return inst.Group
	}
	return ""
}

// wentOffline reports whether the decision between the two states declared an instance of the group lost.
func wentOffline(before, after fsm.State, id model.GroupID) bool {
	for inst := range after.InstancesOf(id) {
		old, ok := before.Instances.Get(inst.ID)
		if ok && inst.Status.Observed == model.ObservedLost && old.Status.Observed != model.ObservedLost {
			return true
		}
	}
	return false
}

// comeToRest brings all nodes back, resumes decisions and drains, and lets time pass. It checks that the cluster
// settles.
func (w *world) comeToRest(t rapid.TB) {
	w.run("settings paused=false")
	w.run("sync on")
	clear(w.registry)
	for _, n := range w.nodes {
		if node, _ := w.state.Nodes.Get(n); node.Health == model.HealthOffline || w.live[n].Silent {
			w.run("return " + string(n))
		}
		w.run("heard " + string(n))
	}
	for id, d := range w.state.Drains.All() {
		if d.Paused {
			w.run("resume " + string(id))
		}
	}
	idle := 0
	for range 400 {
		before := w.state.Index
		w.decideChecked(t)
		w.work(nil)
		w.heal()
		if w.state.Index != before {
			idle = 0
			continue
		}
		if idle++; idle > 3 {
			w.atRest(t)
			return
		}
		w.run("advance 41m")
	}
	t.Fatalf("%s: it does not come to rest", w.at)
}

// heal makes all unready instances ready again and all members in sync, and lets groups elect a leader.
func (w *world) heal() {
	for _, inst := range w.state.Instances.All() {
		if inst.Desired == model.DesiredRunning && inst.Status.Observed == model.ObservedUnready {
			w.status(inst, model.ObservedReady, "")
		}
	}
	w.syncAll()
	w.elect()
}

// held returns the number of instances of a group that have a successor but still run, with a recorded reason for the
// delay.
func (w *world) held(explained *reconcile.Explanation, group model.GroupID) int {
	n := 0
	for inst := range w.state.InstancesOf(group) {
		if _, replaced := w.state.Successor(inst); replaced && inst.Wanted() && len(explained.Waiting(inst.ID)) > 0 {
			n++
		}
	}
	return n
}

// atRest checks what must hold when nothing is left to do.
func (w *world) atRest(t rapid.TB) {
	if plan := reconcile.Decide(w.input()); len(plan.Entries) > 0 {
		t.Fatalf("%s: at rest, and yet: %v", w.at, plan.Entries)
	}
	for id, d := range w.state.Drains.All() {
		if d.Phase() == model.PhaseDraining {
			t.Fatalf("%s: drain %s has not ended", w.at, id)
		}
	}
	explained := reconcile.Explain(w.input())
	for id, g := range w.state.Groups.All() {
		if g.Role != model.RoleSystem && g.Ready < g.Count && explained.Pending(id) == nil {
			t.Fatalf("%s: %s has %d of %d ready, and there is no reason:\n%s", w.at, id, g.Ready,
				g.Count, w.run("show instances"))
		}
		if g.Running-w.held(explained, id) > g.Count && g.Role != model.RoleSystem {
			job, _ := id.Split()
			j, _ := w.state.Jobs.Get(job)
			d, ok := w.state.Deployments.Get(j.Deployment)
			if !ok || d.Status.Ended() { // a running deployment may have canaries that wait to be promoted
				t.Fatalf("%s: %s has %d running, %d are wanted:\n%s", w.at, id, g.Running, g.Count, w.run("show instances"))
			}
		}
	}
}
