package reconcile

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// stage is how far a stop has come in this pass.
type stage int

// The stages.
const (
	stageRefused stage = iota
	// the agent runs what must come before it; the instance serves, and its unit of the budget is held
	stagePreparing
	stageBegun
)

// stopAs is the one way to a planned stop: it waits for facts that are on their way, has the stop prepared where that
// is needed, and begins it when that is done. A refusal says what keeps it; it is not recorded.
func (p *pass) stopAs(subject string, c *fsm.InstanceStop) (stage, *model.Error) {
	inst, s := p.instance(c.ID), p.state()
	// one that doesn't, and is refused, is no reason to go on preparing for another cause
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
	case inst.Eviction.Failure != "" && !p.gatesOpened(inst) && !p.past(inst.Eviction.RetryAt):
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

// restsOnFacts reports whether a stop rests on what members say: it has gates, or the instance has data and its peers
// are to have it too. The stop then names how new that is, so that the log refuses it if it has moved.
func (p *pass) restsOnFacts(inst *fsm.Instance, cause model.Cause) bool {
	if len(p.state().GatesOf(inst, cause)) > 0 {
		return true
	}
	m, ok := p.member(inst)
	return ok && m.Held && inst.Ready() && cause != model.CauseJobStopped
}

// factsOnTheirWay refuses a decision on facts while a heartbeat has told of newer ones than the state has.
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

// stopPrepared begins the stop of an instance that is ready for it. For a gate and for a budget it waits as long as the
// preparation may last: what another member says, such as that it leads now, comes with a report of its own.
func (p *pass) stopPrepared(subject string, inst *fsm.Instance, c *fsm.InstanceStop) (stage, *model.Error) {
	if c.Grace == nil {
		c.Grace = inst.Marks.GraceOverride
	}
	refusal := p.plan.try(subject, c)
	if refusal == nil {
		return stageBegun, nil
	}
	if p.past(inst.Eviction.RetryAt) {
		p.release(subject, inst, refusal.Message)
	}
	return stageRefused, refusal
}

// closedGate says which gate keeps an instance whose own part of the preparation went well: it has no hook, or the hook
// succeeded. nil if none does.
func (p *pass) closedGate(inst *fsm.Instance) (ownPart bool, gate *model.Error) {
	e, r := inst.Eviction, inst.Status.Hook
	_, has := p.state().Hook(inst, model.HookBeforeStop)
	if has && !(r != nil && r.Seq == e.Seq && r.OK) {
		return false, nil
	}
	return true, p.state().MayEvict(inst, e.Cause, e.By, fsm.EveryGate)
}

// gatesOpened reports whether the stop of an instance waited for nothing but gates, and they hold now: then it needs no
// more patience.
func (p *pass) gatesOpened(inst *fsm.Instance) bool {
	r := inst.Status.Hook
	ownPart, gate := p.closedGate(inst)
	return ownPart && gate == nil && r != nil && r.Seq == inst.Eviction.Seq && r.OK
}

// awaitPreparation looks how the preparation of an instance goes. One that failed, or is not heard of in time, is given
// up for now.
func (p *pass) awaitPreparation(subject string, inst *fsm.Instance) (stage, *model.Error) {
	failure := ""
	if r := inst.Status.Hook; r != nil && r.Seq == inst.Eviction.Seq && !r.OK {
		if failure = r.Message; failure == "" {
			failure = "its before_stop hook failed"
		}
	} else if p.past(inst.Eviction.RetryAt) {
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

// abortedError says why a stop was not begun, and when it is tried again.
func (p *pass) abortedError(inst *fsm.Instance) *model.Error {
	e := inst.Eviction
	p.past(e.RetryAt)
	switch ownPart, gate := p.closedGate(inst); {
	case gate != nil:
		return gate
	case ownPart:
		return model.Refuse(model.CodeFactsUnknown, "its agent says otherwise than the last report: %s (asked again in %s)",
			e.Failure, max(e.RetryAt.Sub(p.in.Now), 0))
	}
	return model.Refuse(model.CodeHookFailed, "%s (attempt %d; the next one in %s)", e.Failure, e.Aborts,
		max(e.RetryAt.Sub(p.in.Now), 0)).
		WithHint("see to what the hook complains of, or drain with --force")
}

func (p *pass) release(subject string, inst *fsm.Instance, failure string) {
	c := &fsm.InstanceRelease{ID: inst.ID, Seq: inst.Eviction.Seq, Failure: failure}
	if refusal := p.plan.try(subject, c); refusal != nil {
		p.plan.refuse(subject, refusal)
	}
}

// stopAsked goes on with the evictions that an operator asked for and that are prepared, or are to be again: after an
// abort, and when the program ended in the middle and runs again. One that the instance's role has come to forbid is
// taken back, as it would have been refused: the operator asks again.
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

// awaitsSurge reports whether an instance that a person wants replaced first has no replacement yet that covers it.
// Where the quota of its class holds no surge it waits for none; nor where its group has come to stop first, once a
// replacement would fit.
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
	if p.state().NoSurge(inst) != nil {
		return false
	}
	i := slices.IndexFunc(p.groups, func(g *groupView) bool { return g.id == inst.Group })
	if i < 0 || !p.groups[i].stopFirst(p.groups[i].spec.Eviction.Order) {
		return true
	}
	slot := p.groups[i].slot(inst.Slot)
	if slot == nil || slot.holder != inst {
		return false // another one has its slot
	}
	n := p.takeover(p.groups[i], slot, wishAsked, urgentMove)
	_, nowhere := p.peek(n)
	if nowhere != nil {
		p.unplaced(n, nowhere)
	}
	return nowhere != nil
}

// takeBack ends the wish that an instance is evicted.
func (p *pass) takeBack(id model.InstanceID) {
	if refusal := p.plan.try("instance/"+string(id), &fsm.InstanceMark{ID: id}); refusal != nil {
		p.plan.refuse("instance/"+string(id), refusal)
	}
}

// releaseUnwanted ends the preparations of stops that nothing in this pass wanted any more, and takes back the marks
// that came with them: the drain was paused, the replacement is not ready any more, the rollout was reverted.
func (p *pass) releaseUnwanted() {
	for _, id := range p.marked {
		inst := p.instance(id)
		if inst.Desired != model.DesiredRunning || !inst.Eviction.Requested || p.wanted[id] {
			continue
		}
		switch inst.Eviction.Cause {
		case model.CauseRollout, model.CauseScaleDown, model.CauseRoleReplacement:
			// nothing but a preparation marks for these
			p.takeBack(id)
		default:
			if inst.Eviction.Preparing {
				p.release("instance/"+string(id), inst, "")
			}
		}
	}
}
