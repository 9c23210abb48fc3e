package fsm

import "github.com/outspan/outspan/model"

// Node is a worker machine, known by its agent.
type Node struct {
	ID     model.NodeID `cbor:"1,keyasint"`
	Name   string       `cbor:"2,keyasint"` // unique in the cluster
	Intent model.Intent `cbor:"3,keyasint"`
	Health model.Health `cbor:"4,keyasint"`

	Agent  model.AgentInfo    `cbor:"5,keyasint"`
	Shape  model.NodeShape    `cbor:"6,keyasint"`
	Placed Usage              `cbor:"7,keyasint"` // sum of the instances here that are not confirmed stopped
	Return NodeReturn         `cbor:"8,keyasint"`
	Drain  model.DrainID      `cbor:"9,keyasint,omitempty"`  // the last drain that named this node; it may have ended
	Acked  []model.InstanceID `cbor:"10,keyasint,omitempty"` // blockers that the operator acknowledged
	// Version grows with intent, health, epoch, capacity and labels, never with what is placed here.
	Version uint64 `cbor:"11,keyasint"`
	// Assigned is the index of the last change to what the agent must run. The agent's long poll waits for it.
	Assigned uint64 `cbor:"12,keyasint"`
	// FactsGen is the generation of the facts that its agent last reported in this epoch.
	FactsGen uint64 `cbor:"13,keyasint,omitempty"`
	// Promised is the memory, in bytes, that preemptors here will take in addition to what their victims give back.
	Promised int64 `cbor:"15,keyasint,omitempty"`
	// Avoid lists the groups that failed here, at most 64 entries, in order of group.
	Avoid []AvoidEntry `cbor:"16,keyasint,omitempty"`
	// Registrations counts how often its agent registered.
	Registrations uint64      `cbor:"17,keyasint"`
	Restore       NodeRestore `cbor:"18,keyasint,omitzero"`
	Self          NodeSelf    `cbor:"19,keyasint,omitzero"`
	Labels        NodeLabels  `cbor:"20,keyasint,omitzero"`
}

// NodeLabels says who set which of a node's labels. Shape.Labels has the result.
type NodeLabels struct {
	Agent map[string]string `cbor:"1,keyasint,omitempty"` // from its agent's configuration
	// People are the labels that operators set, which win. An empty value removes the agent's label.
	People map[string]string `cbor:"2,keyasint,omitempty"`
}

// Usage is what is placed on a node, including the overhead of each instance.
type Usage struct {
	CPU         int64 `cbor:"1,keyasint"`
	MemoryBytes int64 `cbor:"2,keyasint"`
	Instances   int   `cbor:"3,keyasint"`
}

// NodeReturn is what is remembered of a node's outages.
type NodeReturn struct {
	Recovering    bool           `cbor:"1,keyasint,omitempty"` // registered, its full inventory isn't in yet
	OfflineSince  model.Time     `cbor:"2,keyasint,omitempty"` // of the last outage, also after it ended
	HeldUntil     model.Time     `cbor:"3,keyasint,omitempty"` // no new placements before that, after flapping
	Hold          model.Duration `cbor:"4,keyasint,omitempty"` // length of the last hold, doubled at each flap
	LastReturn    model.Time     `cbor:"6,keyasint,omitempty"` // when it last came back from an outage
	ConfirmedDead bool           `cbor:"5,keyasint,omitempty"` // the operator said that nothing runs there any more
}

// State returns the state to show: the first that applies of disabled, offline, draining, cordoned, unreachable,
// degraded, active.
func (n *Node) State() model.NodeState {
	switch {
	case n.Intent == model.IntentDisabled:
		return model.NodeDisabled
	case n.Health == model.HealthOffline:
		return model.NodeOffline
	case n.Intent == model.IntentDraining:
		return model.NodeDraining
	case n.Intent == model.IntentCordoned:
		return model.NodeCordoned
	case n.Health == model.HealthUnreachable:
		return model.NodeUnreachable
	case n.Health == model.HealthDegraded || n.Troubled():
		return model.NodeDegraded
	}
	return model.NodeActive
}

// Allocatable returns what instances can use: the capacity without what is reserved for the machine itself.
func (n *Node) Allocatable() model.Resources {
	return model.Resources{CPU: n.Shape.Capacity.CPU - n.Shape.Reserved.CPU,
		MemoryBytes: n.Shape.Capacity.MemoryBytes - n.Shape.Reserved.MemoryBytes}
}

