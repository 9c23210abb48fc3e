package fsm

// LeaseBeats is how many heartbeats a node sends within the shortest lease of what it runs: a few may be lost.
const LeaseBeats = 6

// Bounds of a lease.
const (
	defaultLease = Minute
	minLease     = 10 * Second
	maxLease     = 24 * Hour
)

// leaseMargin is what is added to lease and grace before an instance counts as ended by its lease: for timers that are late, a kill that
// takes its time and clocks that differ a little.
const leaseMargin = 5 * Second

// HeartbeatInterval is H: how often an agent tells every server that it is there, given after how much silence it is offline. A sixth
// of that, between 300 ms and 10 s.
func HeartbeatInterval(offlineAfter Duration) Duration {
	return min(max(offlineAfter/6, 300*Millisecond), 10*Second)
}

// ExclusiveSpec is the lease under which the instances of a group run. The lease holds while a majority of the servers answer the node's
// heartbeats; at its end the node kills the instance by itself. So another node may start the next one without a person's word.
type ExclusiveSpec struct {
	Lease Duration `json:"lease,omitempty" cbor:"1,keyasint,omitempty"` // default 1 min, at least 10 s; its length does not depend on offline_after
}

// Fenced reports whether instances run only while their node holds the group's lease. No role and no volume implies that.
func (g *GroupSpec) Fenced() bool { return g.Exclusive != nil }

// OneHolder reports whether a slot may never have two instances that are not confirmed stopped: they would share a volume or an identity.
func (g *GroupSpec) OneHolder() bool {
	return g.hasVolume(VolumeLocal) || g.Fenced() || g.Replacement.Identity == "same"
}

func (g *GroupSpec) checkExclusive() *Error {
	if g.Fenced() && (g.Exclusive.Lease < minLease || g.Exclusive.Lease > maxLease) {
		return refuseAt(keyPath("exclusive", "lease"),
			"exclusive.lease is %s; it must be %s to %s", g.Exclusive.Lease, minLease, maxLease)
	}
	return nil
}

// LeaseEnd is when a lost instance has ended by its lease, wherever the network is broken: lease, grace and a margin after the offline
// entry, before which a majority agreed to answer that node no more. Never: it runs under no lease, so no time makes sure that it ended.
func (s *State) LeaseEnd(inst *Instance) Time {
	spec, ok := s.Spec(inst.Group, inst.Version)
	n, known := s.Nodes.Get(inst.Node)
	if !ok || !known || !spec.Fenced() || n.Health != HealthOffline {
		return Never
	}
	return n.Return.OfflineSince.Add(spec.Exclusive.Lease).Add(s.graceOf(inst, inst.Marks.GraceOverride)).Add(leaseMargin)
}

// InstanceFenced takes a lost instance for stopped because its lease has ended it. Codes: not_found, stale (its node is not offline, or it
// is not lost), lease_held; inventory_missing after a restore.
type InstanceFenced struct {
	ID InstanceID `cbor:"1,keyasint"`
}

func (c *InstanceFenced) apply(s *State) error {
	inst, ok := s.Instances.Get(c.ID)
	if !ok {
		return Refuse(CodeNotFound, "there is no instance %s", c.ID)
	}
	end := s.LeaseEnd(inst)
	n, _ := s.Nodes.Get(inst.Node)
	switch {
	case inst.Status.Observed != ObservedLost || end == Never:
		return Refuse(CodeStale, "instance %s is not lost on an offline node, or runs under no lease", c.ID)
	case s.Hold.Active:
		return Refuse(CodeHold, "a hold is set: the slot of the lost instance %s is not filled anew", inst.ID)
	case n.Restore.Owes: // its silence may have ended in the entries that a restore lost
		return Refuse(CodeInventoryMissing, "the agent of node %s has not told since the restore what runs there", n.Name).
			WithHint("start its agent; or if the machine is off: outspan node confirm-dead %s --force", n.Name)
	case s.Now < end:
		return Refuse(CodeLeaseHeld, "instance %s may run for another %s under its lease", c.ID, roundUp(end.Sub(s.Now)))
	}
	s.confirmStopped(inst, CauseNodeOffline, "its lease is over")
	return nil
}

// mayStillRun refuses to take everything on an offline node for stopped while what only one may run may run there.
func (s *State) mayStillRun(n *Node) *Error {
	if n.Restore.pending() {
		return Refuse(CodeNodeOffline, "node %s may run what a restore has lost from the state, and of which only one may run", n.Name).
			WithHint("bring the node back; or if the machine is known to be off: outspan node confirm-dead %s --force", n.Name)
	}
	var until Time
	for inst := range s.InstancesOn(n.ID) {
		spec, ok := s.Spec(inst.Group, inst.Version)
		if !ok || !spec.OneHolder() || !inst.holdsClaims() || inst.WaitsForRoom() {
			continue
		}
		if end := s.LeaseEnd(inst); end != Never {
			until = max(until, end)
			continue
		}
		return Refuse(CodeNodeOffline, "node %s may still run instance %s of %s, of which only one may run, and nothing ends it by itself", n.Name, inst.ID, inst.Group).
			WithHint("bring the node back; or if the machine is known to be off: outspan node confirm-dead %s --force", n.Name)
	}
	if s.Now < until {
		return Refuse(CodeLeaseHeld, "node %s may still run what only one may run: its lease may hold for another %s", n.Name, roundUp(until.Sub(s.Now))).
			WithHint("wait for that time; or if the machine is known to be off: outspan node confirm-dead %s --force", n.Name)
	}
	return nil
}

func roundUp(d Duration) Duration { return (d + Second - 1) / Second * Second }
