package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// How many forgotten instances keep their logs, and for how long after their end. The servers have no row of a
// forgotten instance any more.
const (
	keepEnded    = 32
	keepEndedFor = 24 * time.Hour
)

// supervisors has all instances of the node, each with its own goroutine. Safe for concurrent use, except that adopt
// and converge must not run at the same time.
type supervisors struct {
	shared *shared
	wg     sync.WaitGroup
	ctx    context.Context // of the goroutines; set by adopt

	mu       sync.Mutex
	byID     map[model.InstanceID]*supervisor
	ended    []Task        // tasks of forgotten instances, the newest last
	toRemove []Task        // forgotten instances whose working directories must be removed
	dirty    chan struct{} // capacity 1; has a token when tidy has work
	tidied   chan struct{} // closed when tidy has returned
}

// tidyEnd is how long the removal of a directory may delay the agent's exit. The next agent process completes the
// removal.
const tidyEnd = time.Second

type supervisor struct {
	*instance
	stop func() // stops the instance's goroutine and waits until it has returned; the program continues

	unassigned bool // the last assignments did not list the instance; only the goroutine of keepAssigned uses this
}

func newSupervisors(with *shared) *supervisors {
	return &supervisors{shared: with, byID: map[model.InstanceID]*supervisor{}, dirty: make(chan struct{}, 1),
		tidied: make(chan struct{})}
}

// adopt takes over what an earlier agent left: the instances in the journal and those that the runtime finds. Running
// programs continue unchanged, even if no server can be reached. All instances, including later ones, are supervised
// until ctx ends.
func (c *supervisors) adopt(ctx context.Context) error {
	c.ctx = ctx
	go c.tidy(ctx)
	entries := c.shared.records.entries()
	tasks, unclear, err := c.shared.runtime.Adopt(ctx)
	if err != nil {
		return err
	}
	found, forgotten := c.sort(tasks, entries)
	c.enterUnclear(unclear, entries)
	// newInstance claims what a running instance uses. So all instances are made before one of them may start its program.
	var list []*instance
	for _, id := range sortedKeys(entries) {
		list = append(list, newInstance(c.shared, entries[id], found[id], slices.Contains(unclear, driver.ID(id))))
	}
	c.followPeers(list)
	for _, i := range list {
		c.begin(i)
	}
	c.mu.Lock()
	c.ended = forgotten
	c.mu.Unlock()
	for _, t := range forgotten {
		c.removeWork(t)
	}
	c.clean()
	if len(list) > 0 {
		c.shared.log.Info("adopted", "instances", len(list))
	}
	return nil
}

// sort returns the tasks of instances by id, and the ended tasks that the journal does not know, the newest last. It
// adds an entry for each running instance that the journal does not know.
func (c *supervisors) sort(tasks []Task, entries map[model.InstanceID]entry) (found map[model.InstanceID]Task,
	forgotten []Task) {
	found = make(map[model.InstanceID]Task, len(tasks))
	for _, t := range tasks {
		id := model.InstanceID(t.ID())
		_, known := entries[id]
		if !known && ended(t) {
			forgotten = append(forgotten, t)
			continue
		}
		found[id] = t
		c.enter(transport.Assignment{ID: id}, entries)
	}
	slices.SortFunc(forgotten, func(a, b Task) int { return endedAt(a).Compare(endedAt(b)) })
	return found, forgotten
}

// enter adds an entry for an instance that runs, or may run, if entries has none.
func (c *supervisors) enter(a transport.Assignment, entries map[model.InstanceID]entry) {
	if _, known := entries[a.ID]; known {
		return
	}
	c.shared.log.Warn("a program runs that the journal does not tell of; the servers will",
		"instance", a.ID, "group", a.Group)
	a.Desired = model.DesiredRunning
	entries[a.ID] = newEntry(a)
}

// newEntry begins the record of an instance. Its first generation is the Unix time in milliseconds. So if the journal
// is lost and the record begins again, its generations are still above all that were reported before.
func newEntry(a transport.Assignment) entry {
	return entry{
		Assignment: a, RestartSeq: a.RestartSeq,
		Status: model.InstanceStatus{ID: a.ID, Observed: model.ObservedPending, Generation: uint64(time.Now().UnixMilli())},
	}
}

