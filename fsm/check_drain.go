package fsm

import "github.com/outspan/outspan/model"

func (c *checker) drains() {
	for id, d := range c.s.Drains.All() {
		c.want(d.ID == id && len(d.Nodes) > 0, "drain %s: its row says %s with %d nodes", id, d.ID, len(d.Nodes))
		c.want(d.Index <= c.s.Index && d.EndedIndex <= c.s.Index,
			"drain %s: begun at index %d, ended at %d, the state is at %d", id, d.Index, d.EndedIndex, c.s.Index)
		c.want((d.EndedIndex != 0) == (d.Phase() != model.PhaseDraining), "drain %s is %s and ended at index %d",
			id, d.Phase(), d.EndedIndex)
		turns := 0
		seen := map[model.NodeID]bool{}
		for i := range d.Nodes {
			p := &d.Nodes[i]
			c.want(!seen[p.Node], "drain %s names node %s twice", id, p.Node)
			seen[p.Node] = true
			c.drainNode(d, p)
			turns += count(p.Turn && p.Phase == model.PhaseDraining)
		}
		limit := d.Options.MaxParallelNodes
		c.want(limit == 0 || turns <= limit, "drain %s works on %d nodes at once, at most %d are allowed", id, turns, limit)
	}
	for id, n := range c.s.Nodes.All() {
		if d, ok := c.s.Drains.Get(n.Drain); ok {
			_, named := d.Node(id)
			c.want(named, "node %s belongs to drain %s, which doesn't name it", id, d.ID)
		}
	}
}

func (c *checker) drainNode(d *Drain, p *DrainNode) {
	c.want(oneOf(p.Phase, model.PhaseDraining, model.PhaseDrained, model.PhaseFailed, model.PhaseCanceled),
		"drain %s, node %s: phase is %q", d.ID, p.Node, p.Phase)
	c.want(p.Phase != model.PhaseFailed || p.LastError != "",
		"drain %s, node %s failed without a last error", d.ID, p.Node)
	c.want(p.Phase != model.PhaseDraining || p.LastError == "", "drain %s, node %s is draining and has the last error %q",
		d.ID, p.Node, p.LastError)
	c.want(p.Turn || p.Started == 0 && p.Deadline == 0, "drain %s, node %s: its turn has not come and it has a deadline",
		d.ID, p.Node)
	c.want(!p.Turn || p.Started <= c.s.Now && p.Deadline == p.Started.Add(d.Options.Deadline),
		"drain %s, node %s: started at %d, deadline %d, which is not %s later",
		d.ID, p.Node, p.Started, p.Deadline, d.Options.Deadline)
	c.want(p.Acked == 0 || oneOf(p.Phase, model.PhaseDrained, model.PhaseFailed),
		"drain %s, node %s is %s and counts %d acknowledged instances", d.ID, p.Node, p.Phase, p.Acked)
	c.want(0 <= p.Unreplaced && p.Unreplaced <= p.Moved, "drain %s, node %s: %d of %d moved have no replacement", d.ID,
		p.Node, p.Unreplaced, p.Moved)
	if p.Phase != model.PhaseDraining {
		return
	}
	n, ok := c.s.Nodes.Get(p.Node)
	if c.want(ok, "drain %s goes on for node %s, which does not exist", d.ID, p.Node); !ok {
		return
	}
	c.want(n.Intent == model.IntentDraining && n.Drain == d.ID,
		"drain %s goes on for node %s, whose intent is %s and drain %q", d.ID, p.Node, n.Intent, n.Drain)
	for i := range c.s.InstancesOn(p.Node) {
		c.want(!p.Turn || i.Desired != model.DesiredRunning || i.Status.Observed != model.ObservedPending,
			"instance %s is still to be started on the draining node %s", i.ID, p.Node)
	}
}
