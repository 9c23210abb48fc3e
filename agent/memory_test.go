package agent

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// memory is a Runtime without processes, for tests in fake time. Safe for concurrent use.
type memory struct {
	boot time.Time

	mu      sync.Mutex
	tasks   map[driver.ID]*memTask
	started []driver.Spec
	refuse  error
	// lifetime is the time after which a program exits by itself, with code 1. 0 means never.
	lifetime time.Duration
	// lateness is the time between the exit of a program and the end of the processes that it left.
	lateness time.Duration
	// If stubborn is true, programs ignore the stop signal and exit only when they are killed.
	stubborn bool
	// exec runs the commands beside programs. If exec is nil, each command fails.
	exec  func(context.Context, driver.Command) (int, error)
	notes string // the texts of all calls of Note
	// If removal is not nil, the removal of a working directory waits until removal is closed.
	removal chan struct{}
}

func newMemory() *memory { return &memory{boot: time.Now(), tasks: map[driver.ID]*memTask{}} }

type memTask struct {
	id   driver.ID
	done chan struct{}

	mu    sync.Mutex
	dead  bool // the program has exited, but processes that it left may still run
	exit  *driver.Exit
	until driver.BootTime
	kill  *time.Timer
	m     *memory
}

func (m *memory) BootNow() driver.BootTime          { return driver.BootTime(time.Since(m.boot)) + 1 }
func (m *memory) Capabilities() driver.Capabilities { return driver.Capabilities{} }
func (m *memory) Close() error                      { return nil }

func (m *memory) Start(_ context.Context, spec driver.Spec) (Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return nil, m.refuse
	}
	t := &memTask{id: spec.ID, done: make(chan struct{}), until: spec.LeaseUntil, m: m}
	if old := m.tasks[spec.ID]; old != nil && !ended(old) {
		return nil, model.Refuse(driver.CodeStillRunning, "it runs")
	}
	m.tasks[spec.ID] = t
	m.started = append(m.started, spec)
	if m.lifetime > 0 {
		exit := driver.Exit{Reason: driver.ReasonExited, Code: 1, EndedAt: time.Now().Add(m.lifetime)}
		time.AfterFunc(m.lifetime, t.die)
		time.AfterFunc(m.lifetime+m.lateness, func() { t.finish(exit) })
	}
	return t, nil
}

func (m *memory) Readopt(context.Context, driver.ID) (Task, error) { return nil, nil }
func (m *memory) End(context.Context, driver.ID) error             { return nil }
func (m *memory) Launched(driver.ID) (driver.Spec, bool)           { return driver.Spec{}, false }

func (m *memory) Adopt(context.Context) ([]Task, []driver.ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Task
	for _, id := range sortedKeys(m.tasks) {
		list = append(list, m.tasks[id])
	}
	return list, nil, nil
}

func (m *memory) task(id model.InstanceID) *memTask {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tasks[driver.ID(id)]
}

// running returns the number of instances that have not ended.
func (m *memory) running() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, t := range m.tasks {
		if !ended(t) {
			n++
		}
	}
	return n
}

func (m *memory) starts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.started)
}

func (t *memTask) ID() driver.ID         { return t.id }
func (t *memTask) Done() <-chan struct{} { return t.done }
func (t *memTask) Remove() error         { return nil }

func (t *memTask) Signal(context.Context, syscall.Signal) error { return nil }

func (t *memTask) RemoveWork() error {
	if t.m.removal != nil {
		<-t.m.removal
	}
	return nil
}

func (t *memTask) die() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
}

func (t *memTask) Alive() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.dead && t.exit == nil
}

func (t *memTask) Exit() (driver.Exit, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit == nil {
		return driver.Exit{}, false
	}
	return *t.exit, true
}

func (t *memTask) finish(e driver.Exit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit == nil {
		t.exit = &e
		close(t.done)
		if t.kill != nil {
			t.kill.Stop()
		}
	}
}

func (t *memTask) Stop(ctx context.Context, _ syscall.Signal, grace time.Duration) error {
	switch {
	case grace == 0:
		t.finish(driver.Exit{Reason: driver.ReasonKilled, Code: 137, EndedAt: time.Now()})
	case !t.m.stubborn:
		t.finish(driver.Exit{Reason: driver.ReasonStopped, EndedAt: time.Now()})
	default:
		t.mu.Lock()
		t.kill = time.AfterFunc(grace, func() {
			t.finish(driver.Exit{Reason: driver.ReasonKilledAfterGrace, Code: 137, EndedAt: time.Now()})
		})
		t.mu.Unlock()
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *memTask) Renew(_ context.Context, until driver.BootTime) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = max(t.until, until)
	return nil
}

