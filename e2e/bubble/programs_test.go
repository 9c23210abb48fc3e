package bubble

import (
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent"
	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// settled is the time after which an agent treats a program without checks as ready.
const settled = 300 * time.Millisecond

// truth is the set of programs that really run, whatever the servers believe. Safe for concurrent use.
type truth struct {
	t *testing.T

	mu      sync.Mutex
	alive   map[model.InstanceID]*program
	starts  map[model.InstanceID]int
	stopped map[model.InstanceID]time.Time // when the program of an instance was first asked to stop
	floors  map[model.GroupID]int          // how many other programs of a group must serve when one is asked to stop
	epochs  map[string]uint64              // highest fencing epoch of the programs so far, by slot that has one holder
	stage   stage                          // the simulated roles of the programs
	losses  map[model.GroupID]time.Time    // when a program of the group last exited
	stops   func(*program)                 // called when a program is first asked to stop; see judgeCopies
}

func newTruth(t *testing.T) *truth {
	return &truth{
		t: t, alive: map[model.InstanceID]*program{}, starts: map[model.InstanceID]int{},
		stopped: map[model.InstanceID]time.Time{},
		floors:  map[model.GroupID]int{}, epochs: map[string]uint64{}, stage: newStage(),
		losses: map[model.GroupID]time.Time{}, stops: func(*program) {},
	}
}

// hold makes the test fail if, from now on, a program of the group is asked to stop while fewer than floor other
// programs of the group serve.
func (tr *truth) hold(group model.GroupID, floor int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.floors[group] = floor
}

func (tr *truth) count(group model.GroupID) int {
	n := 0
	for _, p := range tr.alive {
		if p.group == group && tr.stopped[p.instance].IsZero() && time.Since(p.began) >= settled {
			n++
		}
	}
	return n
}

// running lists the instances whose programs run.
func (tr *truth) running() []model.InstanceID {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Sorted(maps.Keys(tr.alive))
}

func (tr *truth) startsOf(id model.InstanceID) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.starts[id]
}

func (tr *truth) begin(p *program) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.alive[p.instance] != nil {
		tr.t.Errorf("two programs of instance %s run at once", p.instance)
	}
	if err := tr.mayBegin(p); err != nil {
		tr.t.Error(err)
	}
	tr.alive[p.instance] = p
	tr.starts[p.instance]++
	delete(tr.stopped, p.instance)
}

// mayBegin judges the start of a program by the programs that already run. The machine must have enough memory for all
// of its programs (S1). If a slot has one holder, no other program of the slot may run, and the fencing epoch must not
// go back (S2). tr.mu is held.
func (tr *truth) mayBegin(p *program) error {
	var f fsm.Findings
	memory := p.memory
	for _, other := range tr.alive {
		if other.node == p.node {
			memory += other.memory
		}
		if p.single() && other.group == p.group && other.slot == p.slot {
			f.Add(fsm.S2, "instance %s is started on %s while %s runs on %s, and its slot has one holder", p.instance,
				p.node, other.instance, other.node)
		}
	}
	if memory > nodeMemory {
		f.Add(fsm.S1, "with instance %s the programs on %s may use %d bytes, it has %d", p.instance,
			p.node, memory, int64(nodeMemory))
	}
	if slot := string(p.group) + "/" + p.slot; p.single() {
		if p.epoch < tr.epochs[slot] {
			f.Add(fsm.S2, "instance %s is started under the epoch %d of %s, and one ran under %d", p.instance,
				p.epoch, slot, tr.epochs[slot])
		}
		tr.epochs[slot] = max(p.epoch, tr.epochs[slot])
	}
	return f.Err()
}

// single reports whether the program's slot may have only one holder at a time.
func (t *program) single() bool { return t.fenced || t.env["ONE"] != "" }

func (tr *truth) told(p *program) {
	if tr.first(p) {
		tr.stops(p)
	}
}

