package fsm

import "github.com/outspan/outspan/model"

// Drain is the replicated record of an operator's order to empty one or more nodes.
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

// DrainNode is one node of a drain.
type DrainNode struct {
	Node         model.NodeID     `cbor:"1,keyasint"`
	Phase        model.DrainPhase `cbor:"2,keyasint"`
	Turn         bool             `cbor:"3,keyasint,omitempty"` // its turn has come
	Started      model.Time       `cbor:"4,keyasint,omitempty"`
	StartedWall  int64            `cbor:"5,keyasint,omitempty"`
	Deadline     model.Time       `cbor:"6,keyasint,omitempty"` // absolute; Never without one
	DeadlineWall int64            `cbor:"7,keyasint,omitempty"` // for people; fixed at the start
	LastError    string           `cbor:"8,keyasint,omitempty"`
	Moved        int              `cbor:"9,keyasint,omitempty"` // instances stopped here by this drain
	EndedWall    int64            `cbor:"10,keyasint,omitempty"`
	BootID       string           `cbor:"11,keyasint,omitempty"` // of the node's kernel when the drain began
	// how many of Moved have no replacement yet
	Unreplaced int `cbor:"12,keyasint,omitempty"`
	// acknowledged instances that stayed when the node was drained or failed
	Acked int `cbor:"13,keyasint,omitempty"`
}

// Phase is the phase of the whole drain: draining while any node is; else failed if any failed; else canceled if any
// was canceled; else drained.
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

// Node returns the entry of one node.
func (d *Drain) Node(id model.NodeID) (DrainNode, bool) {
	for _, n := range d.Nodes {
		if n.Node == id {
			return n, true
		}
	}
	return DrainNode{}, false
}

// EndedDrain returns the last drain of a node and the node's part of it. It returns false while the drain goes on, and
// after somebody has taken the node back or disabled it.
func (s *fleet) EndedDrain(n *Node) (*Drain, DrainNode, bool) {
	d, ok := s.Drains.Get(n.Drain)
	if !ok || n.Intent != model.IntentDraining {
		return nil, DrainNode{}, false
	}
	part, ok := d.Node(n.ID)
	return d, part, ok && part.Phase != model.PhaseDraining
}

// DrainStart cordons every named node and sets each to Draining, atomically; what is still pending there is stopped
// (B1-B3). Nodes that can't be drained are recorded as rejected; if none is left the command is refused with the first
// one's code.
type DrainStart struct {
	ID      model.DrainID      `cbor:"1,keyasint"`
	Nodes   []string           `cbor:"2,keyasint"` // ids or names
	Message string             `cbor:"3,keyasint,omitempty"`
	Options model.DrainOptions `cbor:"4,keyasint"`
}

// DrainTurn begins a node's turn, fixes its deadline and stops what is still pending there.
type DrainTurn struct {
	ID   model.DrainID `cbor:"1,keyasint"`
	Node model.NodeID  `cbor:"2,keyasint"`
}

// DrainEnd ends a node's part: Drained (refused with conflict while a movable instance is left, P11) or Failed with the
// blockers as LastError, which can't be empty.
type DrainEnd struct {
	ID        model.DrainID    `cbor:"1,keyasint"`
	Node      model.NodeID     `cbor:"2,keyasint"`
	Phase     model.DrainPhase `cbor:"3,keyasint"`
	LastError string           `cbor:"4,keyasint,omitempty"`
}

// DrainPause pauses or resumes a drain. Its deadlines keep running meanwhile.
type DrainPause struct {
	ID     model.DrainID `cbor:"1,keyasint"`
	Paused bool          `cbor:"2,keyasint"`
}

// DrainCancel cancels a drain; stops that have begun go on. The nodes take no new instances until somebody takes them
// back, which Uncordon does at once. Codes: not_found, conflict if the drain has ended.
type DrainCancel struct {
	ID       model.DrainID `cbor:"1,keyasint"`
	Uncordon bool          `cbor:"2,keyasint,omitempty"`
}

// maxDowntime bounds the groups whose downtime one drain accepts.
const maxDowntime = 1000

// checkDowntime refuses groups that no job has, and too many groups.
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
