package fsm

import (
	"iter"

	"github.com/outspan/outspan/model"
)

// PeerState returns the state of the instance as the other instances of its group see it. It returns "" if i is nil.
func (i *Instance) PeerState() model.PeerState {
	switch {
	case i == nil:
		return ""
	case i.Status.Observed == model.ObservedLost:
		return model.PeerLost
	case i.Desired != model.DesiredRunning:
		return model.PeerStopping
	case i.isReady():
		return model.PeerReady
	case i.Status.Observed == model.ObservedUnready:
		return model.PeerUnready
	}
	return model.PeerStarting
}

// listed reports whether the other instances of the group see this one.
func (i *Instance) listed() bool { return i.agentKnows() && i.holdsClaims() }

// PeersOf iterates over the instances of a group that the group's other instances see, in order of slot.
func (s *instances) PeersOf(group model.GroupID) iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		for i := range s.InstancesOf(group) {
			if i.listed() && !yield(i) {
				return
			}
		}
	}
}

// movePeers records a change of a node's name or address in each group that has instances on the node. It wakes the
// readers of these groups' peers.
func (s *State) movePeers(node model.NodeID) {
	for i := range s.InstancesOn(node) {
		if group, ok := s.Groups.Get(i.Group); ok && group.PeersAt != s.Index {
			g := *group
			g.PeersAt = s.Index
			s.putGroup(&g)
			s.touchObject("peers/", string(g.ID))
		}
	}
}
