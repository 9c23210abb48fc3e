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

// drains adds a problem for each running drain that waits for a person, and for each node that takes no new instances
// because its drain failed. To find what a drain waits for, the server computes a whole decision. So this is done only
// while a drain runs.
func (p *problems) drains() {
	for id, d := range p.r.Drains.All() {
		if d.Phase() == model.PhaseDraining {
			p.blocked(d, p.r.waiting().Drains[id])
		}
	}
	for _, n := range p.r.Nodes.All() {
		d, part, ok := p.r.EndedDrain(n)
		if !ok || part.Phase != model.PhaseFailed {
			continue
		}
		next := fmt.Sprintf("outspan drain status %s; to try again: outspan node drain %s; to take it back: outspan "+
			"node uncordon %s", d.ID, n.Name, n.Name)
		p.add(api.ProblemDrainFailed, "node/"+n.Name, next, "drain %s failed, and it takes no new instances: %s",
			d.ID, clip(part.LastError))
	}
}

// blocked adds a problem if a drain waits for a person. The problem shows the first reason, and the number of reasons.
func (p *problems) blocked(d *fsm.Drain, status []model.DrainStatus) {
	subject, show := "drain/"+string(d.ID), "outspan drain status "+string(d.ID)
	if d.Paused {
		p.add(api.ProblemDrainBlocked, subject, "outspan drain resume "+string(d.ID), "it is paused")
		return
	}
	var lasting []model.Blocker
	node := ""
	for _, one := range status {
		for _, b := range one.Blockers {
			if needsPerson(b.Code) {
				lasting, node = append(lasting, b), cmp.Or(node, p.r.nodeName(one.Node))
			}
		}
	}
	sums := model.SumBlockers(lasting)
	if len(sums) == 0 {
		return
	}
	text := fmt.Sprintf("it waits on %s: %s: %s", node, sums[0].Code, clip(sums[0].Message))
	if sums[0].Count > 1 {
		text = fmt.Sprintf("it waits on %s: %s: %s: %s", node, sums[0].Code, sums[0].Who(), clip(sums[0].Message))
	}
	if more := len(sums) - 1; more > 0 {
		text += fmt.Sprintf(" (one of %d reasons)", more+1)
	}
	if out := sums[0].Unblock; out != "" {
		show = out + "; see: " + show
	}
	p.add(api.ProblemDrainBlocked, subject, show, "%s", text)
}

// needsPerson reports whether a blocker normally stays until a person does something. Other blockers, such as budgets
// and pending replacements, pass by themselves.
func needsPerson(code model.Code) bool {
	return strings.HasPrefix(string(code), string(model.Unschedulable(""))) || slices.Contains([]model.Code{
		model.CodeVolumeLocal, model.CodeRoleNever, model.CodeAckRequired, model.CodeNodeOffline,
		model.CodeNoCandidate, model.CodeHookFailed,
		model.CodeRestoreUnconfirmed, model.CodeInventoryMissing, model.CodeUnknownInstance, model.CodeRetryLimit,
	}, code)
}
