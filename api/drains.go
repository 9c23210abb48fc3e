package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Drain is a drain with its nodes.
type Drain struct {
	ID        model.DrainID        `json:"id"`
	Phase     model.DrainPhase     `json:"phase" enum:"draining,drained,failed,canceled"`
	Paused    bool                 `json:"paused"`
	Actor     model.Actor          `json:"actor"`
	Message   string               `json:"message"`
	Options   model.DrainOptions   `json:"options"`
	Nodes     []DrainNode          `json:"nodes"`
	Rejected  []model.DrainRefusal `json:"rejected"`
	CreatedAt time.Time            `json:"created_at"`
	Index     uint64               `json:"index"`
	Lanes     []DrainLane          `json:"lanes,omitempty" doc:"only where they were asked for: at most 1000"`
}

// DrainLane says when what happened to one instance that a drain concerns, and to what replaces it. A time is null
// until then, and where its event is no longer kept.
type DrainLane struct {
	Node        string           `json:"node" doc:"name of the node that it is to leave"`
	NodeID      model.NodeID     `json:"node_id"`
	Instance    model.InstanceID `json:"instance"`
	Group       model.GroupID    `json:"group"`
	Slot        int              `json:"slot"`
	State       model.Observed   `json:"state" enum:"pending,booting,ready,unready,draining,stopped,failed,lost"`
	Acked       bool             `json:"acked" doc:"somebody acknowledged that it stays"`
	Replacement model.InstanceID `json:"replacement"`
	Target      string           `json:"target" doc:"name of the node of the replacement"`
	Pulling     string           `json:"pulling" doc:"the image that the target pulls for it now"`
	ReservedAt  *time.Time       `json:"reserved_at" doc:"its room on the target was claimed"`
	StartedAt   *time.Time       `json:"started_at" doc:"the replacement's program began"`
	ReadyAt     *time.Time       `json:"ready_at" doc:"the replacement was ready"`
	StoppingAt  *time.Time       `json:"stopping_at" doc:"the stop of the instance began"`
	StoppedAt   *time.Time       `json:"stopped_at" doc:"the instance was confirmed stopped"`
}

// DrainNode is one node of a drain.
type DrainNode struct {
	Node      string           `json:"node" doc:"name"`
	NodeID    model.NodeID     `json:"node_id"`
	Phase     model.DrainPhase `json:"phase" enum:"draining,drained,failed,canceled"`
	Turn      bool             `json:"turn" doc:"its turn has come; see max_parallel_nodes"`
	LastError string           `json:"last_error"`
	StartedAt *time.Time       `json:"started_at"`
	Deadline  *time.Time       `json:"deadline" doc:"null: none, or its turn has not come"`
	EndedAt   *time.Time       `json:"ended_at"`
	BootID    string           `json:"boot_id" doc:"of the node when the drain began"`
	Moved     int              `json:"moved" doc:"instances that the drain stopped, or has begun to stop; see in_moved"`
	Stopped   int              `json:"stopped" doc:"of those moved: stopped, and not replaced elsewhere"`
	Acked     int              `json:"acked" doc:"instances that stay on it because that was acknowledged: now, or when it was drained or failed"`
	Remaining []DrainRemaining `json:"remaining"`
	Blockers  []DrainBlocker   `json:"blockers"`
}

// DrainRemaining is an instance that is still on a draining node.
type DrainRemaining struct {
	Instance model.InstanceID `json:"instance"`
	Class    model.DataClass  `json:"class" enum:"stateless,stateful"`
	State    string           `json:"state"`
	Blocker  model.Code       `json:"blocker"`
	// Moved and Stopped of the node count an instance when its stop begins.
	InMoved   bool `json:"in_moved" doc:"the drain has begun to stop it, so moved of the node counts it already"`
	InStopped bool `json:"in_stopped" doc:"stopped of the node counts it too"`
}

// DrainBlocker says what blocks a drain, a move or a similar change now, and what would unblock it.
type DrainBlocker struct {
	Code     model.Code       `json:"code"`
	Instance model.InstanceID `json:"instance"`
	Volume   model.VolumeID   `json:"volume"`
	Message  string           `json:"message"`
	Unblock  string           `json:"unblock"`
}

// DrainForecast is what a drain would do with one instance.
type DrainForecast struct {
	Node     string           `json:"node"`
	NodeID   model.NodeID     `json:"node_id"`
	Instance model.InstanceID `json:"instance"`
	Group    model.GroupID    `json:"group"`
	Class    model.DataClass  `json:"class" enum:"stateless,stateful"`
	Member   string           `json:"member" doc:"the identity that the instance keeps; empty: its replacement has a new one"`
	Action   model.Action     `json:"action" enum:"move,stop_first,stop,leave,wait"`
	Target   string           `json:"target" doc:"name of the node where its replacement fits now"`
	Blocker  model.Code       `json:"blocker"`
	Volume   model.VolumeID   `json:"volume,omitempty" doc:"that the blocker names"`
	Message  string           `json:"message"`
	Unblock  string           `json:"unblock"`
	Never    bool             `json:"never" doc:"no time alone removes the blocker"`
	Note     string           `json:"note" doc:"what is not as the group asks for: a quota holds no surge"`
	After    model.Duration   `json:"after" doc:"about when it is gone; 0s: not known"`
}

// DrainReply is the answer to the start of a drain. The nodes in Started are draining. While such a node waits for its
// turn, it may still get instances that fit nowhere else.
type DrainReply struct {
	Written
	Drain    model.DrainID        `json:"drain"`
	Started  []string             `json:"started" doc:"names of nodes"`
	Rejected []model.DrainRefusal `json:"rejected"`
	Forecast []DrainForecast      `json:"forecast"`
}

// DrainWriteReply is the answer to any other write to a drain.
type DrainWriteReply struct {
	Written
	Drain *Drain `json:"drain,omitempty"`
}

// CancelBody cancels a drain.
type CancelBody struct {
	Uncordon bool `json:"uncordon,omitempty"`
}

// DrainChoices are the options of a drain.
type DrainChoices struct {
	ID               model.DrainID   `json:"id,omitempty" doc:"of the new drain; default: a new ULID"`
	Message          string          `json:"message,omitempty" maxLength:"256"`
	Deadline         *model.Duration `json:"deadline,omitempty" doc:"of each node, from its turn: 1h, or none; default: the setting drain_deadline"`
	Force            bool            `json:"force,omitempty" doc:"also what a role says never; recorded"`
	ForceAtDeadline  bool            `json:"force_at_deadline,omitempty" doc:"kill what is left at the deadline"`
	AcceptDowntime   []string        `json:"accept_downtime,omitempty" doc:"JOB/GROUP, or * for all: stop even where no replacement fits; recorded"`
	IgnoreSystem     bool            `json:"ignore_system,omitempty" doc:"leave instances of system groups alone"`
	MaxParallelNodes int             `json:"max_parallel_nodes,omitempty" minimum:"0" doc:"0: all at once"`
	Policy           string          `json:"policy,omitempty" doc:"instead of the setting node_drain_policy"`
	Roll             *model.Roll     `json:"roll,omitempty" doc:"the rolling maintenance that it is a step of"`
}

// DrainBody starts a drain of the nodes in Nodes, or of all nodes with every label in Selector.
type DrainBody struct {
	Nodes    []string          `json:"nodes,omitempty" maxItems:"1000" doc:"ids or whole names, in the order in which they are drained"`
	Selector map[string]string `json:"selector,omitempty" doc:"instead of nodes: all nodes with these labels, by name"`
	DrainChoices
}
