package sim

import (
	"maps"
	"math/rand/v2"

	"github.com/outspan/outspan/model"
)

// The command of a group is one of these words, and determines how the group's programs behave.
const (
	behaveSteady = "steady" // ready within a few seconds
	behaveSlow   = "slow"   // ready after a long start
	behaveNever  = "never"  // never ready
	behaveCrash  = "crash"  // keeps failing
	behaveFlaky  = "flaky"  // ready, but unready for a while later on
)

// program is one instance as it truly runs on its machine.
type program struct {
	m *machine
	assignment
	chance *rand.Rand

	alive    bool // the process exists
	ready    bool
	stopping bool
	gone     bool   // the servers don't assign it any more
	run      int    // grows whenever the process starts or ends
	began    uint64 // number of the last requested restart that was carried out
	hooked   uint64 // number of the last preparation that was begun

	status model.InstanceStatus
	acked  uint64            // generation of the last status that the servers confirmed
	synced bool              // its copy of the data is complete
	told   map[string]string // facts that its role check last reported
}

func newProgram(m *machine, a assignment) *program {
	p := &program{m: m, assignment: a, chance: random(m.w.seed, string(a.id))}
	p.status = model.InstanceStatus{ID: a.id, Observed: model.ObservedPending}
	p.began = a.restarts
	p.desired = ""
	return p
}

// fenced reports whether the program may run only while the node has a lease.
func (p *program) fenced() bool {
	return p.spec != nil && p.spec.Fenced()
}

func (p *program) hasLocal() bool {
	return p.spec != nil && len(p.spec.Volumes) > 0 && p.spec.Volumes[0].Kind == model.VolumeLocal
}

func (p *program) unreported() bool {
	return p.status.Observed != model.ObservedPending && p.status.Generation > p.acked
}

// tell sets the status that the agent reports next. While no agent runs, it does nothing, because nobody notices the
// change.
func (p *program) tell(observed model.Observed, reason string) {
	m := p.m
	if !m.agent {
		return
	}
	facts := p.told
	if observed != model.ObservedBooting && observed != model.ObservedReady && observed != model.ObservedUnready {
		facts = nil
	}
	if !maps.Equal(facts, p.status.Facts) {
		m.facts = factsCount{now: m.facts.now + 1, before: m.facts.now, moved: m.w.now}
	}
	m.generation++
	p.status = model.InstanceStatus{ID: p.id, Generation: m.generation, Observed: observed, Reason: reason,
		Restarts: p.run / 2, Facts: facts, Hook: p.status.Hook}
	m.w.step(CountPrograms)
	m.w.trace.note(m.w.now, 'p', uint64(m.index), m.generation)
	m.w.trace.say("  %s: %s of %s slot %d is %s %s %v", m.id, p.id, p.group, p.slot, observed, reason, facts)
	m.kick()
}

// want takes a new assignment of the program and acts on it.
func (p *program) want(a assignment) {
	before := p.assignment
	p.assignment = a
	switch {
	case a.desired == model.DesiredRunning:
		if before.desired == "" {
			p.start()
			return
		}
		if a.restarts > p.began && p.alive {
			p.began = a.restarts
			p.restart("asked")
		}
		if a.preparing != 0 && a.preparing != p.hooked {
			p.hooked = a.preparing
			p.prepare(a.preparing)
		}
	case a.desired == model.DesiredDraining:
		p.stop()
	default:
		p.kill()
	}
}

// start starts the process. As on a real machine, a program that needs a lease starts only while the lease is held and
// after the first assignments of this epoch have arrived. Until then, start is tried again and again. On a machine with
// troubles, half of the starts fail.
func (p *program) start() {
	if p.alive || p.gone || p.desired != model.DesiredRunning && p.desired != "" {
		return
	}
	if p.fenced() && !(p.m.lease.held && p.m.opened) {
		p.m.soon(500, p.start)
		return
	}
	p.alive, p.ready, p.synced = true, false, false
	p.run++
	p.m.w.step(CountStarts)
	p.m.w.judge.started(p)
	p.tell(model.ObservedBooting, "")
	if len(p.m.troubles) > 0 && p.chance.IntN(2) == 0 {
		p.in(between(p.chance, 50, 2000), func() { p.fails("start_failed") })
		return
	}
	p.boot()
}

// boot makes the process behave as its group's command says. Once the faults have ended, every process becomes ready.
func (p *program) boot() {
	r, calm := p.chance, p.m.w.calm
	switch {
	case calm:
		p.in(between(r, 100, 3000), p.becomeReady)
	case p.behaves(behaveSlow):
		p.in(between(r, 5000, 45000), p.becomeReady)
	case p.behaves(behaveNever):
	case p.behaves(behaveCrash):
		p.in(between(r, 500, 12000), func() { p.fails("crash_loop") })
	case p.behaves(behaveFlaky):
		p.in(between(r, 500, 4000), p.becomeReady)
		p.in(between(r, 10000, 300000), p.blip)
	default:
		p.in(between(r, 100, 4000), p.becomeReady)
	}
}

func (p *program) behaves(word string) bool {
	switch {
	case p.spec == nil:
		return false
	case p.spec.Container != nil:
		return p.spec.Container.Command == word
	}
	return p.spec.Exec.Command == word
}

