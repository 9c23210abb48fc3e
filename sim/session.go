package sim

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// attach makes the agent look for a server. The agent registers if it has no epoch, or if a server has called its epoch
// offline. Otherwise it asks for its assignments.
func (m *machine) attach() {
	if !m.runs() {
		return
	}
	if m.home = m.w.net.reach(m.index, m.w.chance); m.home < 0 {
		return
	}
	m.w.net.asks(m.index, m.home)
	for s := range servers { // the answer to a heartbeat says whether the server called this epoch offline
		if m.epoch != 0 && m.w.net.linked(m.index, s) && m.w.net.hears[m.index][s].gaveUp == m.epoch {
			m.epoch = 0
		}
	}
	if m.epoch == 0 {
		m.register()
	} else {
		m.told = 0
		m.poll()
		m.kick()
	}
}

// register asks the servers to register the node. If no answer arrives, the agent tries again.
func (m *machine) register() {
	if m.registering || !m.runs() {
		return
	}
	m.registering = true
	shape := model.NodeShape{Capacity: model.Resources{CPU: 8000, MemoryBytes: m.memory}, PortMin: 20000, PortMax: 20050}
	if m.incarnation <= 1 || m.seen == 0 {
		shape.Labels = m.labels
	}
	key := fmt.Sprintf("%s-%d-%d", m.id, m.incarnation, m.w.now)
	c := &fsm.NodeRegister{ID: m.id, Name: m.name, Shape: shape, Agent: model.AgentInfo{
		BootID: fmt.Sprintf("%s-boot%d", m.id, m.boot), Incarnation: fmt.Sprintf("%s-%d", m.id, m.incarnation),
		Address: "127.0.0.1", Key: []byte(key),
	}}
	m.w.net.send(m.index, func() {
		m.w.log.propose(&proposal{entry: m.w.entry("agent:"+model.Actor(m.id), c), done: func(o outcome) {
			if o.known && o.results[0].Refusal == nil {
				m.w.net.send(m.index, func() { m.registered(key) })
			}
		}})
	})
	m.soon(between(m.w.chance, 800, 4000), func() {
		if m.registering {
			m.registering = false
			m.attach()
		}
	})
}

func (m *machine) registered(key string) {
	row, ok := m.w.log.first.Nodes.Get(m.id)
	if !m.runs() || !m.registering || !ok || string(row.Agent.Key) != key {
		return
	}
	m.w.step(CountRegistrations)
	m.w.trace.say("%s registered, epoch %d", m.id, row.Agent.Epoch)
	m.registering, m.opened, m.full, m.told, m.sending = false, false, false, 0, 0
	m.epoch = row.Agent.Epoch
	m.facts, m.self = factsCount{now: 1, moved: m.w.now}, selfCount{now: 1}
	for s := range servers { // the agent immediately sends a heartbeat
		if m.w.net.linked(m.index, s) {
			m.w.net.asks(m.index, s)
		}
	}
	m.w.net.changed()
	m.poll()
}

// poll answers the agent's long poll if its server has newer assignments than were last sent to the agent. The answer
// is the full set. If the agent can't reach its server, it polls another one. If the server says that the agent must
// register, poll calls m.again, which asks another server.
func (m *machine) poll() {
	if !m.runs() || m.epoch == 0 {
		return
	}
	if m.home < 0 || !m.w.net.linked(m.index, m.home) {
		m.home = m.w.net.reach(m.index, m.w.chance)
		if m.home < 0 {
			return
		}
	}
	set := assignmentsOf(m.w.log.servers[m.home].state(), m.id, m.epoch)
	if set.register {
		m.again()
		return
	}
	if m.opened && set.index <= m.told {
		return
	}
	m.told = set.index
	arrived := false
	m.w.net.send(m.index, func() {
		if !arrived {
			arrived = true
			m.accept(set)
		}
	})
	m.soon(between(m.w.chance, 1500, 3000), func() {
		if !arrived && m.epoch == set.epoch {
			m.told = 0
			m.attach()
		}
	})
}

