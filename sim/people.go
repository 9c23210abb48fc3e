package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// performer performs one action. Its choices are drawn from the action's number.
type performer struct {
	*world
	r *rand.Rand
	s *fsm.State
	n uint64
}

// perform performs an action on objects of the current state. It does nothing if no object is suitable.
func (w *world) perform(a Action) {
	state := w.log.first
	p := &performer{world: w, r: rand.New(rand.NewPCG(a.Number, 1)), s: &state, n: a.Number}
	switch {
	case a.Kind >= ActPowerLoss:
		p.fault(a.Kind)
	case a.Kind >= ActLabel:
		p.policy(a.Kind)
	case a.Kind >= ActDrain:
		p.operate(a.Kind)
	default:
		p.jobs(a.Kind)
	}
}

func keys[K ~string, V any](t fsm.Table[K, V]) []K {
	var list []K
	for k := range t.All() {
		list = append(list, k)
	}
	return list
}

// key draws the key of a row. It returns false if the table is empty.
func key[K ~string, V any](r *rand.Rand, t fsm.Table[K, V]) (K, bool) {
	list := keys(t)
	if len(list) == 0 {
		return "", false
	}
	return pick(r, list...), true
}

func (p *performer) machine() *machine { return pick(p.r, p.nodes...) }

// instance draws an instance that should run and for which ok returns true. It returns nil if there is none.
func (p *performer) instance(ok func(*fsm.Instance) bool) *fsm.Instance {
	var list []*fsm.Instance
	for _, i := range p.s.Instances.All() {
		if i.Desired == model.DesiredRunning && ok(i) {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return pick(p.r, list...)
}

func anyInstance(*fsm.Instance) bool { return true }

func (p *performer) jobs(kind ActionKind) {
	if kind == ActSubmit {
		names := p.scenario.jobs
		if len(names) == 0 {
			names = jobNames()
		}
		name := pick(p.r, names...)
		j := spec(p.r, name)
		behaves := j.Groups[0].Exec.Command
		if p.scenario.images {
			contain(p.r, &j)
		}
		p.clients.ask(fmt.Sprintf("submit %s x%d %s", name, j.Groups[0].Count, behaves), &fsm.JobSubmit{Spec: j})
		return
	}
	name, ok := key(p.r, p.s.Jobs)
	if !ok {
		return
	}
	job, _ := p.s.Jobs.Get(name)
	switch kind {
	case ActScale:
		n := p.r.IntN(6)
		p.clients.ask(fmt.Sprintf("scale %s to %d", name, n), &fsm.JobScale{Job: name, Group: "main", Count: n})
	case ActStopJob:
		p.clients.ask(fmt.Sprintf("stop %s", name), &fsm.JobStop{Job: name})
	case ActPurge:
		p.clients.ask(fmt.Sprintf("purge %s", name), &fsm.JobStop{Job: name, Purge: true})
	case ActRestartJob:
		p.clients.ask(fmt.Sprintf("restart %s", name), &fsm.JobRestart{Job: name})
	case ActRevert:
		version := job.Version - min(job.Version-1, uint64(1+p.r.IntN(3)))
		p.clients.ask(fmt.Sprintf("revert %s to %d", name, version), &fsm.JobRevert{Job: name, Version: version})
	case ActPromote:
		for id, d := range p.s.Deployments.All() {
			if !d.Status.Ended() && !d.Promoted {
				p.clients.ask("promote "+string(id), &fsm.DeploymentPromote{ID: id})
			}
		}
	}
}

func (p *performer) drainOptions(nodes int) model.DrainOptions {
	r := p.r
	o := model.DrainOptions{Deadline: pick(r, 20*model.Second, model.Minute, 10*model.Minute, model.Hour, model.Forever)}
	o.ForceAtDeadline = rarely(r, 3)
	o.Force = rarely(r, 8)
	o.IgnoreSystem = rarely(r, 3)
	if rarely(r, 4) {
		o.AcceptDowntime = []string{"*"}
	}
	if nodes > 1 && rarely(r, 2) {
		o.MaxParallelNodes = 1
	}
	if rarely(r, 3) {
		o.Policy = pick(r, model.DrainPolicies()...)
	}
	return o
}

func (p *performer) operate(kind ActionKind) {
	m := p.machine()
	switch kind {
	case ActDrain, ActDrainMany:
		p.drain(kind == ActDrainMany)
	case ActCancelDrain, ActPauseDrain:
		for id, d := range p.s.Drains.All() {
			if d.Phase() != model.PhaseDraining || rarely(p.r, 2) {
				continue
			}
			if kind == ActCancelDrain {
				p.clients.ask("cancel drain "+string(id), &fsm.DrainCancel{ID: id, Uncordon: rarely(p.r, 2)})
			} else {
				p.clients.ask(fmt.Sprintf("pause drain %s: %v", id, !d.Paused), &fsm.DrainPause{ID: id, Paused: !d.Paused})
			}
			return
		}
	case ActUncordon:
		p.eachNode(model.IntentDraining, model.IntentCordoned, func(n *fsm.Node) {
			if d, running := p.s.RunningDrain(n); !running || rarely(p.r, 4) || d == nil {
				p.clients.ask("uncordon "+n.Name, &fsm.NodeIntent{ID: n.ID, Intent: model.IntentActive})
			}
		})
	case ActCordon:
		p.clients.ask("cordon "+m.name, &fsm.NodeIntent{ID: m.id, Intent: model.IntentCordoned})
	case ActDisable:
		p.clients.ask("disable "+m.name, &fsm.NodeIntent{ID: m.id, Intent: model.IntentDisabled})
	case ActEnable:
		p.eachNode(model.IntentDisabled, model.IntentDisabled, func(n *fsm.Node) {
			p.clients.ask("enable "+n.Name, &fsm.NodeIntent{ID: n.ID, Intent: model.IntentActive})
		})
	case ActAck:
		p.eachNode(model.IntentDraining, model.IntentDisabled, func(n *fsm.Node) {
			p.clients.ask("ack blockers of "+n.Name, &fsm.NodeAck{ID: n.ID})
		})
	case ActConfirmDead, ActForget, ActReplaceMachine:
		p.giveUp(kind)
	default:
		p.evict(kind)
	}
}

// eachNode visits the nodes whose intent is a or b, but skips each of them with a chance of one third.
func (p *performer) eachNode(a, b model.Intent, visit func(*fsm.Node)) {
	for _, n := range p.s.Nodes.All() {
		if (n.Intent == a || n.Intent == b) && !rarely(p.r, 3) {
			visit(n)
		}
	}
}

func (p *performer) drain(many bool) {
	nodes := []string{p.machine().name}
	if many {
		for range 1 + p.r.IntN(2) {
			nodes = append(nodes, p.machine().name)
		}
	}
	id := model.DrainID(fmt.Sprintf("d%x", p.n&0xffffff))
	p.clients.ask(fmt.Sprintf("drain %s %v", id, nodes),
		&fsm.DrainStart{ID: id, Nodes: nodes, Options: p.drainOptions(len(nodes))})
}

// giveUp confirms that the first suitable offline node is dead. If kind is not ActConfirmDead, the node is also
// forgotten, and only a node whose machine has no power is suitable. The confirmation has force if the machine has no
// power. Without force, the servers refuse it while the only holder of a slot may still run on the node.
func (p *performer) giveUp(kind ActionKind) {
	for _, m := range p.nodes {
		n, ok := p.s.Nodes.Get(m.id)
		if !ok || n.Health != model.HealthOffline {
			continue
		}
		switch {
		case kind != ActConfirmDead && m.power:
		case kind == ActConfirmDead:
			p.clients.ask("confirm dead "+n.Name, &fsm.NodeConfirmDead{ID: n.ID, Force: !m.power})
			p.counts[CountConfirmed]++
			return
		default:
			p.clients.ask("confirm dead and forget "+n.Name, &fsm.NodeConfirmDead{ID: n.ID, Force: true},
				&fsm.NodeForget{ID: n.ID, LoseData: p.homedOn(n.ID)})
			p.counts[CountForgotten]++
			if kind == ActReplaceMachine {
				m.replaced = true
			}
			return
		}
	}
}

// homedOn returns the groups whose data would be lost with a node.
func (p *performer) homedOn(node model.NodeID) []model.GroupID {
	var groups []model.GroupID
	for _, id := range p.s.LostWith(node) {
		v, _ := p.s.Volumes.Get(id)
		if !slices.Contains(groups, v.Group) {
			groups = append(groups, v.Group)
		}
	}
	return groups
}

func (p *performer) evict(kind ActionKind) {
	i := p.instance(anyInstance)
	if i == nil {
		return
	}
	evict := func(i *fsm.Instance) *fsm.InstanceStop {
		return &fsm.InstanceStop{ID: i.ID, Cause: model.CauseUser, By: "alice",
			Facts: p.s.FactsRefs(i), Avoid: rarely(p.r, 4)}
	}
	switch kind {
	case ActEvict:
		p.clients.ask("evict "+string(i.ID), evict(i))
	case ActEvictPair: // two people evict two instances of a group at the same time
		p.clients.ask("evict "+string(i.ID), evict(i))
		if other := p.instance(func(o *fsm.Instance) bool { return o.Group == i.Group && o.ID != i.ID }); other != nil {
			p.clients.ask("evict "+string(other.ID)+" too", evict(other))
		}
	case ActStopInstance:
		c := evict(i)
		if rarely(p.r, 2) {
			grace := pick(p.r, 0, model.Second, 5*model.Second)
			c.Grace = &grace
		}
		c.Bypass = rarely(p.r, 3)
		p.clients.ask(fmt.Sprintf("stop %s, bypass %v", i.ID, c.Bypass), c)
	case ActRestartInstance:
		p.clients.ask("restart "+string(i.ID), &fsm.InstanceRestart{ID: i.ID})
	}
}
