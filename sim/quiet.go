package sim

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

const (
	// limit of the time until everything is at rest; some retries pause for an hour each, and only a person can end them
	quietLimit = 24 * model.Hour
	quietFor   = 3 * model.Hour // time in which a cluster at rest must write nothing
)

// finish ends the faults and judges what must be true after that. Drains end (L2), everything settles and stays settled
// (L3), and silent nodes are found (L4). What is wanted runs, or there is a reason why not (S14). Every server has the
// same state, and a replay of the log gives the same state again (S5).
func (w *world) finish() {
	w.until(w.now.Add(20 * model.Second))
	w.mend()
	for _, part := range [...]func(){w.drainsEnd, w.settle, w.atRest, w.silence, w.agree} {
		if w.failure == nil {
			part()
		}
	}
}

// mend ends every fault. It also does what only a person can do: it resumes actuation and paused drains, and cancels
// drains without a deadline.
func (w *world) mend() {
	if w.failure != nil {
		return
	}
	w.calm = true
	w.trace.say("quiet: faults end")
	w.net.lossy, w.net.twice, w.log.strikeOnPropose = 0, 0, nil
	for _, s := range w.log.servers {
		s.lag = 0
		s.restart(s)
	}
	for i, m := range w.nodes {
		w.net.cut[i], w.net.suspect[i] = [servers]bool{}, 0
		m.start()
		m.thaw()
		m.startAgent()
		if len(m.troubles) > 0 {
			m.finds()
		}
	}
	w.net.changed()
	if w.log.isolated {
		w.log.failover(w.chance, -1)
	}
	w.until(w.now.Add(15 * model.Second))
	settings := w.log.first.Settings
	settings.Paused = false
	w.clients.ask("resume actuation", &fsm.SettingsSet{Settings: settings})
	w.until(w.now.Add(10 * model.Second))
	for id, d := range w.log.first.Drains.All() {
		if d.Phase() != model.PhaseDraining {
			continue
		}
		if d.Paused {
			w.clients.ask("resume "+string(id), &fsm.DrainPause{ID: id})
		}
		if d.Options.Deadline == model.Forever {
			w.clients.ask("cancel "+string(id), &fsm.DrainCancel{ID: id})
		}
	}
	w.becomeWell()
}

// becomeWell makes every running program that is not ready become ready soon.
func (w *world) becomeWell() {
	for _, m := range w.nodes {
		for _, p := range m.programs {
			if p.alive && !p.ready && !p.stopping {
				p.in(between(p.chance, 100, 3000), p.becomeReady)
			}
		}
	}
}

// drainsEnd checks L2. A drain with a deadline must end by itself. For each of its nodes, it may take the deadline and
// 1 min more.
func (w *world) drainsEnd() {
	well := w.now
	latest := well.Add(model.Minute)
	for _, d := range w.log.first.Drains.All() {
		if d.Phase() == model.PhaseDraining && d.Options.Deadline != model.Forever {
			latest = max(latest, w.now.Add(model.Duration(len(d.Nodes))*(d.Options.Deadline+model.Minute)))
		}
	}
	for w.failure == nil && w.now < latest {
		w.until(w.now.Add(max(latest.Sub(w.now)/20, 1000)))
		if !w.draining(nil) {
			return
		}
	}
	w.draining(func(d *fsm.Drain) {
		w.fail(fsm.L2, "drain %s of %d nodes has not ended, %s after everything was well", d.ID,
			len(d.Nodes), w.now.Sub(well))
	})
}

func (w *world) draining(visit func(*fsm.Drain)) bool {
	found := false
	for _, d := range w.log.first.Drains.All() {
		if d.Phase() == model.PhaseDraining {
			found = true
			if visit != nil {
				visit(d)
			}
		}
	}
	return found
}

// settle checks L3: the cluster comes to rest within quietLimit. It is at rest if nothing is written for quietFor.
func (w *world) settle() {
	limit := w.now.Add(quietLimit)
	for w.failure == nil {
		before := w.log.first.Index
		w.until(w.now.Add(quietFor))
		if w.log.first.Index == before {
			return
		}
		w.withdraw()
		if w.now > limit {
			w.fail(fsm.L3, "it does not come to rest: %d entries in the last %s", w.log.first.Index-before, quietFor)
		}
	}
}

// withdraw withdraws the evictions that people requested and whose preparations keep failing. Only a person can end
// such an eviction.
func (w *world) withdraw() {
	for id, i := range w.log.first.Instances.All() {
		if e := i.Eviction; i.Desired == model.DesiredRunning && e.Requested && e.Cause == model.CauseUser && e.Aborts > 0 {
			w.clients.ask("take back the eviction of "+string(id), &fsm.InstanceMark{ID: id})
		}
	}
}

