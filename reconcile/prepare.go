package reconcile

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// stage is how far a planned stop has got in this decision.
type stage int

const (
	stageRefused stage = iota
	// the agent runs the preparation; the instance still serves, but the budget already treats it as down
	stagePreparing
	stageBegun
)

// stopAs begins a planned stop, or its preparation if the stop needs one, and returns how far the stop has got. Every
// planned stop goes through stopAs. It refuses while newer facts that the stop depends on are on their way, and during
// the back-off after a failed preparation. It returns a refusal without recording it.
func (p *pass) stopAs(subject string, c *fsm.InstanceStop) (stage, *model.Error) {
	inst, s := p.instance(c.ID), p.state()
	// A stop that needs no preparation is not noted as wanted. If that stop is refused, releaseUnwanted must still end a
	// preparation that began for a different cause.
	if s.NeedsPreparing(inst, c.Cause, c.By) {
		p.wanted[c.ID] = true
	}
	if p.restsOnFacts(inst, c.Cause) {
		c.Facts = s.FactsRefs(inst)
		if refusal := p.factsOnTheirWay(inst.Group, c.Facts); refusal != nil {
			return stageRefused, refusal
		}
	}
	switch {
	case !s.NeedsPreparing(inst, c.Cause, c.By):
		return begun(p.plan.try(subject, c))
	case s.Prepared(inst):
		return p.stopPrepared(subject, inst, c)
	case inst.Eviction.Preparing:
		return p.awaitPreparation(subject, inst)
	case inst.Eviction.Failure != "" && !p.gatesOpened(inst) && !p.reached(inst.Eviction.RetryAt):
		return stageRefused, p.abortedError(inst)
	}
	prepare := &fsm.InstancePrepare{ID: c.ID, Cause: c.Cause, By: c.By, Grace: c.Grace, Bypass: c.Bypass,
		Facts: c.Facts, Asked: c.Asked}
	if refusal := p.plan.try(subject, prepare); refusal != nil {
		return stageRefused, refusal
	}
	return p.awaitPreparation(subject, p.instance(c.ID))
}

func begun(refusal *model.Error) (stage, *model.Error) {
	if refusal != nil {
		return stageRefused, refusal
	}
	return stageBegun, nil
}

// restsOnFacts reports whether a stop depends on facts of members. It does if the stop has gates. Unless the job stops,
// the stop of a ready member with data also depends on facts, because other members must have the data too. The command
// for such a stop names the generations of the facts, so that Apply refuses it if they have changed.
func (p *pass) restsOnFacts(inst *fsm.Instance, cause model.Cause) bool {
	if len(p.state().GatesOf(inst, cause)) > 0 {
		return true
	}
	m, ok := p.member(inst)
	return ok && m.Held && inst.Ready() && cause != model.CauseJobStopped
}

// factsOnTheirWay returns a refusal if a node's heartbeat has announced newer facts than those in refs.
func (p *pass) factsOnTheirWay(group model.GroupID, refs []fsm.FactsRef) *model.Error {
	for _, r := range refs {
		if live, ok := p.in.Live[r.Node]; ok && live.FactsGen > r.Gen {
			return model.Refuse(model.CodeFactsUnknown,
				"what the members of %s on node %s say has changed: a report is on its way", group, p.nodeName(r.Node)).
				WithHint("it comes by itself")
		}
	}
	return nil
}

// stopPrepared begins the stop of a prepared instance. If the draft refuses the stop, later decisions try again,
// because another member's report may open a gate, for example when that member leads. At Eviction.RetryAt, the
// preparation is given up.
func (p *pass) stopPrepared(subject string, inst *fsm.Instance, c *fsm.InstanceStop) (stage, *model.Error) {
	if c.Grace == nil {
		c.Grace = inst.Marks.GraceOverride
	}
	refusal := p.plan.try(subject, c)
	if refusal == nil {
		return stageBegun, nil
	}
	if p.reached(inst.Eviction.RetryAt) {
		p.release(subject, inst, refusal.Message)
	}
	return stageRefused, refusal
}

// closedGate returns the refusal of a gate that keeps an instance from its stop; nil if all gates are open. ownPart is
// true if the instance has done its own part: its before_stop hook has succeeded, or it has no such hook. If ownPart is
// false, closedGate checks no gates.
func (p *pass) closedGate(inst *fsm.Instance) (ownPart bool, gate *model.Error) {
	e, r := inst.Eviction, inst.Status.Hook
	_, has := p.state().Hook(inst, model.HookBeforeStop)
	if has && !(r != nil && r.Seq == e.Seq && r.OK) {
		return false, nil
	}
	return true, p.state().MayEvict(inst, e.Cause, e.By, fsm.EveryGate)
}

// gatesOpened reports whether the stop of an instance waited only for gates, and these are open now. In that case, the
// stop needn't wait for the back-off after the aborted preparation.
func (p *pass) gatesOpened(inst *fsm.Instance) bool {
	r := inst.Status.Hook
	ownPart, gate := p.closedGate(inst)
	return ownPart && gate == nil && r != nil && r.Seq == inst.Eviction.Seq && r.OK
}

