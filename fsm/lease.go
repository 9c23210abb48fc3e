package fsm

import "github.com/outspan/outspan/model"

// leaseMargin is added to lease and grace before the servers assume that an instance has stopped because of its lease.
// It covers late timers, a slow kill and small differences between clocks.
const leaseMargin = 5 * model.Second

// HeartbeatInterval returns the interval at which an agent sends a heartbeat to every server. It is a sixth of the
// setting offline_after, but at least 300 ms and at most 10 s.
func HeartbeatInterval(offlineAfter model.Duration) model.Duration {
	return min(max(offlineAfter/6, 300*model.Millisecond), 10*model.Second)
}

// LeaseEnd returns the time by which a lost instance has certainly stopped because of its lease, whatever the network
// does: lease, grace and leaseMargin after the entry that marked the node offline. A majority of the servers agreed
// before that entry to stop renewing the node's leases. LeaseEnd returns Never if the instance has no lease or its node
// is not offline, because then nothing guarantees that the instance stops.
func (s *State) LeaseEnd(inst *Instance) model.Time {
	spec, ok := s.Spec(inst.Group, inst.Version)
	n, known := s.Nodes.Get(inst.Node)
	if !ok || !known || !spec.Fenced() || n.Health != model.HealthOffline {
		return model.Never
	}
	return n.Return.OfflineSince.Add(spec.Exclusive.Lease).Add(s.graceOf(inst, inst.Marks.GraceOverride)).Add(leaseMargin)
}

// InstanceFenced marks a lost instance as stopped because its lease has expired. Codes: not_found, stale (the instance
// is not lost or has no lease, or its node is not offline), lease_held until LeaseEnd, mass_offline_hold during a hold,
// inventory_missing while the node owes an inventory since a restore.
type InstanceFenced struct {
	ID model.InstanceID `cbor:"1,keyasint"`
}

func (c *InstanceFenced) apply(s *State) error {
	inst, ok := s.Instances.Get(c.ID)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no instance %s", c.ID)
	}
	end := s.LeaseEnd(inst)
	n, _ := s.Nodes.Get(inst.Node)
	switch {
	case inst.Status.Observed != model.ObservedLost || end == model.Never:
		return model.Refuse(model.CodeStale, "instance %s is not lost on an offline node, or runs under no lease", c.ID)
	case s.Hold.Active:
		return model.Refuse(model.CodeHold, "a hold is set: the slot of the lost instance %s is not filled anew", inst.ID)
	case n.Restore.InventoryOwed: // after the snapshot was saved, the node may have returned and renewed its lease
		return model.Refuse(model.CodeInventoryMissing,
			"the agent of node %s has not told since the restore what runs there", n.Name).
			WithHint("start its agent; or if the machine is off: outspan node confirm-dead %s --force", n.Name)
	case s.Now < end:
		return model.Refuse(model.CodeLeaseHeld, "instance %s may run for another %s under its lease",
			c.ID, roundUp(end.Sub(s.Now)))
	}
	s.confirmStopped(inst, model.CauseNodeOffline, "its lease is over")
	return nil
}

// mayStillRun returns a refusal while the only holder of a slot may still run on a node, and nil otherwise. While it
// refuses, the instances on the node must not be treated as stopped. It also refuses if the node may run instances that
// the state does not know after a restore. Codes: node_offline_unconfirmed_stop, lease_held.
func (s *State) mayStillRun(n *Node) *model.Error {
	if n.Restore.pending() {
		return model.Refuse(model.CodeNodeOffline,
			"node %s may run what a restore has lost from the state, and of which only one may run", n.Name).
			WithHint("bring the node back; or if the machine is known to be off: outspan node confirm-dead %s --force", n.Name)
	}
	var until model.Time
	for inst := range s.InstancesOn(n.ID) {
		spec, ok := s.Spec(inst.Group, inst.Version)
		if !ok || !spec.OneHolder() || !inst.holdsClaims() || inst.WaitsForRoom() {
			continue
		}
		if end := s.LeaseEnd(inst); end != model.Never {
			until = max(until, end)
			continue
		}
		return model.Refuse(model.CodeNodeOffline,
			"node %s may still run instance %s of %s, of which only one may run, and nothing ends it by itself",
			n.Name, inst.ID, inst.Group).
			WithHint("bring the node back; or if the machine is known to be off: outspan node confirm-dead %s --force", n.Name)
	}
	if s.Now < until {
		return model.Refuse(model.CodeLeaseHeld,
			"node %s may still run what only one may run: its lease may hold for another %s", n.Name, roundUp(until.Sub(s.Now))).
			WithHint("wait for that time; or if the machine is known to be off: outspan node confirm-dead %s --force", n.Name)
	}
	return nil
}

func roundUp(d model.Duration) model.Duration {
	return (d + model.Second - 1) / model.Second * model.Second
}
