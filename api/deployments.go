package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Deployment is the change of a job from one version to the next.
type Deployment struct {
	ID        model.DeploymentID     `json:"id"`
	Job       model.JobName          `json:"job"`
	Version   uint64                 `json:"version"`
	Status    model.DeploymentStatus `json:"status" enum:"queued,rolling,succeeded,failed,superseded"`
	Reason    string                 `json:"reason"`
	Promoted  bool                   `json:"promoted" doc:"canaries were accepted, or there are none"`
	Groups    []DeploymentGroup      `json:"groups"`
	CreatedAt time.Time              `json:"created_at"`
	Index     uint64                 `json:"index"`
}

// DeploymentGroup is the progress of one group in a deployment.
type DeploymentGroup struct {
	Name    string `json:"name"`
	Count   int    `json:"count"`
	Current int    `json:"current" doc:"instances of the wanted version"`
	Ready   int    `json:"ready" doc:"of them"`
	Old     int    `json:"old" doc:"instances of other versions that still run"`
}

// DeploymentReply is the answer to a write that concerns one deployment.
type DeploymentReply struct {
	Written
	Deployment *Deployment `json:"deployment,omitempty"`
}

// FailBody marks a deployment as failed.
type FailBody struct {
	Reason string `json:"reason,omitempty" maxLength:"256" doc:"default: failed by an operator"`
}
