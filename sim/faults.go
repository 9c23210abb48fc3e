package sim

import (
	"github.com/outspan/outspan/model"
)

// fault performs a fault and schedules its end. The end is not an action of its own, so if Shrink removes a fault from
// a history, the end disappears with it.
func (p *performer) fault(kind ActionKind) {
	switch {
	case kind >= ActKillProgram:
		p.trouble(kind)
	case kind >= ActFailover:
		p.serverFault(kind)
	default:
		p.nodeFault(kind)
	}
}

func (p *performer) nodeFault(kind ActionKind) {
	r, m := p.r, p.machine()
	offline := p.s.Settings.OfflineAfter
	long := between(r, 200, 4*offline)
	switch kind {
	case ActPowerLoss:
		m.stop()
		p.after(long, m.start)
	case ActAgentCrash:
		m.stopAgent()
		p.after(between(r, 200, 2*offline), m.startAgent)
	case ActFreeze:
		m.freeze()
		p.after(long, m.thaw)
	case ActCutNode:
		p.cut(m, 0, servers)
		p.after(long, func() { p.heal(m) })
	case ActCutOne:
		from := r.IntN(servers)
		p.cut(m, from, from+1)
		p.after(long, func() { p.heal(m) })
	}
}

func (w *world) cut(m *machine, from, to int) {
	w.step(CountCuts)
	w.trace.say("%s is cut from servers s%d to s%d", m.id, from+1, to)
	for s := from; s < to; s++ {
		w.net.cut[m.index][s] = true
	}
	w.net.changed()
}

func (w *world) heal(m *machine) {
	w.trace.say("%s is no longer cut off", m.id)
	w.net.cut[m.index] = [servers]bool{}
	w.net.changed()
}

func (p *performer) serverFault(kind ActionKind) {
	r, l := p.r, p.log
	switch kind {
	case ActFailover:
		p.strikeSoon(func() { l.failover(r, -1) })
	case ActIsolateLeader:
		p.strikeSoon(p.isolate)
	case ActServerCrash:
		id := r.IntN(servers)
		for _, s := range l.servers {
			if !s.up {
				return // a majority must stay up
			}
		}
		s := l.servers[id]
		leads := l.leader == id
		s.crash()
		if leads {
			l.failover(r, id)
		}
		from := pick(r, s, s, l.servers[(id+1)%servers])
		p.after(between(r, 500, 60000), func() { s.restart(from) })
	case ActSlowServer:
		s := l.servers[r.IntN(servers)]
		s.lag = between(r, 200, 10000)
		p.after(between(r, 1000, 60000), func() { s.lag = 0 })
	}
}

// isolate cuts the leader off from the other servers until a failover, at most 3 s later. Until then the leader accepts
// entries and commits none. The failover usually loses all of these. isolate does nothing if there is no leader, or if
// the leader is isolated already.
func (p *performer) isolate() {
	l := p.log
	if l.leader < 0 || l.isolated {
		return
	}
	id := l.leader
	l.isolated = true
	p.step(CountIsolations)
	p.trace.say("leader s%d is isolated", id+1)
	p.after(between(p.r, 500, 3000), func() {
		if l.leader == id && l.isolated {
			l.failover(p.r, id)
		}
	})
}

// strikeSoon lets a fault strike just after the next entry is proposed, when that entry is probably not committed yet.
// In one case in four the fault strikes at once.
func (p *performer) strikeSoon(strike func()) {
	if rarely(p.r, 4) {
		strike()
		return
	}
	p.log.strikeOnPropose = strike
}

func (p *performer) trouble(kind ActionKind) {
	r, n := p.r, p.net
	switch kind {
	case ActKillProgram, ActBlip, ActRoleFlip:
		p.programFault(kind)
	case ActLossy:
		n.lossy, n.twice = pick(r, 10, 40, 80), pick(r, 5, 30)
		p.step(CountLossy)
		p.after(between(r, 1000, 60000), func() { n.lossy, n.twice = 0, 0 })
	case ActSuspect:
		m := p.machine()
		n.suspect[m.index] = p.now.Add(between(r, 500, 30000))
		p.step(CountSuspected)
		n.watch()
	case ActMassCut:
		long := between(r, 1000, 3*p.s.Settings.OfflineAfter)
		for _, m := range p.nodes {
			if rarely(r, 2) || m.labels["rack"] == "a" {
				p.cut(m, 0, servers)
				p.after(long, func() { p.heal(m) })
			}
		}
	case ActOutage:
		p.log.failover(r, -1)
		p.after(between(r, 10, 400), func() { p.log.failover(r, -1) })
	case ActSick:
		p.sicken()
	}
}

// sicken makes the agent of one node find a trouble with its machine for a while. One time in five the agents of more
// than half of the nodes find the trouble, as if something that the machines share had broken.
func (p *performer) sicken() {
	r := p.r
	sick, long := []*machine{p.machine()}, between(r, 2000, 8*model.Minute)
	if rarely(r, 5) {
		sick = p.nodes[:len(p.nodes)/2+1]
	}
	check := pick(r, model.SelfDiskFull, model.SelfDiskFull, model.SelfDiskWrite, model.SelfDiskSlow)
	for _, m := range sick {
		p.step(CountSick)
		m.finds(model.Trouble{Check: check, Reason: "the data directory has no room"})
		p.after(long, func() { m.finds() })
	}
}

func (p *performer) programFault(kind ActionKind) {
	var running []*program
	for _, m := range p.nodes {
		for _, one := range m.programs {
			if one.alive && !m.frozen {
				running = append(running, one)
			}
		}
	}
	if len(running) == 0 {
		return
	}
	one := pick(p.r, running...)
	switch kind {
	case ActKillProgram:
		if one.m.agent && !rarely(p.r, 3) {
			one.restart("exited")
		} else {
			one.fails(pick(p.r, string(model.CauseOOM), "exited"))
		}
	case ActBlip:
		one.blip()
	case ActRoleFlip:
		if one.told[model.FactLeader] == "true" && rarely(p.r, 2) {
			p.resign(one)
		} else {
			one.unknown()
		}
	}
}