// NodeRegister adds a node, or registers a known one again, with a new epoch. An offline node comes back and is
// recovering until its inventory is in. Codes: name_taken, invalid, needs_format, node_taken; conflict if the agent has
// seen a newer state than this one.
type NodeRegister struct {
	ID    model.NodeID    `cbor:"1,keyasint"`
	Name  string          `cbor:"2,keyasint"`
	Agent model.AgentInfo `cbor:"3,keyasint"` // Epoch is ignored
	Shape model.NodeShape `cbor:"4,keyasint"`
	// Seen is the newest state whose assignments the agent acted on. The agent ignores older ones.
	Seen model.Seen `cbor:"5,keyasint,omitempty"`
	// Refused says that the agent was refused because of another agent of its node (node_taken), and has not been accepted
	// since.
	Refused bool `cbor:"6,keyasint,omitempty"`
}

// NodeHealth writes what the detector found. Offline makes the node's instances lost. It is refused with stale if the
// boot id or epoch changed, because the silence was that of an earlier registration. Other changes of the node, like a
// label, say nothing about its health. It changes the health between online, degraded and unreachable, and from these
// to offline; only NodeRegister ends offline.
type NodeHealth struct {
	ID     model.NodeID `cbor:"1,keyasint"`
	Health model.Health `cbor:"2,keyasint"`
	BootID string       `cbor:"3,keyasint"`
	Epoch  uint64       `cbor:"4,keyasint"`
	Reason string       `cbor:"5,keyasint,omitempty"`
}

// NodeReport is a batch of what an agent observed. Full says that it is the whole inventory: an instance that the state
// has there, and the inventory lacks, is gone. It is idempotent by epoch and each instance's generation. Code: stale
// for an older epoch.
type NodeReport struct {
	ID        model.NodeID           `cbor:"1,keyasint"`
	Epoch     uint64                 `cbor:"2,keyasint"`
	Full      bool                   `cbor:"3,keyasint,omitempty"`
	Instances []model.InstanceStatus `cbor:"4,keyasint,omitempty"`
	FactsGen  uint64                 `cbor:"5,keyasint,omitempty"`
	Transfers []model.TransferReport `cbor:"6,keyasint,omitempty"`
	// Holds, in a full report, lists all instances that the agent has and that are not known to have stopped.
	Holds []model.Holding `cbor:"7,keyasint,omitempty"`
	// Incarnation is that of the newest state whose assignments the agent acted on. After a restore, a full report with an
	// older incarnation proves nothing.
	Incarnation uint64 `cbor:"8,keyasint,omitempty"`
	// Self is the agent's report on its own machine. nil: unchanged, or in a full report, that the agent makes none.
	Self *model.SelfReport `cbor:"9,keyasint,omitempty"`
}

// NodeIntent cordons, uncordons, disables or enables a node. Each change ends a running drain of the node. Codes:
// not_found; conflict if docs/model.md, "Nodes", has no such change of intent; needs_format.
type NodeIntent struct {
	ID     model.NodeID `cbor:"1,keyasint"`
	Intent model.Intent `cbor:"2,keyasint"`
	Reason string       `cbor:"3,keyasint,omitempty"`
}

// NodeLabel sets labels, or removes those with an empty value. They win over those of the agent's configuration.
type NodeLabel struct {
	ID     model.NodeID      `cbor:"1,keyasint"`
	Labels map[string]string `cbor:"2,keyasint"`
}

// NodeAck acknowledges instances that stay running on a draining node, so that its drain can end. Empty Instances means
// all that block now.
type NodeAck struct {
	ID        model.NodeID       `cbor:"1,keyasint"`
	Instances []model.InstanceID `cbor:"2,keyasint,omitempty"`
}

// NodeConfirmDead is the operator's word that nothing runs on an offline node any more: its instances count as stopped.
// Codes: not_found, conflict (it is not offline). Without Force also lease_held (the only holder of a slot may still
// run there under its lease) and node_offline_unconfirmed_stop (it has no lease, so no time ends it).
type NodeConfirmDead struct {
	ID    model.NodeID `cbor:"1,keyasint"`
	Force bool         `cbor:"2,keyasint,omitempty"` // the machine is known to be off; recorded
}

// NodeForget removes an offline node on which nothing runs. It is refused while the node is the home of local volumes
// or has the last copy of one, unless LoseData names their groups. Their volumes are then lost, and their slots may
// start empty elsewhere. Codes: not_found, conflict.
type NodeForget struct {
	ID       model.NodeID    `cbor:"1,keyasint"`
	LoseData []model.GroupID `cbor:"2,keyasint,omitempty"`
}
