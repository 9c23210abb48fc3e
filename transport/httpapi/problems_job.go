package httpapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	// An instance is in a crash loop if its program was restarted, or its version failed, at least this often.
	endsOften = 2
	// An instance that has been ready for this long is in no crash loop any more.
	justStarted = model.Minute
)

// jobs adds a problem for each job whose latest deployment failed, and for groups whose instances fail or fit nowhere.
// A group gets at most one problem of each kind. Stopped jobs have no problems.
func (p *problems) jobs() {
	lacking := p.missingImages()
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
				p.gone(g, lacking)
			}
		}
	}
}

// failing adds one problem for the instances of a group that failed and are not replaced, and one for those in a crash
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

// retries returns, as text, how often the version of a failed instance failed. If the servers will replace the instance
// later, the text also says when.
func (p *problems) retries(g *fsm.Group, policy *model.GroupSpec, inst *fsm.Instance) string {
	for _, b := range p.r.waiting().Instances[inst.ID] {
		if b.Code == model.CodeRetryLimit {
			return b.Message // the text that outspan why shows
		}
	}
	return fmt.Sprintf("version %d failed %s, more than the %d that are replaced in %s",
		inst.Version, times(p.failures(g, policy, inst)), policy.Reschedule.Attempts, policy.Reschedule.Interval)
}

// ended reports whether an instance is not ready because its program has exited by itself. The reasons listed here do
// not come from an exit.
func ended(inst *fsm.Instance) bool {
	switch reason, _, _ := strings.Cut(inst.Status.Reason, ":"); reason {
	case "", "check_failed", "restarting", "not_started", "not_adopted":
		return false
	}
	return !inst.Ready()
}

// failures returns how many recent failures the version of an instance has. In a system group, it only counts failures
// on the node of the instance.
func (p *problems) failures(g *fsm.Group, policy *model.GroupSpec, inst *fsm.Instance) (n int) {
	kept := max(30*model.Minute, policy.Reschedule.Interval)
	for _, f := range g.Failures {
		if f.Version == inst.Version && f.At.Add(kept) > p.r.now && (g.Role != model.RoleSystem || f.Node == inst.Node) {
			n++
		}
	}
	return n
}

// told returns, as text, why an instance failed and on which node. If the status of the instance has no reason, the
// reason is that of the last recorded failure of its version.
func (p *problems) told(g *fsm.Group, inst *fsm.Instance) string {
	reason := inst.Status.Reason
	for _, f := range g.Failures {
		if inst.Status.Reason == "" && f.Version == inst.Version {
			reason = f.Reason
		}
	}
	return fmt.Sprintf("%s on node %s", cmp.Or(reason, "no reason is known"), p.r.nodeName(inst.Node))
}

// unplaced adds a problem if instances of a group, or those of its next version, fit nowhere. To find the reason, the
// server computes a whole decision, so unplaced asks for it only if instances are missing or a rollout goes on.
func (p *problems) unplaced(g *fsm.Group) {
	if g.Role != model.RoleSystem && g.Ready >= g.Count && !rolls(&p.r.State, g) {
		return
	}
	one := p.r.jobGroup(g)
	why := model.Code(one.Reason)
	if !why.Unplaceable() || one.Pending == 0 && why == model.CodeImagePulling {
		return
	}
	next := "outspan why " + string(g.ID)
	if out := p.r.waiting().Groups[g.ID].Unblock; out != "" {
		next = out + "; " + next
	}
	who := "its rollout waits"
	if one.Pending > 0 {
		who = ofThem(one.Pending, one.Count) + " wait"
	}
	p.add(api.ProblemUnplaced, "group/"+string(g.ID), next, "%s: %s", who, one.Message)
}

// missingImages returns the nodes that could not pull a digest because the registry does not have it, by digest. It
// ignores failures before the latest pull of the digest, and those that are not remembered any more.
func (p *problems) missingImages() map[string][]*fsm.Node {
	lacking, pulled := map[string][]*fsm.Node{}, map[string]model.Time{}
	for _, n := range p.r.Nodes.All() {
		for _, f := range n.FailedPulls {
			if !f.Missing || !f.Kept(p.r.now) || n.Health == model.HealthOffline {
				continue
			}
			if _, known := pulled[f.Digest]; !known {
				pulled[f.Digest] = p.lastPulled(f.Digest)
			}
			if pulled[f.Digest] <= f.Until.Add(-f.Pause) {
				lacking[f.Digest] = append(lacking[f.Digest], n)
			}
		}
	}
	return lacking
}

// lastPulled returns when a node last pulled an image that it still has, or 0.
func (p *problems) lastPulled(digest string) (at model.Time) {
	for _, n := range p.r.Nodes.All() {
		if image, ok := n.Image(digest); ok && image.State == model.ImagePresent && image.Bytes > 0 {
			at = max(at, image.Moved)
		}
	}
	return at
}

// gone adds a problem if a group runs an image that the registry does not have any more. The nodes that have the image
// are then the last place where it is.
func (p *problems) gone(g *fsm.Group, lacking map[string][]*fsm.Node) {
	spec, ok := p.r.Policy(g.ID)
	if len(lacking) == 0 || !ok || spec.Container == nil || len(lacking[spec.Container.ImageDigest()]) == 0 {
		return
	}
	digest := spec.Container.ImageDigest()
	var has, lack []string
	for inst := range p.r.InstancesOf(g.ID) {
		ran, ok := p.r.Spec(inst.Group, inst.Version)
		if ok && ran.Container != nil && ran.Container.ImageDigest() == digest && !inst.Terminal() {
			has = append(has, p.r.nodeName(inst.Node))
		}
	}
	if len(has) == 0 {
		return // the group has the problem that its instances fit nowhere
	}
	for _, n := range lacking[digest] {
		lack = append(lack, n.Name)
	}
	slices.Sort(has)
	slices.Sort(lack)
	job, _ := g.ID.Split()
	p.add(api.ProblemImageGone, "group/"+string(g.ID), fmt.Sprintf("push the image with this digest to the registry "+
		"again, and then: outspan job restart %s; or run another image: outspan job run FILE", job),
		"the registry no longer has the image %s@%s of version %d; it runs on %s, and can't be pulled on %s",
		spec.Container.ImageName(), digest, g.Version, someNames(has), someNames(lack))
}

func ofThem(n, all int) string { return fmt.Sprintf("%d of %d instances", n, max(n, all)) }

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
