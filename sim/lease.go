package sim

import "github.com/outspan/outspan/fsm"

// lease is a node's right to run fenced programs. The shims hold its timers, so it ends whatever becomes of the agent.
type lease struct {
	held  bool     // a majority answers, so it moves on with each heartbeat
	until fsm.Time // its end, once nobody moves it
}

// leaseMoved takes note of who answers the node's heartbeats now.
func (m *machine) leaseMoved() {
	answers := 0
	for s := range servers {
		h := &m.w.net.hears[m.index][s]
		if h.linked && m.epoch != 0 && h.gaveUp != m.epoch {
			answers++
		}
	}
	held := m.runs() && 2*answers > servers
	if held == m.lease.held {
		return
	}
	m.lease.held = held
	if held {
		m.lease.until = 0
		return
	}
	m.lease.until = m.w.net.beatBefore(m.index, m.w.now).Add(fsm.LeaseBeats * m.w.net.interval())
	m.later(max(m.lease.until.Sub(m.w.now), 0), m.fence)
}

// fence kills what may run only under the lease, if that is over.
func (m *machine) fence() {
	if !m.lease.over(m.w.now) {
		return
	}
	for _, p := range append([]*program(nil), m.programs...) {
		if p.fenced() && p.alive {
			m.w.step(CountFenced)
			p.fails("fenced")
		}
	}
}

func (l *lease) over(now fsm.Time) bool { return !l.held && l.until != 0 && now >= l.until }

// thaw has the shims look at their timers.
func (l *lease) thaw(m *machine) { m.fence() }
