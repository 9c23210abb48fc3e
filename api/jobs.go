package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// JobStatus is the state of a job.
type JobStatus string

// The states of a job.
const (
	JobRunning  JobStatus = "running"  // every group has as many instances as its count, and all are ready
	JobPending  JobStatus = "pending"  // at least one instance is not placed
	JobStarting JobStatus = "starting" // every instance is placed, but not all are ready
	// not all instances are placed and ready, and a local volume of at least one slot is on an offline node
	JobDegraded JobStatus = "degraded"
	JobStopping JobStatus = "stopping"
	JobStopped  JobStatus = "stopped"
)

// Job is a job with its groups.
type Job struct {
	Name         model.JobName      `json:"name"`
	Version      uint64             `json:"version"`
	Class        model.ClassName    `json:"class"`
	Status       JobStatus          `json:"status" enum:"running,pending,starting,degraded,stopping,stopped"`
	Groups       []JobGroup         `json:"groups"`
	DeploymentID model.DeploymentID `json:"deployment_id"`
	Stable       uint64             `json:"stable_version" doc:"the last version whose deployment succeeded; 0: none"`
	Purge        bool               `json:"purge" doc:"removed once its last instance has stopped"`
	Index        uint64             `json:"index" doc:"of the last change: give it as if_index"`
}

// JobGroup is one group of a job.
type JobGroup struct {
	Name    string     `json:"name"`
	Role    model.Role `json:"role" enum:"service,local,system"`
	Version uint64     `json:"version" doc:"of the job at which its template last changed"`
	Count   int        `json:"count"`
	Ready   int        `json:"ready"`
	Placed  int        `json:"placed" doc:"instances that count toward the count"`
	Pending int        `json:"pending"`
	Reason  string     `json:"reason" doc:"the code of why something is pending, or of why a rollout can't place its next instance"`
	Message string     `json:"message" doc:"the same in words"`

	Degraded model.Code `json:"degraded,omitempty" doc:"volume_home_node_offline: a node with its data is offline (P19)"`
}

// JobDetail is a job with its current spec.
type JobDetail struct {
	Job
	Spec   model.JobSpec   `json:"spec"`
	Avoids []JobAvoidsNode `json:"avoids" doc:"nodes on which its groups did badly: new instances go there only if no other node will do"`
}

// JobAvoidsNode is a node that the current version of a group of the job avoids for a while.
type JobAvoidsNode struct {
	Group  model.GroupID `json:"group"`
	Node   string        `json:"node"`
	NodeID model.NodeID  `json:"node_id"`
	Reason string        `json:"reason"`
	Until  time.Time     `json:"until"`
}

// JobVersion is one entry of a job's history.
type JobVersion struct {
	Job       model.JobName `json:"job"`
	Version   uint64        `json:"version"`
	Current   bool          `json:"current"`
	Stable    bool          `json:"stable"`
	Completed bool          `json:"completed" doc:"its rollout was completed, or it needed none after a version whose was"`
	RevertOf  uint64        `json:"revert_of,omitempty" doc:"the version whose spec a revert took again; absent if it is no revert"`
	Actor     model.Actor   `json:"actor"`
	Message   string        `json:"message"`
	Index     uint64        `json:"index"`
	CreatedAt time.Time     `json:"created_at"`
	Spec      model.JobSpec `json:"spec"`
}

// JobReply is the answer to a write that concerns one job.
type JobReply struct {
	Written
	Job          *Job               `json:"job,omitempty" doc:"absent when the job was purged"`
	DeploymentID model.DeploymentID `json:"deployment_id,omitempty" doc:"that this write began"`
	Changed      bool               `json:"changed" doc:"false: the job was so already"`
	Images       []GroupImage       `json:"images,omitempty" doc:"of its groups of containers"`
	RevertedTo   uint64             `json:"reverted_to,omitempty" doc:"of a revert: the version whose spec is the wanted state again; absent when a stored outcome is told again"`
}

