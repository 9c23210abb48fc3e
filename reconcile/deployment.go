package reconcile

import (
	"cmp"
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// stepDeployments moves deployments forward. A queued deployment starts rolling at once. A deployment succeeds when
// every instance runs the new version and has proved healthy. It fails when it makes no progress within its deadline,
// or when its instances keep failing.
func (p *pass) stepDeployments() {
	p.nodesInService = nil // may be out of date: it was computed before earlier passes tried commands
	byDeployment := map[model.DeploymentID][]*groupView{}
	var ids []model.DeploymentID
	for _, g := range p.groups {
		if g.rolling() {
			if byDeployment[g.deploy.ID] == nil {
				ids = append(ids, g.deploy.ID)
			}
			byDeployment[g.deploy.ID] = append(byDeployment[g.deploy.ID], g)
		}
	}
	for _, id := range ids {
		d, _ := p.state().Deployments.Get(id)
		if d.Status == model.DeploymentQueued {
			p.step(id, model.DeploymentRolling, "")
		}
		p.endDeployment(d, byDeployment[id])
	}
}

func (p *pass) step(id model.DeploymentID, status model.DeploymentStatus, reason string, with ...fsm.Command) bool {
	group := append([]fsm.Command{&fsm.DeploymentStep{ID: id, Status: status, Reason: reason}}, with...)
	refusal := p.plan.try("deployment/"+string(id), group...)
	if refusal != nil {
		p.plan.refuse("deployment/"+string(id), refusal)
	}
	return refusal == nil
}

func (p *pass) endDeployment(d *fsm.Deployment, groups []*groupView) {
	done, idle, deadline, progress := d.Promoted, true, model.Duration(0), d.Progress
	var waits *model.Error
	for _, g := range groups {
		p.viewSlots(g)
		if r := p.retryOf(g, g.row.Version, ""); r.limited {
			p.failDeployment(d, groups,
				fmt.Sprintf("retry_limit: %d instances of version %d of %s failed", r.failures, g.row.Version, g.id))
			return
		}
		done = done && p.rolledOut(g)
		idle = idle && (p.canariesReady(g) || p.rolledOut(g))
		deadline, progress = max(deadline, g.spec.Update.Deadline), max(progress, p.stopsEnd(g))
		waits = cmp.Or(waits, p.rolloutWaits(g))
	}
	if !d.Promoted && idle {
		waits = model.Refuse(model.CodeAckRequired, "its canaries are ready and wait to be promoted")
	}
	waits = cmp.Or(waits, p.everythingWaits())
	switch {
	case done:
		p.step(d.ID, model.DeploymentSucceeded, "")
	case waits != nil:
		p.plan.refuse("deployment/"+string(d.ID), waits)
		p.noteWait(d, true)
	case d.Waiting:
		p.noteWait(d, false)
	case p.reached(progress.Add(deadline)):
		p.failDeployment(d, groups, fmt.Sprintf("no progress for %s%s", deadline, p.firstReason(groups)))
	}
}

// noteWait records that a deployment begins or stops waiting, even while actuation is paused. The change restarts the
// deployment's time without progress.
func (p *pass) noteWait(d *fsm.Deployment, waiting bool) {
	if d.Waiting == waiting {
		return
	}
	_ = p.plan.note(&fsm.DeploymentWait{ID: d.ID, Waiting: waiting}) // never refused: the deployment has not ended
}

// everythingWaits returns what holds back all rollouts (paused actuation, an unconfirmed restore, or HOLD), or nil.
func (p *pass) everythingWaits() *model.Error {
	switch {
	case p.in.State.Settings.Paused:
		return model.Refuse(model.CodePaused, "actuation is paused; the deadline begins anew when it is resumed")
	case p.state().Unconfirmed:
		return model.Refuse(model.CodeRestoreUnconfirmed, "a restore is not confirmed; the deadline begins anew when it is")
	case p.state().Hold.Active:
		return model.Refuse(model.CodeHold, "too many nodes are silent at once; the deadline begins anew when that is over")
	}
	return nil
}

// stopsEnd returns the latest time until which something other than the new version holds back a group's progress, or
// 0. The deployment's deadline is counted from this time or from a later one.
func (p *pass) stopsEnd(g *groupView) model.Time {
	end := model.Time(0)
	for _, slot := range g.open {
		old := slot.last
		if old != nil && old.Marks.StopCause == model.CauseRollout && old.Version != g.row.Version &&
			(slot.holder == nil || !slot.holder.Ready()) {
			end = max(end, p.state().StopDue(old))
		}
		// the version is not at fault if an instance was lost with its node, or if its predecessor had to leave
		for _, inst := range [...]*fsm.Instance{slot.holder, slot.successor} {
			switch {
			case inst == nil || inst.Version != g.row.Version:
			case inst.Status.Observed == model.ObservedLost:
				end = max(end, inst.Marks.UnreadySince)
			case leftNode(inst.Cause):
				end = max(end, inst.Marks.Created)
			}
		}
	}
	for _, t := range p.state().Transfers.All() {
		if t.Group == g.id && !t.Options.Live {
			end = max(end, t.Marks.Moved)
		}
	}
	return end
}

// leftNode reports whether an instance was made because its predecessor had to leave its node, was preempted, or was
// evicted or stopped by a user.
func leftNode(cause model.Cause) bool {
	switch cause {
	case model.CauseNodeOffline, model.CauseNodeDraining, model.CauseNodeDisabled, model.CauseNodeNotReady,
		model.CausePreempted, model.CauseUser:
		return true
	}
	return false
}

// rolloutWaits returns what holds back a group's rollout through no fault of the new version, or nil.
func (p *pass) rolloutWaits(g *groupView) *model.Error {
	if g.system() && p.systemWant(g) == 0 {
		return model.Refuse(model.CodeNoNodes, "no node with an instance of %s takes new ones now", g.id)
	}
	for _, slot := range g.open {
		if why := p.held(g.id, slot.n); why != nil {
			return model.Refuse(why.code, "%s slot %d: %s", g.id, slot.n, why.message)
		}
		if why := p.slotWaits(g, slot); why != nil {
			return why
		}
	}
	return p.pullWaits(g)
}

// slotWaits returns what the rollout of one slot waits for through no fault of the new version, or nil.
func (p *pass) slotWaits(g *groupView, slot *slotView) *model.Error {
	if slot.dropped {
		return nil
	}
	old := slot.holder
	// a slot with data on a node waits until the node takes new instances
	if !g.system() && (old == nil || g.hasOldVersion(slot) || !old.Ready()) {
		if n := p.node(p.homeOf(g, slot.n)); n != nil {
			if refusal := p.state().Eligible(n); refusal != nil {
				return model.Refuse(model.CodeVolumeNoNode, "%s slot %d: its data is on node %s: %s", g.id,
					slot.n, n.Name, refusal.Message)
			}
		}
	}
	if old == nil {
		return nil
	}
	if g.system() && p.canarying(g) && !g.hasOldVersion(slot) && old.Status.Observed == model.ObservedLost {
		return model.Refuse(model.CodeNodeOffline, "%s slot %d: its canary is on node %s, which is offline", g.id,
			slot.n, p.nodeName(old.Node))
	}
	b, blocked := p.reasons.blockers[old.ID]
	lost := !g.system() && old.Status.Observed == model.ObservedLost && slot.successor == nil
	// a budget's rate and reports that are missing since a restore are not the version's fault
	limited := b.Code == model.CodeBudgetRate || b.Code == model.CodeBudgetMinReady && p.state().Unheard(g.id)
	if blocked && (lost || g.hasOldVersion(slot) && limited) {
		return model.Refuse(b.Code, "%s slot %d: %s", g.id, slot.n, b.Message)
	}
	return nil
}

// rolledOut reports whether a group's rollout is complete: every slot has a healthy holder of the new version, and no
// older instance runs. Instances that don't take part in the rollout are ignored.
func (p *pass) rolledOut(g *groupView) bool {
	for _, slot := range g.open { // checked first, because a slot that is not rolled out yet is usually open
		if slot.holder != nil && !p.takesPart(g, slot.holder) {
			continue
		}
		if slot.successor != nil || g.hasOldVersion(slot) || slot.holder != nil && !p.healthy(g, slot.holder) {
			return false
		}
	}
	for row := range g.quietRows() {
		if !p.healthy(g, row.inst) {
			return false
		}
	}
	if g.system() && g.row.Count > 0 {
		return len(p.systemMissing(g)) == 0 && p.systemWant(g) > 0
	}
	return g.held() == g.row.Count
}

// canariesReady reports whether a group has at least as many healthy instances of the new version as it should have
// canaries. It returns false for a group that should have no canaries.
func (p *pass) canariesReady(g *groupView) bool {
	if g.spec.Update.Canary == 0 {
		return false
	}
	proven := 0
	for _, slot := range g.slots() {
		for _, inst := range [...]*fsm.Instance{slot.holder, slot.successor} {
			if inst != nil && inst.Version == g.row.Version && p.healthy(g, inst) {
				proven++
			}
		}
	}
	return proven >= g.spec.Update.Canary
}

// failDeployment sets a deployment to failed. If one of its groups has auto_revert, the job also returns to the last
// version that succeeded, unless that version has the same instances or the revert is refused.
func (p *pass) failDeployment(d *fsm.Deployment, groups []*groupView, reason string) {
	job := groups[0].job
	back := false
	for _, g := range groups {
		back = back || g.spec.Update.AutoRevert
	}
	// If both versions have the same instances, the stable one would fail too and be reverted again, forever.
	if back && job.Stable != 0 && !p.state().SameInstances(job.Name, job.Stable, d.Version) {
		revert := &fsm.JobRevert{Job: job.Name, Version: job.Stable, IfVersion: job.Version, KeepCounts: true,
			Message: fmt.Sprintf("version %d failed: back to version %d", d.Version, job.Stable)}
		if p.step(d.ID, model.DeploymentFailed, reason, revert) {
			return
		}
	}
	p.step(d.ID, model.DeploymentFailed, reason)
}

// firstReason returns a reason why a deployment makes no progress, to be appended to a message, or "" if none is known.
func (p *pass) firstReason(groups []*groupView) string {
	for _, g := range groups {
		for _, slot := range g.slots() {
			if why := p.reasons.slot(slotKey{g.id, slot.n}); why != nil {
				return fmt.Sprintf("; %s slot %d: %s: %s", g.id, slot.n, why.code, why.message)
			}
			for _, inst := range [...]*fsm.Instance{slot.successor, slot.holder} {
				if inst != nil && inst.Version == g.row.Version && !inst.Ready() {
					return fmt.Sprintf("; instance %s on node %s is %s", inst.ID, p.nodeName(inst.Node), inst.Status.Observed)
				}
				if inst == nil {
					continue
				}
				if b, ok := p.reasons.blockers[inst.ID]; ok {
					return fmt.Sprintf("; instance %s: %s: %s", inst.ID, b.Code, b.Message)
				}
			}
		}
		for n := range g.row.Count {
			if why := p.reasons.slot(slotKey{g.id, n}); why != nil {
				return fmt.Sprintf("; %s slot %d: %s: %s", g.id, n, why.code, why.message)
			}
		}
	}
	return ""
}
