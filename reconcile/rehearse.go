package reconcile

import (
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	rehearsedSteps = 400 // number of decisions after which a rehearsal gives up
	// A rehearsal is over after this many waits in a row without a change. Each wait is eight times as long as the last.
	rehearsedIdle = 6
	idleAtFirst   = 2 * model.Second // length of the first wait
)

// rehearsal plays a drain to its end on a copy of the state. Its simulated agents do at once what they are asked, and
// every instance that starts becomes ready. So a forecast shows what happens if nothing else changes.
type rehearsal struct {
	in    Input
	start fsm.State // the state before the drain
	fates map[model.InstanceID]*fate
	lasts map[model.NodeID]*pass // by node: the last decision in which its part of the drain was in progress
	goes  map[model.NodeID]bool  // by node: whether its part of the drain was in progress at the latest decision
	first *pass                  // the first decision
	quiet bool                   // nothing more will happen, so the fates are final
	began model.Time             // when the drain starts
	took  pace                   // estimates how long real agents would take for the simulated work
	queue agentQueue
}

// fate is what became of an instance on a node of the drain.
type fate struct {
	gone   bool           // its stop began
	surged bool           // its replacement existed before its stop began
	target model.NodeID   // node of the slot's next instance, if it was placed while the old node's drain was in progress
	after  model.Duration // estimated time from the start of the drain until the instance has stopped
}

// rehearse plays the drain that the commands in begin start. It records the fates of the instances in about.
func rehearse(in Input, begin [][]fsm.Command, about []*fsm.Instance) *rehearsal {
	r := &rehearsal{in: in, start: in.State, fates: map[model.InstanceID]*fate{}, lasts: map[model.NodeID]*pass{},
		goes: map[model.NodeID]bool{}, began: in.Now, took: newPace()}
	for _, inst := range about {
		r.fates[inst.ID] = &fate{}
	}
	r.in.State.Settings.Paused = false
	r.queue = newAgentQueue(&r.in.State)
	r.in.Cache.follow(true)
	defer r.in.Cache.follow(false)
	for _, group := range begin {
		r.commit(group...)
	}
	for step, idle, wait := 0, 0, idleAtFirst; step < rehearsedSteps; step++ {
		before := r.in.State.Index
		plan := r.decide()
		r.watch(about)
		r.work()
		switch {
		case r.drain().Phase() != model.PhaseDraining:
			r.quiet = true
			return r
		case r.in.State.Index != before:
			idle, wait = 0, idleAtFirst
			continue
		case plan.rated != model.Never: // a rate refuses a stop until a known time
			r.in.Now = r.untilDeadline(min(plan.rated, max(plan.changes, r.in.Now.Add(wait))))
			wait = min(wait*8, model.Hour)
			continue
		}
		if idle++; idle > rehearsedIdle {
			r.quiet = true
			return r
		}
		r.in.Now = r.next(wait, plan.wake)
		wait *= 8
	}
	return r
}

// beganAsAsked reports whether a forecast can use the rehearsal's first decision instead of making its own, which would
// double the cost of a forecast for one node. It can if all nodes begin at once and actuation was not paused.
func (r *rehearsal) beganAsAsked(options model.DrainOptions) bool {
	return options.MaxParallelNodes == 0 && !r.start.Settings.Paused
}

// next returns when to decide again: after wait, or at wake if that is later, but at the drain's next deadline at the
// latest.
func (r *rehearsal) next(wait model.Duration, wake model.Time) model.Time {
	next := r.in.Now.Add(wait)
	if wake != model.Never {
		next = max(next, wake)
	}
	return r.untilDeadline(next)
}

// untilDeadline returns t, or the drain's next deadline if that is earlier.
func (r *rehearsal) untilDeadline(t model.Time) model.Time {
	for _, part := range r.drain().Nodes {
		if part.Phase == model.PhaseDraining && part.Turn && r.in.Now < part.Deadline {
			t = min(t, part.Deadline)
		}
	}
	return t
}

// commit applies one entry with one group of commands.
func (r *rehearsal) commit(group ...fsm.Command) {
	r.apply(fsm.Entry{Format: r.in.State.Format, At: r.in.Now, Wall: r.in.State.WallAt(r.in.Now), Actor: model.ActorLeader,
		Groups: [][]fsm.Command{group}})
}

