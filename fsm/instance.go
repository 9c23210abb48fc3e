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
	Cause    model.Cause          `cbor:"8,keyasint"` // why it was created
	Links    Links                `cbor:"9,keyasint"`
	Eviction Eviction             `cbor:"10,keyasint"`
	Claims   Claims               `cbor:"11,keyasint"`
	Marks    Marks                `cbor:"12,keyasint"`
}

// Links connect an instance to the past and future of its slot.
type Links struct {
	Replaces   model.InstanceID   `cbor:"1,keyasint,omitempty"`
	ReplacedBy model.InstanceID   `cbor:"2,keyasint,omitempty"`
	RestartSeq uint64             `cbor:"3,keyasint,omitempty"` // the agent restarts the program when this grows
	Deployment model.DeploymentID `cbor:"4,keyasint,omitempty"`
	HasVolumes bool               `cbor:"5,keyasint,omitempty"` // its group has volumes, local or replicated
	// this instance, or an earlier one of the slot and the same deployment, has been ready
	WasReady bool   `cbor:"8,keyasint,omitempty"`
	Attempt  uint64 `cbor:"7,keyasint,omitempty"` // number of instances of the group that were placed before
	// If the instance is a preemptor, Awaits lists its victims that have not stopped yet. The agent learns of the instance
	// when the list is empty.
	Awaits []model.InstanceID `cbor:"6,keyasint,omitempty"`
}

// Eviction is the request to stop one instance for a cause outside its job. An event is emitted when Requested changes,
// and for no other change (L15). What the request waits for is not stored.
type Eviction struct {
	// The small fields are next to each other, so that an Instance fits the allocator's size class of 512 bytes.
	Requested bool `cbor:"1,keyasint,omitempty"`
	Automatic bool `cbor:"10,keyasint,omitempty"` // requested by the node drain policy, not by a person
	// the agent prepares the stop, which uses a unit of the budget already
	Preparing bool  `cbor:"5,keyasint,omitempty"`
	Surge     bool  `cbor:"11,keyasint,omitempty"` // requested by a person; the stop waits until the replacement is ready
	Aborts    int32 `cbor:"8,keyasint,omitempty"`  // aborted preparations in a row

	Cause model.Cause `cbor:"2,keyasint,omitempty"`
	By    string      `cbor:"3,keyasint,omitempty"` // a drain id or an actor
	Since model.Time  `cbor:"4,keyasint,omitempty"`

	Seq uint64 `cbor:"6,keyasint,omitempty"` // grows with each preparation
	// while Preparing is set, the deadline of the preparation; after an aborted one, the time from which the next may
	// begin
	RetryAt model.Time `cbor:"7,keyasint,omitempty"`
	Failure string     `cbor:"9,keyasint,omitempty"` // why the last preparation was aborted
}

// Claims are what an instance takes from its node until it is confirmed stopped.
type Claims struct {
	Resources model.Resources `cbor:"1,keyasint"` // including Settings.InstanceOverhead
	Ports     model.Ports     `cbor:"2,keyasint,omitzero"`
}

// Marks say when things happened to an instance. Decisions use the cluster times, people see the wall times (Unix ms),
// and `why` uses the log indexes.
type Marks struct {
	Created     model.Time `cbor:"1,keyasint"`
	CreatedWall int64      `cbor:"2,keyasint"`
	StartedWall int64      `cbor:"3,keyasint,omitempty"`
	ReadySince  model.Time `cbor:"4,keyasint,omitempty"` // 0 while not ready
	// when the instance was created or stopped being ready; set again when it fails or is lost, and when a preemptor gets
	// its room; 0 while ready
	UnreadySince  model.Time      `cbor:"5,keyasint,omitempty"`
	StopBegan     model.Time      `cbor:"6,keyasint,omitempty"`
	StopGrace     model.Duration  `cbor:"7,keyasint,omitempty"` // drain_delay + grace of this stop
	StopCause     model.Cause     `cbor:"8,keyasint,omitempty"`
	StopReason    string          `cbor:"9,keyasint,omitempty"`
	CreatedIndex  uint64          `cbor:"10,keyasint"`
	ChangedIndex  uint64          `cbor:"11,keyasint"`
	GraceOverride *model.Duration `cbor:"12,keyasint,omitempty"` // grace of the stop, if not the group's
	StopHeard     model.Time      `cbor:"13,keyasint,omitempty"` // when its agent reported that the stop has begun
}

// Terminal reports whether the instance should be stopped and is stopped. Nothing more happens to it.
func (i *Instance) Terminal() bool {
	return i.Desired == model.DesiredStopped && i.Status.Observed == model.ObservedStopped
}

// Wanted reports whether the instance counts toward its group's count: it should run, and is neither lost nor failed
// (P28).
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

// Ready reports whether the instance should run and is ready.
func (i *Instance) Ready() bool {
	return i.Desired == model.DesiredRunning && i.Status.Observed == model.ObservedReady
}

