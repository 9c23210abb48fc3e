package reconcile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// homeRun is a run of consecutive slots, none of which fits on its node.
type homeRun struct {
	first, last int
	only        *unplaced // why the first slot's instance doesn't fit
	out         excluded  // number of slots for each reason
}

// placeHomes places one instance for each slot of a need, each on its own node. Consecutive slots that don't fit share
// one reason. To record a reason for every slot in every decision would cost as much as to place an instance.
func (p *pass) placeHomes(n *need, fulfil func(*need) *unplaced) {
	first, run := n.slot, homeRun{}
	n.more = 0
	for i, home := range n.homes {
		n.slot, n.home = first+i, home.ID
		code := p.shut(n)
		if code == "" || run.out == nil {
			why := p.preempt(n, fulfil(n))
			if why == nil {
				p.unplacedRun(n, &run)
				continue
			}
			code = why.code
			if run.out == nil {
				run.first, run.only = n.slot, why
			}
		}
		run.last = n.slot
		run.out.add(code, 1)
	}
	p.unplacedRun(n, &run)
}

// shut returns the code of the rule that keeps a need from its node n.home. It returns "" if no rule does, or if the
// reason only shows when the placement is tried.
func (p *pass) shut(n *need) model.Code {
	f := p.fieldOf(n.group, n.version)
	if f == nil || p.unsettled(n, f) != nil {
		return ""
	}
	v := p.candidates().view(n.home)
	if v == nil || v.node.Health == model.HealthOffline || v.refusal != nil {
		return ""
	}
	if _, claimed := p.state().PullOf(n.group.id, n.slot); claimed {
		return "" // the room on the node is the slot's own
	}
	if p.state().Transfers.Len() > 0 { // a transfer may have reserved room for the slot
		if _, moves := p.state().TransferOf(n.group.id, n.slot); moves {
			return ""
		}
	}
	code := f.exclude(v)
	if code != model.CodeNoMemory && code != model.CodeNoPorts {
		return code
	}
	if text, quiet := p.noPreemption(n, f); text == "" || !quiet {
		return ""
	}
	return code
}

// unplacedRun records why the slots of a run stay empty, and resets the run. It does nothing if the run is empty.
func (p *pass) unplacedRun(n *need, run *homeRun) {
	if run.out == nil {
		return
	}
	all, why := *n, run.only
	all.slot, all.more = run.first, run.last-run.first
	if all.more > 0 {
		why = run.why()
	}
	p.unplaced(&all, why)
	*run = homeRun{}
}

// why returns one reason for all the slots of a run.
func (r *homeRun) why() *unplaced {
	sorted := slices.Clone(r.out)
	slices.SortFunc(sorted, func(a, b model.Excluded) int { return rank(a.Code) - rank(b.Code) })
	var parts []string
	for _, x := range sorted {
		parts = append(parts, exclusion(x.Code, x.Nodes))
	}
	why := &unplaced{code: r.out.main(), out: r.out, preempt: r.only.preempt}
	reasons := strings.Join(parts, ", ")
	if r.only.code == why.code && rank(why.code) < 0 {
		reasons = r.only.message
	}
	why.message = fmt.Sprintf("%d nodes lack an instance: %s", r.out.sum(), reasons)
	if r.only.preempt != "" && strings.HasSuffix(r.only.message, r.only.preempt) {
		why.message += "; " + r.only.preempt
	}
	return why
}
