package fsm

import "github.com/outspan/outspan/model"

// Node is a worker machine that its agent has registered.
type Node struct {
	ID     model.NodeID `cbor:"1,keyasint"`
	Name   string       `cbor:"2,keyasint"` // unique in the cluster
	Intent model.Intent `cbor:"3,keyasint"`
	Health model.Health `cbor:"4,keyasint"`

	Agent  model.AgentInfo    `cbor:"5,keyasint"`
	Shape  model.NodeShape    `cbor:"6,keyasint"`
	Placed Usage              `cbor:"7,keyasint"` // of instances that are not confirmed stopped and don't wait for room
	Return NodeReturn         `cbor:"8,keyasint"`
	Drain  model.DrainID      `cbor:"9,keyasint,omitempty"`  // the last drain that named this node; it may have ended
	Acked  []model.InstanceID `cbor:"10,keyasint,omitempty"` // instances that the operator acknowledged as blockers
	// Version grows with changes of the node itself, such as intent, health, epoch, capacity and labels. It does not grow
	// with what is placed here.
	Version uint64 `cbor:"11,keyasint"`
	// Assigned is the index of the last change to what the agent must run. The agent's long poll waits until Assigned
	// changes.
	Assigned uint64 `cbor:"12,keyasint"`
	// FactsGen is the generation of the facts that the agent last reported in this epoch.
	FactsGen uint64 `cbor:"13,keyasint,omitempty"`
	// Promised is the memory, in bytes, that waiting preemptors will take here in addition to what their victims give
	// back.
	Promised int64 `cbor:"15,keyasint,omitempty"`
	// Avoid lists the groups that avoid this node for now, because they failed here or a person requested it. It has at
	// most 64 entries, in order of group and version.
	Avoid         []AvoidEntry `cbor:"16,keyasint,omitempty"`
	Registrations uint64       `cbor:"17,keyasint"`
	Restore       NodeRestore  `cbor:"18,keyasint,omitzero"`
	Self          NodeSelf     `cbor:"19,keyasint,omitzero"`
	Labels        NodeLabels   `cbor:"20,keyasint,omitzero"`
	// FailedPulls lists the images that the node could not pull, in order of digest, each digest once.
	FailedPulls []FailedPull `cbor:"21,keyasint,omitempty"`
}

// NodeLabels are a node's labels, separated by who set them. Those of the agent's join token are in its TrustMember.
// Shape.Labels has the labels that result.
type NodeLabels struct {
	Agent map[string]string `cbor:"1,keyasint,omitempty"` // from the agent's configuration
	// People are the labels that operators set. They override those of the agent and of its token. An empty value removes
	// such a label.
	People map[string]string `cbor:"2,keyasint,omitempty"`
}

// Usage is what the instances of a node, class or job take, including the overhead of each instance.
type Usage struct {
	CPU         int64 `cbor:"1,keyasint"`
	MemoryBytes int64 `cbor:"2,keyasint"`
	Instances   int   `cbor:"3,keyasint"`
}

// NodeReturn is what the state remembers of a node's outages and returns.
type NodeReturn struct {
	Recovering    bool           `cbor:"1,keyasint,omitempty"` // registered, and the full inventory has not arrived yet
	OfflineSince  model.Time     `cbor:"2,keyasint,omitempty"` // when the last outage began; kept after the outage
	HeldUntil     model.Time     `cbor:"3,keyasint,omitempty"` // no placements here before this time, because of flapping
	Hold          model.Duration `cbor:"4,keyasint,omitempty"` // time from return to HeldUntil; doubled at each flap
	LastReturn    model.Time     `cbor:"6,keyasint,omitempty"` // when the node last returned from an outage
	ConfirmedDead bool           `cbor:"5,keyasint,omitempty"` // the operator said that nothing runs here any more
}

// State returns the state to show: the first of disabled, offline, draining, cordoned, unreachable, degraded and active
// that applies.
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

// NodeRegister adds a node, or registers a known node again, with a new epoch. The node is then online, and recovering
// until its agent has sent its inventory. Codes: name_taken, invalid, needs_format, node_taken; member_revoked if the
// agent is revoked; conflict if the agent has seen a newer state than this one and may not raise the incarnation.
type NodeRegister struct {
	ID    model.NodeID    `cbor:"1,keyasint"`
	Name  string          `cbor:"2,keyasint"`
	Agent model.AgentInfo `cbor:"3,keyasint"` // Epoch is ignored
	Shape model.NodeShape `cbor:"4,keyasint"`
	// Seen is the newest state whose assignments the agent acted on. The agent ignores assignments of older states.
	Seen model.Seen `cbor:"5,keyasint,omitempty"`
	// Refused says that a registration of the agent was refused with node_taken, and none was accepted since.
	Refused bool `cbor:"6,keyasint,omitempty"`
}