// InstancePlace places a new instance. Codes: not_found, invalid, conflict (the id is taken), stale (the group, the
// node or the replaced instance changed), node_not_eligible, no_capacity_memory, no_capacity_ports, slot_taken,
// volume_in_use, anti_affinity_unsatisfied, mass_offline_hold, quota_exceeded, and those of SlotUnsettled and
// MayRefill.
type InstancePlace struct {
	ID       model.InstanceID `cbor:"1,keyasint"`
	Group    model.GroupID    `cbor:"2,keyasint"`
	Slot     int              `cbor:"3,keyasint"`
	Version  uint64           `cbor:"4,keyasint"`
	Node     model.NodeID     `cbor:"5,keyasint"`
	Ports    model.Ports      `cbor:"6,keyasint,omitzero"`
	Replaces model.InstanceID `cbor:"7,keyasint,omitempty"`
	Cause    model.Cause      `cbor:"8,keyasint"`
	// Awaits makes the new instance a preemptor. It lists the victims: instances on the node that the same group of
	// commands stops to make room. NodeVersion is the version of the node when the node was chosen, and is required with
	// Awaits. The placement is refused with stale if the node's version has changed.
	Awaits      []model.InstanceID `cbor:"9,keyasint,omitempty"`
	NodeVersion uint64             `cbor:"10,keyasint,omitempty"`
}

// InstanceStop begins a stop. A pending, failed or lost instance becomes stopped at once, any other becomes draining.
// If a person stops an instance that must be prepared first, the command begins the preparation instead. It also stops
// an instance that runs on a node but has no row. Budgets are checked here (B14). Codes: not_found, invalid, stopping
// (it stops already, or is not prepared), stale (the reason no longer applies), conflict, role_never, volume_local, the
// code of a gate, last_copy, replica_evicting, replacement_pending, budget_min_ready, budget_rate, actor_rate,
// restore_unconfirmed, inventory_missing.
type InstanceStop struct {
	ID    model.InstanceID `cbor:"1,keyasint"`
	Cause model.Cause      `cbor:"2,keyasint"`
	By    string           `cbor:"3,keyasint,omitempty"` // a drain id, or the reason in words
	Grace *model.Duration  `cbor:"4,keyasint,omitempty"` // replaces the group's grace
	// Bypass skips budgets, but not their rates if Cause is CauseNodeDraining. A person's bypass, which the API
	// authorises, also skips the role, the gates and the preparation. The event of the stop records it.
	Bypass bool `cbor:"5,keyasint,omitempty"`
	Avoid  bool `cbor:"6,keyasint,omitempty"` // the group avoids the node for an hour
	// Facts lists the nodes on whose facts the decision depends, each with the generation of its facts. The stop is
	// refused with stale if a generation has changed.
	Facts []FactsRef `cbor:"7,keyasint,omitempty"`
	// Asked means that the leader stops the instance for an eviction that a person requested. By and Grace are then taken
	// from the eviction as it is when the stop is applied. The stop is refused with stale if the eviction was withdrawn.
	Asked bool `cbor:"8,keyasint,omitempty"`
}

// FactsRef is a node and the generation of its facts.
type FactsRef struct {
	Node model.NodeID `cbor:"1,keyasint"`
	Gen  uint64       `cbor:"2,keyasint"`
}

// InstanceKill changes the desired state of a draining instance to stopped, once its grace is over (P15; see
// State.StopDue). If Now is true, it does so at once, and also ends the grace of an instance for which State.InGrace is
// true. It changes nothing if the desired state is stopped already. Codes: not_found, conflict (the instance should
// run), grace_running.
type InstanceKill struct {
	ID  model.InstanceID `cbor:"1,keyasint"`
	Now bool             `cbor:"2,keyasint,omitempty"` // forced at a drain's deadline
}

// InstanceMark sets or withdraws the eviction request of an instance.
type InstanceMark struct {
	ID        model.InstanceID `cbor:"1,keyasint"`
	Requested bool             `cbor:"2,keyasint"`
	Cause     model.Cause      `cbor:"3,keyasint,omitempty"`
	By        string           `cbor:"4,keyasint,omitempty"`
	// Automatic means that the node drain policy requests the eviction. The command is refused with stale if the policy
	// does not request it.
	Automatic bool `cbor:"5,keyasint,omitempty"`
	// Surge means that a person wants the instance stopped once its replacement is ready. The command is refused with
	// invalid if ReplacesFirst is false for the instance, with conflict if another eviction of the instance is requested,
	// and with the codes of MayEvict.
	Surge bool            `cbor:"6,keyasint,omitempty"`
	Grace *model.Duration `cbor:"7,keyasint,omitempty"` // with Surge: grace of the stop, if not the group's
	// If Requested is true, Avoid makes the instance's group avoid the node for an hour. Otherwise it ends an avoidance
	// that a person requested, even if the instance is stopping or has stopped. If there is no such avoidance, the command
	// is refused with conflict.
	Avoid bool `cbor:"8,keyasint,omitempty"`
}

// InstanceRestart asks the agent to restart the program in place. Codes: not_found, stopping.
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
