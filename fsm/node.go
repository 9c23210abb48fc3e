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
	Placed Usage              `cbor:"7,keyasint"` // sums over every instance here that is not confirmed stopped
	Return NodeReturn         `cbor:"8,keyasint"`
	Drain  model.DrainID      `cbor:"9,keyasint,omitempty"`  // the last drain that named this node; it may have ended
	Acked  []model.InstanceID `cbor:"10,keyasint,omitempty"` // blockers that the operator acknowledged
	// Version grows with intent, health, epoch, capacity and labels, never with what is placed here.
	Version uint64 `cbor:"11,keyasint"`
	// Assigned is the index of the last change to what the agent must run; the agent's long poll waits on it.
	Assigned uint64 `cbor:"12,keyasint"`
	// FactsGen is the generation of the facts that its agent last reported, of this epoch.
	FactsGen uint64 `cbor:"13,keyasint,omitempty"`
	// Promised is the memory, in bytes, that preemptors here will take beyond what those give back whose end they wait
	// for.
	Promised int64 `cbor:"15,keyasint,omitempty"`
	// Avoid lists the groups that did badly here, at most 64, in order of group.
	Avoid []AvoidEntry `cbor:"16,keyasint,omitempty"`
	// Registrations counts how often its agent registered.
	Registrations uint64      `cbor:"17,keyasint"`
	Restore       NodeRestore `cbor:"18,keyasint,omitzero"`
	Self          NodeSelf    `cbor:"19,keyasint,omitzero"`
	Labels        NodeLabels  `cbor:"20,keyasint,omitzero"`
}

// NodeLabels is who said what of a node's labels. Shape.Labels is what counts.
type NodeLabels struct {
	Agent map[string]string `cbor:"1,keyasint,omitempty"` // of its agent's configuration
	// People is what operators set over that. An empty value takes away what the agent says.
	People map[string]string `cbor:"2,keyasint,omitempty"`
}

// Usage is what is placed on a node, the overhead of each instance included.
type Usage struct {
	CPU         int64 `cbor:"1,keyasint"`
	MemoryBytes int64 `cbor:"2,keyasint"`
	Instances   int   `cbor:"3,keyasint"`
}

// NodeReturn is what is kept of a node's outages.
type NodeReturn struct {
	Recovering    bool           `cbor:"1,keyasint,omitempty"` // registered, its full inventory isn't in yet
	OfflineSince  model.Time     `cbor:"2,keyasint,omitempty"` // of the last outage, also after it ended
	HeldUntil     model.Time     `cbor:"3,keyasint,omitempty"` // no new placements before, after flapping
	Hold          model.Duration `cbor:"4,keyasint,omitempty"` // length of the last hold, doubled at each flap
	LastReturn    model.Time     `cbor:"6,keyasint,omitempty"` // when it last came back from an outage
	ConfirmedDead bool           `cbor:"5,keyasint,omitempty"` // the operator said that nothing runs there any more
}

// State derives the shown state: the first that applies of disabled, offline, draining, cordoned, unreachable,
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

// Allocatable is what instances can use: capacity less what is reserved for the machine itself.
func (n *Node) Allocatable() model.Resources {
	return model.Resources{CPU: n.Shape.Capacity.CPU - n.Shape.Reserved.CPU,
		MemoryBytes: n.Shape.Capacity.MemoryBytes - n.Shape.Reserved.MemoryBytes}
}

// NodeRegister makes a node known, or known again: it mints a new epoch. A node that is offline comes back and is
// recovering until its inventory is in. Codes: name_taken, invalid; conflict if the agent has seen a newer state than
// this one.
type NodeRegister struct {
	ID    model.NodeID    `cbor:"1,keyasint"`
	Name  string          `cbor:"2,keyasint"`
	Agent model.AgentInfo `cbor:"3,keyasint"` // Epoch is ignored
	Shape model.NodeShape `cbor:"4,keyasint"`
	// Seen is the newest state whose assignments the agent acted on. It ignores older ones.
	Seen model.Seen `cbor:"5,keyasint,omitempty"`
	// Refused tells that the agent was refused for another one of its node (node_taken), and has not been accepted
	// since.
	Refused bool `cbor:"6,keyasint,omitempty"`
}

