package fsm

import (
	"cmp"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// deploy begins the deployment of a job's new version. If update is true and a group that asks for canaries has
// instances of another version to compare them with, the deployment waits until its canaries are promoted.
func (s *State) deploy(job *Job, spec *model.JobSpec, update bool) {
	s.supersede(job)
	d := &Deployment{ID: model.NewDeploymentID(job.Name, job.Version), Job: job.Name, Version: job.Version,
		Status: model.DeploymentQueued, Promoted: true, Progress: s.Now, Wall: s.Wall, Index: s.Index}
	for i := range spec.Groups {
		if spec.Groups[i].Update.Canary > 0 && update && s.hasOutdated(model.NewGroupID(job.Name, spec.Groups[i].Name)) {
			d.Promoted = false
		}
	}
	s.putDeployment(d)
	next := *job
	next.Deployment = d.ID
	s.putJob(&next)
	s.touch("deployments", Topic("deployment/"+d.ID))
	s.emit(Event{Type: model.EventDeployment, Subject: "deployment/" + string(d.ID), After: string(d.Status)})
	s.forgetDeployments(job.Name)
}

// hasOutdated reports whether a group has an instance that should run, but is not of the group's present version.
// Canaries are compared with such instances.
func (s *State) hasOutdated(id model.GroupID) bool {
	g, _ := s.Groups.Get(id)
	for inst := range s.InstancesOf(id) {
		if inst.Desired == model.DesiredRunning && inst.Version != g.Version {
			return true
		}
	}
	return false
}

// triedBefore reports whether the last deployment of a job ended without success. After such a deployment, even a new
// version that changes no instance needs a deployment, because it could not become the stable version without one.
func (s *jobs) triedBefore(job *Job) bool {
	d, ok := s.Deployments.Get(job.Deployment)
	return ok && d.Status.Ended() && d.Status != model.DeploymentSucceeded
}

// keepStable makes a job's new version the stable one without a deployment. It is for a new version that changes no
// instance and follows a stable version.
func (s *jobs) keepStable(job *Job) {
	next := *job
	next.Stable = job.Version
	s.putJob(&next)
	s.complete(job.Name, job.Version)
}

// supersede ends a job's deployment that has not ended yet, because a newer version or a stop replaces it.
func (s *State) supersede(job *Job) {
	if d, ok := s.Deployments.Get(job.Deployment); ok && !d.Status.Ended() {
		s.stepDeployment(d, model.DeploymentSuperseded, "a newer version or a stop came first")
	}
}

func (s *State) stepDeployment(d *Deployment, status model.DeploymentStatus, reason string) {
	next := *d
	next.Status, next.Reason, next.Index = status, reason, s.Index
	next.Waiting = d.Waiting && !status.Ended()
	if status == model.DeploymentRolling {
		next.Progress = s.Now
		next.Reason = cmp.Or(reason, d.Reason) // without a new reason, the earlier one is kept
	}
	s.putDeployment(&next)
	s.touch("deployments", Topic("deployment/"+d.ID))
	s.touchJob(d.Job)
	s.emit(Event{Type: model.EventDeployment, Subject: "deployment/" + string(d.ID), Before: string(d.Status),
		After: string(status), Data: map[string]string{"reason": reason}})
}

func (c *DeploymentStep) apply(s *State) error {
	d, ok := s.Deployments.Get(c.ID)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no deployment %s", c.ID)
	}
	if !deploymentEdge(d.Status, c.Status) {
		return model.Refuse(model.CodeConflict, "deployment %s is %s and can't become %s", c.ID, d.Status, c.Status)
	}
	if c.Status == model.DeploymentFailed && c.Reason == "" {
		return model.Refuse(model.CodeInvalid, "a deployment does not fail without a reason")
	}
	s.stepDeployment(d, c.Status, c.Reason)
	if job, ok := s.Jobs.Get(d.Job); ok && c.Status == model.DeploymentSucceeded && job.Deployment == d.ID {
		next := *job
		next.Stable = d.Version
		// If a version with the same instances was submitted meanwhile, that later version becomes the stable one, because a
		// revert must restore the later version's counts and budgets.
		if s.SameInstances(job.Name, d.Version, job.Version) {
			next.Stable = job.Version
		}
		s.putJob(&next)
		s.complete(job.Name, d.Version)
		s.complete(job.Name, next.Stable)
	}
	return nil
}

func deploymentEdge(from, to model.DeploymentStatus) bool {
	switch to {
	case model.DeploymentRolling:
		return from == model.DeploymentQueued
	case model.DeploymentSucceeded, model.DeploymentFailed:
		return from == model.DeploymentQueued || from == model.DeploymentRolling
	}
	return false
}