func (r *rehearsal) apply(e fsm.Entry) {
	var written []*fsm.Instance
	r.in.State, _, written = r.in.State.ApplyNaming(r.in.State.Index+1, r.in.Term, e)
	for _, old := range written {
		if inst, ok := r.in.State.Instances.Get(old.ID); ok {
			r.queue.put(inst)
		}
	}
	r.in.Cache.note(written)
}

// decide makes one decision and applies its plan. It returns the planner, which knows when to decide again.
func (r *rehearsal) decide() *planner {
	p := decide(r.in)
	if r.first == nil {
		r.first = p
	}
	for _, part := range r.drain().Nodes {
		if r.goes[part.Node] = part.Phase == model.PhaseDraining; r.goes[part.Node] {
			r.lasts[part.Node] = p
		}
	}
	plan := p.plan.finish(r.in)
	for _, e := range plan.Entries {
		r.apply(e)
	}
	return &p.plan
}

// watch records what has become of the instances in about.
func (r *rehearsal) watch(about []*fsm.Instance) {
	for _, old := range about {
		f := r.fates[old.ID]
		now, kept := r.in.State.Instances.Get(old.ID)
		if !f.gone && (!kept || now.Desired != model.DesiredRunning) {
			f.gone = true
			f.surged = kept && now.Links.ReplacedBy != ""
			f.after = r.in.Now.Sub(r.began) + r.took.stop(&r.start, old)
		}
		for next := range r.in.State.InstancesInSlot(old.Group, old.Slot) {
			if f.target == "" && r.goes[old.Node] && next.Marks.CreatedIndex > r.start.Index {
				f.target = next.Node
			}
		}
	}
}

// work does the queued work of every agent whose node is neither offline nor silent, and advances the time by the
// estimated length of that work.
func (r *rehearsal) work() {
	before := r.in.State
	for id, all, ok := r.queue.take(""); ok; id, all, ok = r.queue.take(id) {
		n, known := before.Nodes.Get(id)
		if !known || n.Health == model.HealthOffline || r.in.Live[id].Silent {
			continue
		}
		var done []model.InstanceStatus
		for _, instance := range all {
			if inst, ok := r.in.State.Instances.Get(instance); ok {
				news := r.workOn(inst)
				r.took.note(&r.start, inst, news)
				done = append(done, news...)
			}
		}
		if len(done) > 0 {
			r.commit(&fsm.NodeReport{ID: id, Epoch: n.Agent.Epoch, Instances: done})
		}
	}
	r.pull()
	r.in.Now = r.in.Now.Add(r.took.next())
}

// pull makes the agents of nodes that can be heard report the images of the claims to them as present.
func (r *rehearsal) pull() {
	if r.in.State.Pulls.Len() == 0 {
		return
	}
	before := r.in.State
	for _, c := range before.Pulls.All() {
		n, known := r.in.State.Nodes.Get(c.Node)
		if !known || n.Self.Runtime == nil || r.in.Live[c.Node].Silent || r.in.State.Pulled(c) {
			continue
		}
		self := &model.SelfReport{Gen: n.Self.Gen + 1, Troubles: n.Self.Troubles, Disk: n.Self.Disk, Measured: true,
			Ports: n.Self.Ports}
		self.Runtime = &model.ContainerRuntime{Version: n.Self.Runtime.Version, Down: n.Self.Runtime.Down, Pulls: true,
			Bridge: n.Self.Runtime.Bridge, NoBridge: n.Self.Runtime.NoBridge,
			Images: []model.NodeImage{{Digest: c.Digest(), State: model.ImagePresent}}}
		for _, image := range n.Self.Runtime.Images {
			self.Runtime.Images = append(self.Runtime.Images, model.NodeImage{Digest: image.Digest, State: image.State,
				Bytes: image.Bytes, Total: image.Total, Words: image.Words})
		}
		r.commit(&fsm.NodeReport{ID: n.ID, Epoch: n.Agent.Epoch, Self: self})
	}
}

