package reconcile

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// forecastID is the id of the drain that a forecast pretends to start.
const forecastID model.DrainID = "forecast"

// ForecastDrain tells what a drain of the nodes would do with each instance on them, if nothing else changed: where its
// replacement would go, or what keeps it there. One decision finds what keeps it now; playing the drain to its end
// finds whether that passes. Nodes that are being drained already are forecast as if that drain began now. It changes
// nothing, and costs a few decisions for each step that the drain takes. Codes: those of DrainStart when no node can be
// drained.
func ForecastDrain(in Input, nodes []string, options model.DrainOptions) ([]model.Forecast, *model.Error) {
	if !options.ForceAtDeadline || options.Deadline <= 0 {
		options.Deadline = model.Forever // whether it is done in time is another question
	}
	in.Now = max(in.Now, in.State.Now)
	in.StayPut = true // what the rescheduler does is no part of the drain
	if in.Seen == nil {
		in.Seen = &Seen{} // the steps of the rehearsal have nearly all rows in common
	}
	before := in.State
	begin, draft, refusal := beginForecast(in, nodes, options)
	if refusal != nil {
		return nil, refusal
	}
	drain, _ := draft.Drains.Get(forecastID)
	f := forecaster{drain: drain, before: &before}
	var all []*fsm.Instance
	for _, part := range drain.Nodes {
		all = append(all, f.on(part.Node)...)
	}
	f.rehearsal = rehearse(in, begin, all)
	if f.p = f.rehearsal.first; !f.rehearsal.beganAsAsked(options) {
		in.State = draft
		f.p = decide(in)
	}
	var out []model.Forecast
	for _, part := range drain.Nodes {
		out = append(out, f.node(part.Node)...)
	}
	return out, nil
}

// beginForecast returns the commands that start the drain which is forecast, and the state after them with all of its
// nodes at work at once: the whole is told, not the first turn.
func beginForecast(in Input, nodes []string, options model.DrainOptions) (begin [][]fsm.Command,
	after fsm.State, _ *model.Error) {
	draft := in.State.NewDraft(in.Now)
	for _, name := range nodes {
		n, refusal := draft.State().NamedNode(name)
		if refusal != nil {
			continue
		}
		if d, running := draft.State().RunningDrain(n); running {
			group := []fsm.Command{&fsm.DrainCancel{ID: d.ID}}
			if draft.Try(group...) == nil {
				begin = append(begin, group)
			}
		}
	}
	start := fsm.DrainStart{ID: forecastID, Nodes: nodes, Options: options}
	begin = append(begin, []fsm.Command{&start})
	atOnce := start
	atOnce.Options.MaxParallelNodes = 0
	if refusal := draft.Try(&atOnce); refusal != nil {
		return nil, fsm.State{}, refusal
	}
	return begin, *draft.State(), nil
}

// CanFinish reports whether a drain so forecast can end as Drained without a person, and otherwise lists what stands in
// its way.
func CanFinish(forecast []model.Forecast) (bool, []model.Blocker) {
	var blockers []model.Blocker
	for _, f := range forecast {
		if f.Never && f.Blocker != nil {
			blockers = append(blockers, *f.Blocker)
		}
	}
	return len(blockers) == 0, blockers
}

type forecaster struct {
	p         *pass
	drain     *fsm.Drain
	before    *fsm.State // without the drain
	rehearsal *rehearsal
}

// on lists the instances that a node is to lose or keep, the oldest first.
func (f *forecaster) on(id model.NodeID) []*fsm.Instance {
	var all []*fsm.Instance
	for inst := range f.before.InstancesOn(id) {
		n, _ := f.before.Nodes.Get(id)
		if inst.Desired == model.DesiredRunning || n.Health == model.HealthOffline &&
			inst.Status.Observed != model.ObservedStopped {
			all = append(all, inst)
		}
	}
	slices.SortFunc(all, older)
	return all
}

func (f *forecaster) node(id model.NodeID) []model.Forecast {
	var out []model.Forecast
	for _, inst := range f.on(id) {
		out = append(out, f.settled(f.instance(id, inst), inst))
	}
	return append(out, f.kept(id)...)
}