// openDeployment returns a deployment that has not ended. Codes: not_found, conflict.
func (s *State) openDeployment(id model.DeploymentID) (*Deployment, *model.Error) {
	d, ok := s.Deployments.Get(id)
	switch {
	case !ok:
		return nil, model.Refuse(model.CodeNotFound, "there is no deployment %s", id)
	case d.Status.Ended():
		return nil, model.Refuse(model.CodeConflict, "deployment %s is already %s", id, d.Status)
	}
	return d, nil
}

func (c *DeploymentWait) apply(s *State) error {
	d, refusal := s.openDeployment(c.ID)
	switch {
	case refusal != nil:
		return refusal
	case d.Waiting == c.Waiting:
		return nil
	}
	next := *d
	next.Waiting, next.Progress = c.Waiting, s.Now
	s.putDeployment(&next)
	s.touch("deployments", Topic("deployment/"+d.ID))
	return nil
}

func (c *DeploymentPromote) apply(s *State) error {
	d, refusal := s.openDeployment(c.ID)
	switch {
	case refusal != nil:
		return refusal
	case d.Promoted:
		return model.Refuse(model.CodeConflict, "deployment %s has no canaries that wait to be promoted", c.ID).
			WithHint("it goes on by itself; follow it with: outspan deployment status %s", c.ID)
	}
	next := *d
	next.Promoted, next.Waiting, next.Progress, next.Index = true, false, s.Now, s.Index
	s.putDeployment(&next)
	s.touch("deployments", Topic("deployment/"+d.ID))
	s.emit(Event{Type: model.EventDeployment, Subject: "deployment/" + string(d.ID), Before: string(d.Status),
		After: string(d.Status), Data: map[string]string{"reason": "promoted"}})
	return nil
}

// noteProgress restarts the deadline of an instance's deployment. It is called only when a slot gets the first ready
// instance of that deployment: an instance that becomes ready again after a crash is no progress.
func (s *State) noteProgress(inst *Instance) {
	d, ok := s.Deployments.Get(inst.Links.Deployment)
	if !ok || d.Status.Ended() {
		return
	}
	next := *d
	next.Progress = s.Now
	s.putDeployment(&next)
	s.touch("deployments", Topic("deployment/"+d.ID))
}

// slotWasReady reports whether the slot of an instance has had a ready instance of the same deployment.
func (s *instances) slotWasReady(inst *Instance) bool {
	for other := range s.InstancesInSlot(inst.Group, inst.Slot) {
		if other.Links.Deployment == inst.Links.Deployment && other.Links.WasReady {
			return true
		}
	}
	return false
}

const keptFailures = 32

// noteFailure records in a group's row where and when an instance of it failed, for the reschedule limit. If the
// failure counts against the node (see servesBadly), avoidFailed makes the instance's version avoid the node.
func (s *State) noteFailure(inst *Instance, reason string) {
	g, ok := s.Groups.Get(inst.Group)
	if !ok {
		return
	}
	policy, _ := s.Policy(inst.Group)
	keep := 30 * model.Minute
	if policy != nil {
		keep = max(keep, policy.Reschedule.Interval)
	}
	next := *g
	next.Failures = slices.DeleteFunc(slices.Clone(g.Failures), func(f Failure) bool { return f.At.Add(keep) <= s.Now })
	if len(next.Failures) >= keptFailures {
		next.Failures = next.Failures[1:]
	}
	next.Failures = append(next.Failures, Failure{At: s.Now, Node: inst.Node, Version: inst.Version, Reason: reason})
	s.putGroup(&next)
	if servesBadly(reason) {
		s.avoidFailed(inst, next.Failures, reason)
	}
}

func (s *jobs) forgetDeployments(job model.JobName) {
	var ended []*Deployment
	prefix := string(job) + "-"
	for id, d := range s.Deployments.From(model.DeploymentID(prefix)) { // also matches jobs with longer names
		if !strings.HasPrefix(string(id), prefix) {
			break
		}
		if d.Job == job && d.Status.Ended() {
			ended = append(ended, d)
		}
	}
	slices.SortFunc(ended, func(a, b *Deployment) int { return cmp.Compare(a.Version, b.Version) })
	for i := 0; i < len(ended)-keptDeployments; i++ {
		s.delDeployment(ended[i].ID)
	}
}

// SameInstances reports whether two versions of a job have the same groups, with instances that are run in the same
// way. Counts, budgets and the other fields that GroupSpec.Template clears may differ. It returns false if a version is
// not kept.
func (s *jobs) SameInstances(job model.JobName, a, b uint64) bool {
	old, ok := s.JobVersion(job, a)
	now, known := s.JobVersion(job, b)
	if !ok || !known || len(old.Spec.Groups) != len(now.Spec.Groups) {
		return false
	}
	for i := range old.Spec.Groups {
		g := &old.Spec.Groups[i]
		at := slices.IndexFunc(now.Spec.Groups, func(x model.GroupSpec) bool { return x.Name == g.Name })
		if at < 0 || !sameEncoding(g.Template(), now.Spec.Groups[at].Template()) {
			return false
		}
	}
	return true
}
