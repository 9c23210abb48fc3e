package reconcile_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

const randomClusters = 1000

// TestRebalanceSettles checks the rescheduler on random clusters. It moves only ready instances, only of groups whose
// instances are all ready, and only to eligible nodes that the group does not avoid. One decision begins no more moves
// than the settings allow for a cycle. No distribution of the instances over the nodes occurs twice. At the end, no
// move and no wake-up is planned any more.
// proves R51, R55
func TestRebalanceSettles(t *testing.T) {
	moved := 0
	for seed := range uint64(randomClusters) {
		n := settleRandom(t, seed)
		moved += n
	}
	t.Logf("%d moves in %d clusters", moved, randomClusters)
	if moved < randomClusters {
		t.Errorf("only %d moves in %d clusters prove little", moved, randomClusters)
	}
}

// settleRandom makes a cluster with uneven load, and lets the rescheduler work. It returns the number of moves.
func settleRandom(t *testing.T, seed uint64) int {
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	w.at, w.quiet = fmt.Sprintf("seed %d", seed), true
	lopsided(w, r)
	preset := []string{"careful", "balanced", "eager"}[r.IntN(3)]
	w.run(fmt.Sprintf("settings rescheduler=%s min_age=1s cooldown=1s moves=%d gain=%d",
		preset, 1+r.IntN(4), 1+r.IntN(25)))
	seen := map[string]bool{whereabouts(w): true}
	moves, idle := 0, 0
	for range 2000 {
		before := w.state.Index
		n := w.decideMoves(t)
		moves += n
		w.work(nil)
		if w.state.Index != before {
			idle = 0
			continue
		}
		if at := whereabouts(w); idle == 0 && seen[at] && moves > 0 && w.freshMoves {
			t.Fatalf("seed %d: after %d moves everything is where it was once before: %s", seed, moves, at)
		} else {
			seen[at], w.freshMoves = true, false
		}
		if idle++; idle > 3 {
			w.atRest(t)
			if wake := reconcile.Decide(w.input()).Wake; wake != model.Never {
				t.Fatalf("seed %d: it is settled, and wakes in %s", seed, wake.Sub(w.now))
			}
			return moves
		}
		w.run("advance 61s")
	}
	t.Fatalf("seed %d: it does not settle: %d moves", seed, moves)
	return 0
}

// lopsided runs a few jobs while some nodes are cordoned, so that the load is uneven once these nodes accept instances
// again.
func lopsided(w *world, r *rand.Rand) {
	nodes := 3 + r.IntN(5)
	for i := range nodes {
		w.run(fmt.Sprintf("node n%d memory=%dMiB cpu=%d rack=r%d disk=%s", i, 400+r.IntN(1600), 1000+r.IntN(8000), r.IntN(3),
			[]string{"ssd", "hdd"}[r.IntN(2)]))
	}
	w.run("settings algorithm=" + []string{"spread", "spread", "binpack"}[r.IntN(3)])
	out := r.IntN(nodes)
	for i := range out {
		w.run(fmt.Sprintf("cordon n%d", i))
	}
	for i := range 2 + r.IntN(7) {
		line := fmt.Sprintf("run j%d main count=%d memory=%dMiB cpu=%d", i, 1+r.IntN(6), 10+r.IntN(200), r.IntN(800))
		for _, more := range []string{" spread=node.label.rack", " affinity=node.label.disk:ssd:50",
			" affinity=node.label.rack:r1:8", " spread=node.label.disk", " order=stop_first", " volume=data",
			" max_down=1", " distinct=node.id"} {
			if r.IntN(5) == 0 {
				line += more
			}
		}
		w.run(line)
		if r.IntN(2) == 0 {
			w.run("settle")
		}
	}
	w.run("settle")
	for i := range out {
		w.run(fmt.Sprintf("uncordon n%d", i))
	}
	if r.IntN(4) == 0 {
		w.run(fmt.Sprintf("cordon n%d", r.IntN(nodes)))
	}
	w.run("advance 3h")
	w.run("settle")
}

// decideMoves makes a decision, checks the moves in its plan, and commits the plan. It returns the number of moves.
func (w *world) decideMoves(t *testing.T) int {
	plan := reconcile.Decide(w.input())
	before := w.state
	moves := 0
	for _, e := range plan.Entries {
		for _, group := range e.Groups {
			if c, ok := group[0].(*fsm.InstanceMove); ok {
				moves++
				w.goodMove(t, before, c)
			}
		}
		for _, r := range w.commit(e) {
			if r.Refusal != nil {
				t.Fatalf("%s: the log refused what was planned: %v", w.at, r.Refusal)
			}
		}
	}
	if moves > 0 {
		w.freshMoves = true
	}
	if limit := before.Settings.Rescheduling().Moves; moves > limit {
		t.Fatalf("%s: %d moves begin at once, %d may in a cycle", w.at, moves, limit)
	}
	return moves
}