// workOn returns what an agent reports next about an instance; nil if nothing about it changes.
func (r *rehearsal) workOn(inst *fsm.Instance) []model.InstanceStatus {
	next := inst.Status
	next.Generation++
	switch {
	case inst.Terminal() || inst.Status.Observed == model.ObservedStopped || inst.WaitsForRoom():
		return nil
	case inst.Desired != model.DesiredRunning:
		next.Observed, next.Reason = model.ObservedStopped, ""
	case inst.Preparation() != 0 && (inst.Status.Hook == nil || inst.Status.Hook.Seq != inst.Preparation()):
		next.Hook = &model.HookResult{Seq: inst.Preparation(), OK: true}
		next.Facts = r.hooked(inst)
	case inst.Status.Observed == model.ObservedPending:
		next.Observed = model.ObservedBooting
		ready := r.readied(inst, next)
		ready.Generation++
		return []model.InstanceStatus{next, ready}
	case inst.Status.Observed == model.ObservedBooting:
		next = r.readied(inst, next)
	default:
		return nil
	}
	return []model.InstanceStatus{next}
}

// readied returns the status of an instance that becomes ready. If the instance is a member of a replicated group, it
// is also in sync.
func (r *rehearsal) readied(inst *fsm.Instance, status model.InstanceStatus) model.InstanceStatus {
	status.Observed, status.Reason = model.ObservedReady, ""
	if _, member := r.in.State.MemberOf(inst); member {
		status.Facts = map[string]string{model.FactInSync: "true"}
	}
	return status
}

// settled corrects a forecast by what the rehearsal showed, because one decision can't show whether a blocker passes.
// It returns the forecast unchanged if the rehearsal did not come to rest, or if it shows nothing about the instance,
// for example because the node is offline.
func (f *forecaster) settled(out model.Forecast, inst *fsm.Instance) model.Forecast {
	n, _ := f.before.Nodes.Get(inst.Node)
	_, moves := f.before.Leaving(inst)
	if f.before.Unconfirmed || !f.rehearsal.quiet || n.Health == model.HealthOffline || moves ||
		out.Action == model.ActionLeave {
		return out
	}
	became := f.rehearsal.fates[inst.ID]
	if !became.gone {
		return f.stuck(out, inst)
	}
	out.Never, out.Target, out.After = false, became.target, became.after
	if f.rehearsal.drain().Options.MaxParallelNodes > 0 && out.Blocker != nil &&
		strings.HasPrefix(string(out.Blocker.Code), string(model.Unschedulable(""))) {
		out.Blocker = nil // there was no room while all nodes drained at once, but they take turns
	}
	switch {
	case out.Blocker != nil:
		out.Action = model.ActionWait
	case became.surged:
		out.Action = model.ActionMove
	case became.target != "":
		out.Action = model.ActionStopFirst
	default:
		out.Action = model.ActionStop
	}
	return out
}

// stuck returns the forecast for an instance that is still on its node when the drain can't go on.
func (f *forecaster) stuck(out model.Forecast, inst *fsm.Instance) model.Forecast {
	b, blocked := f.rehearsal.blocker(inst)
	if !blocked {
		return out // the instance stays and blocks nothing
	}
	if out.Blocker == nil || out.Blocker.Code != b.Code {
		out.Blocker = &b
	}
	out.Action, out.Never = model.ActionWait, !ofMembers(b.Code)
	return out
}

func (r *rehearsal) drain() *fsm.Drain {
	d, _ := r.in.State.Drains.Get(forecastID)
	return d
}

// last returns a node's part of the drain, and the last decision in which that part was in progress. ok is false if the
// part never began.
func (r *rehearsal) last(node model.NodeID) (p *pass, d drainPart, ok bool) {
	if p, ok = r.lasts[node]; !ok {
		return nil, d, false
	}
	drain, _ := p.in.State.Drains.Get(forecastID)
	part, _ := drain.Node(node)
	n, _ := p.in.State.Nodes.Get(node)
	return p, drainPart{drain, part, n}, true
}

// blocker returns why an instance is still on its node when the drain can't go on; false if the instance blocks
// nothing.
func (r *rehearsal) blocker(inst *fsm.Instance) (model.Blocker, bool) {
	p, d, ok := r.last(inst.Node)
	if !ok {
		return model.Blocker{}, false
	}
	now, there := p.in.State.Instances.Get(inst.ID)
	if !there {
		return model.Blocker{}, false
	}
	return p.blockerOf(&d, now)
}

// kept returns a blocker for each copy that keeps a node's drain from ending and that no instance uses any more. It
// returns nil if the node is drained.
func (r *rehearsal) kept(node model.NodeID) []model.Blocker {
	part, _ := r.drain().Node(node)
	p, d, ok := r.last(node)
	if !ok || part.Phase == model.PhaseDrained {
		return nil
	}
	return p.keptBlockers(&d)
}
