package httpapi

import (
	"context"
	"strconv"
	"time"

	"github.com/outspan/outspan/fsm"
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

func (r *reading) job(j *fsm.Job) Job {
	v := Job{
		Name: j.Name, Version: j.Version, Class: j.Class, Groups: []JobGroup{}, DeploymentID: j.Deployment, Stable: j.Stable,
		Purge: j.Purge, Index: j.Index,
	}
	alive, missing, unready, degraded := 0, 0, 0, false
	for _, g := range r.GroupsOf(j.Name) {
		alive += g.Alive
		if g.Removed && g.Alive == 0 {
			continue
		}
		one := r.jobGroup(g)
		missing += one.Pending
		unready += max(0, one.Placed-one.Ready)
		degraded = degraded || one.Degraded != ""
		v.Groups = append(v.Groups, one)
	}
	v.Status = jobStatus(j.Stopped, alive, missing, unready)
	if degraded && (v.Status == JobPending || v.Status == JobStarting) {
		v.Status = JobDegraded
	}
	return v
}

func jobStatus(stopped bool, alive, missing, unready int) JobStatus {
	switch {
	case stopped && alive > 0:
		return JobStopping
	case stopped:
		return JobStopped
	case missing > 0:
		return JobPending
	case unready > 0:
		return JobStarting
	}
	return JobRunning
}

func (r *reading) jobGroup(g *fsm.Group) JobGroup {
	_, name := g.ID.Split()
	v := JobGroup{Name: name, Role: g.Role, Version: g.Version, Count: g.Count, Ready: g.Ready}
	for inst := range r.InstancesOf(g.ID) {
		if inst.Wanted() {
			v.Placed++
		}
	}
	if g.Role == model.RoleSystem {
		v.Count = max(v.Placed, r.eligibleNodes(g))
	}
	v.Degraded = r.degraded(g)
	if v.Pending = max(0, v.Count-v.Placed); v.Pending > 0 && !r.undecided {
		why := r.waiting().Groups[g.ID]
		v.Reason, v.Message = string(why.Code), why.Message
	}
	return v
}

// degraded is why a group can't be whole by itself; empty if nothing is known.
func (r *reading) degraded(g *fsm.Group) model.Code {
	for slot := range g.Count {
		spec, ok := r.Policy(g.ID)
		if !ok {
			break
		}
		home, ok := r.VolumeHome(spec, g.ID, slot)
		if n, known := r.Nodes.Get(home); ok && known && n.Health == model.HealthOffline {
			return model.CodeVolumeOffline
		}
	}
	return ""
}

// eligibleNodes is how many nodes a system group has to cover.
func (r *reading) eligibleNodes(g *fsm.Group) int {
	if g.Count == 0 {
		return 0
	}
	n := 0
	for _, node := range r.Nodes.All() {
		if r.Eligible(node) == nil {
			n++
		}
	}
	return n
}

// JobPath is the part of a path that names a job.
type JobPath struct {
	Name string `path:"name" doc:"name; a read also takes a unique prefix"`
}

type jobList struct{ ListParams }

type jobRead struct {
	ReadParams
	JobPath
}

type versionList struct {
	ListParams
	JobPath
}

type versionRead struct {
	ReadParams
	JobPath
	Version uint64 `path:"version"`
}

func (s *Server) jobOperations() []operation {
	return append([]operation{
		list(s, getRoute("list-jobs", "/v1/jobs", "jobs", "List jobs"), listing[jobList, Job]{
			topics: topics[jobList]("jobs", "instances"),
			rows: func(r *reading, _ *jobList, from string, yield func(string, Job) bool) error {
				scan(r.Jobs, from, r.job, yield)
				return nil
			},
		}),
		read(s, getRoute("get-job", "/v1/jobs/{name}", "jobs", "Show a job"), s.jobTopics, showJob),
		list(s, getRoute("list-job-versions", "/v1/jobs/{name}/versions", "jobs", "Show the history of a job, oldest first"), listing[versionList, JobVersion]{
			topics: func(in *versionList) []fsm.Topic { return s.jobTopics(&jobRead{JobPath: in.JobPath}) },
			rows:   listVersions,
		}),
		read(s, getRoute("get-job-version", "/v1/jobs/{name}/versions/{version}", "jobs", "Show one version of a job"),
			func(in *versionRead) []fsm.Topic { return s.jobTopics(&jobRead{JobPath: in.JobPath}) }, showVersion),
	}, s.jobWrites()...)
}

func (s *Server) jobTopics(in *jobRead) []fsm.Topic {
	state, _ := s.cfg.Store.Watch()
	if j, refusal := state.FindJob(in.Name); refusal == nil {
		return []fsm.Topic{"job/" + fsm.Topic(j.Name)}
	}
	return []fsm.Topic{"jobs"}
}

func showJob(_ context.Context, r *reading, in *jobRead) (JobDetail, error) {
	j, refusal := r.FindJob(in.Name)
	if refusal != nil {
		return JobDetail{}, refusal
	}
	detail := JobDetail{Job: r.job(j), Avoids: r.avoids(j)}
	if v, ok := r.JobVersion(j.Name, j.Version); ok {
		detail.Spec = v.Spec
	}
	return detail, nil
}

// avoids lists the nodes that groups of a job avoid although they are eligible, in order of node.
func (r *reading) avoids(j *fsm.Job) []JobAvoidsNode {
	list := []JobAvoidsNode{}
	for _, n := range r.Nodes.All() {
		if len(n.Avoid) == 0 || r.Eligible(n) != nil {
			continue
		}
		for id, g := range r.GroupsOf(j.Name) {
			if a, ok := n.Avoids(id, g.Version, r.now); ok {
				list = append(list, JobAvoidsNode{Group: id, Node: n.Name, NodeID: n.ID, Reason: a.Reason, Until: r.wallAt(a.Until)})
			}
		}
	}
	return list
}

func listVersions(r *reading, in *versionList, from string, yield func(string, JobVersion) bool) error {
	j, refusal := r.FindJob(in.Name)
	if refusal != nil {
		return refusal
	}
	first, _ := strconv.ParseUint(from, 10, 64)
	for version := max(first, 1); version <= j.Version; version++ {
		v, ok := r.JobVersion(j.Name, version)
		if ok && !yield(versionKey(version), r.version(j, v)) {
			break
		}
	}
	return nil
}

// versionKey sorts versions as numbers.
func versionKey(version uint64) string {
	text := strconv.FormatUint(version, 10)
	return "00000000000000000000"[len(text):] + text
}

func showVersion(_ context.Context, r *reading, in *versionRead) (JobVersion, error) {
	j, refusal := r.FindJob(in.Name)
	if refusal != nil {
		return JobVersion{}, refusal
	}
	v, ok := r.JobVersion(j.Name, in.Version)
	if !ok {
		return JobVersion{}, model.Refuse(model.CodeNotFound, "job %s has no version %d", j.Name, in.Version).WithHint("list them with: outspan job history %s", j.Name)
	}
	return r.version(j, v), nil
}

func (r *reading) version(j *fsm.Job, v *fsm.JobVersion) JobVersion {
	return JobVersion{
		Job: v.Job, Version: v.Version, Current: v.Version == j.Version, Stable: v.Version == j.Stable, Completed: v.Completed, RevertOf: v.Reverts, Actor: v.Actor,
		Message: v.Message, Index: v.Index, CreatedAt: wallTime(v.Wall), Spec: v.Spec,
	}
}

// wallTime shows Unix milliseconds.
func wallTime(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// wallTimeOrNil shows Unix milliseconds; 0 is no time.
func wallTimeOrNil(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := wallTime(ms)
	return &t
}
