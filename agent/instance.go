package agent

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/bridge"
	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// shared has what all instances of the node have in common.
type shared struct {
	node       func() nodeFacts
	runtime    Runtime
	records    *records
	reports    *reporter
	volumes    *volumes
	uids       *uids
	ports      *driver.Ports
	lease      *lease
	host       string                           // this boot of this machine; see hostID
	acceptance atomic.Int32                     // whether the servers accept this agent: an acceptance of slot.go
	images     *nodeImages                      // nil if this node runs no containers
	networks   *bridge.Keeper                   // nil if this node has no networks for containers
	services   func() map[model.ServiceName]int // exposed services and their ports
	peers      *peers
	prepare    func(transport.Assignment) error
	problem    func(part, problem string)
	log        hclog.Logger
}

// instance supervises one assignment for as long as the node has the assignment. One goroutine calls run. The methods
// set, wake, wanted, current and isUnclear may be called from other goroutines.
//
// The states that it reports change as docs/model.md describes under "Instances": booting -> ready <-> unready ->
// draining -> stopped, and any -> failed. While a program that has ended waits for its restart, the instance is
// booting, or unready if it was ready before, and its reason says how the program ended.
type instance struct {
	id     model.InstanceID
	shared *shared
	log    hclog.Logger
	// changed has a value when run must look at the assignment again. Capacity 1.
	changed chan struct{}

	mu   sync.Mutex
	want transport.Assignment
	task Task // the latest program, running or ended; nil if no program is known
	// unclear is true while it is unknown whether a program that an earlier agent started still runs.
	unclear bool
	netLost string // what is missing of the program's network; "" if nothing is

	// Only the goroutine of run uses the fields below, except adopted.
	entry      entry
	retryAt    time.Time
	portsSince time.Time // since when a network that is not removed yet has a port; zero: none has
	told       int       // peers.version when the program was started or was last signalled
	held       string    // why a restart in place waits for the container runtime; "" if none does
	adopted    bool      // an earlier agent started the program; written only while no other goroutine reads it
	// pendingFinal is a final status that could not be written to the journal. It is reported once it has been written.
	pendingFinal *model.InstanceStatus
}

// journalRetry is the pause between two attempts to write a final status to the journal.
const journalRetry = time.Second

// newInstance makes the supervisor of the instance that e describes, and reports its status. task is what the runtime
// found of the instance, or nil. unclear is true if it is unknown yet whether the instance runs. newInstance claims the
// volumes and ports of an instance that runs or may run.
func newInstance(with *shared, e entry, task Task, unclear bool) *instance {
	i := &instance{
		id: e.Status.ID, shared: with, entry: e, want: e.Assignment, task: task, unclear: unclear,
		log: with.log.With("instance", e.Status.ID, "group", e.Assignment.Group), changed: make(chan struct{}, 1),
	}
	if len(e.Status.Facts) > 0 { // an earlier agent recorded them, and they may be out of date
		i.entry.Status.Facts = nil
		i.entry.Status.Generation++
		_ = with.records.save(i.id, i.entry) // a failure is logged; the next change writes the entry again
	}
	with.reports.set(i.entry.Status)
	with.uids.keep(e.Assignment, e.UID)
	runs := task != nil && !ended(task)
	if runs || unclear && !e.over() {
		i.adopt()
	}
	if runs || unclear { // other instances are started only after this claim
		with.claim(e.Assignment)
	}
	return i
}

// set replaces the assignment. If a.Spec is nil, the known spec is kept, because a stop needs it. set does not block.
func (i *instance) set(a transport.Assignment) {
	i.mu.Lock()
	if a.Spec == nil {
		a.Spec = i.want.Spec
	}
	i.want = a
	i.mu.Unlock()
	i.wake()
}

