package httpapi

import (
	"context"
	"strconv"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func (r *reading) job(j *fsm.Job) api.Job {
	v := api.Job{
		Name: j.Name, Version: j.Version, Class: j.Class, Groups: []api.JobGroup{},
		DeploymentID: j.Deployment, Stable: j.Stable,
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
	if degraded && (v.Status == api.JobPending || v.Status == api.JobStarting) {
		v.Status = api.JobDegraded
	}
	return v
}

func jobStatus(stopped bool, alive, missing, unready int) api.JobStatus {
	switch {
	case stopped && alive > 0:
		return api.JobStopping
	case stopped:
		return api.JobStopped
	case missing > 0:
		return api.JobPending
	case unready > 0:
		return api.JobStarting
	}
	return api.JobRunning
}

func (r *reading) jobGroup(g *fsm.Group) api.JobGroup {
	_, name := g.ID.Split()
	v := api.JobGroup{Name: name, Role: g.Role, Version: g.Version, Count: g.Count, Ready: g.Ready}
	for inst := range r.InstancesOf(g.ID) {
		if inst.Wanted() {
			v.Placed++
		}
	}
	if g.Role == model.RoleSystem {
		v.Count = max(v.Placed, r.eligibleNodes(g))
	}
	v.Degraded = r.degraded(g)
	v.Pending = max(0, v.Count-v.Placed)
	if (v.Pending > 0 || rolls(&r.State, g)) && !r.undecided {
		why := r.waiting().Groups[g.ID]
		if v.Pending > 0 || why.Code.Unplaceable() {
			v.Reason, v.Message = string(why.Code), r.veil.text(why.Message)
		}
	}
	return v
}

// rolls reports whether a rollout of the group's job goes on.
func rolls(s *fsm.State, g *fsm.Group) bool {
	name, _ := g.ID.Split()
	j, ok := s.Jobs.Get(name)
	if !ok {
		return false
	}
	d, ok := s.Deployments.Get(j.Deployment)
	return ok && d.Status == model.DeploymentRolling
}

// degraded returns a code if a local volume of one of the group's slots is on an offline node, because that slot can't
// be filled without help. Otherwise it returns "".
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

// eligibleNodes returns on how many nodes a system group should run: the eligible nodes that meet its constraints.
func (r *reading) eligibleNodes(g *fsm.Group) int {
	spec, ok := r.Policy(g.ID)
	if g.Count == 0 || !ok {
		return 0
	}
	n := 0
	for _, node := range r.Nodes.All() {
		if r.Eligible(node) == nil && node.Suits(spec) {
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
		list(s, getRoute("list-jobs", "/v1/jobs", "jobs", "List jobs"), listing[jobList, api.Job]{
			topics: topics[jobList]("jobs", "instances"),
			rows: func(r *reading, _ *jobList, from string, yield func(string, api.Job) bool) error {
				scan(r.Jobs, from, r.job, yield)
				return nil
			},
		}),
		read(s, getRoute("get-job", "/v1/jobs/{name}", "jobs", "Show a job"), jobTopics, showJob),
		list(s, getRoute("list-job-versions", "/v1/jobs/{name}/versions", "jobs", "Show the history of a job, oldest first"),
			listing[versionList, api.JobVersion]{
				topics: func(r *reading, in *versionList) []fsm.Topic { return jobTopics(r, &jobRead{JobPath: in.JobPath}) },
				rows:   listVersions,
			}),
		read(s, getRoute("get-job-version", "/v1/jobs/{name}/versions/{version}", "jobs", "Show one version of a job"),
			func(r *reading, in *versionRead) []fsm.Topic { return jobTopics(r, &jobRead{JobPath: in.JobPath}) }, showVersion),
		read(s, getRoute("get-job-file", "/v1/jobs/{name}/versions/{version}/file", "jobs",
			"Show one version of a job as a job file"),
			func(r *reading, in *versionRead) []fsm.Topic { return jobTopics(r, &jobRead{JobPath: in.JobPath}) }, showFile),
	}, s.jobWrites()...)
}

func jobTopics(r *reading, in *jobRead) []fsm.Topic {
	if j, refusal := r.FindJob(in.Name); refusal == nil {
		return []fsm.Topic{"job/" + fsm.Topic(j.Name)}
	}
	return []fsm.Topic{"jobs"}
}

func showJob(_ context.Context, r *reading, in *jobRead) (api.JobDetail, error) {
	j, refusal := r.FindJob(in.Name)
	if refusal != nil {
		return api.JobDetail{}, refusal
	}
	detail := api.JobDetail{Job: r.job(j), Avoids: r.avoids(j)}
	if v, ok := r.JobVersion(j.Name, j.Version); ok {
		detail.Spec = v.Spec
	}
	return detail, nil
}

// avoids lists the eligible nodes that the groups of a job avoid, in order of node.
func (r *reading) avoids(j *fsm.Job) []api.JobAvoidsNode {
	list := []api.JobAvoidsNode{}
	for _, n := range r.Nodes.All() {
		if len(n.Avoid) == 0 || r.Eligible(n) != nil {
			continue
		}
		for id, g := range r.GroupsOf(j.Name) {
			if a, ok := n.Avoids(id, g.Version, r.now); ok {
				list = append(list,
					api.JobAvoidsNode{Group: id, Node: veiled(r.veil, "node", n.Name), NodeID: veiled(r.veil, "node", n.ID),
						Reason: r.veil.text(a.Reason), Until: r.wallAt(a.Until)})
			}
		}
	}
	return list
}

func listVersions(r *reading, in *versionList, from string, yield func(string, api.JobVersion) bool) error {
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

// versionKey returns a key for a version. The keys sort as the numbers do.
func versionKey(version uint64) string {
	text := strconv.FormatUint(version, 10)
	return "00000000000000000000"[len(text):] + text
}

func showVersion(_ context.Context, r *reading, in *versionRead) (api.JobVersion, error) {
	j, refusal := r.FindJob(in.Name)
	if refusal != nil {
		return api.JobVersion{}, refusal
	}
	v, ok := r.JobVersion(j.Name, in.Version)
	if !ok {
		return api.JobVersion{}, model.Refuse(model.CodeNotFound, "job %s has no version %d", j.Name, in.Version).
			WithHint("list them with: outspan job history %s", j.Name)
	}
	return r.version(j, v), nil
}

func (r *reading) version(j *fsm.Job, v *fsm.JobVersion) api.JobVersion {
	return api.JobVersion{
		Job: v.Job, Version: v.Version, Current: v.Version == j.Version, Stable: v.Version == j.Stable,
		Completed: v.Completed, RevertOf: v.Reverts, Actor: v.Actor,
		Message: v.Message, Index: v.Index, CreatedAt: wallTime(v.Wall), Spec: v.Spec,
	}
}

// wallTime converts Unix milliseconds to a time.
func wallTime(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// wallTimeOrNil converts Unix milliseconds to a time, or returns nil for 0.
func wallTimeOrNil(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := wallTime(ms)
	return &t
}