// atRest checks what must be true when nothing is left to do.
func (w *world) atRest() {
	w.draining(func(d *fsm.Drain) { w.fail(fsm.L2, "drain %s has not ended and nothing is written", d.ID) })
	if w.failure != nil {
		return
	}
	if w.lead == nil {
		w.fail(fsm.L1, "nobody leads")
		return
	}
	in := w.lead.input()
	if plan := reconcile.Decide(in); len(plan.Entries) > 0 {
		w.fail(fsm.L3, "at rest, and yet this is decided, and was from %s of the %s since the last entry on, unnoticed: %s",
			unnoticed(in), in.Now.Sub(in.State.Now), kinds(plan.Entries[0]))
		return
	}
	e := reconcile.Explain(in)
	s := &w.log.first
	for id, g := range s.Groups.All() {
		if g.Role == model.RoleSystem {
			continue
		}
		if g.Ready < g.Count && e.Pending(id) == nil {
			w.fail(fsm.S14, "at rest %s has %d of %d ready, and there is no reason", id, g.Ready, g.Count)
		}
		job := jobOf(s, id)
		d, ok := s.Deployments.Get(job.Deployment)
		if g.Running > g.Count && (!ok || d.Status.Ended()) && !waits(*s, e, id) {
			w.fail(fsm.S7, "at rest %s has %d running, %d are wanted", id, g.Running, g.Count)
		}
		if g.Held != 0 {
			w.fail(fsm.S3, "at rest %s holds %d of its budget", id, g.Held)
		}
	}
	w.truth()
}

// truth checks that at rest the state agrees with the truth. Every ready instance must run and be ready, and no program
// may run that should not.
func (w *world) truth() {
	s := &w.log.first
	for _, m := range w.nodes {
		for _, p := range m.programs {
			i, ok := s.Instances.Get(p.id)
			if p.alive && (!ok || i.Node != m.id || i.Desired == model.DesiredStopped) {
				w.fail(fsm.S15, "at rest %s runs on %s and is not to", p.id, m.id)
			}
		}
		for i := range s.InstancesOn(m.id) {
			if p := m.find(i.ID); i.Ready() && (p == nil || !p.alive || !p.ready) {
				w.fail(fsm.S15, "at rest %s is ready on %s by the state, and not in truth", i.ID, m.id)
			}
		}
	}
}

// silence checks L4: a node that loses its power must be declared offline in time. After that the node returns, and the
// cluster must come to rest again. silence does nothing if no node is suitable, or if a hold is active or could begin.
func (w *world) silence() {
	s := &w.log.first
	var victim *machine
	for _, m := range w.nodes {
		if n, ok := s.Nodes.Get(m.id); ok && n.Health == model.HealthOnline && n.Intent == model.IntentActive {
			victim = m
		}
	}
	if victim == nil || s.Hold.Active || s.Settings.FailureDomainLabel != "" || w.outages() > 0 {
		return
	}
	threshold, interval := s.Settings.OfflineAfter, w.net.interval()
	silent := w.now
	victim.stop()
	w.until(w.now.Add(threshold + 2*interval + 2*model.Second))
	if w.lead != nil && len(w.lead.flights) > 0 { // the decision is made, but its commit may be slow
		w.until(w.now.Add(slowCommit))
	}
	if w.failure != nil {
		return
	}
	if n, ok := w.log.first.Nodes.Get(victim.id); !ok || n.Health != model.HealthOffline {
		w.fail(fsm.L4, "node %s is silent for %s, and not offline", victim.id, w.now.Sub(silent))
		return
	}
	w.counts[CountOfflineProved]++
	victim.start()
	w.settle()
	if w.failure == nil {
		w.atRest()
	}
}

func (w *world) outages() int {
	n := 0
	for _, row := range w.log.first.Nodes.All() {
		if row.Health == model.HealthOffline {
			n++
		}
	}
	return n
}

// agree checks S5 at the end: all servers must have the same state, and so must a replay of the whole log. It also
// checks S4: the state must still have every answer.
func (w *world) agree() {
	w.until(w.now.Add(model.Minute))
	if w.failure != nil {
		return
	}
	want := fsm.Digest(w.log.first)
	for _, s := range w.log.servers {
		s.applyAll()
		if got := fsm.Digest(s.state()); got != want && w.failure == nil {
			w.fail(fsm.S5, "in the end server s%d has digest %s, the others %s", s.id+1, got, want)
		}
	}
	replay := fsm.NewState()
	for i, e := range w.log.entries {
		if e.data == nil {
			continue
		}
		entry, err := fsm.DecodeEntry(e.data)
		if err != nil {
			w.fail(fsm.S5, "entry %d can't be read again: %v", i+1, err)
			return
		}
		replay, _ = replay.Apply(uint64(i+1), e.term, entry)
	}
	if got := fsm.Digest(replay); got != want {
		w.fail(fsm.S5, "a replay of the log has digest %s, the servers %s", got, want)
	}
	w.judge.checkStoredAnswers()
	w.unreadable()
}

// unreadable checks S5: a server must refuse to apply an entry of a newer format. If it skipped the entry, its state
// would differ from the others' from then on.
func (w *world) unreadable() {
	newer := []byte{0xa4, 1, byte(model.CurrentFormat + 1), 2, 0, 3, 0, 8, 0x80} // format, at, wall, and no groups
	if _, err := w.log.servers[0].machine.Apply(uint64(len(w.log.entries)+1), w.log.term, newer); err == nil &&
		w.failure == nil {
		w.fail(fsm.S5, "an entry of format %d was skipped by a program that knows formats up to %d",
			model.CurrentFormat+1, model.CurrentFormat)
	}
}

// unnoticed returns how long after the last entry Decide would first have returned entries. The plan should have asked
// for a wake-up at that time.
func unnoticed(in reconcile.Input) model.Duration {
	low, high := in.State.Now, in.Now
	for low < high {
		in.Now = low + (high-low)/2
		if len(reconcile.Decide(in).Entries) > 0 {
			high = in.Now
		} else {
			low = in.Now + 1
		}
	}
	return high.Sub(in.State.Now)
}
