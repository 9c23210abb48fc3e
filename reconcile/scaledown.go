package reconcile

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// scaleDown stops the instances of the slots that a group has beyond its count. In a group with volumes, these are the
// highest slots. In other groups, they are the slots with the most dispensable instances.
func (p *pass) scaleDown(g *groupView) {
	excess := g.held() - g.row.Count
	if excess <= 0 {
		return
	}
	held := slices.DeleteFunc(slices.Clone(g.slots()), func(v *slotView) bool { return v.holder == nil })
	if len(g.spec.Volumes) > 0 { // data is tied to slots
		slices.SortStableFunc(held, func(a, b *slotView) int { return cmp.Compare(b.n, a.n) })
	} else {
		slices.SortStableFunc(held, func(a, b *slotView) int { return p.dispensable(g, a.holder, b.holder) })
		p.balance(g, held, excess)
	}
	cause, by := model.CauseScaleDown, "above the count"
	if g.job.Stopped {
		cause, by = model.CauseJobStopped, "the job is stopped"
	}
	for _, slot := range held[:excess] {
		slot.dropped = true
		p.stop(slot.holder, cause, by)
		if slot.successor != nil {
			p.stop(slot.successor, cause, by)
		}
	}
}

// compareWorth orders instances for scale-down, the most dispensable first: failed or lost ones, those prepared for a
// stop, starting ones, other unready ones, those on nodes to be emptied, those that no gate of their role protects, and
// older versions. If the rollout of the group's version has failed, that version comes before the older ones.
func (p *pass) compareWorth(g *groupView, a, b *fsm.Instance) int {
	failed := g.deploy != nil && g.deploy.Status == model.DeploymentFailed
	return cmp.Or(
		first(isDown(a), isDown(b)),
		first(a.Eviction.Preparing, b.Eviction.Preparing),
		first(isStarting(a), isStarting(b)),
		first(!a.Ready(), !b.Ready()),
		first(p.leaving(a), p.leaving(b)),
		cmp.Compare(p.bound(a), p.bound(b)),
		first((a.Version == g.row.Version) == failed, (b.Version == g.row.Version) == failed),
		cmp.Compare(a.Version, b.Version),
	)
}

func isStarting(inst *fsm.Instance) bool {
	return inst.Status.Observed == model.ObservedPending || inst.Status.Observed == model.ObservedBooting
}

// balance chooses which of several equally dispensable slots are stopped, so that the group stays most evenly spread.
// It moves these into held[:excess], which the caller stops. held must be in order, the most dispensable first. With
// the algorithm binpack, instances are spread only over the values of the spread attributes, not over the nodes.
func (p *pass) balance(g *groupView, held []*slotView, excess int) {
	if excess >= len(held) {
		return
	}
	last := held[excess].holder
	alike := func(v *slotView) bool { return p.compareWorth(g, v.holder, last) == 0 }
	from := slices.IndexFunc(held, alike)
	if from >= excess || p.in.State.Settings.Algorithm == "binpack" && len(g.spec.Spreads) == 0 {
		return // no slot in held[:excess] is as dispensable as last, or the order by age remains
	}
	to := excess
	for to < len(held) && alike(held[to]) {
		to++
	}
	order := make([]*slotView, 0, to-from)
	for queue := p.spreadQueue(g, held[from:], to-from); len(order) < excess-from; {
		order = append(order, queue.take())
	}
	taken := make(map[*slotView]bool, len(order))
	for _, v := range order {
		taken[v] = true
	}
	for _, v := range held[from:to] {
		if !taken[v] {
			order = append(order, v)
		}
	}
	copy(held[from:to], order)
}
