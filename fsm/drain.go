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
	Turn         bool             `cbor:"3,keyasint,omitempty"` // set when the turn begins, and never cleared
	Started      model.Time       `cbor:"4,keyasint,omitempty"`
	StartedWall  int64            `cbor:"5,keyasint,omitempty"`
	Deadline     model.Time       `cbor:"6,keyasint,omitempty"` // 0 before the turn; Never if the drain has no deadline
	DeadlineWall int64            `cbor:"7,keyasint,omitempty"` // Unix ms, for people; 0 if Deadline is 0 or Never
	LastError    string           `cbor:"8,keyasint,omitempty"`
	Moved        int              `cbor:"9,keyasint,omitempty"` // instances that the drain began to stop during the turn
	EndedWall    int64            `cbor:"10,keyasint,omitempty"`
	BootID       string           `cbor:"11,keyasint,omitempty"` // boot id of the node's kernel when the drain began
	// how many of the instances in Moved have no replacement yet
	Unreplaced int `cbor:"12,keyasint,omitempty"`
	// acknowledged instances that were still running when the part ended as drained or failed
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

// Node returns the part of one node, or false if the node is not in the drain.
func (d *Drain) Node(id model.NodeID) (DrainNode, bool) {
	for _, n := range d.Nodes {
		if n.Node == id {
			return n, true
		}
	}
	return DrainNode{}, false
}

// EndedDrain returns the last drain of a node and the node's part in this drain, if the part has ended. It returns
// false if the node was never drained, or was uncordoned, cordoned or disabled since.
func (s *fleet) EndedDrain(n *Node) (*Drain, DrainNode, bool) {
	d, ok := s.Drains.Get(n.Drain)
	if !ok || n.Intent != model.IntentDraining {
		return nil, DrainNode{}, false
	}
	part, ok := d.Node(n.ID)
	return d, part, ok && part.Phase != model.PhaseDraining
}

// DrainStart starts a drain. In one entry, each named node becomes draining, and its pending instances are stopped
// (B1-B3). Nodes that can't be drained are recorded in Rejected. If every node is rejected, the command is refused with
// the code of the first rejection: not_found, disabled or already_draining. A repetition with the same id, nodes and
// options changes nothing. Other codes: conflict (another drain has the id), invalid, not_found (a group of
// AcceptDowntime does not exist).
type DrainStart struct {
	ID      model.DrainID      `cbor:"1,keyasint"`
	Nodes   []string           `cbor:"2,keyasint"` // ids or names
	Message string             `cbor:"3,keyasint,omitempty"`
	Options model.DrainOptions `cbor:"4,keyasint"`
}

// DrainTurn begins a node's turn: it sets the node's deadline and stops the pending instances there. It changes nothing
// if the turn has begun already. Codes: not_found, conflict (the node's part has ended, or MaxParallelNodes other nodes
// have their turn).
type DrainTurn struct {
	ID   model.DrainID `cbor:"1,keyasint"`
	Node model.NodeID  `cbor:"2,keyasint"`
}

// DrainEnd ends a node's part. Phase is drained, or failed with the blockers in LastError. Codes: not_found, invalid
// (another phase), conflict. A conflict means that the part has ended, that the node is not drained yet (see DrainLeft,
// P11), or that the failure comes before the deadline or without LastError.
type DrainEnd struct {
	ID        model.DrainID    `cbor:"1,keyasint"`
	Node      model.NodeID     `cbor:"2,keyasint"`
	Phase     model.DrainPhase `cbor:"3,keyasint"`
	LastError string           `cbor:"4,keyasint,omitempty"`
}

// DrainPause pauses or resumes a drain. A pause does not move the deadlines. The command changes nothing if Paused is
// recorded already. Codes: not_found, conflict (the drain has ended).
type DrainPause struct {
	ID     model.DrainID `cbor:"1,keyasint"`
	Paused bool          `cbor:"2,keyasint"`
}

// DrainCancel cancels a drain. Stops that have begun continue. If Uncordon is true, the nodes whose part had not ended
// are uncordoned. Otherwise they take no new instances until somebody uncordons them. Codes: not_found, conflict (the
// drain has ended).
type DrainCancel struct {
	ID       model.DrainID `cbor:"1,keyasint"`
	Uncordon bool          `cbor:"2,keyasint,omitempty"`
}

// maxDowntime bounds the number of groups whose downtime one drain accepts.
const maxDowntime = 1000

// checkDowntime refuses unknown groups, and more than maxDowntime groups. Codes: not_found, invalid.
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