func (w *world) goodMove(t *testing.T, before fsm.State, c *fsm.InstanceMove) {
	inst, _ := before.Instances.Get(c.ID)
	target, _ := before.Nodes.Get(c.Target)
	group, _ := before.Groups.Get(inst.Group)
	spec, _ := before.Policy(inst.Group)
	if _, avoided := target.Avoids(inst.Group, inst.Version, w.now); avoided || before.Eligible(target) != nil {
		t.Fatalf("%s: a move to node %s, which is %s", w.at, target.Name, target.State())
	}
	if !inst.Ready() || group.Ready != group.Count || len(spec.Volumes) > 0 || spec.Eviction.Order != model.OrderSurge {
		t.Fatalf("%s: instance %s of %s may not be moved", w.at, inst.ID, inst.Group)
	}
	if c.Gain < before.Settings.Rescheduling().Gain {
		t.Fatalf("%s: a move gains %d, less than %d", w.at, c.Gain, before.Settings.Rescheduling().Gain)
	}
}

// whereabouts returns, as text, how many instances of each group should run on each node.
func whereabouts(w *world) string {
	count := map[string]int{}
	for _, inst := range w.state.Instances.All() {
		if inst.Desired == model.DesiredRunning {
			count[fmt.Sprintf("%s@%s", inst.Group, inst.Node)]++
		}
	}
	var lines []string
	for key, n := range count {
		lines = append(lines, fmt.Sprintf("%s=%d", key, n))
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// A decision with a Cache notices that a group has changed since the last decision: where the group's instances are, or
// the group's policy.
func TestRebalanceSeesChangedGroups(t *testing.T) {
	for name, lines := range map[string]struct{ before, change []string }{
		"instances": {
			before: []string{"node n1 n2", "run web http count=2", "settle"},
			change: []string{"report web-http-0a failed"},
		},
		"policy": {
			before: []string{"node n1", "run web http affinity=node.label.disk:hdd:60", "settle", "node n2 disk=ssd"},
			change: []string{"run web http affinity=node.label.disk:ssd:60"},
		},
		"labels": {
			before: []string{"node n1", "run web http affinity=node.label.disk:ssd:60", "settle", "node n2"},
			change: []string{"label n2 disk=ssd"},
		},
		"nodes in service": {
			before: []string{"node n1", "run web http affinity=node.label.disk:ssd:60", "settle", "node n2", "node n3 disk=ssd",
				"cordon n3"},
			change: []string{"uncordon n3"},
		},
	} {
		w := newWorld(t)
		for _, line := range append(lines.before, "settings rescheduler=balanced", "advance 24h") {
			w.run(line)
		}
		in := w.input()
		in.Cache = &w.seen
		if plan := reconcile.Decide(in); len(plan.Entries) > 0 {
			t.Fatalf("%s: %v is decided for a group that is well placed", name, plan.Entries)
		}
		w.run("settings rescheduler=off")
		for _, line := range append(lines.change, "settle", "settings rescheduler=balanced", "advance 24h") {
			w.run(line)
		}
		in = w.input()
		in.Cache = &w.seen
		cached, plain := reconcile.Decide(in), reconcile.Decide(w.input())
		if diff := cmp.Diff(plain, cached); diff != "" || len(plain.Entries) == 0 {
			t.Errorf("%s: without a Cache, %d entries are decided; with it:\n%s", name, len(plain.Entries), diff)
		}
	}
}

// A Cache keeps the instance lists of groups at rest, which the rescheduler looks at, only as long as the groups exist.
func TestCacheForgetsGroupsThatAreGone(t *testing.T) {
	w := newWorld(t)
	lists := func(lines ...string) int {
		for _, line := range append(lines, "settle", "advance 24h") {
			w.run(line)
		}
		in := w.input()
		in.Cache = &w.seen
		reconcile.Decide(in)
		return w.seen.Lists()
	}
	before := lists("settings rescheduler=balanced", "node n1 n2", "run web http count=2", "run other main count=2")
	if after := lists("stop web purge"); before != 2 || after != 1 {
		t.Errorf("of two groups the cache has %d lists, and of one group %d", before, after)
	}
}

// The rescheduler examines a limited number of groups in one decision. Groups that can't be moved, or that are placed
// as well as possible already, don't use up this number.
func TestRebalancePassesOverOtherGroups(t *testing.T) {
	for name, keys := range map[string]string{
		"fixed": "order=stop_first affinity=node.label.disk:ssd:100", "even": "count=2 spread=node.label.rack",
		"system": "role=system order=surge affinity=node.label.disk:ssd:100",
	} {
		w := newWorld(t)
		w.run("node n1 rack=a memory=64GiB")
		w.run("node n2 rack=b memory=64GiB")
		others := make([]string, 40)
		for i := range others {
			others[i] = fmt.Sprintf("g%d %s", i, keys)
		}
		w.run("run others " + strings.Join(others, " ; "))
		w.run("run web http affinity=node.label.disk:ssd:60")
		w.run("settle")
		w.run("node n3 rack=a disk=ssd memory=64GiB")
		w.run("settle") // system groups come to rest
		w.run("advance 24h")
		if moves := w.run("moves"); !strings.HasPrefix(moves, "web-http-0a from") {
			t.Errorf("%s: the moves are %q", name, moves)
		}
	}
}
