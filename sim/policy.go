package sim

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// policy performs the actions that change labels, budgets, classes and settings, begin or end a hold, or ask for moves.
func (p *performer) policy(kind ActionKind) {
	r := p.r
	switch kind {
	case ActLabel:
		m := p.machine()
		p.clients.ask("label "+m.name,
			&fsm.NodeLabel{ID: m.id, Labels: map[string]string{fmt.Sprintf("k%d", r.IntN(3)): fmt.Sprintf("v%x", p.n&0xffff)}})
	case ActBudget:
		p.clients.ask("set a budget", p.budget())
	case ActBudgetRemove:
		p.clients.ask("remove a budget", &fsm.BudgetRemove{Name: pick[model.BudgetName](r, "both", "all")})
	case ActClass:
		p.clients.ask("set a class", p.class())
	case ActClassRemove:
		p.clients.ask("remove a class", &fsm.ClassRemove{Name: pick[model.ClassName](r, "gold", model.ClassBatch)})
	case ActJobClass:
		p.jobClass()
	case ActAskMoves:
		p.askMoves()
	case ActHold:
		p.clients.ask("hold", &fsm.HoldSet{Active: !p.s.Hold.Active, Reason: "by hand"})
	default:
		p.settings(kind)
	}
}

func (p *performer) settings(kind ActionKind) {
	r, c := p.r, p.s.Settings
	switch kind {
	case ActPolicy:
		c.NodeDrainPolicy = pick(r, model.DrainPolicies()...)
		if rarely(r, 3) {
			c.EvictOn = pick(r, model.EvictOnDrain, model.EvictOnCordon)
		}
	case ActRates:
		c.RateDrain = pick(r, model.ActorRate{}, model.ActorRate{Max: 1, Window: 10 * model.Second},
			model.ActorRate{Max: 3, Window: model.Minute})
		c.RateOperator = pick(r, model.ActorRate{}, model.ActorRate{Max: 1, Window: 5 * model.Second})
		c.RatePreemption = pick(r, model.ActorRate{}, model.ActorRate{Max: 2, Window: 30 * model.Second})
	case ActPauseAll:
		c.Paused = !c.Paused
		if c.Paused { // a person ends the pause after a while
			p.after(between(r, 5000, 120000), func() {
				again := p.log.first.Settings
				again.Paused = false
				p.clients.ask("resume actuation", &fsm.SettingsSet{Settings: again})
			})
		}
	case ActRescheduler:
		c.Rescheduler = pick(r, model.Reschedulers()...)
		c.MoveGain = pick(r, 0, 1, 5)
		c.Algorithm = pick(r, "spread", "spread", "binpack")
	}
	p.clients.ask(fmt.Sprintf("%s (%d)", kind, p.n&0xff), &fsm.SettingsSet{Settings: c})
}

func (p *performer) budget() *fsm.BudgetSet {
	c := &fsm.BudgetSet{Name: pick[model.BudgetName](p.r, "both", "all"), Spec: model.BudgetSpec{Blocking: true}}
	switch p.r.IntN(4) {
	case 0:
		c.Spec.MaxDown = &model.Amount{N: p.r.IntN(3)}
	case 1:
		c.Spec.MinReady = &model.Amount{N: 70, Percent: true}
	case 2:
		c.Spec.MaxDown, c.Spec.Rate = &model.Amount{N: 50, Percent: true},
			&model.RateSpec{Max: 1, Window: pick(p.r, 10*model.Second, model.Minute)}
	case 3:
		c.Spec.Rate = &model.RateSpec{Max: 2, Window: model.Minute}
	}
	return c
}

func (p *performer) class() *fsm.ClassSet {
	c := &fsm.ClassSet{Name: pick[model.ClassName](p.r, "gold", model.ClassBatch, model.ClassProduction)}
	if c.Name == "gold" {
		c.Below = pick(p.r, model.ClassCritical, model.ClassProduction)
	}
	switch p.r.IntN(3) {
	case 0:
		c.Quota = &model.Quota{Instances: pick(p.r, 0, 0, 4, 8), MemoryBytes: pick[int64](p.r, 0, 0, 1024) * mib}
	case 1:
		c.PreemptEqual = pick(p.r, model.PreemptOff, model.PreemptFair, model.PreemptFair)
	case 2:
		c.MaxDown = &model.MaxDown{Amount: model.Amount{N: pick(p.r, 0, 25, 100), Percent: true}, Floor: p.r.IntN(2)}
	}
	return c
}

// jobClass submits a job again with another class.
func (p *performer) jobClass() {
	name, ok := key(p.r, p.s.Jobs)
	if !ok {
		return
	}
	job, _ := p.s.Jobs.Get(name)
	if v, ok := p.s.JobVersion(name, job.Version); ok {
		j := v.Spec
		j.Class = pick(p.r, model.ClassCritical, model.ClassProduction, model.ClassBatch, "gold")
		p.clients.ask(fmt.Sprintf("submit %s in class %s", name, j.Class), &fsm.JobSubmit{Spec: j})
	}
}

// askMoves makes the leader carry out the moves that are possible now, even if the rescheduler is off. It does nothing
// if there is no leader, or if the leader has entries that are queued or not committed yet.
func (p *performer) askMoves() {
	l := p.lead
	if l == nil || len(l.flights) > 0 || len(l.queue) > 0 {
		return
	}
	in := l.input()
	in.Rebalance = true
	plan := reconcile.Decide(in)
	l.queue, l.basis = plan.Entries, &in.State
	l.poke()
}
