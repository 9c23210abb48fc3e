package reconcile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// forecastID is the id of the drain that a forecast simulates. It never enters the log.
const forecastID model.DrainID = "forecast"

// ForecastDrain returns what a drain of the nodes would do with each instance on them, if nothing else changed. One
// decision finds where the instance's replacement would be placed, or what keeps the instance on its node now. A
// rehearsal of the whole drain finds whether the instance can leave later. If a node is already draining, the forecast
// assumes that its drain begins anew.
//
// It changes nothing but Input.Cache and does not block. It costs a few decisions for each step that the drain takes.
// If no node can be drained, it returns the error that DrainStart would return.
func ForecastDrain(in Input, nodes []string, options model.DrainOptions) ([]model.Forecast, *model.Error) {
	if !options.ForceAtDeadline {
		options.Deadline = model.Forever // the forecast doesn't say whether a drain ends before its deadline
	}
	in.Now = max(in.Now, in.State.Now)
	in.StayPut = true // moves of the rescheduler are no part of the drain
	if in.Cache == nil {
		in.Cache = &Cache{} // the steps of the rehearsal share nearly all rows
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

// beginForecast returns the commands that cancel running drains of the nodes and start the forecast drain. It also
// returns the state after these commands, but with all nodes draining at once, because a forecast shows the whole drain
// and not only the first turns.
func beginForecast(in Input, nodes []string, options model.DrainOptions) (begin [][]fsm.Command,
	after fsm.State, _ *model.Error) {
	draft := in.State.NewDraft(in.Now)
	for _, name := range nodes {
		n, refusal := draft.State().Finder(nil).NamedNode(name)
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

// CanFinish reports whether the forecast drain can finish without an operator's help. If it can't, CanFinish returns
// the blockers that time alone does not remove.
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
	before    *fsm.State // the state before the drain
	rehearsal *rehearsal
}

// on lists the instances of a node that the drain would stop or leave running, the oldest first. For an offline node,
// it includes all instances that are not confirmed stopped.
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
		one := f.settled(f.instance(id, inst), inst)
		if text := pullText(f.before, inst.Group, one.Target); text != "" {
			one.Note = strings.TrimPrefix(one.Note+"; "+text, "; ")
		}
		out = append(out, one)
	}
	out = append(out, f.kept(id)...)
	return out
}

// instance returns the forecast for one instance, based on the decision f.p.
func (f *forecaster) instance(id model.NodeID, inst *fsm.Instance) model.Forecast {
	out := model.Forecast{Node: id, Instance: inst.ID, Group: inst.Group, Class: inst.ClassOf(),
		Action: ActionOf(f.before, inst)}
	n, _ := f.p.state().Nodes.Get(id)
	part, _ := f.drain.Node(id)
	d := drainPart{f.drain, part, n}
	planned := f.p.instance(inst.ID)
	if f.before.Unconfirmed { // until a restore is confirmed, drains do nothing, whatever else blocks them
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
		b.Code != model.CodeStopping && b.Code != model.CodeImagePulling {
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
	if why := f.before.MustStopFirst(inst); why != nil && ActionOf(f.before, inst) == model.ActionStopFirst {
		out.Note = "stopped before it is replaced: " + why.Message
	}
	out.Target = f.target(inst)
	if out.Target == "" && out.Blocker == nil && out.Action != model.ActionLeave {
		out.Action = model.ActionStop // stopped without a replacement, because the operator accepted downtime
	}
	return out
}

func unheard(out model.Forecast, n *fsm.Node) model.Forecast {
	out.Action, out.Never, out.Blocker = model.ActionWait, true, &model.Blocker{
		Code: model.CodeNodeOffline, Instance: out.Instance,
		Message: "node " + n.Name + " is offline: it is not known to have stopped",
		Unblock: "bring the machine back, or if it is gone: outspan node confirm-dead " + n.Name,
	}
	return out
}

// target returns the node where the decision placed or would place the replacement, or "".
func (f *forecaster) target(inst *fsm.Instance) model.NodeID {
	for other := range f.p.state().InstancesInSlot(inst.Group, inst.Slot) {
		if other.Desired == model.DesiredRunning && other.ID != inst.ID {
			return other.Node
		}
	}
	return f.p.reasons.targets[slotKey{inst.Group, inst.Slot}]
}

// nothingAllowed changes the message of b if b is the refusal of a budget that never allows an instance to stop before
// it is replaced, and the drain would stop this instance before replacing it.
func (f *forecaster) nothingAllowed(b *model.Blocker, out model.Forecast) {
	if b.Code != model.CodeBudgetMinReady || out.Action != model.ActionStopFirst {
		return
	}
	if text := f.allowsNothing(out.Group); text != "" {
		b.Message, b.Unblock = text+", and it is stopped before it is replaced",
			"relax the budget, or drain with --force-at-deadline"
	}
}

// allowsNothing describes the group's budget that never allows an instance to stop before it is replaced. It returns ""
// if the group has no such budget.
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

// lasting reports whether a blocker with this code stays until an operator acts or the cluster changes.
func lasting(code model.Code) bool {
	if ofMembers(code) {
		return false
	}
	switch code {
	case model.CodeBudgetMinReady, model.CodeBudgetRate, model.CodeActorRate, model.CodeReplicaEvicting,
		model.CodeReplacementPending, model.CodeStopping, model.CodePaused, model.CodeHold, model.CodeImagePulling:
		return false
	}
	return true
}

// ActionOf returns what a drain does with an instance under its group's policy, whether or not the action is possible
// now.
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
	case known && !spec.Replicated() && s.MustStopFirst(inst) != nil:
		return model.ActionStopFirst
	}
	return model.ActionMove
}
