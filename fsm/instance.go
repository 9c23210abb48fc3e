package fsm

import "github.com/outspan/outspan/model"

// Instance is one run of a group's program on one node.
type Instance struct {
	ID      model.InstanceID `cbor:"1,keyasint"`
	Group   model.GroupID    `cbor:"2,keyasint"`
	Slot    int              `cbor:"3,keyasint"`
	Version uint64           `cbor:"4,keyasint"` // the job version whose spec it runs
	Node    model.NodeID     `cbor:"5,keyasint"`

	Desired  model.Desired        `cbor:"6,keyasint"`
	Status   model.InstanceStatus `cbor:"7,keyasint"`
	Cause    model.Cause          `cbor:"8,keyasint"` // why it was made
	Links    Links                `cbor:"9,keyasint"`
	Eviction Eviction             `cbor:"10,keyasint"`
	Claims   Claims               `cbor:"11,keyasint"`
	Marks    Marks                `cbor:"12,keyasint"`
}

// Links tie an instance to its slot's past and future.
type Links struct {
	Replaces   model.InstanceID   `cbor:"1,keyasint,omitempty"`
	ReplacedBy model.InstanceID   `cbor:"2,keyasint,omitempty"`
	RestartSeq uint64             `cbor:"3,keyasint,omitempty"` // the agent restarts the program when it grows
	Deployment model.DeploymentID `cbor:"4,keyasint,omitempty"`
	VolumeHome bool               `cbor:"5,keyasint,omitempty"` // holds a local volume on its node
	// it has been ready, or one before it in its slot that came with the same deployment
	WasReady bool   `cbor:"8,keyasint,omitempty"`
	Attempt  uint64 `cbor:"7,keyasint,omitempty"` // instances of the group that were placed before it
	// Awaits are the instances whose room this one takes and that have not stopped yet. Its agent is told when there
	// are none left.
	Awaits []model.InstanceID `cbor:"6,keyasint,omitempty"`
}

// Eviction is the request to stop one instance for a cause that is not its own job's. It flips with an event at each
// flip, and never in between (L15). What it waits for is derived when it is shown.
type Eviction struct {
	// The small fields stand together: the row then has 512 bytes and doesn't need the next size class.
	Requested bool `cbor:"1,keyasint,omitempty"`
	Automatic bool `cbor:"10,keyasint,omitempty"` // the node drain policy asks for it, not a person
	// the budget's unit is held, and the agent runs what must come before the stop
	Preparing bool  `cbor:"5,keyasint,omitempty"`
	Surge     bool  `cbor:"11,keyasint,omitempty"` // a person asked for it, and its replacement becomes ready first
	Aborts    int32 `cbor:"8,keyasint,omitempty"`  // aborted preparations in a row

	Cause model.Cause `cbor:"2,keyasint,omitempty"`
	By    string      `cbor:"3,keyasint,omitempty"` // a drain id or an actor
	Since model.Time  `cbor:"4,keyasint,omitempty"`

	Seq uint64 `cbor:"6,keyasint,omitempty"` // grows with each preparation of the instance
	// while preparing: until when at the latest; after an aborted one: not again before
	RetryAt model.Time `cbor:"7,keyasint,omitempty"`
	Failure string     `cbor:"9,keyasint,omitempty"` // why the last one was aborted
}

// Claims are what an instance takes from its node until it is confirmed stopped.
type Claims struct {
	Resources model.Resources `cbor:"1,keyasint"` // the overhead included
	Ports     model.Ports     `cbor:"2,keyasint,omitzero"`
}

// Marks are when things happened to an instance: cluster time for decisions, wall time (Unix ms) for people, log
// indexes for `why`.
type Marks struct {
	Created     model.Time `cbor:"1,keyasint"`
	CreatedWall int64      `cbor:"2,keyasint"`
	StartedWall int64      `cbor:"3,keyasint,omitempty"`
	ReadySince  model.Time `cbor:"4,keyasint,omitempty"` // 0 while not ready
	// of the current spell of failed, lost or unready; 0 otherwise
	UnreadySince  model.Time      `cbor:"5,keyasint,omitempty"`
	StopBegan     model.Time      `cbor:"6,keyasint,omitempty"`
	StopGrace     model.Duration  `cbor:"7,keyasint,omitempty"` // drain_delay + grace of this stop
	StopCause     model.Cause     `cbor:"8,keyasint,omitempty"`
	StopReason    string          `cbor:"9,keyasint,omitempty"`
	CreatedIndex  uint64          `cbor:"10,keyasint"`
	ChangedIndex  uint64          `cbor:"11,keyasint"`
	GraceOverride *model.Duration `cbor:"12,keyasint,omitempty"` // of this stop, instead of the group's grace
	StopHeard     model.Time      `cbor:"13,keyasint,omitempty"` // when its agent said that it has begun the stop
}

// Terminal reports whether nothing more will happen to the instance: it is to be stopped, and is.
func (i *Instance) Terminal() bool {
	return i.Desired == model.DesiredStopped && i.Status.Observed == model.ObservedStopped
}

