package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Instance is one run of a group's program on a node.
type Instance struct {
	ID         model.InstanceID   `json:"id"`
	Job        model.JobName      `json:"job"`
	Group      string             `json:"group"`
	Slot       int                `json:"slot"`
	Member     string             `json:"member" doc:"the identity of a stateful instance; empty without one"`
	Node       string             `json:"node" doc:"name"`
	NodeID     model.NodeID       `json:"node_id"`
	Desired    model.Desired      `json:"desired" enum:"running,draining,stopped"`
	Observed   model.Observed     `json:"observed" enum:"pending,booting,ready,unready,draining,stopped,failed,lost"`
	Ready      bool               `json:"ready"`
	Reason     string             `json:"reason"`
	Cause      model.Cause        `json:"cause" doc:"why it was made"`
	StopCause  model.Cause        `json:"stop_cause" doc:"why it is stopped"`
	Replaces   model.InstanceID   `json:"replaces"`
	ReplacedBy model.InstanceID   `json:"replaced_by"`
	Awaits     []model.InstanceID `json:"awaits" doc:"instances whose room it gets and that have not stopped yet; its agent is told when there are none left"`
	Version    uint64             `json:"version" doc:"of the job"`
	Class      model.DataClass    `json:"class" enum:"stateless,stateful"`
	ExitCode   *int               `json:"exit_code"`
	Restarts   int                `json:"restarts"`
	Address    string             `json:"address" doc:"of its node"`
	Ports      map[string]int     `json:"ports"`
	Volume     string             `json:"volume" doc:"names of its volumes, joined by commas"`
	Eviction   Eviction           `json:"eviction"`
	Facts      Facts              `json:"facts" doc:"what its role check last said; empty: nothing is known"`
	Deployment model.DeploymentID `json:"deployment_id"`
	Resources  InstanceResources  `json:"resources"`
	Disk       InstanceDisk       `json:"disk"`
	CreatedAt  time.Time          `json:"created_at"`
	StartedAt  *time.Time         `json:"started_at"`
	Index      uint64             `json:"index" doc:"of its last change"`
}

// InstanceResources are the resources that are allocated to an instance on its node, including the overhead.
type InstanceResources struct {
	CPU         int64 `json:"cpu"`
	MemoryBytes int64 `json:"memory_bytes"`
}

// Eviction is a decision to stop an instance for a cause other than its own job's request.
type Eviction struct {
	Requested  bool         `json:"requested"`
	Cause      model.Cause  `json:"cause"`
	By         string       `json:"by" doc:"a drain or an actor"`
	WaitingFor []model.Code `json:"waiting_for"`
	Preparing  bool         `json:"preparing" doc:"its agent runs what must come before the stop"`
	Surge      bool         `json:"surge,omitempty" doc:"it stops when its replacement is ready"`
	Failure    string       `json:"failure" doc:"why the last preparation was given up"`
}

// InstanceReply is the answer to a write that concerns one instance.
type InstanceReply struct {
	Written
	Instance *Instance `json:"instance,omitempty"`
	// AvoidUntil is set if an eviction was requested with avoid.
	AvoidUntil *time.Time `json:"avoid_until,omitempty" doc:"until when its group avoids its node because a person said so with avoid; cancel takes that back"`
	// AvoidEnded is true after a cancel that allows the group on the node again.
	AvoidEnded bool `json:"avoid_ended,omitempty" doc:"its group avoids its node no longer, whichever instance's eviction asked for that"`
}

// EvictBody evicts or stops an instance, or cancels an eviction.
type EvictBody struct {
	Grace        *model.Duration `json:"grace,omitempty" doc:"instead of the group's"`
	BypassBudget bool            `json:"bypass_budget,omitempty" doc:"stop it although a budget or its role forbids it; recorded"`
	Avoid        bool            `json:"avoid,omitempty" doc:"for an hour its whole group goes to this node only if no other will do"`
	Surge        bool            `json:"surge,omitempty" doc:"stop it when its replacement is ready; refused for a group that does not replace first"`
	Cancel       bool            `json:"cancel,omitempty" doc:"take back an eviction with avoid, an eviction with surge, or the eviction of a replica; a group that avoided the node may use it again"`
	Message      string          `json:"message,omitempty" maxLength:"256"`
}
