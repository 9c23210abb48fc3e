package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// JobStatus is how a job is, in one word.
type JobStatus string

// The states of a job.
const (
	JobRunning  JobStatus = "running"  // every group has all it wants, ready
	JobPending  JobStatus = "pending"  // something of it is not placed
	JobStarting JobStatus = "starting" // all is placed, not all is ready
	JobDegraded JobStatus = "degraded" // some of it can't run for a reason that nothing ends by itself: its data is on a node that is offline
	JobStopping JobStatus = "stopping"
	JobStopped  JobStatus = "stopped"
)

// Job is how a job is shown.
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

// JobGroup is how a group of a job is shown.
type JobGroup struct {
	Name    string     `json:"name"`
	Role    model.Role `json:"role" enum:"service,local,system"`
	Version uint64     `json:"version" doc:"of the job at which its template last changed"`
	Count   int        `json:"count"`
	Ready   int        `json:"ready"`
	Placed  int        `json:"placed" doc:"instances that count toward the count"`
	Pending int        `json:"pending"`
	Reason  string     `json:"reason" doc:"the code of why something is pending"`
	Message string     `json:"message" doc:"the same in words"`

	Degraded model.Code `json:"degraded,omitempty" doc:"volume_home_node_offline: a node with its data is offline (P19)"`
}

// JobDetail is a job with its wanted spec.
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
	RevertedTo   uint64             `json:"reverted_to,omitempty" doc:"of a revert: the version whose spec is the wanted state again; absent when a stored outcome is told again"`
}
