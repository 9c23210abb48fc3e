package sim

import (
	"github.com/outspan/outspan/model"
)

// lease is a node's right to run programs of groups with an exclusive lease. The shims measure its time, so it expires
// even if the agent is gone.
type lease struct {
	held  bool       // a majority answers the heartbeats, which extends the lease again and again
	since model.Time // true time of the last heartbeat that a majority answered; 0 while held is true
}

// leaseMoved updates the lease. It must be called whenever other servers than before may answer the node's heartbeats.
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
		m.lease.since = 0
		return
	}
	m.lease.since = m.w.net.beatBefore(m.index, m.w.now)
	for _, p := range m.programs {
		if p.fenced() {
			m.later(max(m.lease.end(p).Sub(m.w.now), 0), m.fence)
		}
	}
}

// fence kills the programs whose lease has expired.
func (m *machine) fence() {
	for _, p := range append([]*program(nil), m.programs...) {
		if p.alive && m.lease.over(p, m.w.now) {
			m.w.step(CountFenced)
			p.fails("fenced")
		}
	}
}

func (l *lease) end(p *program) model.Time { return l.since.Add(p.spec.Exclusive.Lease) }

func (l *lease) over(p *program, now model.Time) bool {
	return p.fenced() && !l.held && l.since != 0 && now >= l.end(p)
}

// thaw makes the shims check their timers after the machine was frozen.
func (l *lease) thaw(m *machine) { m.fence() }