func (c *supervisors) begin(i *instance) {
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	c.mu.Lock()
	c.byID[i.id] = &supervisor{instance: i, stop: func() { cancel(); <-done }}
	c.mu.Unlock()
	c.wg.Go(func() {
		defer close(done)
		defer cancel()
		i.run(ctx)
	})
}

// converge makes the node run the instances in a. The parameter now is the registration under which they are assigned.
// Other instances are stopped, except for those in a.Keep. While a restore of the servers' state is not confirmed, no
// instance is stopped for not being assigned. whole is false if an instance can't run because no answer so far
// contained its spec. converge blocks only for a moment, until the goroutines of forgotten instances have returned.
func (c *supervisors) converge(now registration, a transport.Assignments) (whole bool) {
	assigned := make(map[model.InstanceID]bool, len(a.Instances))
	var fresh []*instance
	whole = true
	for _, as := range a.Instances {
		assigned[as.ID] = true
		m := c.member(as.ID)
		if as.Desired == model.DesiredRunning && as.Spec == nil && (m == nil || m.wanted().Spec == nil) {
			whole = false
			continue
		}
		if m != nil {
			if m.unassigned { // the servers had no row of the instance when earlier reports arrived
				c.shared.reports.resend(as.ID)
			}
			m.set(as)
			continue
		}
		if err := checkAssignment(as); err != nil {
			c.shared.log.Error("assignment can't be carried out", "instance", as.ID, "error", err)
			continue
		}
		e := newEntry(as)
		if as.Desired == model.DesiredRunning && c.shared.records.hasStopped(as.ID) {
			e.Status.Observed, e.Status.Reason = model.ObservedStopped, model.ReasonEnded
		}
		fresh = append(fresh, newInstance(c.shared, e, nil, false))
	}
	for _, m := range c.list() {
		m.unassigned = !assigned[m.id]
	}
	if !a.Unconfirmed {
		for _, m := range c.list() {
			if !assigned[m.id] && !slices.Contains(a.Keep, m.id) {
				c.dismiss(m, slices.Contains(a.WithGrace, m.id))
			}
		}
	}
	c.followPeers(fresh)
	c.shared.lease.assigned(now, a)
	for _, i := range fresh { // after the stops above, so that these are requested first
		c.begin(i)
	}
	return whole
}

// forgetsSoon reports whether an instance that is not assigned any more has stopped, and is not forgotten yet.
func (c *supervisors) forgetsSoon() bool {
	return slices.ContainsFunc(c.list(), func(m *supervisor) bool {
		status, known := c.shared.reports.status(m.id)
		return m.unassigned && known && status.Observed == model.ObservedStopped
	})
}

// checkAssignment refuses a negative slot, a group of another job, and names that could lead out of the data directory.
func checkAssignment(a transport.Assignment) error {
	job, group := a.Group.Split()
	if !driver.ID(a.ID).Valid() || job != a.Job || !model.ValidName(string(job)) || !model.ValidName(group) || a.Slot < 0 {
		return model.Refuse(model.CodeInvalid, "instance %q of group %q, job %q, slot %d can't be run",
			a.ID, a.Group, a.Job, a.Slot)
	}
	return nil
}

// dismiss stops an instance that is not assigned to this node any more. It forgets the instance once the servers have
// acknowledged that it stopped. alone is true if the servers confirm that no other instance fills its slot. The
// instance gets its grace if alone is true, or if several instances may fill the slot. Otherwise it is stopped without
// grace.
func (c *supervisors) dismiss(m *supervisor, alone bool) {
	want := m.wanted()
	status, known := c.shared.reports.status(m.id)
	graceful := (alone || want.Spec != nil && !want.Spec.OneHolder()) && status.Observed != model.ObservedStopped
	switch {
	case want.Desired == model.DesiredStopped, want.Desired == model.DesiredDraining && graceful:
	case graceful:
		m.log.Info("not assigned to this node any more, it has its grace")
		want.Desired, want.Prepare, want.Gates = model.DesiredDraining, 0, nil
		m.set(want)
	default:
		m.log.Info("not assigned to this node any more")
		want.Desired = model.DesiredStopped
		m.set(want)
	}
	if !known || status.Observed != model.ObservedStopped || m.isUnclear() ||
		!c.shared.reports.delivered(m.id, status.Generation) {
		return
	}
	m.stop()
	c.shared.records.noteStopped(m.id)
	c.shared.records.remove(m.id)
	c.shared.reports.forget(m.id)
	c.shared.uids.release(m.id)
	c.mu.Lock()
	delete(c.byID, m.id)
	t := m.current()
	if t != nil {
		c.ended = append(c.ended, t)
	}
	c.mu.Unlock()
	c.shared.images.forgot()
	if t != nil {
		c.removeWork(t)
	}
	c.clean()
}