// in calls the function do after the time d, unless this run of the process has ended by then.
func (p *program) in(d model.Duration, do func()) {
	run := p.run
	p.m.later(d, func() {
		if p.run == run && p.alive {
			do()
		}
	})
}

func (p *program) becomeReady() {
	if p.ready || p.stopping {
		return
	}
	p.ready = true
	p.tell(model.ObservedReady, "")
	p.m.w.roles(p)
}

// blip makes the program's check fail for a while.
func (p *program) blip() {
	if !p.ready || p.stopping || p.m.w.calm {
		return
	}
	p.ready = false
	p.tell(model.ObservedUnready, "check_failed")
	p.m.w.roles(p)
	p.in(between(p.chance, 300, 20000), p.becomeReady)
}

// restart ends the process and starts it again in place, as an agent does after a crash.
func (p *program) restart(reason string) {
	if !p.alive || p.stopping {
		return
	}
	p.end()
	p.tell(model.ObservedUnready, reason)
	p.m.w.roles(p)
	p.m.later(between(p.chance, 500, 6000), func() {
		if !p.alive && !p.stopping && !p.gone && p.desired == model.DesiredRunning &&
			p.status.Observed == model.ObservedUnready {
			p.start()
		}
	})
}

// fails ends the process without a restart, and reports the reason. If the program was to stop anyway, it is reported
// as stopped.
func (p *program) fails(reason string) {
	if !p.alive {
		return
	}
	p.m.w.step(CountFailures)
	p.end()
	if p.stopping || p.desired == model.DesiredDraining {
		p.tell(model.ObservedStopped, "")
	} else {
		p.tell(model.ObservedFailed, reason)
	}
	p.m.w.roles(p)
}

// end records that the process has ended, whether or not an agent sees it. It does nothing if no process runs.
func (p *program) end() {
	if p.alive {
		p.alive, p.ready, p.synced = false, false, false
		p.run++
		p.told = nil
	}
}

// stop begins the stop. After the drain delay, the process ends within its grace or is killed at the end of the grace.
func (p *program) stop() {
	if p.stopping {
		return
	}
	p.stopping, p.ready = true, false
	if !p.alive {
		p.tell(model.ObservedStopped, "")
		return
	}
	p.tell(model.ObservedDraining, "")
	p.m.w.roles(p)
	takes := between(p.chance, 20, min(3000, max(p.grace, 20)))
	if p.chance.IntN(10) == 0 {
		takes = p.grace
	}
	if p.spec != nil {
		takes += p.spec.Stop.DrainDelay
	}
	p.in(takes, p.kill)
}

func (p *program) kill() {
	p.stopping = true
	if p.status.Observed == model.ObservedStopped && !p.alive {
		return
	}
	p.end()
	p.tell(model.ObservedStopped, "")
	p.m.w.roles(p)
}

// dismiss ends a program that the servers no longer assign. The agent forgets the program once the servers have
// confirmed the program's last status.
func (p *program) dismiss() {
	p.gone, p.desired = true, model.DesiredStopped
	p.kill()
	if p.acked >= p.status.Generation || p.status.Observed == model.ObservedPending {
		p.m.remove(p)
	}
}

// adopted makes a new process of the agent take over the program, and report what happened meanwhile. The new process
// has no facts of the program yet.
func (p *program) adopted() {
	p.told = nil
	switch {
	case p.alive && p.ready:
		p.tell(model.ObservedReady, "")
	case p.alive && p.stopping:
		p.tell(model.ObservedDraining, "")
	case p.alive && p.status.Observed == model.ObservedUnready:
		p.tell(model.ObservedUnready, "")
	case p.alive:
		p.tell(model.ObservedBooting, "")
	case p.stopping:
		p.tell(model.ObservedStopped, "")
	case p.status.Observed != model.ObservedFailed && p.status.Observed != model.ObservedPending &&
		p.desired == model.DesiredRunning:
		p.tell(model.ObservedFailed, "shim_lost")
	}
	p.m.soon(between(p.chance, 300, 4000), func() { p.m.w.roles(p) })
}

// prepare prepares a planned stop: the hook runs, and the instance's own gates are checked.
func (p *program) prepare(seq uint64) {
	takes := between(p.chance, 20, 6000)
	works := p.m.w.calm || p.chance.IntN(100) >= p.m.w.scenario.hookFails
	hook := p.spec != nil && len(p.spec.Hooks) > 0
	p.m.w.step(CountHooks)
	p.m.soon(takes, func() {
		if p.preparingFor(seq) && p.alive && works && hook {
			p.m.w.resign(p)
		}
		p.m.soon(200, func() { p.prepared(seq, works || !hook) })
	})
}

// preparingFor reports whether the servers still want the preparation with this number.
func (p *program) preparingFor(seq uint64) bool { return p.preparing == seq }

func (p *program) prepared(seq uint64, works bool) {
	if !p.alive || p.stopping {
		return
	}
	result := &model.HookResult{Seq: seq, OK: works}
	if !works {
		result.Message = "the hook exits with 1"
	}
	for _, text := range p.gates {
		gate, _ := model.ParseGate(text)
		if refusal := gate.HoldsFor(p.told); refusal != nil {
			result.OK, result.Message = false, refusal.Message
		}
	}
	p.status.Hook = result
	p.tell(p.status.Observed, p.status.Reason)
}
