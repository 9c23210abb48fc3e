package fsm

import "github.com/outspan/outspan/model"

// Group is the current state of a job's group. Its row contains the sums of its instances, which are updated with each
// write of an instance.
type Group struct {
	ID model.GroupID `cbor:"1,keyasint"`
	// the job version whose template (GroupSpec.Template) the instances should have; a later job version with the same
	// template does not change Version
	Version uint64     `cbor:"2,keyasint"`
	Count   int        `cbor:"3,keyasint"` // the spec's count; 0 if the job is stopped or no longer has the group
	Role    model.Role `cbor:"4,keyasint"`

	Ready    int          `cbor:"5,keyasint"` // instances of any version that should run and are ready
	Running  int          `cbor:"6,keyasint"` // instances that should run
	Alive    int          `cbor:"7,keyasint"` // instances not confirmed stopped
	Budget   model.Budget `cbor:"8,keyasint"`
	Stops    []model.Time `cbor:"9,keyasint,omitempty"`  // when the voluntary stops in the budget's rate window began
	Placed   uint64       `cbor:"10,keyasint"`           // instances placed so far; part of the next instance's id
	Failures []Failure    `cbor:"11,keyasint,omitempty"` // recent ones, for the reschedule limit and for avoiding nodes
	Removed  bool         `cbor:"12,keyasint,omitempty"` // no longer in the job's spec
	Held     int          `cbor:"13,keyasint,omitempty"` // ready instances whose stop is being prepared
	Lost     int          `cbor:"15,keyasint,omitempty"` // instances that should run and are lost
	// instances that are being stopped for a cause after which a system group places another instance on the same node
	Replaced int `cbor:"16,keyasint,omitempty"`
	// when the rescheduler last began to move an instance of the group; 0 means never
	MovedAt model.Time `cbor:"14,keyasint,omitempty"`
	// log index at which the group's list of peers, or an address or a state in this list, last changed
	PeersAt uint64 `cbor:"17,keyasint,omitempty"`
}

// Failure is one failure of an instance of the group.
type Failure struct {
	At      model.Time   `cbor:"1,keyasint"`
	Node    model.NodeID `cbor:"2,keyasint"`
	Version uint64       `cbor:"3,keyasint"`
	Reason  string       `cbor:"4,keyasint"`
}

// wantedOn returns a group, its spec at a version, and a node, if the group still wants instances of that version.
// Codes: not_found, stale.
func wantedOn(s *State, group model.GroupID, version uint64, on model.NodeID) (*Group, *model.GroupSpec, *Node,
	*model.Error) {
	g, ok := s.Groups.Get(group)
	spec, known := s.Spec(group, version)
	node, there := s.Nodes.Get(on)
	var refusal *model.Error
	switch {
	case !ok || !known:
		refusal = model.Refuse(model.CodeNotFound, "there is no group %s at version %d", group, version)
	case !there:
		refusal = model.Refuse(model.CodeNotFound, "there is no node %s", on)
	case g.Removed || g.Count == 0 || version > g.Version:
		refusal = model.Refuse(model.CodeStale, "group %s changed: count %d, version %d", group, g.Count, g.Version)
	}
	return g, spec, node, refusal
}