// first records that a program was asked to stop, and reports whether that was the first time. The test fails if too
// few other programs of the group serve.
func (tr *truth) first(p *program) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !tr.stopped[p.instance].IsZero() {
		return false
	}
	tr.stopped[p.instance] = time.Now()
	if left := tr.count(p.group); left < tr.floors[p.group] {
		tr.t.Errorf("S3: instance %s was told to stop while %d of %s serve, %d must", p.instance, left,
			p.group, tr.floors[p.group])
	}
	return true
}

func (tr *truth) ended(p *program) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.alive[p.instance] == p {
		delete(tr.alive, p.instance)
		tr.losses[p.group] = time.Now()
	}
}

// programs is the agent.Runtime of one machine. It simulates processes in memory. Safe for concurrent use.
type programs struct {
	truth  *truth
	node   string
	images *store // nil if the machine runs no containers

	mu    sync.Mutex
	off   bool // the machine has no power
	boot  time.Time
	tasks map[driver.ID]*program
}

func newPrograms(truth *truth, node string) *programs {
	return &programs{truth: truth, node: node, boot: time.Now(), tasks: map[driver.ID]*program{}}
}

// program is one run of an instance.
type program struct {
	truth    *truth
	instance model.InstanceID
	group    model.GroupID
	slot     string
	node     string
	fenced   bool      // it may run only while it has a lease
	boot     time.Time // boot time of the machine
	began    time.Time
	slow     time.Duration // time that the program needs to exit after a stop signal
	memory   int64         // memory limit in bytes
	epoch    uint64        // fencing epoch; 0 means none
	env      map[string]string
	done     chan struct{}
	part     part // simulated role; guarded by truth.mu

	mu    sync.Mutex
	exit  *driver.Exit
	end   *time.Timer
	lease *time.Timer // kills the program at the end of its lease, as a shim would
}

// Start implements agent.Runtime.
func (p *programs) Start(_ context.Context, spec driver.Spec) (agent.Task, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return nil, context.Canceled // the agent of a machine without power is being stopped
	}
	if old := p.tasks[spec.ID]; old != nil && !old.over() {
		return nil, model.Refuse(driver.CodeStillRunning, "it runs")
	}
	p.images.mayStart(p.truth.t, spec)
	slow, _ := time.ParseDuration(spec.Env["SLOW"])
	t := &program{
		truth: p.truth, instance: model.InstanceID(spec.ID),
		group: model.GroupID(spec.Env["OUTSPAN_JOB"] + "/" + spec.Env["OUTSPAN_GROUP"]),
		slot:  spec.Env["OUTSPAN_SLOT"], node: p.node, fenced: spec.LeaseUntil != 0, boot: p.boot, began: time.Now(),
		slow: slow, done: make(chan struct{}),
		memory: spec.Limits.MemoryBytes, env: spec.Env,
	}
	t.epoch, _ = strconv.ParseUint(spec.Env["OUTSPAN_FENCING_EPOCH"], 10, 64)
	p.tasks[spec.ID] = t
	p.truth.begin(t)
	if t.fenced {
		_ = t.Renew(context.Background(), spec.LeaseUntil)
	}
	return t, nil
}

// Adopt implements agent.Runtime.
func (p *programs) Adopt(context.Context) ([]agent.Task, []driver.ID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []agent.Task
	for _, id := range slices.Sorted(maps.Keys(p.tasks)) {
		list = append(list, p.tasks[id])
	}
	return list, nil, nil
}

// Readopt implements agent.Runtime. It is never called, because Adopt reports no unclear tasks.
func (p *programs) Readopt(context.Context, driver.ID) (agent.Task, error) { return nil, nil }

// End implements agent.Runtime.
func (p *programs) End(context.Context, driver.ID) error { return nil }

// Launched implements agent.Runtime.
func (p *programs) Launched(driver.ID) (driver.Spec, bool) { return driver.Spec{}, false }

// Capabilities implements agent.Runtime.
func (p *programs) Capabilities() driver.Capabilities { return driver.Capabilities{} }

