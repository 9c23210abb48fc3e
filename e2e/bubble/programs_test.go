package bubble

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent"
	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
)

// settled is after how long a program without checks counts as ready at its agent.
const settled = 300 * time.Millisecond

// truth is what really runs, whatever the servers believe. Safe for many goroutines.
type truth struct {
	t *testing.T

	mu      sync.Mutex
	alive   map[fsm.InstanceID]*program
	starts  map[fsm.InstanceID]int
	stopped map[fsm.InstanceID]time.Time // when a program was told to stop
	floors  map[fsm.GroupID]int          // how many of a group must serve whenever one of it is told to stop
}

func newTruth(t *testing.T) *truth {
	return &truth{
		t: t, alive: map[fsm.InstanceID]*program{}, starts: map[fsm.InstanceID]int{}, stopped: map[fsm.InstanceID]time.Time{},
		floors: map[fsm.GroupID]int{},
	}
}

// hold fails the test from now on when a program of the group is told to stop while fewer than floor others serve.
func (tr *truth) hold(group fsm.GroupID, floor int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.floors[group] = floor
}

func (tr *truth) count(group fsm.GroupID) int {
	n := 0
	for _, p := range tr.alive {
		if p.group == group && tr.stopped[p.instance].IsZero() && time.Since(p.began) >= settled {
			n++
		}
	}
	return n
}

// running lists the instances that have a program.
func (tr *truth) running() []fsm.InstanceID {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Sorted(maps.Keys(tr.alive))
}

func (tr *truth) startsOf(id fsm.InstanceID) int {
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
	tr.alive[p.instance] = p
	tr.starts[p.instance]++
	delete(tr.stopped, p.instance)
}

func (tr *truth) told(p *program) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !tr.stopped[p.instance].IsZero() {
		return
	}
	tr.stopped[p.instance] = time.Now()
	if left := tr.count(p.group); left < tr.floors[p.group] {
		tr.t.Errorf("instance %s was told to stop while %d of %s serve, %d must", p.instance, left, p.group, tr.floors[p.group])
	}
}

func (tr *truth) ended(p *program) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.alive[p.instance] == p {
		delete(tr.alive, p.instance)
	}
}

// programs is the agent.Runtime of one machine, without processes. Safe for many goroutines.
type programs struct {
	truth *truth
	node  string

	mu    sync.Mutex
	boot  time.Time
	tasks map[driver.ID]*program
}

func newPrograms(truth *truth, node string) *programs {
	return &programs{truth: truth, node: node, boot: time.Now(), tasks: map[driver.ID]*program{}}
}

// program is one run of an instance.
type program struct {
	truth    *truth
	instance fsm.InstanceID
	group    fsm.GroupID
	node     string
	began    time.Time
	slow     time.Duration // how long it takes to end when it is asked to
	done     chan struct{}

	mu   sync.Mutex
	exit *driver.Exit
	end  *time.Timer
}

// Start implements agent.Runtime.
func (p *programs) Start(_ context.Context, spec driver.Spec) (agent.Task, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.tasks[spec.ID]; old != nil && !old.over() {
		return nil, fsm.Refuse(driver.CodeStillRunning, "it runs")
	}
	slow, _ := time.ParseDuration(spec.Env["SLOW"])
	t := &program{
		truth: p.truth, instance: fsm.InstanceID(spec.ID), group: fsm.GroupID(spec.Env["OUTSPAN_JOB"] + "/" + spec.Env["OUTSPAN_GROUP"]),
		node: p.node, began: time.Now(), slow: slow, done: make(chan struct{}),
	}
	p.tasks[spec.ID] = t
	p.truth.begin(t)
	return t, nil
}

// Adopt implements agent.Runtime.
func (p *programs) Adopt(context.Context) ([]agent.Task, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []agent.Task
	for _, id := range slices.Sorted(maps.Keys(p.tasks)) {
		list = append(list, p.tasks[id])
	}
	return list, nil
}

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

// powerOff ends every program without a trace: who waited for one of them is gone too.
func (p *programs) powerOff() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tasks {
		p.truth.ended(t)
	}
	clear(p.tasks)
	p.boot = time.Now()
}

// running counts programs.
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
	if t.end != nil {
		t.end.Stop()
	}
	t.truth.ended(t)
	close(t.done)
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

// Stop implements agent.Task: the program takes its time, at most its grace.
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

// Renew implements agent.Task.
func (t *program) Renew(context.Context, driver.BootTime) error { return nil }

// Exec implements agent.Task.
func (t *program) Exec(context.Context, []string) (int, string, error) {
	return 0, "", errors.New("a program in memory runs no commands")
}

// OpenLog implements agent.Task.
func (t *program) OpenLog(context.Context, driver.Stream, int64, bool) (agent.Log, error) {
	return nil, io.ErrUnexpectedEOF
}

// Remove implements agent.Task.
func (t *program) Remove() error { return nil }