// removeWork queues the working directory of a forgotten instance for removal, and does not block. The logs are kept.
func (c *supervisors) removeWork(t Task) {
	c.mu.Lock()
	c.toRemove = append(c.toRemove, t)
	c.mu.Unlock()
	c.clean()
}

func (c *supervisors) clean() {
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

// tidy removes what is left of forgotten instances until ctx ends. It has its own goroutine, because the removal of a
// large directory may take minutes.
func (c *supervisors) tidy(ctx context.Context) {
	defer close(c.tidied)
	for {
		select {
		case <-c.dirty:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		litter := c.toRemove
		c.toRemove = nil
		c.mu.Unlock()
		for _, t := range litter {
			if ctx.Err() != nil {
				return
			}
			if err := t.RemoveWork(); err != nil {
				c.shared.log.Warn("working directory of an ended instance could not be removed", "instance", t.ID(), "error", err)
			}
		}
		c.expire(ctx)
	}
}

// expire removes the oldest forgotten instances and their logs, so that keepEnded and keepEndedFor are not exceeded.
func (c *supervisors) expire(ctx context.Context) {
	c.mu.Lock()
	var old []Task
	for len(c.ended) > 0 && (len(c.ended) > keepEnded || time.Since(endedAt(c.ended[0])) > keepEndedFor) {
		old, c.ended = append(old, c.ended[0]), c.ended[1:]
	}
	c.mu.Unlock()
	for _, t := range old {
		if ctx.Err() != nil {
			return
		}
		if err := t.Remove(); err != nil {
			c.shared.log.Warn("ended instance could not be removed", "instance", t.ID(), "error", err)
		}
	}
}

func endedAt(t Task) time.Time {
	exit, _ := t.Exit()
	return exit.EndedAt
}

// holds returns all instances of the node with the slots that they fill.
func (c *supervisors) holds() []model.Holding {
	var list []model.Holding
	for _, m := range c.list() {
		want := m.wanted()
		list = append(list, holding(want))
	}
	return list
}

// holding describes an instance so that servers whose state lacks the instance's row can add the row again.
func holding(a transport.Assignment) model.Holding {
	h := model.Holding{ID: a.ID, Group: a.Group, Slot: a.Slot, RestartSeq: a.RestartSeq}
	if a.Spec == nil {
		return h
	}
	h.Spec = a.Spec.Digest()
	for name, port := range a.Ports {
		h.Ports = append(h.Ports, model.Port{Name: name, Number: port})
	}
	h.Ports.Sorted()
	for _, v := range a.Spec.Volumes {
		h.Copies = append(h.Copies, model.VolumeEpoch{Name: v.Name, Epoch: a.Copies[v.Name]})
	}
	return h
}

func (c *supervisors) member(id model.InstanceID) *supervisor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id]
}

// list returns all instances in order of id.
func (c *supervisors) list() []*supervisor {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*supervisor, 0, len(c.byID))
	for _, m := range c.byID {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *supervisor) int { return cmp.Compare(a.id, b.id) })
	return list
}

// task returns the latest task of an instance, which may be a forgotten one. It returns false if the instance has no
// task.
func (c *supervisors) task(id model.InstanceID) (Task, bool) {
	if m := c.member(id); m != nil {
		t := m.current()
		return t, t != nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range slices.Backward(c.ended) {
		if t.ID() == driver.ID(id) {
			return t, true
		}
	}
	return nil, false
}

// running returns how many instances have programs that run, or may run.
func (c *supervisors) running() int {
	n := 0
	for _, m := range c.list() {
		if t := m.current(); m.isUnclear() || t != nil && !ended(t) {
			n++
		}
	}
	return n
}

// wait blocks until the goroutines of all instances have returned. The context given to adopt must have ended before.
// wait gives a removal of a directory that still runs at most tidyEnd.
func (c *supervisors) wait() {
	c.wg.Wait()
	select {
	case <-c.tidied:
	case <-time.After(tidyEnd):
	}
}
