package reconcile

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// rollout says why the deployment of a job failed or what it waits for, and how to go back. waits is what the job's
// groups wait for, or "". rollout returns "" if the job is stopped, or if its deployment succeeded, was superseded or
// is gone.
func (e *Explanation) rollout(job *fsm.Job, waits string) string {
	d, ok := e.p.in.State.Deployments.Get(job.Deployment)
	switch {
	case !ok || job.Stopped:
		return ""
	case d.Status == model.DeploymentFailed:
		text := fmt.Sprintf("deployment %s failed: %s; %s", d.ID, d.Reason, e.p.in.State.RevertAdvice(job))
		if waits != "" {
			text += "; " + waits
		}
		return text
	case d.Status.Ended():
		return ""
	}
	var groups []*groupView
	for _, g := range e.p.groups {
		if g.rolling() && g.deploy.ID == d.ID {
			groups = append(groups, g)
		}
	}
	waits = cmp.Or(e.deploymentWaits(d), waits, e.progress(groups), "its last instances prove themselves")
	text := fmt.Sprintf("deployment %s is %s: %s", d.ID, d.Status, waits)
	if left, runs := e.timeLeft(d, groups); runs {
		text += fmt.Sprintf("; without progress it fails in %s", max(left/model.Second*model.Second, model.Second))
	}
	if back, ok := e.p.in.State.BackToStable(job); ok {
		text += "; " + back
	}
	return text
}

// progress returns the first thing that a rollout waits for. If an instance of the new version has reported a reason,
// it adds that reason and the command that shows the instance's logs.
func (e *Explanation) progress(groups []*groupView) string {
	text := strings.TrimPrefix(e.p.firstReason(groups), "; ")
	for _, g := range groups {
		for _, inst := range e.ailing(g.row) {
			if inst.Version == g.row.Version {
				return fmt.Sprintf("%s; %s: %s (outspan logs %s)", text, inst.ID, inst.Status.Reason, inst.ID)
			}
		}
	}
	return text
}

// deploymentWaits returns why the decision could not continue a deployment, for example because its canaries must be
// promoted. It returns "" if nothing was refused.
func (e *Explanation) deploymentWaits(d *fsm.Deployment) string {
	for _, refused := range e.p.plan.refused {
		if refused.Subject != "deployment/"+string(d.ID) {
			continue
		}
		text := fmt.Sprintf("waits: %s: %s", refused.Code, refused.Message)
		if refused.Code == model.CodeAckRequired {
			text += " (outspan deployment promote " + string(d.ID) + ")"
		}
		return text
	}
	return ""
}

// timeLeft returns how long a deployment may go on without progress before it fails. It returns false if no such limit
// applies now, or if that time is over.
func (e *Explanation) timeLeft(d *fsm.Deployment, groups []*groupView) (model.Duration, bool) {
	planned, ok := e.p.state().Deployments.Get(d.ID)
	if !ok || planned.Status.Ended() || planned.Waiting || len(groups) == 0 {
		return 0, false
	}
	deadline, progress := model.Duration(0), planned.Progress
	for _, g := range groups {
		deadline, progress = max(deadline, g.spec.Update.Deadline), max(progress, e.p.stopsEnd(g))
	}
	left := progress.Add(deadline).Sub(e.p.in.Now)
	return left, left > 0
}

// renewed reports whether any instance of a group should run but has a version other than the group's.
func (e *Explanation) renewed(g *fsm.Group) bool {
	for inst := range e.p.in.State.InstancesOf(g.ID) {
		if inst.Desired == model.DesiredRunning && inst.Version != g.Version {
			return true
		}
	}
	return false
}