// NodeHealth writes what the detector found. Offline makes the node's instances lost. It is refused with stale if boot
// id or epoch moved: silence is that of a registration, and what else changes of the node, like a label, says nothing
// about it. It covers online <-> degraded and * -> offline; offline ends only by NodeRegister.
type NodeHealth struct {
	ID     model.NodeID `cbor:"1,keyasint"`
	Health model.Health `cbor:"2,keyasint"`
	BootID string       `cbor:"3,keyasint"`
	Epoch  uint64       `cbor:"4,keyasint"`
	Reason string       `cbor:"5,keyasint,omitempty"`
}

// NodeReport is a batch of what an agent observed. Full says that it is the whole inventory: what the state believes
// there and the inventory lacks is gone. Idempotent by (epoch, each instance's generation). Code: stale for an older
// epoch.
type NodeReport struct {
	ID        model.NodeID           `cbor:"1,keyasint"`
	Epoch     uint64                 `cbor:"2,keyasint"`
	Full      bool                   `cbor:"3,keyasint,omitempty"`
	Instances []model.InstanceStatus `cbor:"4,keyasint,omitempty"`
	FactsGen  uint64                 `cbor:"5,keyasint,omitempty"`
	Transfers []model.TransferReport `cbor:"6,keyasint,omitempty"`
	// Holds, of a full report, are all instances that the agent has and that are not known to have stopped.
	Holds []model.Holding `cbor:"7,keyasint,omitempty"`
	// Incarnation is that of the newest state whose assignments the agent acted on. After a restore a full report of an
	// older one proves nothing.
	Incarnation uint64 `cbor:"8,keyasint,omitempty"`
	// Self is the agent's word on its own machine. nil: as it was told before, or of a full report, that it has none.
	Self *model.SelfReport `cbor:"9,keyasint,omitempty"`
}

// NodeIntent cordons, uncordons, disables or enables. Uncordon cancels a running drain of the node.
// Codes: not_found, conflict (docs/model.md, "Nodes", has no such change of intent).
type NodeIntent struct {
	ID     model.NodeID `cbor:"1,keyasint"`
	Intent model.Intent `cbor:"2,keyasint"`
	Reason string       `cbor:"3,keyasint,omitempty"`
}

// NodeLabel sets (or with an empty value removes) labels. They win over those of the agent's configuration.
type NodeLabel struct {
	ID     model.NodeID      `cbor:"1,keyasint"`
	Labels map[string]string `cbor:"2,keyasint"`
}

// NodeAck acknowledges instances that stay running on a draining node, so that its drain can end. Empty Instances = all
// that block now.
type NodeAck struct {
	ID        model.NodeID       `cbor:"1,keyasint"`
	Instances []model.InstanceID `cbor:"2,keyasint,omitempty"`
}

// NodeConfirmDead is the operator's word that nothing runs on an offline node any more: its instances count as stopped.
// Codes: not_found, conflict (it is not offline); unless Force lease_held (what only one may run may run there under
// its lease) and node_offline_unconfirmed_stop (it may run there without one, so no time ends it).
type NodeConfirmDead struct {
	ID    model.NodeID `cbor:"1,keyasint"`
	Force bool         `cbor:"2,keyasint,omitempty"` // the machine is known to be off; recorded
}

// NodeForget removes an offline node on which nothing runs. While the node is the home of local volumes, or has the
// last copy of one, it is refused, unless LoseData names their groups: their volumes are then lost, and their slots may
// start empty elsewhere. Codes: not_found, conflict.
type NodeForget struct {
	ID       model.NodeID    `cbor:"1,keyasint"`
	LoseData []model.GroupID `cbor:"2,keyasint,omitempty"`
}