// again asks a randomly chosen server whether the agent must register again, because the first server may lag. If the
// answer is yes, the agent registers. Otherwise it polls the chosen server from now on.
func (m *machine) again() {
	epoch := m.epoch
	m.soon(500, func() {
		if m.epoch != epoch || epoch == 0 {
			return
		}
		server := m.w.net.reach(m.index, m.w.chance)
		if server < 0 {
			return
		}
		if assignmentsOf(m.w.log.servers[server].state(), m.id, epoch).register {
			m.epoch = 0
			m.attach()
		} else {
			m.home, m.told = server, 0
			m.poll()
		}
	})
}

// accept makes the agent run what it was assigned, unless the assignments are outdated or the agent's journal is lost.
func (m *machine) accept(set assignments) {
	if !m.runs() || set.epoch != m.epoch || set.index < m.seen {
		return
	}
	m.w.step(CountAssignments)
	m.w.trace.note(m.w.now, 'a', uint64(m.index), set.index)
	m.seen = set.index
	if m.amnesia { // the agent first reports what it finds, which is nothing
		m.amnesia, m.opened, m.full, m.told = false, true, true, 0
		m.soon(3000, m.poll)
		m.kick()
		return
	}
	m.converge(set)
	m.wantImages(set.images)
	if !m.opened {
		m.opened, m.full = true, true
	}
	m.kick()
}

func (m *machine) converge(set assignments) {
	var fresh []assignment
	assigned := map[model.InstanceID]bool{}
	for _, a := range set.list {
		assigned[a.id] = true
		if p := m.find(a.id); p != nil {
			p.want(a)
			continue
		}
		fresh = append(fresh, a)
	}
	for _, p := range append([]*program(nil), m.programs...) {
		if !assigned[p.id] {
			p.dismiss()
		}
	}
	for _, a := range fresh { // no new program starts before all stops have begun
		m.programs = append(m.programs, newProgram(m, a))
		m.programs[len(m.programs)-1].want(a)
	}
}

// kick makes the agent send a report soon, if there is something to report and no report waits for its answer.
func (m *machine) kick() {
	if m.sending != 0 || !m.runs() || m.epoch == 0 || !m.opened || !m.full && !m.pending() {
		return
	}
	m.sent++
	m.sending = m.sent
	m.soon(30, m.flush)
}

func (m *machine) pending() bool {
	if m.self.said < m.self.now {
		return true
	}
	for _, p := range m.programs {
		if p.unreported() {
			return true
		}
	}
	return false
}

func (m *machine) flush() {
	report := &fsm.NodeReport{ID: m.id, Epoch: m.epoch, Full: m.full, FactsGen: m.facts.now}
	for _, p := range m.programs {
		if m.full && p.status.Observed != model.ObservedPending || p.unreported() {
			report.Instances = append(report.Instances, p.status)
		}
	}
	if m.full || m.self.said < m.self.now {
		report.Self = &model.SelfReport{Gen: m.self.now, Troubles: m.troubles, Runtime: m.runtime()}
	}
	token, full, epoch := m.sending, m.full, m.epoch
	m.w.step(CountReports)
	m.w.net.send(m.index, func() {
		m.w.log.propose(&proposal{entry: m.w.entry("agent:"+model.Actor(m.id), report), done: func(o outcome) {
			if o.known {
				m.w.net.send(m.index, func() { m.reportAnswered(token, epoch, full, report, o.results[0].Refusal) })
			}
		}})
	})
	m.soon(between(m.w.chance, 2000, 6000), func() {
		if m.sending == token {
			m.w.counts[CountLostReports]++
			m.sending = 0
			m.kick()
		}
	})
}

// reportAnswered takes the answer to a report. If the report was refused, the agent registers again.
func (m *machine) reportAnswered(token, epoch uint64, full bool, report *fsm.NodeReport, refusal *model.Error) {
	if !m.runs() || m.epoch != epoch || m.sending != token {
		return
	}
	m.sending = 0
	if refusal != nil {
		m.epoch = 0
		m.attach()
		return
	}
	if full {
		m.full = false
	}
	if report.Self != nil {
		m.self.said = max(m.self.said, report.Self.Gen)
	}
	for _, s := range report.Instances {
		if p := m.find(s.ID); p != nil {
			p.acked = max(p.acked, s.Generation)
			if p.gone && p.acked >= p.status.Generation {
				m.remove(p)
			}
		}
	}
	m.kick()
}

func (m *machine) remove(p *program) {
	for i, other := range m.programs {
		if other == p {
			m.programs = append(m.programs[:i:i], m.programs[i+1:]...)
			return
		}
	}
}
