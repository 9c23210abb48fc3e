package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// rig gives a loop its states, evidence and log. It applies entries in the order of their submission.
type rig struct {
	t       *testing.T
	machine *fsm.Machine
	began   time.Time
	latency time.Duration         // least time between an entry's submission and its application
	each    time.Duration         // least time between two applied entries
	think   time.Duration         // least time that a decision takes
	refuse  func(fsm.Entry) error // if not nil, Submit calls refuse first, and fails if refuse returns an error

	mu        sync.Mutex
	index     uint64
	live      map[model.NodeID]fsm.Liveness
	liveNews  chan struct{}
	submitted int
	decisions int
	refusals  int
	skipped   int
	most      int // largest number of entries in flight
	underway  int
	last      chan struct{}
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, machine: fsm.NewMachine(), began: time.Now(), live: map[model.NodeID]fsm.Liveness{},
		liveNews: make(chan struct{}), last: make(chan struct{})}
	close(r.last)
	r.write(&fsm.ClusterInit{ID: "C1", Name: "test", Settings: model.DefaultSettings()})
	return r
}

func (r *rig) Now() model.Time                     { return model.Time(time.Since(r.began).Milliseconds()) + 1000 }
func (r *rig) Watch() (fsm.State, <-chan struct{}) { return r.machine.Watch() }
func (r *rig) LiveChanged() <-chan struct{}        { r.mu.Lock(); defer r.mu.Unlock(); return r.liveNews }
func (r *rig) count(f func(*rig) int) int          { r.mu.Lock(); defer r.mu.Unlock(); return f(r) }
func (r *rig) state() fsm.State                    { return r.machine.State() }
func (r *rig) Live() map[model.NodeID]fsm.Liveness {
	time.Sleep(r.think)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live
}

func (r *rig) config() reconcile.Config {
	return reconcile.Config{States: r, Evidence: r, Log: r, Term: 1, Reports: r.report}
}
func (r *rig) group(id model.GroupID) *fsm.Group { s := r.state(); g, _ := s.Groups.Get(id); return g }

// start runs a loop in the background. The function end cancels the loop's context, as the loss of leadership does, and
// waits until the loop has ended.
func (r *rig) start(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() { done <- reconcile.New(r.config()).Run(ctx) }()
	return func() {
		lost := errors.New("leadership lost")
		cancel(lost)
		if err := <-done; !errors.Is(err, lost) {
			r.t.Errorf("the loop ended with %v, want the cause", err)
		}
	}
}

func (r *rig) report(report reconcile.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if report.Took > 0 || report.Plan.Wake != 0 {
		r.decisions++
	}
	r.refusals += len(report.Refused)
	r.skipped += len(report.Skipped)
}

type outcome struct {
	done    chan struct{}
	results []fsm.Result
	err     error
}

