package fsm

// LeaseBeats is how long the lease lasts under which a node runs what is fenced: this many heartbeat intervals after the sending of the
// last one that a majority of the servers answered.
const LeaseBeats = 6

// leaseMargin is what is added to lease and grace before a node may be confirmed dead: for timers that are late, a kill that takes its
// time and clocks that differ a little.
const leaseMargin = 5 * Second

// HeartbeatInterval is H: how often an agent tells every server that it is there, given after how much silence it is offline. A sixth
// of that, between 300 ms and 10 s.
func HeartbeatInterval(offlineAfter Duration) Duration {
	return min(max(offlineAfter/6, 300*Millisecond), 10*Second)
}

func leaseLength(offlineAfter Duration) Duration { return LeaseBeats * HeartbeatInterval(offlineAfter) }

// Fenced reports whether instances run only while their node's lease is held. One with a local volume needs none: its data is there
// alone, so nobody else can run on it.
func (g *GroupSpec) Fenced() bool { return g.Exclusive && !g.hasVolume(VolumeLocal) }

// leaseOf is the longest lease that the agent of a node may still use.
func (s *State) leaseOf(n *Node) Duration {
	return max(leaseLength(s.Settings.OfflineAfter), n.Return.Lease)
}

// keepLease notes the lease that an agent may go on to use until it hears of new settings.
func (s *State) keepLease(n *Node, before Settings) {
	if old := leaseLength(before.OfflineAfter); old > leaseLength(s.Settings.OfflineAfter) {
		n.Return.Lease = max(n.Return.Lease, old)
	}
}

// endLease forgets an older and longer lease when a node returns, if it must be over by now.
func (s *State) endLease(n *Node) {
	if s.Now > n.Return.OfflineSince.Add(s.leaseOf(n)) {
		n.Return.Lease = 0
	}
}

// mayRunUntil is when nothing that is fenced runs on an offline node any more, wherever the network is broken: lease, the longest grace of
// what is there, and a margin after the offline entry, before which a majority agreed to renew that lease no more. 0: nothing there is
// fenced, and no time makes sure that it stopped.
func (s *State) mayRunUntil(n *Node) Time {
	var until Time
	for inst := range s.InstancesOn(n.ID) {
		if spec, ok := s.Spec(inst.Group, inst.Version); ok && spec.Fenced() && inst.holdsClaims() {
			until = max(until, n.Return.OfflineSince.Add(s.leaseOf(n)+s.graceOf(inst, inst.Marks.GraceOverride)+leaseMargin))
		}
	}
	return until
}
