package sim

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// sickness checks the rules about nodes with troubles. Only a report of the node's own agent gives a node troubles
// (S15). No instance is placed on such a node, unless the setting place_on_degraded allows it (S7). Because of the
// troubles, an instance is stopped only after its group's toleration (S6), and not during a hold (S12).
func (j *judge) sickness(c *committed) {
	c.taken(func(_ []fsm.Command, command fsm.Command) {
		switch one := command.(type) {
		case *fsm.InstancePlace:
			n, ok := c.before.Nodes.Get(one.Node)
			if ok && n.Troubled() && !c.before.Settings.PlaceOnDegraded && !c.recovers(one.Node) {
				j.fail(fsm.S7, "entry %d places %s on node %s, which is degraded: %s", c.index, one.ID, one.Node, n.Self.Words())
			}
		case *fsm.InstanceStop:
			if one.Cause == model.CauseNodeNotReady {
				j.counts[CountSickStops]++
				j.tolerated(c, one.ID)
			}
		}
	})
	for id, n := range c.after.Nodes.All() {
		_, known := j.sick[id]
		switch {
		case n.Troubled() && !known:
			if !c.saidBy(id) {
				j.fail(fsm.S15, "entry %d (%s) makes node %s degraded, of which its agent says nothing",
					c.index, kinds(c.entry), id)
			}
			j.sick[id] = c.after.Now
		case !n.Troubled():
			delete(j.sick, id)
		}
	}
}

// tolerated checks a stop whose cause is the troubles of the node. The stop must come after the toleration of the
// instance's group, and not during a hold.
func (j *judge) tolerated(c *committed, id model.InstanceID) {
	i, ok := c.before.Instances.Get(id)
	if !ok {
		return
	}
	spec, ok := c.before.Policy(i.Group)
	since, sick := j.sick[i.Node]
	switch {
	case !ok || spec.Toleration.NotReady == nil || *spec.Toleration.NotReady == model.Forever:
		j.fail(fsm.S6, "entry %d stops %s for its sick node, and its group tolerates that for ever", c.index, id)
	case !sick || c.after.Now < since.Add(*spec.Toleration.NotReady):
		j.fail(fsm.S6, "entry %d stops %s at %d for its node %s, sick since %d, which its group tolerates for %s",
			c.index, id, c.after.Now, i.Node, since, *spec.Toleration.NotReady)
	case c.before.Hold.Active && c.after.Hold.Active:
		j.fail(fsm.S12, "entry %d stops %s for its sick node during a hold", c.index, id)
	}
}

// saidBy reports whether the entry contains a report in which the agent of the node names troubles.
func (c *committed) saidBy(id model.NodeID) bool {
	said := false
	c.taken(func(_ []fsm.Command, command fsm.Command) {
		report, ok := command.(*fsm.NodeReport)
		said = said || ok && report.ID == id && report.Self != nil && len(report.Self.Troubles) > 0
	})
	return said
}

// recovers reports whether the node has no troubles after the entry. The report that ended them may be in the entry
// itself.
func (c *committed) recovers(id model.NodeID) bool {
	n, ok := c.after.Nodes.Get(id)
	return ok && !n.Troubled()
}