// awaitPreparation checks the preparation of an instance and records that the instance waits for it. If the preparation
// failed or was not reported in time, the preparation is given up and tried again later.
func (p *pass) awaitPreparation(subject string, inst *fsm.Instance) (stage, *model.Error) {
	failure := ""
	if r := inst.Status.Hook; r != nil && r.Seq == inst.Eviction.Seq && !r.OK {
		if failure = r.Message; failure == "" {
			failure = "its before_stop hook failed"
		}
	} else if p.reached(inst.Eviction.RetryAt) {
		failure = "its agent has not told in time how the preparation went"
	}
	if failure == "" {
		what := "its agent looks at its gates once more"
		if _, has := p.state().Hook(inst, model.HookBeforeStop); has {
			what = "its before_stop hook runs"
		}
		p.wait(inst, model.CodeStopping, "it is about to stop: "+what, "")
		return stagePreparing, nil
	}
	p.release(subject, inst, failure)
	return stageRefused, p.abortedError(p.instance(inst.ID))
}

// abortedError returns the refusal of the gate that keeps an instance from its stop. If there is none, it returns why
// the preparation was aborted and when the next try is. In both cases it plans a decision for the time of that try.
func (p *pass) abortedError(inst *fsm.Instance) *model.Error {
	e := inst.Eviction
	p.reached(e.RetryAt)
	switch ownPart, gate := p.closedGate(inst); {
	case gate != nil:
		return gate
	case ownPart:
		return model.Refuse(model.CodeFactsUnknown, "its agent says otherwise than the last report: %s (asked again in %s)",
			e.Failure, e.RetryAt.Left(p.in.Now))
	}
	return model.Refuse(model.CodeHookFailed, "%s (attempt %d; the next one in %s)", e.Failure, e.Aborts,
		e.RetryAt.Left(p.in.Now)).
		WithHint("see to what the hook complains of, or drain with --force")
}

func (p *pass) release(subject string, inst *fsm.Instance, failure string) {
	c := &fsm.InstanceRelease{ID: inst.ID, Seq: inst.Eviction.Seq, Failure: failure}
	if refusal := p.plan.try(subject, c); refusal != nil {
		p.plan.refuse(subject, refusal)
	}
}

// stopAsked continues the evictions that operators requested, except those of members. If a replacement must come
// first, the stop waits while awaitsSurge is true. If an eviction is no longer allowed and no preparation runs,
// stopAsked cancels the eviction, and the operator has to request it again.
func (p *pass) stopAsked() {
	for _, id := range p.marked {
		inst := p.instance(id)
		e := inst.Eviction
		if inst.Desired != model.DesiredRunning || !e.Requested || e.Cause != model.CauseUser || p.isMember(inst) {
			continue
		}
		if !e.Preparing && p.state().MayEvict(inst, model.CauseUser, e.By, p.state().BeforeHook(inst)) != nil {
			p.takeBack(id)
			continue
		}
		if p.awaitsSurge(inst) {
			continue
		}
		c := &fsm.InstanceStop{ID: id, Cause: model.CauseUser, By: e.By, Asked: true}
		if e.Surge {
			c.Grace = inst.Marks.GraceOverride
		}
		p.stopWith(inst, c)
	}
}

// awaitsSurge reports whether the stop of an instance that a user wants replaced first must still wait for the
// replacement to be far enough (fsm.State.Covers). It returns false if the instance is down, or if there is no
// replacement yet and the quota of its class has no room for one. A new spec may say that the group's instances stop
// before they are replaced. Then awaitsSurge returns false as soon as a replacement would fit.
func (p *pass) awaitsSurge(inst *fsm.Instance) bool {
	if !inst.Eviction.Surge || isDown(inst) {
		return false
	}
	next, ok := p.state().Successor(inst)
	switch {
	case ok && p.state().Covers(next):
		return false
	case ok:
		p.wait(inst, model.CodeReplacementPending, fmt.Sprintf("its replacement %s on node %s is %s",
			next.ID, p.nodeName(next.Node), next.Status.Observed), "it becomes ready")
		return true
	}
	if p.state().MustStopFirst(inst) != nil {
		return false
	}
	i := slices.IndexFunc(p.groups, func(g *groupView) bool { return g.id == inst.Group })
	if i < 0 || !p.groups[i].stopFirst(p.groups[i].spec.Eviction.Order) {
		return true
	}
	slot := p.groups[i].slot(inst.Slot)
	if slot == nil || slot.holder != inst {
		return false // the instance no longer holds its slot
	}
	n := p.takeover(p.groups[i], slot, leaveAsked, urgentMove)
	nowhere := p.secured(n)
	if nowhere != nil {
		p.unplaced(n, nowhere)
	}
	return nowhere != nil
}

// takeBack cancels the eviction of an instance.
func (p *pass) takeBack(id model.InstanceID) {
	if refusal := p.plan.try("instance/"+string(id), &fsm.InstanceMark{ID: id}); refusal != nil {
		p.plan.refuse("instance/"+string(id), refusal)
	}
}

// releaseUnwanted ends the preparations of stops that no earlier pass of this decision tried, for example because a
// drain was paused, a replacement is no longer ready, or a rollout was reverted. If the eviction exists only because
// its preparation began, releaseUnwanted cancels the eviction.
func (p *pass) releaseUnwanted() {
	for _, id := range p.marked {
		inst := p.instance(id)
		if inst.Desired != model.DesiredRunning || !inst.Eviction.Requested || p.wanted[id] {
			continue
		}
		switch inst.Eviction.Cause {
		case model.CauseRollout, model.CauseScaleDown, model.CauseRoleReplacement:
			// for these causes, an eviction exists only because its preparation began
			p.takeBack(id)
		default:
			if inst.Eviction.Preparing {
				p.release("instance/"+string(id), inst, "")
			}
		}
	}
}