// instance forecasts one instance from what the pass did with it.
func (f *forecaster) instance(id model.NodeID, inst *fsm.Instance) model.Forecast {
	out := model.Forecast{Node: id, Instance: inst.ID, Group: inst.Group, Class: inst.ClassOf(),
		Action: ActionOf(f.before, inst)}
	n, _ := f.p.state().Nodes.Get(id)
	part, _ := f.drain.Node(id)
	d := drainPart{f.drain, part, n}
	planned := f.p.instance(inst.ID)
	if f.before.Unconfirmed { // then no drain does anything, whatever else is in its way
		left := f.before.DrainLeft(f.drain, n)
		out.Action, out.Never = model.ActionWait, true
		out.Blocker = &model.Blocker{Code: left.Code, Instance: inst.ID, Message: left.Message, Unblock: left.Hint}
		return out
	}
	if n.Health == model.HealthOffline {
		out.Target = f.target(inst)
		return unheard(out, n)
	}
	if f.p.isMember(inst) {
		return f.member(out, &d, planned)
	}
	if out.Action == model.ActionLeave && f.drain.Options.Force || out.Action == model.ActionStop {
		out.Action = model.ActionStop
		if f.drain.Options.IgnoreSystem && f.p.isSystem(inst) {
			out.Action = model.ActionLeave
		}
		if !f.p.isSystem(inst) {
			out.Target = f.target(inst)
		}
		return out
	}
	if t, moves := f.before.Leaving(inst); moves {
		out.Action, out.Target = model.ActionMove, t.To
		return out
	}
	if b, blocked := f.p.blockerOf(&d, planned); blocked && b.Code != model.CodeReplacementPending &&
		b.Code != model.CodeStopping {
		f.nothingAllowed(&b, out)
		out.Blocker, out.Never = &b, lasting(b.Code)
		if out.Action != model.ActionLeave {
			out.Action = model.ActionWait
		}
	}
	if out.Action == model.ActionLeave && out.Blocker == nil && slices.Contains(n.Acked, inst.ID) {
		out.Note = fmt.Sprintf("stays running, as was acknowledged before; take that back with: outspan node uncordon %s",
			n.Name)
	}
	if why := f.before.NoSurge(inst); why != nil && ActionOf(f.before, inst) == model.ActionStopFirst {
		out.Note = "stopped before it is replaced: " + why.Message
	}
	out.Target = f.target(inst)
	if out.Target == "" && out.Blocker == nil && out.Action != model.ActionLeave {
		out.Action = model.ActionStop // downtime was accepted
	}
	return out
}

// unheard is the forecast of any instance of a node that can't be heard.
func unheard(out model.Forecast, n *fsm.Node) model.Forecast {
	out.Action, out.Never, out.Blocker = model.ActionWait, true, &model.Blocker{
		Code: model.CodeNodeOffline, Instance: out.Instance,
		Message: "node " + n.Name + " is offline: it is not known to have stopped",
		Unblock: "bring the machine back, or if it is gone: outspan node confirm-dead " + n.Name,
	}
	return out
}

// target is the node of the replacement that the pass placed or would place.
func (f *forecaster) target(inst *fsm.Instance) model.NodeID {
	for other := range f.p.state().InstancesInSlot(inst.Group, inst.Slot) {
		if other.Desired == model.DesiredRunning && other.ID != inst.ID {
			return other.Node
		}
	}
	return f.p.reasons.targets[slotKey{inst.Group, inst.Slot}]
}

// nothingAllowed says more of a budget's refusal if it is one that never ends.
func (f *forecaster) nothingAllowed(b *model.Blocker, out model.Forecast) {
	if b.Code != model.CodeBudgetMinReady || out.Action != model.ActionStopFirst {
		return
	}
	if text := f.allowsNothing(out.Group); text != "" {
		b.Message, b.Unblock = text+", and it is stopped before it is replaced",
			"relax the budget, or drain with --force-at-deadline"
	}
}

// allowsNothing tells of a budget of the group that never lets one of its instances be stopped first; empty: there is
// none.
func (f *forecaster) allowsNothing(id model.GroupID) string {
	name, declared := f.before.BlockingBudget(id)
	switch {
	case name == "":
		return ""
	case name != string(id):
		name = "the shared budget " + name
	default:
		name = "the budget of " + name
	}
	if declared {
		return name + " is blocking: it allows no instance to be down"
	}
	return name + " allows no instance to be down"
}

// lasting reports whether a blocker stays until a person, or a change of the cluster, removes it.
func lasting(code model.Code) bool {
	if ofMembers(code) {
		return false
	}
	switch code {
	case model.CodeBudgetMinReady, model.CodeBudgetRate, model.CodeActorRate, model.CodeReplicaEvicting,
		model.CodeReplacementPending, model.CodeStopping, model.CodePaused, model.CodeHold:
		return false
	}
	return true
}

// ActionOf is what a drain does with an instance as its group's policy says, whether it can be done now or not.
func ActionOf(s *fsm.State, inst *fsm.Instance) model.Action {
	g, ok := s.Groups.Get(inst.Group)
	spec, known := s.Policy(inst.Group)
	switch {
	case s.Movable(inst) != nil:
		return model.ActionLeave
	case ok && g.Role == model.RoleSystem:
		return model.ActionStop
	case known && (spec.OneHolder() || spec.Eviction.Order == model.OrderStopFirst):
		return model.ActionStopFirst
	case known && !spec.Replicated() && s.NoSurge(inst) != nil:
		return model.ActionStopFirst
	}
	return model.ActionMove
}
