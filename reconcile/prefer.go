package reconcile

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// groupCounts counts a group's instances by node and by the values of spread attributes.
type groupCounts struct {
	nodes  map[model.NodeID]int
	values []map[string]int // for each spread attribute: number of instances by value
}

// count counts the holders of a group's slots. A group at rest has no other instances.
func (b *balancer) count(g *groupView) *groupCounts {
	c := &groupCounts{nodes: map[model.NodeID]int{}, values: make([]map[string]int, len(g.spec.Spreads))}
	for i := range c.values {
		c.values[i] = map[string]int{}
	}
	for _, slot := range g.slots() {
		if slot.holder == nil {
			continue
		}
		c.nodes[slot.holder.Node]++
		n := b.p.node(slot.holder.Node)
		for i := range g.spec.Spreads {
			value, _ := n.Attribute(g.spec.Spreads[i].Attribute)
			c.values[i][value]++
		}
	}
	return c
}

// preference returns how much better a group's preferences are met after one instance moves between two nodes.
// Preferences are affinities, spreads, and distance from other instances of the group. The sum of the results of all
// moves is bounded, so moves for preferences come to an end.
func (b *balancer) preference(f *field, c *groupCounts, from, to *load) int64 {
	total := f.affinity(to.view.node) - f.affinity(from.view.node)
	total += f.samePenalty * int64(c.nodes[from.view.node.ID]-1-c.nodes[to.view.node.ID])
	for i := range f.spec.Spreads {
		here, _ := from.view.node.Attribute(f.spec.Spreads[i].Attribute)
		there, _ := to.view.node.Attribute(f.spec.Spreads[i].Attribute)
		if here != there {
			total += sameValue * int64(c.values[i][here]-1-c.values[i][there])
		}
	}
	return total
}

// loadGain returns how much better the load of the target node is for the instance than the load of its own node. It
// uses the score of placement, so that placement and the rescheduler don't undo each other's work.
func (b *balancer) loadGain(f *field, inst *fsm.Instance, from, to *load) int64 {
	r := inst.Claims.Resources
	before, after := f.useOf(from.view, from.memory, from.cpu), f.useOf(to.view, to.memory+r.MemoryBytes, to.cpu+r.CPU)
	return after - before
}

// improvePreferences moves instances to nodes that meet more of their group's preferences. It looks at the groupsSeen
// groups that could gain most, and plans at most one move for each. It stops early if no more moves may begin.
func (b *balancer) improvePreferences(tallies []*groupTally) {
	worth := slices.DeleteFunc(tallies, func(t *groupTally) bool { return b.busy[t.id] })
	slices.SortFunc(worth, func(x, y *groupTally) int {
		return cmp.Or(cmp.Compare(y.hint, x.hint), cmp.Compare(x.id, y.id))
	})
	for i, t := range worth {
		if i == groupsSeen {
			return
		}
		g := b.view(t.id)
		if g == nil {
			continue
		}
		if m := b.bestFor(g); m != nil && !b.begin(m) {
			return
		}
	}
}

// hint returns an upper bound of what one move could gain in preferences: the best possible place minus the worst place
// that an instance has now.
func (b *balancer) hint(t *groupTally, counts map[model.NodeID]int) int64 {
	clear(counts)
	most := 0
	for _, n := range t.nodes {
		counts[n]++
		most = max(most, counts[n])
	}
	least := 0
	if len(counts) >= len(b.loads) {
		least = most
		for _, l := range b.loads {
			least = min(least, counts[l.view.node.ID])
		}
	}
	total := b.affinityHint(t)
	if most >= least+2 {
		total += sameGroup * int64(most-1-least)
	}
	for i := range t.spec.Spreads {
		total += b.spreadHint(t, t.spec.Spreads[i].Attribute)
	}
	return total
}

func (b *balancer) spreadHint(t *groupTally, attribute string) int64 {
	if b.values[attribute] == nil {
		set := map[string]bool{}
		for _, l := range b.loads {
			value, _ := l.view.node.Attribute(attribute)
			set[value] = true
		}
		b.values[attribute] = set
	}
	count, most := map[string]int{}, 0
	for _, id := range t.nodes {
		value := ""
		if l := b.load(id); l != nil {
			value, _ = l.view.node.Attribute(attribute)
		}
		count[value]++
		most = max(most, count[value])
	}
	least := most
	for _, l := range b.loads {
		value, _ := l.view.node.Attribute(attribute)
		least = min(least, count[value])
	}
	if most < least+2 {
		return 0
	}
	return sameValue * int64(most-1-least)
}

func (b *balancer) affinityHint(t *groupTally) int64 {
	if len(t.spec.Affinities) == 0 {
		return 0
	}
	f := field{spec: t.spec}
	best, worst := f.affinity(b.loads[0].view.node), int64(0)
	for _, l := range b.loads {
		best = max(best, f.affinity(l.view.node))
	}
	worst = best
	for _, id := range t.nodes {
		if l := b.load(id); l != nil {
			worst = min(worst, f.affinity(l.view.node))
		}
	}
	return best - worst
}

// bestFor returns the move of a group that gains most in preferences and load together; nil if none gains enough. A
// move that must wait is returned only if no move that may begin gains enough.
func (b *balancer) bestFor(g *groupView) *move {
	f := b.p.fieldOf(g, g.row.Version)
	holders := b.holders(g)
	if f == nil || len(holders) == 0 {
		return nil
	}
	counts := b.count(g)
	verdicts := make([]*move, len(holders)) // by holder: its checked move; the target does not matter to the check
	var best, later *move
	bestGain, laterGain := int64(0), int64(0)
	b.eachTarget(f, func(to *load) bool {
		for i, inst := range holders {
			from := b.load(inst.Node)
			if from == to || from == nil {
				continue
			}
			better := b.preference(f, counts, from, to)
			gain := better + b.loadGain(f, inst, from, to)
			if better <= 0 || gain < int64(b.rules.Gain)*affinityPoint || gain <= bestGain ||
				f.repeats(to.view.node, from.view.node) {
				continue
			}
			m := move{inst: inst, to: to, out: b.show(inst, to, model.CauseAffinity, gain/affinityPoint)}
			if verdicts[i] == nil {
				verdicts[i] = b.checkMove(&m)
			}
			m.wait, m.at = verdicts[i].wait, verdicts[i].at
			switch {
			case m.wait == nil:
				best, bestGain = &m, gain
			case gain > laterGain:
				later, laterGain = &m, gain
			}
		}
		return true
	})
	if best == nil {
		return later
	}
	return best
}

// holders lists the instances of a group that could be moved: the oldest on each active node, ordered by a hash. It
// returns nil if a slot is empty or an instance does not have the group's version.
func (b *balancer) holders(g *groupView) []*fsm.Instance {
	oldest := map[model.NodeID]*fsm.Instance{}
	for _, slot := range g.slots() {
		inst := slot.holder
		if inst == nil || inst.Version != g.row.Version {
			return nil
		}
		if known := oldest[inst.Node]; known == nil || older(inst, known) < 0 {
			oldest[inst.Node] = inst
		}
	}
	var all []*fsm.Instance
	for _, slot := range g.slots() {
		inst := slot.holder
		if l := b.load(inst.Node); oldest[inst.Node] == inst && l != nil && l.view.node.Intent == model.IntentActive {
			all = append(all, inst)
		}
	}
	slices.SortFunc(all, func(x, y *fsm.Instance) int {
		return cmp.Or(cmp.Compare(hash(string(x.ID), string(x.Node)), hash(string(y.ID), string(y.Node))),
			cmp.Compare(x.ID, y.ID))
	})
	return all
}
