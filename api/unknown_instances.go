package api

import (
	"github.com/outspan/outspan/model"
)

// UnknownInstance is an instance that runs on a node although the servers don't know it. For example, the servers
// restored a snapshot that is older than the instance.
type UnknownInstance struct {
	Node     string           `json:"node"`
	Instance model.InstanceID `json:"instance"`
	Job      model.JobName    `json:"job"`
	Group    model.GroupID    `json:"group"`
	Slot     int              `json:"slot"`
	Observed model.Observed   `json:"observed,omitempty"`
	Kept     bool             `json:"kept" doc:"it goes on running: it holds its slot, and a person has not decided yet"`
}

// UnknownInstances lists the unknown instances that the agents reported, sorted by node, group and slot.
type UnknownInstances struct {
	Items  []UnknownInstance `json:"items"`
	Silent []string          `json:"silent_nodes" doc:"nodes whose agents did not answer: what runs there is not listed"`
	Owing  []string          `json:"inventory_missing_nodes" doc:"nodes whose agents have not told since the restore what runs there: the list may be incomplete"`
	Out    []OutOfService    `json:"out_of_service" doc:"nodes that the state has cordoned, draining or disabled: what that evicts begins with the confirmation"`
	Index  uint64            `json:"index"`

	Confirmed bool `json:"confirmed" doc:"no restore waits to be confirmed"`
}

// OutOfService is a node that is cordoned, draining or disabled in the state.
type OutOfService struct {
	Node   string        `json:"node"`
	Intent model.Intent  `json:"intent"`
	Drain  model.DrainID `json:"drain_id" doc:"the drain that goes on"`
}