// BootNow implements agent.Runtime.
func (p *programs) BootNow() driver.BootTime {
	p.mu.Lock()
	defer p.mu.Unlock()
	return driver.BootTime(time.Since(p.boot)) + 1
}

// Close implements agent.Runtime.
func (p *programs) Close() error { return nil }

// powerOff makes every program disappear at once, without an exit status.
func (p *programs) powerOff() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tasks {
		p.truth.ended(t)
		t.forget()
	}
	clear(p.tasks)
	p.off = true
}

func (p *programs) powerOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		p.off, p.boot = false, time.Now()
	}
}

func (p *programs) running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, t := range p.tasks {
		if !t.over() {
			n++
		}
	}
	return n
}

func (t *program) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

func (t *program) finish(e driver.Exit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit != nil {
		return
	}
	t.exit = &e
	for _, timer := range []*time.Timer{t.end, t.lease} {
		if timer != nil {
			timer.Stop()
		}
	}
	t.truth.ended(t)
	close(t.done)
}

// crash makes the program exit with code 1.
func (t *program) crash() {
	t.finish(driver.Exit{Reason: driver.ReasonExited, Code: 1, EndedAt: time.Now()})
}

// forget stops the timers of a program whose machine lost power.
func (t *program) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, timer := range []*time.Timer{t.end, t.lease} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// ID implements agent.Task.
func (t *program) ID() driver.ID { return driver.ID(t.instance) }

// Done implements agent.Task.
func (t *program) Done() <-chan struct{} { return t.done }

// Exit implements agent.Task.
func (t *program) Exit() (driver.Exit, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit == nil {
		return driver.Exit{}, false
	}
	return *t.exit, true
}

// Stop implements agent.Task. The program exits after t.slow, or is killed after grace if grace is shorter.
func (t *program) Stop(ctx context.Context, _ syscall.Signal, grace time.Duration) error {
	t.truth.told(t)
	exit := driver.Exit{Reason: driver.ReasonStopped}
	if grace < t.slow {
		exit = driver.Exit{Reason: driver.ReasonKilledAfterGrace, Code: 137}
	}
	t.mu.Lock()
	if t.end != nil {
		t.end.Stop()
	}
	t.end = time.AfterFunc(min(grace, t.slow), func() {
		exit.EndedAt = time.Now()
		t.finish(exit)
	})
	t.mu.Unlock()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Renew implements agent.Task. When the lease expires, the program is killed.
func (t *program) Renew(_ context.Context, until driver.BootTime) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lease != nil {
		t.lease.Stop()
	}
	left := time.Until(t.boot.Add(time.Duration(until)))
	t.lease = time.AfterFunc(left, func() {
		t.finish(driver.Exit{Reason: driver.ReasonFenced, Code: 137, EndedAt: time.Now()})
	})
	return nil
}

// Exec implements agent.Task. The simulation answers checks, role checks and hooks.
func (t *program) Exec(ctx context.Context, c driver.Command) (int, error) {
	if t.over() {
		return 0, model.Refuse(driver.CodeNotRunning, "it does not run")
	}
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return t.truth.perform(ctx, t, c)
}

// Alive implements agent.Task.
func (t *program) Alive() bool { return !t.over() }

// Note implements agent.Task.
func (t *program) Note(context.Context, string) error { return nil }

// OpenLog implements agent.Task.
func (t *program) OpenLog(context.Context, driver.Stream, int64, bool) (agent.Log, error) {
	return nil, io.ErrUnexpectedEOF
}

// Signal implements agent.Task.
func (t *program) Signal(context.Context, syscall.Signal) error { return nil }

// RemoveWork implements agent.Task.
func (t *program) RemoveWork() error { return nil }

// Remove implements agent.Task.
func (t *program) Remove() error { return nil }

// toldToStop returns, for each instance whose program was asked to stop, the time of the first request.
func (tr *truth) toldToStop() map[model.InstanceID]time.Time {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return maps.Clone(tr.stopped)
}