func (t *memTask) lease() driver.BootTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until
}

func (t *memTask) Exec(ctx context.Context, c driver.Command) (int, error) {
	t.m.mu.Lock()
	exec := t.m.exec
	t.m.mu.Unlock()
	if exec == nil {
		return 0, errors.New("a program in memory runs no commands")
	}
	return exec(ctx, c)
}

func (t *memTask) Enter(context.Context, driver.Session) (int, error) {
	return 0, errors.New("a program in memory runs no commands")
}

func (t *memTask) Stats() (driver.Stats, error) {
	if ended(t) {
		return driver.Stats{}, model.Refuse(model.CodeNotRunning, "it has ended")
	}
	return driver.Stats{At: driver.BootNow(), Processes: 1}, nil
}

func (t *memTask) Note(_ context.Context, text string) error {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	t.m.notes += text
	return nil
}

func (t *memTask) OpenLog(context.Context, driver.Stream, int64, bool) (Log, error) {
	return nil, io.ErrUnexpectedEOF
}

// bubble is a node without processes in a bubble of fake time, and a control plane with one server.
type bubble struct {
	*servers
	t     *testing.T
	cfg   Config
	mem   *memory
	beats Heartbeats
	host  string // identifies the machine and its boot; empty means the machine that the test runs on
	agent *Agent
	end   func()
}

func inBubble(t *testing.T, f func(t *testing.T, b *bubble)) {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{servers: newServers(t), t: t, mem: newMemory()}
		b.cfg = Config{
			Name: "n1", DataDir: filepath.Join(dir, "data"), Servers: b.servers, Runtime: b.mem,
			Log: testLog(t), SelfCheckEvery: -1,
			Node: NodeConfig{Address: "127.0.0.1", Capacity: model.Resources{CPU: 4000, MemoryBytes: 8 << 30}},
		}
		f(t, b)
		if b.end != nil {
			b.end()
		}
		if err := fsm.Check(b.m.State()); err != nil {
			t.Errorf("state: %v", err)
		}
	})
}

func (b *bubble) start() {
	b.t.Helper()
	a, err := New(b.cfg)
	must(b.t, err)
	if b.host != "" {
		a.shared.host = b.host
	}
	if b.beats != nil {
		a.UseHeartbeats(b.beats)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	b.agent = a
	b.end = func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("agent: %v", err)
		}
		b.end = nil
	}
	b.pass(time.Second)
}

// pass sleeps for d, and then waits until all goroutines are blocked.
func (b *bubble) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bubble) node() model.NodeID { return b.agent.Identity().Node }

// run submits a job of one group and places its instance. A container is placed once the agent has pulled its image,
// whatever the registry answers afterwards: an image may be gone when its instance starts.
func (b *bubble) run(job string, g model.GroupSpec) model.InstanceID {
	b.t.Helper()
	group := b.submit(job, g)
	if images, ok := b.cfg.Images.(*fixedImages); ok && g.Container != nil {
		pull := images.pull
		images.set(func() { images.pull = nil })
		row, _ := b.m.State().Groups.Get(group)
		b.apply(&fsm.ImageWant{Group: group, Version: row.Version, Node: b.node(), Cause: model.CauseScaleUp})
		b.pass(time.Second)
		images.set(func() { images.pull = pull })
	}
	var ports model.Ports
	for _, p := range g.Ports {
		ports = append(ports, model.Port{Name: p.Name, Number: p.Static})
	}
	return b.place(group, 0, b.node(), ports)
}

func (b *bubble) want(id model.InstanceID, observed model.Observed, reason string) fsm.Instance {
	b.t.Helper()
	synctest.Wait()
	i := b.instance(id)
	if i.Status.Observed != observed || i.Status.Reason != reason {
		b.t.Errorf("instance %s is %s (%s), want %s (%s); reported %q", id, i.Status.Observed, i.Status.Reason,
			observed, reason, b.history(id))
	}
	return i
}

func memExit(code int) driver.Exit {
	return driver.Exit{Reason: driver.ReasonExited, Code: code, EndedAt: time.Now()}
}

func fencedExit() driver.Exit {
	return driver.Exit{Reason: driver.ReasonFenced, Code: 137, EndedAt: time.Now()}
}

func drainBy(f func()) func(context.Context) error {
	return func(context.Context) error {
		f()
		return nil
	}
}
