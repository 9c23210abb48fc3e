package api

import (
	"github.com/outspan/outspan/model"
)

// RevertReply is the answer to a revert.
type RevertReply struct {
	JobReply
	Spec *model.JobSpec `json:"spec,omitempty" doc:"of a dry run: what would be the wanted state"`
	Note string         `json:"note,omitempty" doc:"why groups have the counts of the earlier version, although the current ones were to be kept"`
}
