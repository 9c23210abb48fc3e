package model

// Blocker says why something can't be done now, and what would change that.
type Blocker struct {
	Code     Code       `json:"code" cbor:"1,keyasint"`
	Instance InstanceID `json:"instance,omitempty" cbor:"2,keyasint,omitempty"`
	Volume   VolumeID   `json:"volume,omitempty" cbor:"3,keyasint,omitempty"`
	Message  string     `json:"message" cbor:"4,keyasint"`
	Unblock  string     `json:"unblock,omitempty" cbor:"5,keyasint,omitempty"` // what would remove the blocker
}

// DataClass says whether an instance has data on its node. An instance is stateful if and only if it has volumes (P1).
type DataClass string

// The data classes.
const (
	Stateless DataClass = "stateless"
	Stateful  DataClass = "stateful"
)

// Action is what a drain will do with one instance.
type Action string

// The actions of a forecast.
const (
	ActionMove      Action = "move"       // create a replacement, then stop the instance (surge)
	ActionStopFirst Action = "stop_first" // stop the instance, then create its replacement
	ActionStop      Action = "stop"       // stop the instance; without a Target, don't replace it during the drain
	ActionLeave     Action = "leave"      // leave the instance on the node
	ActionWait      Action = "wait"       // wait, because the instance can't leave now
)

// Forecast is what a drain will do with one instance, if nothing else changes.
type Forecast struct {
	Node     NodeID     `json:"node" cbor:"1,keyasint"`
	Instance InstanceID `json:"instance" cbor:"2,keyasint"`
	Group    GroupID    `json:"group" cbor:"3,keyasint"`
	Class    DataClass  `json:"class" cbor:"4,keyasint"`
	Action   Action     `json:"action" cbor:"5,keyasint"`
	Target   NodeID     `json:"target,omitempty" cbor:"6,keyasint,omitempty"`  // where a replacement fits now
	Blocker  *Blocker   `json:"blocker,omitempty" cbor:"7,keyasint,omitempty"` // why the instance can't leave now, or nil
	// the blocker stays until a person acts, so the drain can't finish by itself
	Never bool `json:"never,omitempty" cbor:"8,keyasint,omitempty"`
	// a remark for people, such as why the instance is stopped first although the group's order is surge
	Note string `json:"note,omitempty" cbor:"9,keyasint,omitempty"`
	// approximate time until the instance has left the node; 0 means not known
	After Duration `json:"after,omitempty" cbor:"10,keyasint,omitempty"`
}

// NodeRemaining is one instance that is still on a draining node.
type NodeRemaining struct {
	Instance InstanceID `json:"instance" cbor:"1,keyasint"`
	Class    DataClass  `json:"class" cbor:"2,keyasint"`
	// the observed state of the instance, or "left_running" if the drain leaves the instance there
	State   string `json:"state" cbor:"3,keyasint"`
	Blocker Code   `json:"blocker,omitempty" cbor:"4,keyasint,omitempty"`
	// the drain has begun to stop it, so the node's count of moved instances includes it
	InMoved bool `json:"in_moved,omitempty" cbor:"5,keyasint,omitempty"`
	// the node's count of instances without a replacement includes it too
	InStopped bool `json:"in_stopped,omitempty" cbor:"6,keyasint,omitempty"`
}

// DrainStatus is the progress of a drain on one of its nodes.
type DrainStatus struct {
	Node      NodeID          `json:"node" cbor:"1,keyasint"`
	Remaining []NodeRemaining `json:"remaining" cbor:"2,keyasint,omitempty"`
	Blockers  []Blocker       `json:"blockers" cbor:"3,keyasint,omitempty"`
}

// Excluded is the number of nodes that a rule of placement excluded.
type Excluded struct {
	Code  Code `json:"code" cbor:"1,keyasint"`
	Nodes int  `json:"nodes" cbor:"2,keyasint"`
}

// WhyResult explains one object: its state, the steps that led to the state, the nodes that placement considered, and
// what happens next.
type WhyResult struct {
	Subject    string       `json:"subject" cbor:"1,keyasint"`
	State      string       `json:"state" cbor:"2,keyasint"`
	Since      int64        `json:"since" cbor:"3,keyasint,omitempty"` // Unix ms
	Chain      []WhyLink    `json:"chain" cbor:"4,keyasint,omitempty"`
	Considered []Considered `json:"considered" cbor:"5,keyasint,omitempty"`
	Next       string       `json:"next" cbor:"6,keyasint,omitempty"`
	Blockers   []Blocker    `json:"blockers,omitempty" cbor:"7,keyasint,omitempty"`
}

// WhyLink is one of the steps that led to the state of an object.
type WhyLink struct {
	Index uint64 `json:"index" cbor:"1,keyasint"`
	Wall  int64  `json:"time" cbor:"2,keyasint"` // Unix ms
	Cause Cause  `json:"cause,omitempty" cbor:"3,keyasint,omitempty"`
	Actor Actor  `json:"actor,omitempty" cbor:"4,keyasint,omitempty"`
	Text  string `json:"text" cbor:"5,keyasint"`
}

// Considered is a node that placement considered. A rule excluded the node, or the node got a score.
type Considered struct {
	Node       NodeID `json:"node" cbor:"1,keyasint"`
	ExcludedBy Code   `json:"excluded_by,omitempty" cbor:"2,keyasint,omitempty"`
	Score      int64  `json:"score,omitempty" cbor:"3,keyasint,omitempty"`
}

// PlannedGroup is what submitting a job would do to one of its groups.
type PlannedGroup struct {
	Group         GroupID `json:"group" cbor:"1,keyasint"`
	Created       int     `json:"created" cbor:"2,keyasint"`
	Destroyed     int     `json:"destroyed" cbor:"3,keyasint"`
	Kept          int     `json:"kept" cbor:"4,keyasint"`
	Unschedulable int     `json:"unschedulable" cbor:"5,keyasint"`
	// why the unschedulable instances can't be placed
	Code     Code       `json:"code,omitempty" cbor:"6,keyasint,omitempty"`
	Message  string     `json:"message,omitempty" cbor:"7,keyasint,omitempty"`  // the same reason in words
	Excluded []Excluded `json:"excluded,omitempty" cbor:"8,keyasint,omitempty"` // how many nodes each rule excluded

	Budgets []BudgetLine `json:"budgets,omitempty" cbor:"9,keyasint,omitempty"` // the group's budgets in numbers
	// instances that would be stopped to make room
	Preempts []InstanceID `json:"preempts,omitempty" cbor:"10,keyasint,omitempty"`
}

// JobPlan is what submitting a job would do.
type JobPlan struct {
	Job JobName `json:"job" cbor:"1,keyasint"`
	// the present index of the job; a submit with this index fails if the job has changed since then; 0 means a new job
	Index   uint64         `json:"index" cbor:"2,keyasint"`
	Version uint64         `json:"version" cbor:"3,keyasint"` // the version that the job would have
	Changes bool           `json:"changes" cbor:"4,keyasint"`
	Groups  []PlannedGroup `json:"groups" cbor:"5,keyasint,omitempty"`
}