func (o *outcome) Wait(ctx context.Context) ([]fsm.Result, error) {
	select {
	case <-o.done:
		return o.results, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (r *rig) Submit(_ context.Context, e fsm.Entry) (reconcile.Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.submitted++
	if r.refuse != nil {
		if err := r.refuse(e); err != nil {
			return nil, err
		}
	}
	r.underway++
	r.most = max(r.most, r.underway)
	o, before := &outcome{done: make(chan struct{})}, r.last
	r.last = o.done
	go func() {
		time.Sleep(r.latency)
		<-before
		time.Sleep(r.each)
		o.results, o.err = r.apply(e)
		close(o.done)
	}()
	return o, nil
}

func (r *rig) apply(e fsm.Entry) ([]fsm.Result, error) {
	e.At, e.Wall, e.Format = r.Now(), time.Now().UnixMilli(), 1
	data, err := fsm.EncodeEntry(e)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underway > 0 {
		r.underway--
	}
	r.index++
	return r.machine.Apply(r.index, 1, data)
}

// write commits a group of commands that does not come from the loop.
func (r *rig) write(group ...fsm.Command) {
	r.t.Helper()
	results, err := r.apply(fsm.Entry{Actor: "test", Groups: [][]fsm.Command{group}})
	if err == nil && results[0].Refusal != nil {
		err = results[0].Refusal
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) nodes(names ...model.NodeID) {
	for _, id := range names {
		r.write(&fsm.NodeRegister{ID: id, Name: string(id),
			Agent: model.AgentInfo{BootID: "b", Key: []byte("k"), Address: "127.0.0.1"},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 100_000, MemoryBytes: 8 << 40},
				PortMin: 20000, PortMax: 20999}})
		state := r.machine.State()
		n, _ := state.Nodes.Get(id)
		r.write(&fsm.NodeReport{ID: id, Epoch: n.Agent.Epoch, Full: true})
		r.live[id] = fsm.Liveness{Gossip: fsm.GossipAlive}
	}
}

// agents makes every agent report that its new instances are ready, and that its instances that should stop have
// stopped.
func (r *rig) agents() {
	s := r.state()
	for id, n := range s.Nodes.All() {
		report := &fsm.NodeReport{ID: id, Epoch: n.Agent.Epoch}
		for inst := range s.InstancesOn(id) {
			switch {
			case inst.Desired != model.DesiredRunning && !inst.Terminal():
				report.Instances = append(report.Instances,
					model.InstanceStatus{ID: inst.ID, Generation: inst.Status.Generation + 1, Observed: model.ObservedStopped})
			case inst.Status.Observed == model.ObservedPending:
				report.Instances = append(report.Instances,
					model.InstanceStatus{ID: inst.ID, Generation: inst.Status.Generation + 1, Observed: model.ObservedReady})
			}
		}
		if len(report.Instances) > 0 {
			r.write(report)
		}
	}
}

func TestLoopPlacesAndRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.latency = 3 * time.Millisecond
		r.nodes("n1", "n2", "n3")
		defer r.start(t.Context())()
		r.write(&fsm.JobSubmit{Spec: bigJob("web", 3)})
		time.Sleep(100 * time.Millisecond)
		if g := r.group("web/main"); g.Running != 3 {
			t.Fatalf("%d running, want 3", g.Running)
		}
		r.agents()
		time.Sleep(time.Second)
		index, decisions := r.state().Index, r.count(func(r *rig) int { return r.decisions })
		time.Sleep(10 * time.Minute)
		if got := r.state().Index; got != index {
			t.Errorf("a settled cluster wrote %d entries", got-index)
		}
		if got := r.count(func(r *rig) int { return r.decisions }) - decisions; got > 1 {
			t.Errorf("a settled cluster decided %d times in ten minutes", got)
		}
		if n := r.count(func(r *rig) int { return r.refusals }); n != 0 {
			t.Errorf("%d planned groups were refused", n)
		}
	})
}

// A deadline takes effect through the plan's own wake-up, even if another leader has taken over meanwhile.
func TestLoopWakesAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.nodes("n1", "n2")
		spec := bigJob("web", 2)
		spec.Groups[0].Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
		end := r.start(t.Context())
		r.write(&fsm.JobSubmit{Spec: spec})
		time.Sleep(time.Second)
		r.agents()
		r.write(&fsm.DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
		time.Sleep(50 * time.Minute)
		end()
		time.Sleep(2 * time.Second)
		defer r.start(t.Context())()
		phase := func() model.DrainPhase {
			s := r.state()
			d, _ := s.Drains.Get("d1")
			return d.Phase()
		}
		time.Sleep(9*time.Minute + 57*time.Second)
		if phase() != model.PhaseDraining {
			t.Fatalf("the drain is %s before its deadline", phase())
		}
		time.Sleep(2 * time.Second)
		if phase() != model.PhaseFailed {
			t.Fatalf("the drain is %s after its deadline", phase())
		}
	})
}

func TestLoopHeedsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.nodes("n1", "n2", "n3")
		defer r.start(t.Context())()
		time.Sleep(time.Minute)
		r.mu.Lock()
		r.live = map[model.NodeID]fsm.Liveness{"n1": {Age: 70 * model.Second, Gossip: fsm.GossipDead, Silent: true}}
		news := r.liveNews
		r.liveNews = make(chan struct{})
		r.mu.Unlock()
		close(news)
		time.Sleep(50 * time.Millisecond)
		s := r.state()
		if n, _ := s.Nodes.Get("n1"); n.Health != model.HealthOffline {
			t.Errorf("n1 is %s", n.Health)
		}
	})
}

