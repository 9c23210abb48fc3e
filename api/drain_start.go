package api

import (
	"github.com/outspan/outspan/model"
)

// DrainChoices is how to drain.
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