// JobValidation is a spec with every default filled in.
type JobValidation struct {
	Job      model.JobSpec `json:"job"`
	Warnings []string      `json:"warnings"`

	Budgets []model.BudgetLine `json:"budgets" doc:"what the budgets of its groups come to"`
}

// GroupImage is the image of a group of containers.
type GroupImage struct {
	Group     model.GroupID `json:"group"`
	Image     string        `json:"image" doc:"its name"`
	Digest    string        `json:"digest" doc:"of its index: what every instance of the version runs, whatever the name stands for later"`
	Platforms []string      `json:"platforms" doc:"that it is made for; empty: not known"`
}

// SubmitBody submits a job.
type SubmitBody struct {
	Job        model.JobSpec `json:"job"`
	Message    string        `json:"message,omitempty" maxLength:"256" doc:"stands in the job's history"`
	KeepImages bool          `json:"keep_images,omitempty" doc:"a group whose image has the same name as in the current version keeps its digest; otherwise an agent asks the registry again"`
}

// ScaleBody changes the count of a group.
type ScaleBody struct {
	Group string `json:"group,omitempty" doc:"may be left out when the job has one group"`
	Count *int   `json:"count" minimum:"0"`
}

// StopBody stops a job.
type StopBody struct {
	Purge bool `json:"purge,omitempty" doc:"remove the job once its last instance has stopped"`
}

// RestartBody restarts the instances of a job.
type RestartBody struct {
	Group string `json:"group,omitempty" doc:"default: every group"`
}

// RevertReply is the answer to a revert.
type RevertReply struct {
	JobReply
	Spec *model.JobSpec `json:"spec,omitempty" doc:"of a dry run: what would be the wanted state"`
	Note string         `json:"note,omitempty" doc:"why groups have the counts of the earlier version, although the current ones were to be kept"`
}

// RevertBody returns a job to an earlier version.
type RevertBody struct {
	Version   uint64 `json:"version" doc:"0: the newest one that completed its rollout and differs from the current one in more than counts"`
	IfVersion uint64 `json:"if_version,omitempty" doc:"refuse unless this is the current version"`
	Counts    bool   `json:"counts,omitempty" doc:"take the counts of that version too; otherwise every group keeps the count that it has now"`
	Message   string `json:"message,omitempty" maxLength:"256"`
}

// JobPlan is what submitting a spec would do.
type JobPlan struct {
	Job     model.JobName  `json:"job"`
	Index   uint64         `json:"index" doc:"of the job: give it as if_index to submit only what was planned; 0: a new job"`
	Version uint64         `json:"version" doc:"it would have"`
	Changes bool           `json:"changes"`
	Groups  []PlannedGroup `json:"groups"`
	Images  []GroupImage   `json:"images,omitempty" doc:"of its groups of containers"`
}

// PlannedGroup is what submitting a spec would do to a group.
type PlannedGroup struct {
	Group         model.GroupID    `json:"group"`
	Created       int              `json:"created"`
	Destroyed     int              `json:"destroyed"`
	Kept          int              `json:"kept"`
	Unschedulable int              `json:"unschedulable" doc:"of those created: that no node can take now"`
	Code          model.Code       `json:"code"`
	Message       string           `json:"message"`
	Excluded      []model.Excluded `json:"excluded" doc:"nodes excluded by each rule"`

	Budgets  []model.BudgetLine `json:"budgets" doc:"what its budgets come to: percentages and defaults as numbers"`
	Preempts []model.InstanceID `json:"preempts" doc:"instances of less important classes that would stop to make room"`
}

// JobFileBody has a job file that a server shall read.
type JobFileBody struct {
	Text string `json:"text" doc:"HCL, at most 256 KiB"`
}

// JobFileSpec is what a job file says.
type JobFileSpec struct {
	Job model.JobSpec `json:"job" doc:"without defaults: submit it, or plan it"`
}

// JobFile is a version of a job as a job file.
type JobFile struct {
	Job     model.JobName `json:"job"`
	Version uint64        `json:"version"`
	Text    string        `json:"text" doc:"HCL made from the version: it has no comments, and leaves defaults out"`
}
