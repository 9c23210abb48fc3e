package reconcile_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// TestRoleProperties checks drains and disabled nodes with random facts of members and random results of hooks. A
// member whose role keeps it is not stopped unless the drain is forced. The same applies to a member whose own gates do
// not hold in the state to which the stop is applied (S6). A stop with a hook begins only after the hook's result is
// known. Once nothing happens from outside, the cluster settles, and no preparation uses a unit of a budget any more.
func TestRoleProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		w.run("settings offline_after=6s start_timeout=20s")
		w.run("node n1 n2 n3 n4 n5")
		var lines []string
		for _, job := range []string{"quo", "lf", "hk", "one"} {
			w.run("quietly " + roleJob(job, 1, 3))
		}
		w.run("quietly settle")
		w.elect()
		// Each step is drawn as a seed, because rapid favours small numbers. If a drawn number chose the line directly,
		// little would happen.
		for _, seed := range rapid.SliceOfN(rapid.Uint64(), 60, 60).Draw(rt, "steps") {
			if seed == 0 {
				continue
			}
			r := rand.New(rand.NewPCG(seed, 1))
			line := drawRoleLine(r, w)
			lines = append(lines, line)
			w.at = strings.Join(lines, "\n")
			w.run(line)
			if r.IntN(2) == 0 {
				lines = append(lines, "decide")
				w.at = strings.Join(lines, "\n")
				w.checkStops(rt)
				w.decideChecked(rt)
			}
		}
		w.at = strings.Join(lines, "\n") + "\n(quiet)"
		w.hooks = map[model.InstanceID]hookOutcome{}
		w.settleRoles(rt)
	})
}

func pickOf(r *rand.Rand, set ...string) string { return set[r.IntN(len(set))] }

func drawRoleLine(r *rand.Rand, w *world) string {
	var names []string
	for _, inst := range w.state.Instances.All() {
		if n, _ := w.state.Nodes.Get(inst.Node); !inst.Terminal() && n.Health != model.HealthOffline &&
			inst.Status.Observed != model.ObservedPending {
			names = append(names, w.names[inst.ID])
		}
	}
	slices.Sort(names)
	node := func() string { return pickOf(r, "n1", "n2", "n3", "n4", "n5") }
	what := r.IntN(26)
	if len(names) > 0 && what < 10 {
		name := pickOf(r, names...)
		switch {
		case what < 5:
			return "facts " + name + pickOf(r, "", " leader=true", " leader=false", " leader=false")
		case what < 8:
			return "hook " + name + pickOf(r, " fails no", " silent", " leader=false", " done=true")
		case what == 8:
			return "evict " + name
		}
		return "report " + name + pickOf(r, " ready", " unready", " failed crash_loop", " booting")
	}
	switch what {
	case 10, 11, 12:
		options := pickOf(r, "", "deadline=30s", "force", "deadline=30s force_at_deadline", "downtime=*")
		return fmt.Sprintf("drain d%d %s %s", w.state.Index, node(), options)
	case 13:
		return pickOf(r, "uncordon ", "disable ", "enable ") + node()
	case 14:
		return pickOf(r, "silent 7s ", "return ", "newer ") + node()
	case 15:
		return pickOf(r, "pause ", "resume ", "cancel ") + lastDrain(w)
	case 16, 17:
		return "advance " + pickOf(r, "1s", "5s", "1m")
	case 18, 19:
		return roleJob(pickOf(r, "quo", "lf", "hk", "one"), 1+r.IntN(2), r.IntN(4))
	}
	return "agents"
}

func roleJob(job string, cmd, count int) string {
	more := map[string]string{
		"quo": "role=quorum hook=resign", "lf": "role=leader-follower",
		"hk": "hook=resign:continue order=stop_first max_down=1 rate=1/10s", "one": "role=singleton",
	}[job]
	return fmt.Sprintf("run %s main count=%d cmd=v%d deadline=1m reschedule=2/1m %s", job, count, cmd, more)
}

// checkStops checks each planned stop against the state to which the stop would be applied.
func (w *world) checkStops(t rapid.TB) {
	draft := w.state.NewDraft(w.now)
	for _, e := range reconcile.Decide(w.input()).Entries {
		for _, group := range e.Groups {
			for _, c := range group {
				if stop, ok := c.(*fsm.InstanceStop); ok {
					w.checkStop(t, draft.State(), stop)
				}
			}
			_ = draft.Try(group...)
		}
	}
}

func (w *world) checkStop(t rapid.TB, s *fsm.State, c *fsm.InstanceStop) {
	inst, _ := s.Instances.Get(c.ID)
	if observed := inst.Status.Observed; observed != model.ObservedReady && observed != model.ObservedUnready {
		return
	}
	d, drained := s.Drains.Get(model.DrainID(c.By))
	spec, _ := s.Policy(inst.Group)
	outside := c.Cause == model.CauseNodeDraining || c.Cause == model.CauseNodeDisabled
	if outside && !(drained && d.Options.Force) {
		n, _ := s.Nodes.Get(inst.Node)
		asked := slices.Contains(spec.Eviction.When, "!self.leader")
		if spec.Eviction.Mode == model.ModeNever || asked &&
			(inst.Status.Facts[model.FactLeader] != "false" || n.Health != model.HealthOnline) {
			t.Fatalf("%s: %s is stopped for %s, and says %v", w.at, w.names[c.ID], c.Cause, inst.Status.Facts)
		}
	}
	_, hook := s.Hook(inst, model.HookBeforeStop)
	planned := c.Cause == model.CauseRollout || c.Cause == model.CauseScaleDown || c.Cause == model.CauseUser ||
		c.Cause == model.CauseNodeDraining && !(drained && d.Options.Force)
	if r := inst.Status.Hook; hook && planned && (!inst.Eviction.Preparing || r == nil || r.Seq != inst.Eviction.Seq) {
		t.Fatalf("%s: %s is stopped for %s before its hook has answered: %+v, %+v", w.at, w.names[c.ID],
			c.Cause, inst.Eviction, r)
	}
}

// settleRoles checks that the cluster settles, and that then no preparation uses a unit of a budget.
func (w *world) settleRoles(t rapid.TB) {
	w.comeToRest(t)
	for id, g := range w.state.Groups.All() {
		if g.Held != 0 {
			t.Fatalf("%s: at rest %s holds %d", w.at, id, g.Held)
		}
	}
}

// elect makes one ready member on an online node the leader in each group with the gate !self.leader. It prefers a
// member that is on an active node and not marked for eviction, then one that is not marked, then the first one.
func (w *world) elect() {
	for id := range w.state.Groups.All() {
		spec, ok := w.state.Policy(id)
		if !ok || !slices.Contains(spec.Eviction.When, "!self.leader") {
			continue
		}
		var members []*fsm.Instance
		for inst := range w.state.InstancesOf(id) {
			if n, _ := w.state.Nodes.Get(inst.Node); inst.Ready() && n.Health == model.HealthOnline {
				members = append(members, inst)
			}
		}
		leader := slices.IndexFunc(members, func(inst *fsm.Instance) bool {
			n, _ := w.state.Nodes.Get(inst.Node)
			return n.Intent == model.IntentActive && !inst.Eviction.Requested
		})
		if leader < 0 {
			leader = slices.IndexFunc(members, func(inst *fsm.Instance) bool { return !inst.Eviction.Requested })
		}
		for i, inst := range members {
			if want := fmt.Sprint(i == max(leader, 0)); inst.Status.Facts[model.FactLeader] != want {
				w.speak(inst, map[string]string{model.FactLeader: want}, nil)
			}
		}
	}
}