// Many entries are in flight at the same time. A decision assumes that the entries in flight are applied, so nothing is
// placed twice.
func TestLoopPipelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.latency = 20 * time.Millisecond
		r.nodes("n1", "n2", "n3")
		r.write(&fsm.JobSubmit{Spec: bigJob("web", 5000)})
		defer r.start(t.Context())()
		for i := range 20 { // the state changes while entries are in flight
			time.Sleep(5 * time.Millisecond)
			r.write(&fsm.NodeLabel{ID: "n1", Labels: map[string]string{"step": fmt.Sprint(i + 1)}})
		}
		time.Sleep(time.Second)
		if g := r.group("web/main"); g.Running != 5000 || g.Placed != 5000 {
			t.Errorf("%d running, %d placements, want 5000", g.Running, g.Placed)
		}
		if n := r.count(func(r *rig) int { return r.most }); n < 4 {
			t.Errorf("at most %d entries were under way at once", n)
		}
		if n := r.count(func(r *rig) int { return r.refusals }); n != 0 {
			t.Errorf("%d planned groups were refused", n)
		}
	})
}

// While the loop's own entries are applied one by one, the loop does not decide again for each entry, because its
// decision already assumed that all are applied. If somebody else writes an entry meanwhile, the loop does decide
// again.
func TestLoopRestsWhileItsEntriesLand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.latency, r.each = 5*time.Millisecond, 40*time.Millisecond
		r.nodes("n1", "n2", "n3")
		r.write(&fsm.JobSubmit{Spec: bigJob("web", 5000)})
		before := r.count(func(r *rig) int { return r.decisions })
		defer r.start(t.Context())()
		time.Sleep(180 * time.Millisecond)
		decided := r.count(func(r *rig) int { return r.decisions }) - before
		if g := r.group("web/main"); g.Running == 0 || g.Running == 5000 {
			t.Fatalf("%d of 5000 are placed: this is to be looked at in the middle", g.Running)
		}
		if decided > 3 {
			t.Errorf("%d decisions while entries of one plan came back", decided)
		}
		r.write(&fsm.JobScale{Job: "web", Group: "main", Count: 5001})
		time.Sleep(30 * time.Millisecond)
		if n := r.count(func(r *rig) int { return r.decisions }) - before; n == decided {
			t.Error("what came in between was not heeded")
		}
		time.Sleep(time.Second)
		if g := r.group("web/main"); g.Running != 5001 || g.Placed != 5001 {
			t.Errorf("%d running, %d placements, want 5001", g.Running, g.Placed)
		}
	})
}

func TestLoopCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.nodes("n1")
		defer r.start(t.Context())()
		time.Sleep(time.Second)
		before := r.count(func(r *rig) int { return r.decisions })
		for i := range 1000 {
			r.write(&fsm.NodeLabel{ID: "n1", Labels: map[string]string{"step": fmt.Sprint(i + 1)}})
		}
		time.Sleep(time.Second)
		if n := r.count(func(r *rig) int { return r.decisions }) - before; n < 1 || n > 10 {
			t.Errorf("a burst of 1000 changes cost %d decisions", n)
		}
	})
}

// A new leader knows only the state, and finishes the work that the last leader began.
func TestLoopTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.latency = 10 * time.Millisecond
		r.nodes("n1", "n2", "n3")
		end := r.start(t.Context())
		r.write(&fsm.JobSubmit{Spec: bigJob("web", 6)})
		time.Sleep(100 * time.Millisecond)
		r.agents()
		time.Sleep(100 * time.Millisecond)
		r.write(&fsm.DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
		time.Sleep(5 * time.Millisecond) // the loop's entries are in flight now
		end()
		defer r.start(t.Context())()
		for range 5 {
			time.Sleep(200 * time.Millisecond)
			r.agents()
		}
		time.Sleep(time.Second)
		s := r.state()
		d, _ := s.Drains.Get("d1")
		g := r.group("web/main")
		if d.Phase() != model.PhaseDrained || g.Ready != 6 || g.Placed != 8 {
			t.Errorf("drain %s, %d ready, %d placements; want drained, 6 and 8", d.Phase(), g.Ready, g.Placed)
		}
		if err := fsm.Check(s); err != nil {
			t.Error(err)
		}
	})
}
