package reconcile

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Explanation is one decision with its reasons, made to be shown and not carried out. It uses the same filters and
// scores as Decide. It is valid for the state that it was made from. It is not safe for concurrent use.
type Explanation struct{ p *pass }

// Explain makes a decision on the input and keeps the reasons. It costs as much as Decide and changes nothing but
// Input.Cache.
func Explain(in Input) *Explanation { return &Explanation{decide(in)} }

// Refused returns the actions that are needed now but refused, with the reasons.
func (e *Explanation) Refused() []Refusal { return e.p.plan.refused }

// Pending returns why a group has fewer ready instances than it should have, or nil if the group is unknown or no
// reason was recorded. It returns the first reason in this order: a slot that can't be filled, an instance that is
// blocked before it is ready, paused actuation.
func (e *Explanation) Pending(group model.GroupID) *model.Error {
	g, ok := e.p.in.State.Groups.Get(group)
	if !ok {
		return nil
	}
	for n := range max(g.Count, e.p.in.State.Nodes.Len()) {
		if why := e.p.reasons.slot(slotKey{group, n}); why != nil {
			return model.Refuse(why.code, "%s", why.whole()).WithHint("%s", why.wayOut())
		}
	}
	for inst := range e.p.in.State.InstancesOf(group) {
		b, waits := e.p.reasons.blockers[inst.ID]
		if waits && inst.Desired == model.DesiredRunning && !inst.Ready() {
			return model.Refuse(b.Code, "instance %s: %s", inst.ID, b.Message).WithHint("%s", b.Unblock)
		}
	}
	for _, refused := range e.p.plan.refused {
		if refused.Subject == "group/"+string(group) && refused.Code == model.CodePaused {
			return model.Refuse(model.CodePaused, "%s", refused.Message).WithHint("outspan settings resume")
		}
	}
	return nil
}

// Waiting returns what an instance that should start or stop waits for, as a list of at most one blocker. It returns
// nil if nothing holds the instance back, or if the instance is terminal or unknown.
func (e *Explanation) Waiting(id model.InstanceID) []model.Blocker {
	inst, ok := e.p.in.State.Instances.Get(id)
	if !ok || inst.Terminal() {
		return nil
	}
	if n := e.p.node(inst.Node); n != nil && n.Intent == model.IntentDraining {
		if d, ok := e.p.in.State.RunningDrain(n); ok {
			part, _ := d.Node(n.ID)
			if b, blocked := e.p.blockerOf(&drainPart{d, part, n}, inst); blocked {
				return []model.Blocker{b}
			}
			return nil
		}
	}
	if b, ok := e.p.reasons.blockers[id]; ok {
		return []model.Blocker{b}
	}
	if e.p.in.State.Settings.Paused && inst.Desired == model.DesiredRunning {
		if planned := e.p.instance(id); inst.Eviction.Requested || planned != nil && planned.Desired != inst.Desired {
			return []model.Blocker{
				{Code: model.CodePaused, Instance: id, Message: "actuation is paused", Unblock: "outspan settings resume"}}
		}
	}
	return nil
}

// Drain returns, for each node of a drain, which instances remain on the node and what keeps them. A node that was
// forgotten or is in a newer drain has an empty status.
func (e *Explanation) Drain(d *fsm.Drain) []model.DrainStatus {
	out := make([]model.DrainStatus, 0, len(d.Nodes))
	for _, part := range d.Nodes {
		status := model.DrainStatus{Node: part.Node}
		if n, ok := e.p.in.State.Nodes.Get(part.Node); ok && n.Drain == d.ID {
			e.remaining(&status, &drainPart{d, part, n})
		}
		out = append(out, status)
	}
	return out
}

func (e *Explanation) remaining(status *model.DrainStatus, d *drainPart) {
	for inst := range e.p.in.State.InstancesOn(d.node.ID) {
		if inst.Status.Observed == model.ObservedStopped {
			continue
		}
		left := model.NodeRemaining{Instance: inst.ID, Class: inst.ClassOf(), State: string(inst.Status.Observed)}
		left.InMoved, left.InStopped = d.drain.Counts(&e.p.in.State, inst)
		if d.part.Phase == model.PhaseDraining {
			b, blocked := e.p.blockerOf(d, inst)
			switch {
			case blocked:
				left.Blocker = b.Code
				status.Blockers = append(status.Blockers, b)
			case e.p.state().Movable(inst) != nil:
				left.State = "left_running"
			}
		}
		status.Remaining = append(status.Remaining, left)
	}
	if d.part.Phase == model.PhaseDraining {
		status.Blockers = append(status.Blockers, e.p.keptBlockers(d)...)
	}
	if d.part.Phase != model.PhaseDraining {
		return
	}
	left := e.p.in.State.DrainLeft(d.drain, d.node)
	if left != nil && (len(status.Blockers) == 0 || ofRestore(left.Code)) {
		status.Blockers = slices.Insert(status.Blockers, 0,
			model.Blocker{Code: left.Code, Message: left.Message, Unblock: left.Hint})
	}
}

// ofRestore reports whether a blocker with this code comes from a restore that is not settled. Such a blocker is shown
// before others, because people must settle the restore first.
func ofRestore(code model.Code) bool {
	return code == model.CodeRestoreUnconfirmed || code == model.CodeUnknownInstance || code == model.CodeInventoryMissing
}

func (e *Explanation) next(inst *fsm.Instance) string {
	if waiting := e.Waiting(inst.ID); len(waiting) > 0 {
		return waitText(waiting[0])
	}
	planned, ok := e.p.state().Instances.Get(inst.ID)
	switch {
	case inst.Terminal():
		return "nothing: it has ended"
	case ok && planned.Desired != inst.Desired:
		return fmt.Sprintf("it becomes %s (%s)", planned.Desired, planned.Marks.StopCause)
	case inst.Desired == model.DesiredDraining && inst.Marks.StopCause == model.CausePreempted:
		return fmt.Sprintf("it stops; after %s it is killed; instance %s takes its room",
			inst.Marks.StopGrace, inst.Marks.StopReason)
	case inst.Desired == model.DesiredDraining:
		return fmt.Sprintf("it stops; after %s it is killed", inst.Marks.StopGrace)
	case inst.Desired == model.DesiredStopped:
		return "its agent confirms that it has stopped"
	case inst.Status.Observed == model.ObservedPending:
		return "its agent starts it"
	case inst.Status.Observed == model.ObservedBooting:
		return "it becomes ready, or has failed by then: " + e.p.in.State.Settings.StartTimeout.String() +
			" after it was placed"
	case inst.Status.Observed == model.ObservedUnready:
		return "its check passes again, and it is ready"
	case inst.Status.Observed == model.ObservedLost:
		return "its node comes back, or is confirmed dead: outspan node confirm-dead " + e.p.nodeName(inst.Node)
	case inst.Status.Observed == model.ObservedFailed:
		return "another instance takes its place"
	case inst.Eviction.Requested:
		return "it is stopped, for " + string(inst.Eviction.Cause)
	}
	for _, m := range e.p.moves {
		if m.Instance == inst.ID && m.Blocker != nil {
			return fmt.Sprintf("nothing now; it would be better on node %s (%s, gain %d), and waits: %s: %s", e.p.nodeName(m.To),
				m.Cause, m.Gain, m.Blocker.Code, m.Blocker.Message)
		}
	}
	return asItShouldBe
}

func waitText(b model.Blocker) string {
	text := fmt.Sprintf("waits: %s: %s", b.Code, b.Message)
	if b.Unblock != "" {
		text += " (" + b.Unblock + ")"
	}
	return text
}