func (i *instance) wake() {
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

func (i *instance) wanted() transport.Assignment {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.want
}

func (i *instance) current() Task {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.task
}

// run supervises the instance until ctx ends. A running program continues after that.
func (i *instance) run(ctx context.Context) {
	i.recover(ctx)
	for ctx.Err() == nil {
		want := i.wanted()
		i.declinePreparation(want)
		switch {
		case i.pendingFinal != nil:
			i.wait(ctx, journalRetry)
			i.lastWord(*i.pendingFinal)
		case i.entry.Live:
			i.oversee(ctx)
		case want.Desired != model.DesiredRunning:
			i.shared.release(i.id)
			i.observe(model.ObservedStopped, i.entry.Status.Reason, i.entry.Status.ExitCode)
			i.wait(ctx, maxWait)
		case i.entry.Status.Observed == model.ObservedStopped:
			// The servers' state was restored, and in this state the instance should run. But a stopped instance never starts
			// again.
			i.observe(model.ObservedStopped, model.ReasonEnded, i.entry.Status.ExitCode)
			i.wait(ctx, maxWait)
		case i.entry.Status.Observed == model.ObservedFailed && want.RestartSeq <= i.entry.RestartSeq:
			i.wait(ctx, maxWait)
		default:
			i.start(ctx)
		}
	}
}

// wait blocks until the assignment changes, ctx ends, or d is over. It reports whether d is over.
func (i *instance) wait(ctx context.Context, d time.Duration) bool { return sleep(ctx, d, i.changed) }

// start starts the program, or handles the failure of the start. First it waits for the restart delay, the servers'
// acceptance, the image, the ports, the volumes, the slot, the lease and the list of peers. If the assignment changes
// or ctx ends meanwhile, it returns, and run decides again.
func (i *instance) start(ctx context.Context) {
	want := i.wanted()
	if want.Spec == nil {
		i.wait(ctx, maxWait) // the journal was lost, and the servers will send the spec
		return
	}
	if want.RestartSeq > i.entry.RestartSeq { // an operator requested a restart, so earlier failures don't count
		i.entry.RestartSeq, i.entry.Failures, i.retryAt = want.RestartSeq, nil, time.Time{}
	}
	if pause := time.Until(i.retryAt); pause > 0 && !i.wait(ctx, pause) {
		return
	}
	if !i.holdStanding(ctx) || !i.holdImage(ctx, want) || !i.holdPorts(ctx, want) || !i.holdVolumes(ctx, want) ||
		!i.holdSlot(ctx, want) {
		return
	}
	lease, ok := i.holdLease(ctx, want)
	if !ok || !i.awaitPeers(ctx, want) {
		return
	}
	if i.entry.Host != "" { // an earlier start made its volumes, so they must exist
		want.Held = volumeNames(want)
	}
	var spec driver.Spec
	want, uid, err := i.shared.asOwnUser(want, i.entry.Host != "" && i.entry.UID == 0)
	if err == nil {
		spec, err = i.shared.launch(ctx, want, lease)
	}
	if err == nil {
		err = i.shared.prepare(want)
	}
	if err == nil && want.Spec.Bridged() {
		err = i.shared.connect(ctx, want, &spec)
		i.setLostNetwork("") // an earlier report is about an earlier network
	}
	if runtimeDown(err) || i.entry.Host != "" && networkDown(err) {
		i.awaitRuntime(ctx, err)
		return
	}
	if err != nil {
		i.failed(failure{code: startFailed, detail: message(err), final: hopeless(err)})
		return
	}
	_, hooked := hookOf(want, model.HookAfterStart)
	// The journal must have these fields before the process exists. observe writes the journal.
	i.entry.Live, i.entry.AfterStart, i.adopted, i.entry.Host, i.entry.UID = true, hooked, false, i.shared.host, uid
	i.observe(i.down(), i.entry.Status.Reason, i.entry.Status.ExitCode)
	i.told = i.shared.peers.version(want.Group)
	task, err := i.shared.runtime.Start(ctx, spec)
	if err != nil {
		i.setLive(false)
		if ctx.Err() == nil {
			i.failed(failure{code: startFailed, detail: message(err), final: hopeless(err)})
		}
		return
	}
	i.mu.Lock()
	i.task = task
	i.mu.Unlock()
	i.log.Info("program started", "restarts", i.entry.Status.Restarts)
}

// holdVolumes claims the instance's volumes, and returns true. If another instance uses one of the volumes, holdVolumes
// claims no volume. It then blocks until a volume is released, the assignment changes or ctx ends, and returns false.
func (i *instance) holdVolumes(ctx context.Context, want transport.Assignment) bool {
	holder, freed := i.shared.volumes.claim(want)
	if holder == "" {
		return true
	}
	i.log.Info("waiting for a volume", "holder", holder)
	select {
	case <-freed:
	case <-i.changed:
	case <-ctx.Done():
	}
	return false
}

// oversee supervises a running program until the program has ended or was stopped, permanently or for a restart. It
// also returns when ctx ends, or when the assignment changes while the spec is unknown.
func (i *instance) oversee(ctx context.Context) {
	task := i.current()
	side := i.attend(ctx, task)
	defer side.stop()
	defer i.keepLease(ctx, task)()
	for ill := ""; ; {
		want, lost := i.wanted(), i.lostNetwork()
		again := i.holdRestart(ctx, task, lost, ill)
		switch {
		case ended(task):
			i.ended(task)
			return
		case want.Desired != model.DesiredRunning:
			side.stop()
			i.bringDown(ctx, task, want.Desired == model.DesiredDraining)
			return
		case again != nil:
		case want.RestartSeq > i.entry.RestartSeq:
			side.stop()
			i.restart(ctx, task)
			return
		case lost != "":
			side.stop()
			i.replaceNetwork(ctx, task, lost)
			return
		case ill != "":
			side.stop()
			i.restartIll(ctx, task, ill)
			return
		}
		side.prepare(want)
		i.tellPeers(ctx, task, want)
		select {
		case <-ctx.Done():
			return
		case <-task.Done():
		case <-again:
		case v := <-side.ready.out:
			ill = v.overdue
			if lost == "" { // otherwise no user reaches the program, whatever its checks say
				i.judge(v)
			}
		case found := <-side.role.out:
			i.learn(found)
		case r := <-side.before.result():
			side.conclude(r)
		case err := <-side.after.result():
			if why := side.afterStart(err); why != nil {
				side.stop()
				i.abandon(ctx, task, why)
				return
			}
		case <-i.changed:
			if want.Spec == nil { // the spec may be known now, and then the next oversee starts the checks
				return
			}
		}
	}
}

// judge reports the state that follows from the verdict of the checks.
func (i *instance) judge(v verdict) {
	switch {
	case v.ready:
		i.observe(model.ObservedReady, "", i.entry.Status.ExitCode)
	case v.reason != "":
		i.log.Warn("check failed", "reason", v.reason)
		i.observe(i.down(), "check_failed: "+v.reason, i.entry.Status.ExitCode)
	case i.entry.Status.Observed == model.ObservedReady:
		i.observe(model.ObservedUnready, "check_failed", i.entry.Status.ExitCode)
	}
}

// observe reports a state if it differs from the last one. Otherwise it only saves the entry. It drops the facts of a
// program that does not run.
func (i *instance) observe(o model.Observed, reason string, code *int) {
	s := i.entry.Status
	if !i.entry.Live {
		s.Facts = nil
	}
	if s.Observed == o && s.Reason == reason && equal(s.ExitCode, code) && s.Restarts == i.entry.Restarts &&
		len(s.Facts) == len(i.entry.Status.Facts) {
		_ = i.save() // a failure is logged; the next change writes the entry again
		return
	}
	s.Observed, s.Reason, s.ExitCode, s.Restarts = o, reason, code, i.entry.Restarts
	i.log.Info("instance is "+string(o), "reason", reason)
	i.report(s)
}

// learn reports the facts of the role check if they differ from the last ones. nil means that no fact is known any
// more.
func (i *instance) learn(found facts) {
	s := i.entry.Status
	if maps.Equal(s.Facts, found) {
		return
	}
	s.Facts = found
	i.log.Debug("facts changed", "facts", found)
	i.report(s)
}

// report writes a changed status to the journal, and reports it to the servers even if the write failed. For the stop
// of an instance that must not run twice, or whose spec is unknown, it calls lastWord instead.
func (i *instance) report(s model.InstanceStatus) {
	if s.Observed == model.ObservedStopped && (i.entry.Assignment.Spec == nil || i.entry.Assignment.Spec.OneHolder()) {
		i.lastWord(s)
		return
	}
	s.Generation++
	i.entry.Status = s
	_ = i.save() // a failure is logged; the next change writes the entry again
	i.shared.reports.set(s)
}

// lastWord reports the stop of an instance that must not run twice. It reports the stop only once the status is in the
// journal. Otherwise this agent could start the instance again after a restart, while another node runs its
// replacement. If the write fails, lastWord reports the error as the reason of an instance that has not stopped, and
// run tries again.
func (i *instance) lastWord(s model.InstanceStatus) {
	before := i.entry.Status
	s.Generation = before.Generation + 1
	i.entry.Status = s
	part, err := "journal of "+string(i.id), i.save()
	if err == nil {
		i.pendingFinal = nil
		i.shared.problem(part, "")
		i.shared.reports.set(s)
		return
	}
	i.shared.problem(part, message(err))
	i.pendingFinal = &s
	i.entry.Status = before
	waiting := before
	waiting.Reason, waiting.Facts = "it has ended; "+message(err), nil
	if waiting.Observed == model.ObservedReady {
		waiting.Observed = model.ObservedUnready
	}
	if waiting.Reason != before.Reason {
		waiting.Generation++
		i.entry.Status = waiting
		i.shared.reports.set(waiting)
	}
}

func (i *instance) save() error {
	i.entry.Assignment = i.wanted()
	return i.shared.records.save(i.id, i.entry)
}

func (i *instance) setLive(live bool) {
	i.entry.Live = live
	if !live {
		i.learn(nil)
	}
	_ = i.save() // a failure is logged; the next change writes the entry again
}

func ended(t Task) bool {
	select {
	case <-t.Done():
		return true
	default:
		return false
	}
}

func equal(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }
