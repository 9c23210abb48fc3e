package httpapi

import (
	"context"
	"fmt"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func (r *reading) deployment(d *fsm.Deployment) api.Deployment {
	v := api.Deployment{
		ID: d.ID, Job: d.Job, Version: d.Version, Status: d.Status, Reason: r.veil.text(d.Reason), Promoted: d.Promoted,
		Groups:    []api.DeploymentGroup{},
		CreatedAt: wallTime(d.Wall), Index: d.Index,
	}
	for _, g := range r.GroupsOf(d.Job) {
		if g.Removed {
			continue
		}
		_, name := g.ID.Split()
		one := api.DeploymentGroup{Name: name, Count: g.Count}
		for i := range r.InstancesOf(g.ID) {
			switch {
			case i.Desired != model.DesiredRunning:
			case i.Version != g.Version:
				one.Old++
			default:
				one.Current++
				if i.Ready() {
					one.Ready++
				}
			}
		}
		v.Groups = append(v.Groups, one)
		if v.Reason == "" {
			v.Reason = whyRolling(r, d, g)
		}
	}
	return v
}

// whyRolling returns why a group's instances of the wanted version can be placed nowhere now, such as the image that
// they wait for. It returns "" if the deployment has ended or goes on.
func whyRolling(r *reading, d *fsm.Deployment, g *fsm.Group) string {
	if r.undecided || d.Status != model.DeploymentRolling {
		return ""
	}
	why := r.waiting().Groups[g.ID]
	if !why.Code.Unplaceable() {
		return ""
	}
	_, name := g.ID.Split()
	return name + ": " + r.veil.text(why.Message)
}

type deploymentList struct {
	ListParams
	Job string `query:"job" doc:"of this job only"`
}

func (in *deploymentList) narrowed() bool { return in.Job != "" }

// DeploymentPath is the part of a path that names a deployment.
type DeploymentPath struct {
	ID string `path:"id" doc:"job-version; a read also takes a unique prefix"`
}

type deploymentRead struct {
	ReadParams
	DeploymentPath
}

type promoteInput struct {
	WriteParams
	DeploymentPath
}

func (in *promoteInput) ref() string { return in.ID }

type failInput struct {
	WriteParams
	DeploymentPath
	Input api.FailBody
}

func (in *failInput) body() any { return &in.Input }

func (in *failInput) ref() string { return in.ID }

func (s *Server) deploymentOperations() []operation {
	return []operation{
		list(s, getRoute("list-deployments", "/v1/deployments", "deployments", "List deployments"),
			listing[deploymentList, api.Deployment]{
				topics: topics[deploymentList]("deployments", "instances"),
				rows: func(r *reading, in *deploymentList, from string, yield func(string, api.Deployment) bool) error {
					scan(r.Deployments, from, r.deployment, func(key string, d api.Deployment) bool {
						return in.Job != "" && string(d.Job) != in.Job || yield(key, d)
					})
					return nil
				},
			}),
		read(s, getRoute("get-deployment", "/v1/deployments/{id}", "deployments", "Show a deployment"),
			deploymentTopics, showDeployment),
		write(s, route{id: "promote-deployment", path: "/v1/deployments/{id}/promote", tag: "deployments",
			summary: "Accept the canaries of a deployment"},
			onDeployment((*promoteInput).ref, func(_ *reading, d *fsm.Deployment, _ *promoteInput) []fsm.Command {
				return []fsm.Command{&fsm.DeploymentPromote{ID: d.ID}}
			})),
		write(s, route{id: "fail-deployment", path: "/v1/deployments/{id}/fail", tag: "deployments",
			summary: "End a deployment as failed; with auto_revert the job goes back to the last version that succeeded"},
			onDeployment((*failInput).ref, failDeployment)),
	}
}

func deploymentTopics(r *reading, in *deploymentRead) []fsm.Topic {
	d, refusal := r.FindDeployment(in.ID)
	if refusal != nil {
		return []fsm.Topic{"deployments"}
	}
	return []fsm.Topic{"deployment/" + fsm.Topic(d.ID), "job/" + fsm.Topic(d.Job)}
}

func showDeployment(_ context.Context, r *reading, in *deploymentRead) (api.Deployment, error) {
	d, refusal := r.FindDeployment(in.ID)
	if refusal != nil {
		return api.Deployment{}, refusal
	}
	return r.deployment(d), nil
}

// failDeployment returns the commands that end a deployment as failed. If a group has auto_revert, the same entry also
// reverts the job to its stable version, if that is possible.
func failDeployment(r *reading, d *fsm.Deployment, in *failInput) []fsm.Command {
	reason := in.Input.Reason
	if reason == "" {
		reason = "failed by an operator"
	}
	step := &fsm.DeploymentStep{ID: d.ID, Status: model.DeploymentFailed, Reason: reason}
	end := []fsm.Command{step}
	job, ok := r.Jobs.Get(d.Job)
	if !ok || job.Stable == 0 || job.Version != d.Version || job.Stable == d.Version || !r.autoReverts(d) {
		return end
	}
	back := []fsm.Command{step, &fsm.JobRevert{
		Job: d.Job, Version: job.Stable, IfVersion: d.Version,
		Message: fmt.Sprintf("version %d failed: back to version %d", d.Version, job.Stable), KeepCounts: true,
	}}
	if r.NewDraft(r.now).Try(back...) != nil {
		return end
	}
	return back
}

// autoReverts reports whether a group has auto_revert in the deployment's version.
func (r *reading) autoReverts(d *fsm.Deployment) bool {
	for _, g := range r.GroupsOf(d.Job) {
		if spec, ok := r.Spec(g.ID, d.Version); ok && spec.Update.AutoRevert {
			return true
		}
	}
	return false
}

// onDeployment returns the functions of a write that changes one deployment.
func onDeployment[I any](ref func(*I) string,
	commands func(*reading, *fsm.Deployment, *I) []fsm.Command) change[I, api.DeploymentReply] {
	return change[I, api.DeploymentReply]{
		prepare: func(r *reading, in *I) ([]fsm.Command, error) {
			d, refusal := r.NamedDeployment(ref(in))
			if refusal != nil {
				return nil, refusal
			}
			return commands(r, d, in), nil
		},
		answer: func(o *outcome, in *I) (api.DeploymentReply, error) {
			reply := api.DeploymentReply{Written: o.Written}
			if d, refusal := o.NamedDeployment(ref(in)); refusal == nil {
				v := o.deployment(d)
				reply.Deployment = &v
			}
			return reply, nil
		},
	}
}
