package reconcile

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// PlanJob returns what submitting a job would do: for each group, how many instances are made, stopped and kept, and
// how many new ones fit nowhere, with the reason. It changes nothing and does not block. If the job can't be submitted,
// it returns the refusal of JobSubmit.
func PlanJob(in Input, spec model.JobSpec) (model.JobPlan, *model.Error) {
	before := in.State
	draft := in.State.NewDraft(in.Now)
	if refusal := draft.Try(&fsm.JobSubmit{Spec: spec}); refusal != nil {
		return model.JobPlan{}, refusal
	}
	in.State = *draft.State()
	p := newPass(in)
	job, _ := p.state().Jobs.Get(spec.Name)
	out := model.JobPlan{Job: spec.Name, Version: job.Version}
	if old, ok := before.Jobs.Get(spec.Name); ok {
		out.Index = old.Index
		out.Changes = old.Version != job.Version || old.Stopped != job.Stopped
	} else {
		out.Changes = true
	}
	var ids []model.GroupID
	for id := range p.state().GroupsOf(spec.Name) {
		ids = append(ids, id)
	}
	for _, id := range ids {
		out.Groups = append(out.Groups, p.planGroup(id))
	}
	return out, nil
}

func (p *pass) planGroup(id model.GroupID) model.PlannedGroup {
	row, _ := p.state().Groups.Get(id)
	p.groups = []*groupView{{id: id, row: row}}
	p.viewGroups()
	g := p.groups[0]
	out := model.PlannedGroup{Group: id, Budgets: p.state().BudgetLines(id)}
	var ended []*fsm.Instance
	kept := map[int]bool{}
	for _, slot := range g.slots() {
		for _, inst := range [...]*fsm.Instance{slot.holder, slot.successor} {
			switch {
			case inst == nil, inst == slot.holder && slot.replaced(row.Version):
			case inst.Version == row.Version && out.Kept < row.Count && inst.Wanted():
				out.Kept++
				kept[slot.n] = true
			default:
				ended = append(ended, inst)
			}
		}
	}
	out.Destroyed = len(ended)
	out.Created = row.Count - out.Kept
	if g.system() {
		out.Created, out.Unschedulable = len(p.systemMissing(g))+p.systemOutdated(g), 0
		return out
	}
	var open []int // numbers of the slots to fill
	for n := 0; len(open) < out.Created; n++ {
		if !kept[n] {
			open = append(open, n)
		}
	}
	p.planPlaces(g, &out, ended, open)
	return out
}

// replaced reports whether the holder will stop because it has a successor that is wanted. It returns false if the
// holder has the given version and the successor has not.
func (v *slotView) replaced(version uint64) bool {
	if v.holder == nil || v.successor == nil || !v.successor.Wanted() {
		return false
	}
	return v.successor.Version == version || v.holder.Version != version
}

// systemOutdated counts the instances of a system group that the new version replaces on their nodes. It returns 0 if
// the group's count is 0.
func (p *pass) systemOutdated(g *groupView) int {
	n := 0
	for _, slot := range g.slots() {
		if slot.holder != nil && slot.holder.Version != g.row.Version && g.row.Count > 0 {
			n++
		}
	}
	return n
}

// planPlaces looks for room for new instances in the open slots, and adds the number of those that fit nowhere to
// out.Unschedulable. The instances in ended are assumed to be gone. But if a rollout makes new instances before it
// stops old ones, one new instance must also fit beside them.
func (p *pass) planPlaces(g *groupView, out *model.PlannedGroup, ended []*fsm.Instance, open []int) {
	if len(open) == 0 {
		return
	}
	rolls := slices.ContainsFunc(ended, func(inst *fsm.Instance) bool { return inst.Version != g.row.Version })
	surges := g.spec.Update.MaxUnavailable == 0 && !g.stopFirst(g.spec.Update.Order) && !p.rollsWithoutSurge(g)
	if rolls && surges {
		if why := p.planRoll(g, ended); why != nil {
			out.Unschedulable = out.Created
			why.into(out)
			out.Message = "no new one can run beside the old ones: " + out.Message
			return
		}
		p.nodes = nil // drop the table of nodes, in which planRoll reserved room
	}
	p.gone = map[model.InstanceID]bool{}
	for _, inst := range ended {
		p.gone[inst.ID] = true
		if v := p.candidates().view(inst.Node); v != nil {
			p.nodes.release(v, inst.Claims.Resources.MemoryBytes)
		}
	}
	g.fields = nil
	for _, slot := range open {
		if why := p.planSlot(g, slot, len(ended) == 0); why != nil {
			out.Unschedulable++
			why.into(out)
		}
	}
	for inst := range p.state().InstancesOf(g.id) {
		out.Preempts = append(out.Preempts, inst.Links.Awaits...)
	}
}

// planRoll looks for room for one new instance beside the old ones, by preemption if necessary. It returns nil if there
// is room.
func (p *pass) planRoll(g *groupView, ended []*fsm.Instance) *unplaced {
	old := ended[0]
	n := &need{group: g, slot: old.Slot, version: g.row.Version, replaces: old, cause: model.CauseRollout}
	_, why := p.peek(n)
	return p.preempt(n, why)
}

// planSlot looks for room for one more instance, and returns nil if there is room. If fresh is true, the group stops no
// instance, so the new instance is placed on the draft. The placement also shows which instances would be preempted.
func (p *pass) planSlot(g *groupView, slot int, fresh bool) *unplaced {
	n := &need{group: g, slot: slot, version: g.row.Version, cause: model.CauseScaleUp, home: p.homeOf(g, slot)}
	if fresh {
		return p.preempt(n, p.placeNeed(n))
	}
	id, why := p.peek(n)
	if why == nil && n.home != "" { // peek reserves no room on a home node
		v := p.candidates().view(id)
		v.promised += p.fieldOf(g, n.version).claim.MemoryBytes
		p.nodes.moved(v)
	}
	return p.preempt(n, why)
}

func (u *unplaced) into(out *model.PlannedGroup) {
	if out.Code == "" {
		out.Code, out.Message, out.Excluded = u.code, u.message, u.out
	}
}
