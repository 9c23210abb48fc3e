package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Node is a worker machine.
type Node struct {
	ID           model.NodeID       `json:"id"`
	Name         string             `json:"name"`
	State        model.NodeState    `json:"state" enum:"disabled,offline,draining,cordoned,unreachable,degraded,active"`
	Intent       model.Intent       `json:"intent" enum:"active,cordoned,draining,disabled"`
	Health       model.Health       `json:"health" enum:"online,degraded,unreachable,offline"`
	Eligible     bool               `json:"eligible" doc:"new instances may be placed here"`
	Reason       string             `json:"reason" doc:"why it is not eligible"`
	Labels       map[string]string  `json:"labels"`
	Attributes   map[string]string  `json:"attributes"`
	Address      string             `json:"address"`
	APIAddress   string             `json:"api_address"`
	Epoch        uint64             `json:"epoch" doc:"grows at each registration"`
	BootID       string             `json:"boot_id"`
	Version      string             `json:"version" doc:"of the agent"`
	Warnings     []string           `json:"warnings"`
	Capacity     Amounts            `json:"capacity"`
	Reserved     Amounts            `json:"reserved"`
	Allocated    Amounts            `json:"allocated"`
	Instances    int                `json:"instances" doc:"not confirmed stopped"`
	AutoEvicting bool               `json:"auto_evicting" doc:"replicas on it are to be evicted because of the node drain policy; false when somebody asked"`
	DrainID      model.DrainID      `json:"drain_id"`
	DrainPhase   model.DrainPhase   `json:"drain_phase" enum:",draining,drained,failed,canceled" doc:"of the node in the drain drain_id; empty without one"`
	LastSeen     *time.Time         `json:"last_seen" doc:"by the answering server"`
	SeenBy       model.ServerID     `json:"seen_by" doc:"a server that hears the node although the answering one does not"`
	Acked        []model.InstanceID `json:"acked" doc:"blockers that were acknowledged"`
	Avoid        []Avoidance        `json:"avoid" doc:"groups that did badly here: new instances of them come here only if no other node will do"`
	Unknown      []UnknownInstance  `json:"unknown" doc:"instances that run here and that the state does not know, as after a restore"`
	PortProblems []PortProblem      `json:"port_problems" doc:"ports that its agent can't open"`
	Troubles     []Trouble          `json:"troubles" doc:"what its agent's checks of its own machine find; with any of them the node is degraded"`
	Runtime      *Runtime           `json:"container_runtime,omitempty" doc:"absent: the node can't run containers"`
	Owes         bool               `json:"inventory_missing" doc:"its agent has not told since the last restore what runs here"`
}

// Runtime is the container runtime of a node.
type Runtime struct {
	Version   string     `json:"version"`
	Down      string     `json:"down,omitempty" doc:"why it does not answer: the node gets no new containers, and those that run go on"`
	DownSince *time.Time `json:"down_since,omitempty"`
	Bridge    string     `json:"bridge,omitempty" doc:"subnet of containers with network = \"bridge\"; absent: the node can't run them"`
	NoBridge  string     `json:"no_bridge,omitempty" doc:"why it can't run containers with network = \"bridge\""`
}

// Trouble is a failed check of an agent's own machine.
type Trouble struct {
	Check  model.SelfCheck `json:"check" enum:"cgroup_not_writable,clock_jumps,disk_full,disk_not_writable,disk_slow"`
	Reason string          `json:"reason"`
}

// Avoidance is a group that avoids a node for a while.
type Avoidance struct {
	Group   model.GroupID `json:"group"`
	Version uint64        `json:"version,omitempty" doc:"of the group that avoids it; absent: every version, as a person asked for"`
	Reason  string        `json:"reason"`
	Until   time.Time     `json:"until"`
}

// Amounts are resources that a node has or that are used on it.
type Amounts struct {
	CPU         int64 `json:"cpu"`
	MemoryBytes int64 `json:"memory_bytes"`
}

// NodeReply is the answer to a write that concerns one node.
type NodeReply struct {
	Written
	Node *Node `json:"node,omitempty" doc:"absent when the node was forgotten"`
}

// ForgetReply is the answer to the removal of a node.
type ForgetReply struct {
	NodeReply
	Lost []model.VolumeID `json:"lost,omitempty" doc:"volumes whose data is given up"`
}

// IntentBody gives the reason for cordoning, uncordoning, disabling or enabling a node.
type IntentBody struct {
	Reason string `json:"reason,omitempty" maxLength:"256" doc:"for people; it stands in the event"`
}

// AckBody acknowledges the blockers of a node's drain.
type AckBody struct {
	Instances []model.InstanceID `json:"instances,omitempty" maxItems:"1000" doc:"default: all that block now"`
}

// DeadBody confirms that a machine is really off.
type DeadBody struct {
	Force bool `json:"force,omitempty" doc:"the machine is known to be off, whatever it might still run of which only one may run; recorded"`
}

// LabelBody changes labels of a node.
type LabelBody struct {
	Labels map[string]string `json:"labels"`
}
