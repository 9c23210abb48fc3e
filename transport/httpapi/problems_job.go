package httpapi

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	// an instance whose program exited this often, or a version that failed this often, is in a crash loop
	endsOften   = 2
	justStarted = model.Minute // an instance that has been ready for less than this may fail again
)

// jobs adds failed deployments, and groups with instances that fail or fit nowhere. A group gets at most one row for
// each of these problems.
func (p *problems) jobs() {
	for _, j := range p.r.Jobs.All() {
		if j.Stopped {
			continue
		}
		if d, ok := p.r.Deployments.Get(j.Deployment); ok && d.Status == model.DeploymentFailed {
			next := fmt.Sprintf("outspan why %s; %s", j.Name, p.r.RevertAdvice(j))
			p.add(api.ProblemDeployment, "job/"+string(j.Name), next, "deployment %s failed: %s", d.ID, d.Reason)
		}
		for _, g := range p.r.GroupsOf(j.Name) {
			if !g.Removed {
				p.failing(g)
				p.unplaced(g)
			}
		}
	}
}

// failing adds a problem for instances of a group that failed and are not replaced, and another for those in a crash
// loop.
func (p *problems) failing(g *fsm.Group) {
	var failed, looping []*fsm.Instance
	policy, ok := p.r.Policy(g.ID)
	if !ok {
		return
	}
	for inst := range p.r.InstancesOf(g.ID) {
		failures := p.failures(g, policy, inst)
		switch {
		case inst.Desired != model.DesiredRunning || inst.Status.Observed == model.ObservedLost:
		case inst.Status.Observed == model.ObservedFailed && failures > policy.Reschedule.Attempts:
			failed = append(failed, inst)
		case inst.Ready() && inst.Marks.ReadySince.Add(justStarted) <= p.r.now:
		case ended(inst) && max(failures, inst.Status.Restarts) >= endsOften, inst.Cause == model.CauseCrashLoop &&
			failures >= endsOften:
			looping = append(looping, inst)
		}
	}
	subject := "group/" + string(g.ID)
	if len(failed) > 0 {
		last := failed[len(failed)-1]
		next := fmt.Sprintf("outspan logs %s; mend it and submit that with outspan job run FILE, or to try once more: "+
			"outspan instance restart %s", last.ID, last.ID)
		p.add(api.ProblemRetryLimit, subject, next, "%s failed: %s; the latest: %s", ofThem(len(failed), g.Want()),
			p.retries(g, policy, last), p.told(g, last))
	}
	if len(looping) > 0 {
		last := looping[len(looping)-1]
		p.add(api.ProblemCrashLoop, subject, "outspan logs "+string(last.ID),
			"%s: its program ends again and again (restarts of %s: %d): %s",
			ofThem(len(looping), g.Want()), last.ID, last.Status.Restarts, p.told(g, last))
	}
}

// retries says how often the version of a failed instance failed. If the servers will try it again, it also says when.
func (p *problems) retries(g *fsm.Group, policy *model.GroupSpec, inst *fsm.Instance) string {
	for _, b := range p.r.waiting().Instances[inst.ID] {
		if b.Code == model.CodeRetryLimit {
			return b.Message // as why shows it
		}
	}
	return fmt.Sprintf("version %d failed %s, more than the %d that are replaced in %s",
		inst.Version, times(p.failures(g, policy, inst)), policy.Reschedule.Attempts, policy.Reschedule.Interval)
}

// ended reports whether the program of an instance that should run has exited by itself. The reasons listed here don't
// come from an exit.
func ended(inst *fsm.Instance) bool {
	switch reason, _, _ := strings.Cut(inst.Status.Reason, ":"); reason {
	case "", "check_failed", "restarting", "not_started", "not_adopted":
		return false
	}
	return !inst.Ready()
}

// failures returns how many recent failures an instance's version has. In a system group, only those on the instance's
// node count.
func (p *problems) failures(g *fsm.Group, policy *model.GroupSpec, inst *fsm.Instance) (n int) {
	kept := max(30*model.Minute, policy.Reschedule.Interval)
	for _, f := range g.Failures {
		if f.Version == inst.Version && f.At.Add(kept) > p.r.now && (g.Role != model.RoleSystem || f.Node == inst.Node) {
			n++
		}
	}
	return n
}

// told returns why an instance failed, and on which node. The reason is that of its status, or else of the last
// remembered failure of its version.
func (p *problems) told(g *fsm.Group, inst *fsm.Instance) string {
	reason := inst.Status.Reason
	for _, f := range g.Failures {
		if inst.Status.Reason == "" && f.Version == inst.Version {
			reason = f.Reason
		}
	}
	return fmt.Sprintf("%s on node %s", cmp.Or(reason, "no reason is known"), p.r.nodeName(inst.Node))
}

// unplaced adds a problem if instances of a group fit nowhere. The reason costs a decision, so unplaced finds it out
// only if instances are missing.
func (p *problems) unplaced(g *fsm.Group) {
	if g.Role != model.RoleSystem && g.Ready >= g.Count {
		return
	}
	one := p.r.jobGroup(g)
	why := model.Code(one.Reason)
	if one.Pending == 0 || !why.Unplaceable() {
		return
	}
	next := "outspan why " + string(g.ID)
	if out := p.r.waiting().Groups[g.ID].Unblock; out != "" {
		next = out + "; " + next
	}
	p.add(api.ProblemUnplaced, "group/"+string(g.ID), next, "%s wait: %s", ofThem(one.Pending, one.Count), one.Message)
}

func ofThem(n, all int) string { return fmt.Sprintf("%d of %d instances", n, max(n, all)) }

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
