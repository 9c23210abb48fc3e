package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// waiting checks a preemptor that waits until its victims stop, and adds the memory that is promised to the preemptor
// to c.waits. The victims must be on the same node and must be stopping for this preemptor. Each port of the preemptor
// must belong to the preemptor or to a victim (S1 and S11 in docs/proof.md).
func (c *checker) waiting(i *Instance) {
	c.holds(S11, i.Desired == model.DesiredRunning, "instance %s awaits %v and is %s", i.ID, i.Links.Awaits, i.Desired)
	c.holds(S11, oneOf(i.Status.Observed, model.ObservedPending, model.ObservedLost), "instance %s awaits %v and is %s",
		i.ID, i.Links.Awaits, i.Status.Observed)
	for n, id := range i.Links.Awaits {
		victim, ok := c.s.Instances.Get(id)
		if c.holds(S11, ok, "instance %s awaits %s, which is gone", i.ID, id); !ok {
			continue
		}
		c.holds(S11, !slices.Contains(i.Links.Awaits[:n], id), "instance %s awaits %s twice", i.ID, id)
		c.holds(S11, victim.Node == i.Node && victim.holdsClaims() && !victim.WaitsForRoom(),
			"instance %s awaits %s, which holds nothing on node %s", i.ID, id, i.Node)
		c.holds(S11, victim.Desired != model.DesiredRunning && victim.Marks.StopCause == model.CausePreempted &&
			model.InstanceID(victim.Marks.StopReason) == i.ID,
			"instance %s awaits %s, which is %s for %s, by %s", i.ID, id, victim.Desired, victim.Marks.StopCause,
			victim.Marks.StopReason)
	}
	c.waits[i.Node] += max(i.Claims.Resources.MemoryBytes-c.s.heldBy(i.Links.Awaits), 0)
	for _, p := range i.Claims.Ports {
		port := p.Number
		owner, _ := c.s.PortOwner(i.Node, port)
		c.holds(S1, owner == i.ID || slices.Contains(i.Links.Awaits, owner),
			"port %d of node %s: instance %s waits for it, %q owns it", port, i.Node, i.ID, owner)
		c.ports += count(owner == i.ID)
	}
}
