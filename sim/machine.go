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
	amnesia              bool // the agent's journal was lost when the power was cut
	replaced             bool // at the next start it becomes another machine, if the servers have forgotten its node
	boot, incarnation    int
	waits                []func() // functions whose time came while the machine was frozen
	programs             []*program
	lease                lease
	images               map[string]bool // digests on disk
	troubles             []model.Trouble // what the agent finds wrong with the machine

	session
}

// session is what an agent's process knows about the servers. Only the fields that are marked as on disk survive the
// end of the process.
type session struct {
	epoch       uint64 // 0 means not registered
	registering bool
	opened      bool       // the first assignments of this epoch have arrived
	full        bool       // the inventory must be sent
	sending     uint64     // number of the report that has no answer yet; 0 means none
	sent        uint64     // number of the last report
	home        int        // server that the agent polls; -1 means none
	told        uint64     // index of the assignments that were last sent to the agent
	seen        uint64     // index of the newest assignments that were accepted; on disk
	generation  uint64     // generation of the last status; on disk
	facts       factsCount // generations of the facts in this epoch
	pulls       []*pull
	self        selfCount // generations of the agent's reports about its machine in this epoch
}

// selfCount has two generations of the agent's reports about its own machine: now is that of the latest report, and
// said is the last one that the servers confirmed.
type selfCount struct{ now, said uint64 }

// factsCount has two generations of the node's facts: now is the present one, and before is the one before the last
// change. moved is the true time of that change. Heartbeats that were sent earlier carry the older generation.
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
	m.home, m.images = -1, map[string]bool{}
	m.generation = 1000
	return m
}

// start switches the power on and starts the agent. If replaced is set and the servers have forgotten the node, another
// machine starts in its place.
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

// runs reports whether the machine has power, and its agent runs and is not frozen.
func (m *machine) runs() bool { return m.power && m.agent && !m.frozen }

// stop cuts the power. All programs end, and only what the agent has on disk remains.
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

// stopAgent crashes the agent's process. The programs continue under their shims.
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

// freeze pauses all processes of the machine, including the shims. thaw lets them continue.
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
	m.lease.thaw(m) // the shims check their timers before anything else happens
	for _, do := range due {
		do()
	}
	m.w.net.changed()
}

// later calls the function do after the time d, unless the machine loses power before that. On a frozen machine the
// call waits for the thaw.
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

// soon is like later, but for work of the agent's process. If that process has ended by then, the function do is not
// called.
func (m *machine) soon(d model.Duration, do func()) {
	incarnation := m.incarnation
	m.later(d, func() {
		if m.incarnation == incarnation && m.agent {
			do()
		}
	})
}

// replace turns m into another machine with new disks, a new id and the same name.
func (m *machine) replace() {
	m.replaced = false
	m.id += "r"
	m.seen, m.joined, m.lease, m.images = 0, m.w.now, lease{}, map[string]bool{}
	for s := range servers {
		m.w.net.hears[m.index][s] = hearing{}
	}
}

// factsHeard returns the generation of the node's facts that the server knows from heartbeats. It returns 0 if the
// agent is not registered.
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

// finds sets the troubles that the agent finds with its machine. A call without arguments ends all troubles. On a
// machine with troubles, programs may fail to start.
func (m *machine) finds(troubles ...model.Trouble) {
	m.troubles = troubles
	m.self.now++
	m.w.trace.say("%s finds %d troubles with its machine", m.id, len(troubles))
	m.kick()
}

func (m *machine) find(id model.InstanceID) *program {
	for _, p := range m.programs {
		if p.id == id {
			return p
		}
	}
	return nil
}
