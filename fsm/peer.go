package fsm

import "iter"

// PeerState is what the other instances of a group are told about one of it.
type PeerState string

// The states of a peer.
const (
	PeerStarting PeerState = "starting" // it was not ready yet
	PeerReady    PeerState = "ready"
	PeerUnready  PeerState = "unready"  // it was ready, and is not now
	PeerStopping PeerState = "stopping" // it is to stop
	PeerLost     PeerState = "lost"     // its node is offline
)

// PeerState returns the state that the other instances of the group are told; "" for nil.
func (i *Instance) PeerState() PeerState {
	switch {
	case i == nil:
		return ""
	case i.Status.Observed == ObservedLost:
		return PeerLost
	case i.Desired != DesiredRunning:
		return PeerStopping
	case i.isReady():
		return PeerReady
	case i.Status.Observed == ObservedUnready:
		return PeerUnready
	}
	return PeerStarting
}

// listed reports whether the other instances of the group are told of this one.
func (i *Instance) listed() bool { return i.told() && i.holdsClaims() }

// PeersOf iterates over the instances of a group that its other instances are told of, by slot.
func (s *State) PeersOf(group GroupID) iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		for i := range s.InstancesOf(group) {
			if i.listed() && !yield(i) {
				return
			}
		}
	}
}

// movePeers notes that a node has another name or address, for those who follow the groups that have instances there.
func (s *State) movePeers(node NodeID) {
	for i := range s.InstancesOn(node) {
		if group, ok := s.Groups.Get(i.Group); ok && group.PeersAt != s.Index {
			g := *group
			g.PeersAt = s.Index
			s.putGroup(&g)
			s.touchObject("peers/", string(g.ID))
		}
	}
}
