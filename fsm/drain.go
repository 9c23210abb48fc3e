package fsm

import "github.com/outspan/outspan/model"

// Drain is the replicated record of an operator's request to empty one or more nodes.
type Drain struct {
	ID         model.DrainID        `cbor:"1,keyasint"`
	Actor      model.Actor          `cbor:"2,keyasint"`
	Message    string               `cbor:"3,keyasint,omitempty"`
	Options    model.DrainOptions   `cbor:"4,keyasint"`
	Nodes      []DrainNode          `cbor:"5,keyasint"`
	Rejected   []model.DrainRefusal `cbor:"6,keyasint,omitempty"`
	Paused     bool                 `cbor:"7,keyasint,omitempty"`
	Index      uint64               `cbor:"8,keyasint"`
	Wall       int64                `cbor:"9,keyasint"`
	EndedIndex uint64               `cbor:"10,keyasint,omitempty"`
}

// DrainNode is the part of one node in a drain.
type DrainNode struct {
	Node         model.NodeID     `cbor:"1,keyasint"`
	Phase        model.DrainPhase `cbor:"2,keyasint"`
	Turn         bool             `cbor:"3,keyasint,omitempty"` // its turn has come
	Started      model.Time       `cbor:"4,keyasint,omitempty"`
	StartedWall  int64            `cbor:"5,keyasint,omitempty"`
	Deadline     model.Time       `cbor:"6,keyasint,omitempty"` // 0 before the turn; Never if the drain has none
	DeadlineWall int64            `cbor:"7,keyasint,omitempty"` // for people; set when the turn begins
	LastError    string           `cbor:"8,keyasint,omitempty"`
	Moved        int              `cbor:"9,keyasint,omitempty"` // instances stopped here during the turn
	EndedWall    int64            `cbor:"10,keyasint,omitempty"`
	BootID       string           `cbor:"11,keyasint,omitempty"` // of the node's kernel when the drain began
	// how many of Moved have no replacement yet
	Unreplaced int `cbor:"12,keyasint,omitempty"`
	// acknowledged instances that stayed when the node was drained or failed
	Acked int `cbor:"13,keyasint,omitempty"`
}

// Phase returns the phase of the whole drain: draining while a node is draining, else failed if a node failed, else
// canceled if a node was canceled, else drained.
func (d *Drain) Phase() model.DrainPhase {
	whole := model.PhaseDrained
	for _, n := range d.Nodes {
		switch n.Phase {
		case model.PhaseDraining:
			return model.PhaseDraining
		case model.PhaseFailed:
			whole = model.PhaseFailed
		case model.PhaseCanceled:
			if whole != model.PhaseFailed {
				whole = model.PhaseCanceled
			}
		}
	}
	return whole
}

// Node returns the part of one node, or false if the drain does not have the node.
func (d *Drain) Node(id model.NodeID) (DrainNode, bool) {
	for _, n := range d.Nodes {
		if n.Node == id {
			return n, true
		}
	}
	return DrainNode{}, false
}

// EndedDrain returns the last drain of a node, and the node's part of it. It returns false if there was none, while the
// part is draining, and after the node was uncordoned, cordoned or disabled.
func (s *fleet) EndedDrain(n *Node) (*Drain, DrainNode, bool) {
	d, ok := s.Drains.Get(n.Drain)
	if !ok || n.Intent != model.IntentDraining {
		return nil, DrainNode{}, false
	}
	part, ok := d.Node(n.ID)
	return d, part, ok && part.Phase != model.PhaseDraining
}

// DrainStart starts a drain. In one entry, each named node becomes draining, and what is still pending there is stopped
// (B1-B3). Nodes that can't be drained are recorded as rejected. If none is left, the command is refused with the code
// of the first rejection: not_found, disabled or already_draining. A repetition with the same id, nodes and options
// changes nothing. Other codes: conflict (another drain has the id), invalid, not_found (a group of AcceptDowntime).
type DrainStart struct {
	ID      model.DrainID      `cbor:"1,keyasint"`
	Nodes   []string           `cbor:"2,keyasint"` // ids or names
	Message string             `cbor:"3,keyasint,omitempty"`
	Options model.DrainOptions `cbor:"4,keyasint"`
}

// DrainTurn begins a node's turn, sets its deadline and stops what is still pending there. It changes nothing if the
// turn has begun already. Codes: not_found, conflict (the node's part has ended, or MaxParallelNodes nodes have their
// turn).
type DrainTurn struct {
	ID   model.DrainID `cbor:"1,keyasint"`
	Node model.NodeID  `cbor:"2,keyasint"`
}

// DrainEnd ends a node's part as Drained, or as Failed with the blockers as LastError. Codes: not_found, invalid
// (another phase), conflict (the part has ended already). Drained is also refused with conflict while DrainLeft returns
// something (P11). Failed is also refused with conflict before the deadline, and without LastError.
type DrainEnd struct {
	ID        model.DrainID    `cbor:"1,keyasint"`
	Node      model.NodeID     `cbor:"2,keyasint"`
	Phase     model.DrainPhase `cbor:"3,keyasint"`
	LastError string           `cbor:"4,keyasint,omitempty"`
}

// DrainPause pauses or resumes a drain; its deadlines keep running meanwhile. It changes nothing if the drain is paused
// or resumed already. Codes: not_found, conflict (the drain has ended).
type DrainPause struct {
	ID     model.DrainID `cbor:"1,keyasint"`
	Paused bool          `cbor:"2,keyasint"`
}

// DrainCancel cancels a drain. Stops that have begun continue. The nodes that are still draining take no new instances
// until somebody uncordons them. With Uncordon they are uncordoned at once. Codes: not_found, conflict (the drain has
// ended).
type DrainCancel struct {
	ID       model.DrainID `cbor:"1,keyasint"`
	Uncordon bool          `cbor:"2,keyasint,omitempty"`
}

// maxDowntime bounds the number of groups whose downtime one drain accepts.
const maxDowntime = 1000

// checkDowntime refuses groups that no job has, and too many groups. Codes: not_found, invalid.
func (s *State) checkDowntime(groups []string) *model.Error {
	for _, group := range groups {
		if g, ok := s.Groups.Get(model.GroupID(group)); group != "*" && (!ok || g.Removed) {
			return model.Refuse(model.CodeNotFound, "accept_downtime: there is no group %s", model.ClipText(group, 100)).
				WithHint("write JOB/GROUP, or * for all; list jobs with: outspan job ls")
		}
	}
	if len(groups) > maxDowntime {
		return model.Refuse(model.CodeInvalid, "accept_downtime: at most %d groups are allowed, these are %d", maxDowntime,
			len(groups)).WithHint("write * for all")
	}
	return nil
}
