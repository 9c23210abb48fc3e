package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/outspan/outspan/model"
)

const mib = 1 << 20

// machine is a node as it truly is: its power, its agent's process, and its programs.
type machine struct {
	w      *world
	index  int
	id     model.NodeID
	name   string
	memory int64
	labels map[string]string
	joined model.Time

	power, agent, frozen bool
	amnesia              bool // the agent's journal was lost with the power
	replaced             bool // another machine takes its place once it is forgotten
	boot, incarnation    int
	waits                []func() // what became due while it was frozen
	programs             []*program
	lease                lease
	troubles             []model.Trouble // what its agent finds wrong with it

	session
}

// session is what the agent's process knows of the servers.
type session struct {
	epoch       uint64 // 0: not registered
	registering bool
	opened      bool // the first assignments of the epoch have arrived
	full        bool // the inventory is due
	sending     uint64
	sent        uint64
	home        int // the server that it polls; -1: none
	told        uint64
	seen        uint64     // index of the latest assignments; on disk
	generation  uint64     // of statuses; on disk
	facts       factsCount // of this epoch
	self        selfCount  // of this epoch
}

// selfCount has the generation of the agent's report on its own machine (now), and the one that the servers have taken
// (said).
type selfCount struct{ now, said uint64 }

// factsCount is the generation of the node's facts: now, and as heartbeats before the last change had it.
type factsCount struct {
	now, before uint64
	moved       model.Time
}

func newMachine(w *world, index int, r *rand.Rand) *machine {
	m := &machine{
		w: w, index: index, id: model.NodeID(fmt.Sprintf("n%d", index+1)), name: fmt.Sprintf("node%d", index+1),
		memory: w.scenario.memory[r.IntN(len(w.scenario.memory))] * mib, joined: w.now,
	}
	m.labels = map[string]string{"rack": string(rune('a' + index%3))}
	m.home = -1
	m.generation = 1000
	return m
}

// start switches the power on and starts the agent.
func (m *machine) start() {
	if m.power {
		return
	}
	if _, known := m.w.log.first.Nodes.Get(m.id); m.replaced && !known {
		m.replace()
	}
	m.power = true
	m.boot++
	m.amnesia = m.boot > 1 && !m.w.calm && m.w.chance.IntN(3) == 0
	m.w.trace.say("%s has power, boot %d", m.id, m.boot)
	m.startAgent()
}

// runs reports whether its agent does anything.
func (m *machine) runs() bool { return m.power && m.agent && !m.frozen }

// stop cuts the power: everything stops, and only the agent's journal remains of its programs.
func (m *machine) stop() {
	if !m.power {
		return
	}
	m.w.step(CountPowerLosses)
	m.w.trace.say("%s loses power with %d programs", m.id, len(m.programs))
	m.power, m.agent, m.frozen, m.waits = false, false, false, nil
	m.incarnation++
	for _, p := range m.programs {
		p.end()
	}
	m.programs = nil
	m.forgetSession()
	m.w.net.changed()
}

func (m *machine) startAgent() {
	if !m.power || m.agent {
		return
	}
	m.agent = true
	m.incarnation++
	m.forgetSession()
	m.w.net.changed()
	m.attach()
	for _, p := range m.programs {
		p.adopted()
	}
}

// stopAgent ends the agent's process; the programs go on under their shims.
func (m *machine) stopAgent() {
	if !m.power || !m.agent {
		return
	}
	m.w.step(CountAgentCrashes)
	m.w.trace.say("the agent of %s crashes", m.id)
	m.agent = false
	m.incarnation++
	m.forgetSession()
	m.w.net.changed()
}

func (m *machine) forgetSession() {
	m.session = session{home: -1, seen: m.seen, generation: m.generation, epoch: 0}
}

// freeze stops everything on it, shims too; thaw lets it go on where it was.
func (m *machine) freeze() {
	if m.power && !m.frozen {
		m.w.step(CountFreezes)
		m.w.trace.say("%s freezes", m.id)
		m.frozen = true
		m.w.net.changed()
	}
}

func (m *machine) thaw() {
	if !m.frozen {
		return
	}
	m.w.trace.say("%s thaws", m.id)
	m.frozen = false
	due := m.waits
	m.waits = nil
	m.lease.thaw(m) // the shims check their timers before anything else
	for _, do := range due {
		do()
	}
	m.w.net.changed()
}

// later calls do after d, unless the machine loses power before. While the machine is frozen, do waits.
func (m *machine) later(d model.Duration, do func()) {
	boot := m.boot
	var due func()
	due = func() {
		switch {
		case m.boot != boot || !m.power:
		case m.frozen:
			m.waits = append(m.waits, due)
		default:
			do()
		}
	}
	m.w.after(d, due)
}

// soon is later for the agent's process: it does nothing if that process has ended before.
func (m *machine) soon(d model.Duration, do func()) {
	incarnation := m.incarnation
	m.later(d, func() {
		if m.incarnation == incarnation && m.agent {
			do()
		}
	})
}

// replace puts another machine in its place: new disks, a new id, the same name.
func (m *machine) replace() {
	m.replaced = false
	m.id += "r"
	m.seen, m.joined, m.lease = 0, m.w.now, lease{}
	for s := range servers {
		m.w.net.hears[m.index][s] = hearing{}
	}
}

// factsHeard returns the generation of its facts that a server knows from heartbeats.
func (m *machine) factsHeard(server int) uint64 {
	row, ok := m.w.log.first.Nodes.Get(m.id)
	if !ok || row.Agent.Epoch != m.epoch || m.epoch == 0 {
		return 0
	}
	if m.w.net.lastBeat(m.index, server) >= m.facts.moved {
		return m.facts.now
	}
	return m.facts.before
}

// finds makes the agent find these troubles with its machine, or none. Troubles may keep programs from starting; see
// program.start.
func (m *machine) finds(troubles ...model.Trouble) {
	m.troubles = troubles
	m.self.now++
	m.w.trace.say("%s finds %d troubles with its machine", m.id, len(troubles))
	m.kick()
}

// find returns a program of the machine.
func (m *machine) find(id model.InstanceID) *program {
	for _, p := range m.programs {
		if p.id == id {
			return p
		}
	}
	return nil
}