// NodeHealth sets the health that the leader found: online, degraded, unreachable or offline. Offline makes the node's
// instances lost, and only NodeRegister makes an offline node online again. If the node has that health already,
// nothing changes. Codes: not_found, invalid, conflict (the node is offline), mass_offline_hold, and stale if the boot
// id or epoch changed, because the leader then judged an earlier registration.
type NodeHealth struct {
	ID     model.NodeID `cbor:"1,keyasint"`
	Health model.Health `cbor:"2,keyasint"`
	BootID string       `cbor:"3,keyasint"`
	Epoch  uint64       `cbor:"4,keyasint"`
	Reason string       `cbor:"5,keyasint,omitempty"`
}

// NodeReport is a batch of what an agent observed. If Full is true, it is the whole inventory. An instance that the
// state has on the node and that the inventory lacks is then marked as failed, unless it is pending. A repeated report
// changes nothing, because of the epoch and each instance's generation. Codes: not_found, stale if the node is offline
// or at another epoch.
type NodeReport struct {
	ID        model.NodeID           `cbor:"1,keyasint"`
	Epoch     uint64                 `cbor:"2,keyasint"`
	Full      bool                   `cbor:"3,keyasint,omitempty"`
	Instances []model.InstanceStatus `cbor:"4,keyasint,omitempty"`
	FactsGen  uint64                 `cbor:"5,keyasint,omitempty"`
	Transfers []model.TransferReport `cbor:"6,keyasint,omitempty"`
	// In a full report, Holds lists all instances that the agent has, except those that are known to have stopped.
	Holds []model.Holding `cbor:"7,keyasint,omitempty"`
	// Incarnation is that of the newest state whose assignments the agent acted on. If it is not the current one, Holds is
	// ignored, because the report is about a state from before a restore.
	Incarnation uint64 `cbor:"8,keyasint,omitempty"`
	// Self is the agent's report on its own machine. In a full report, nil means that the agent does not check its
	// machine. In any other report, nil means that nothing changed.
	Self *model.SelfReport `cbor:"9,keyasint,omitempty"`
}

// NodeIntent cordons, uncordons, disables or enables a node. A change cancels a running drain of the node. If the node
// has that intent already, nothing changes. Codes: not_found; conflict if docs/model.md, "Nodes", has no such change of
// intent; needs_format if the agent of a disabled node is too old for the node to be enabled.
type NodeIntent struct {
	ID     model.NodeID `cbor:"1,keyasint"`
	Intent model.Intent `cbor:"2,keyasint"`
	Reason string       `cbor:"3,keyasint,omitempty"`
}

// NodeLabel sets labels of a node for an operator. They override the labels of the agent's configuration. An empty
// value removes a label, even one from the agent's configuration. Codes: not_found, invalid.
type NodeLabel struct {
	ID     model.NodeID      `cbor:"1,keyasint"`
	Labels map[string]string `cbor:"2,keyasint"`
}

// NodeAck acknowledges instances that stay running on a draining or disabled node, so that its drain can end. If
// Instances is empty, it acknowledges all instances that should run there and may not leave the node (see
// State.Movable). Codes: not_found, conflict if the node is neither draining nor disabled.
type NodeAck struct {
	ID        model.NodeID       `cbor:"1,keyasint"`
	Instances []model.InstanceID `cbor:"2,keyasint,omitempty"`
}

// NodeConfirmDead is the operator's confirmation that nothing runs on an offline node any more. It marks the node's
// instances as stopped. Codes: not_found, conflict (the node is not offline). Without Force, the command is also
// refused while the only holder of a slot may still run there. The code is lease_held until the holder's lease is over,
// and node_offline_unconfirmed_stop if the holder has no lease, or if a restore has lost from the state what runs
// there.
type NodeConfirmDead struct {
	ID    model.NodeID `cbor:"1,keyasint"`
	Force bool         `cbor:"2,keyasint,omitempty"` // the machine is known to be off; the stops record this
}

// NodeForget removes an offline node that holds no instances. If data such as local volumes or a last copy would be
// lost with the node, LoseData must name exactly the groups of that data. These volumes are then lost, and their slots
// may start empty elsewhere. Codes: not_found, conflict.
type NodeForget struct {
	ID       model.NodeID    `cbor:"1,keyasint"`
	LoseData []model.GroupID `cbor:"2,keyasint,omitempty"`
}