// Wanted reports whether the instance counts toward its group's count: desired running, and not lost or failed (P28).
func (i *Instance) Wanted() bool {
	if i.Desired != model.DesiredRunning {
		return false
	}
	switch i.Status.Observed {
	case model.ObservedPending, model.ObservedBooting, model.ObservedReady, model.ObservedUnready:
		return true
	}
	return false
}

// Ready reports whether the instance serves: desired running, observed ready.
func (i *Instance) Ready() bool {
	return i.Desired == model.DesiredRunning && i.Status.Observed == model.ObservedReady
}

// InstancePlace places a new instance. Codes: node_not_eligible, no_capacity_memory, no_capacity_ports, slot_taken,
// volume_in_use, stale (the group's version moved), not_found.
type InstancePlace struct {
	ID       model.InstanceID `cbor:"1,keyasint"`
	Group    model.GroupID    `cbor:"2,keyasint"`
	Slot     int              `cbor:"3,keyasint"`
	Version  uint64           `cbor:"4,keyasint"`
	Node     model.NodeID     `cbor:"5,keyasint"`
	Ports    model.Ports      `cbor:"6,keyasint,omitzero"`
	Replaces model.InstanceID `cbor:"7,keyasint,omitempty"`
	Cause    model.Cause      `cbor:"8,keyasint"`
	// Awaits makes it a preemptor: what the same group of commands stops for it on the node. NodeVersion is then that
	// of the node which was chosen; it may be given in any case, and the placement is refused with stale if it moved.
	Awaits      []model.InstanceID `cbor:"9,keyasint,omitempty"`
	NodeVersion uint64             `cbor:"10,keyasint,omitempty"`
}

// InstanceStop begins a stop. A running instance goes to draining, or to stopped at once when it was still pending, is
// failed or lost. Budgets are checked here (B14): codes budget_min_ready, budget_rate, role_never, ack_required,
// conflict (already stopping).
type InstanceStop struct {
	ID     model.InstanceID `cbor:"1,keyasint"`
	Cause  model.Cause      `cbor:"2,keyasint"`
	By     string           `cbor:"3,keyasint,omitempty"` // a drain id, or why in words
	Grace  *model.Duration  `cbor:"4,keyasint,omitempty"` // overrides the group's
	Bypass bool             `cbor:"5,keyasint,omitempty"` // skips budgets; authorised by the API, recorded in the event
	Avoid  bool             `cbor:"6,keyasint,omitempty"` // the group avoids the node for an hour
	// Facts names the generation of facts that the decision rests on, by node; refused with stale if one moved.
	Facts []FactsRef `cbor:"7,keyasint,omitempty"`
	// Asked: the leader stops it for an eviction that a person asked for; refused with stale once that was taken back.
	Asked bool `cbor:"8,keyasint,omitempty"`
}

// FactsRef is a node and the generation of its facts.
type FactsRef struct {
	Node model.NodeID `cbor:"1,keyasint"`
	Gen  uint64       `cbor:"2,keyasint"`
}

// InstanceKill writes stopped for a draining instance whose grace is over (P15), see State.StopDue. Code: grace_running
// before that, unless Now.
type InstanceKill struct {
	ID  model.InstanceID `cbor:"1,keyasint"`
	Now bool             `cbor:"2,keyasint,omitempty"` // forced at a drain's deadline
}

// InstanceMark flips the eviction request of an instance.
type InstanceMark struct {
	ID        model.InstanceID `cbor:"1,keyasint"`
	Requested bool             `cbor:"2,keyasint"`
	Cause     model.Cause      `cbor:"3,keyasint,omitempty"`
	By        string           `cbor:"4,keyasint,omitempty"`
	// Automatic: the node drain policy asks for it. Refused with stale if it doesn't.
	Automatic bool `cbor:"5,keyasint,omitempty"`
	// Surge: a person asks for it, and the instance is stopped when its replacement is ready. It is no replica, and its
	// group replaces first; refused with invalid otherwise, with conflict if it is to be evicted for another reason,
	// and as its stop would be by its role.
	Surge bool            `cbor:"6,keyasint,omitempty"`
	Grace *model.Duration `cbor:"7,keyasint,omitempty"` // with Surge: of its stop, instead of the group's
	// Avoid, with Surge: its group avoids the node for an hour. Without Requested: it avoids the node no longer by a
	// person's word, which also holds of an instance that stops or has stopped; refused with conflict if it doesn't
	// avoid the node so.
	Avoid bool `cbor:"8,keyasint,omitempty"`
}

// InstanceRestart asks the agent to restart the program in place.
type InstanceRestart struct {
	ID model.InstanceID `cbor:"1,keyasint"`
}

func (c *InstanceRestart) apply(s *State) error {
	inst, ok := s.Instances.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no instance %s", c.ID)
	case inst.Desired != model.DesiredRunning:
		return model.Refuse(model.CodeStopping, "instance %s is already %s", c.ID, inst.Desired)
	}
	next := *inst
	next.Links.RestartSeq++
	s.setInstance(inst, &next)
	s.emit(Event{Type: model.EventDesired, Subject: "instance/" + string(inst.ID), Cause: model.CauseUser,
		Before: string(inst.Desired), After: "restarting",
		Data: map[string]string{"node": string(inst.Node), "group": string(inst.Group)}})
	return nil
}
