package fsm_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outspan/outspan/api/frame"
	"github.com/outspan/outspan/fleet"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A reader of the page's stream has exactly the rows of the state at the index of each whole frame: with random
// entries and restores, with rights that change, with readers that pause, and with streams that break and begin anew.
func TestStreamHasTheRowsOfItsIndex(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(check *rapid.T) {
		var failed any // rapid fails by panics, which must pass through its own goroutine
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			randomStreams(check, seen)
		})
		if failed != nil {
			panic(failed)
		}
	})
	t.Logf("compared: %v", seen)
	for _, what := range []string{"frames", "slow frames", "second snapshots", "hidden instances", "named nodes"} {
		if seen[what] == 0 {
			t.Errorf("no history had %s", what)
		}
	}
}

func randomStreams(t *rapid.T, seen map[string]int) {
	s := &streams{t: t, states: map[uint64]*fsm.State{}, seen: seen}
	defer func() {
		for _, r := range s.readers {
			r.close()
		}
	}()
	fsm.RandomHistory(t, 60, func(m *fsm.Machine) {
		s.publisher = fleet.New(fleet.Config{Server: "s1", Changes: m.Changes, Leader: func() string { return "s1" },
			Age: func() time.Duration { return 0 }})
		s.states[m.Current().Index] = m.Current()
		for i := range 4 {
			s.readers = append(s.readers, newReader(s, i))
		}
		synctest.Wait()
	}, func(m *fsm.Machine) {
		s.mu.Lock()
		s.states[m.Current().Index] = m.Current()
		s.salt += rapid.SampledFrom([]uint64{0, 0, 0, 0, 0, 1}).Draw(t, "salt")
		s.mu.Unlock()
		for _, r := range s.readers {
			r.step(rapid.IntRange(0, 9).Draw(t, "reader"))
		}
		time.Sleep(rapid.SampledFrom([]time.Duration{0, 0, 100 * time.Millisecond, 300 * time.Millisecond}).Draw(t, "wait"))
		synctest.Wait()
		s.check()
	})
	for _, r := range s.readers {
		r.resume()
	}
	time.Sleep(1500 * time.Millisecond)
	synctest.Wait()
	s.check()
	last := uint64(0)
	for index := range s.states {
		last = max(last, index)
	}
	for _, r := range s.readers {
		if r.whole < last {
			t.Fatalf("reader %d has index %d in the end, and the state is at %d", r.n, r.whole, last)
		}
	}
}

// streams is readers of one Publisher.
type streams struct {
	t         *rapid.T
	publisher *fleet.Publisher
	readers   []*reader

	mu     sync.Mutex
	states map[uint64]*fsm.State
	salt   uint64 // changes what restricted readers may see, once the rights change
	seen   map[string]int
	fault  string // the first
}

// reader is one reader. Its n says what it may see and asks for.
type reader struct {
	s      *streams
	n      int
	scope  fleet.Scope
	gate   chan struct{} // full while it pauses
	paused bool
	cancel context.CancelFunc
	ended  chan struct{}
	frames frame.Reader
	starts int

	salt  uint64 // of what it last saw
	looks uint64 // salt of what it may see now
	whole uint64 // index of the last whole frame
}

func newReader(s *streams, n int) *reader {
	r := &reader{s: s, n: n, gate: make(chan struct{}, 1)}
	if n == 2 {
		r.scope.Job = "web"
	}
	r.open()
	return r
}

func (r *reader) open() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan struct{})
	r.starts++
	go func() {
		defer close(r.ended)
		if err := r.s.publisher.Serve(ctx, nil, r.scope, r.look, r.take); err != nil && !errors.Is(err, errBroken) {
			panic(err)
		}
	}()
}

var errBroken = errors.New("broken")

func (r *reader) close() {
	r.resume()
	r.cancel()
	<-r.ended
}

func (r *reader) resume() {
	if r.paused {
		r.paused = false
		<-r.gate
	}
}

// step lets the reader pause, go on or break its stream.
func (r *reader) step(draw int) {
	switch {
	case draw == 0 && !r.paused:
		r.gate <- struct{}{}
		r.paused = true
	case draw == 1:
		r.resume()
	case draw == 2:
		r.close()
		r.open()
	}
}

// look returns what the reader may see. Two of the readers may see only some nodes and instances, by a hash.
func (r *reader) look(*fsm.State) (fleet.Sight, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.looks = r.s.salt
	return r.sight(r.looks), nil
}

// sight returns what the reader may see with a salt.
func (r *reader) sight(salt uint64) fleet.Sight {
	if r.n == 0 || r.n == 2 {
		return fleet.Sight{}
	}
	return fleet.Sight{Key: fmt.Sprint(salt), Node: func(name string) bool { return hashed(salt, name) },
		Instance: func(job model.JobName, class model.ClassName, node string) bool {
			return hashed(salt, string(job), string(class), node)
		}}
}

func hashed(salt uint64, words ...string) bool {
	h := fnv.New32a()
	fmt.Fprintf(h, "%d %q", salt, words)
	return h.Sum32()>>7%2 == 0
}

// take reads a frame, and compares a whole picture with the state of its index.
func (r *reader) take(raw []byte) error {
	slow := len(r.gate) > 0
	r.gate <- struct{}{} // after the pause
	<-r.gate
	p, err := r.frames.Apply(slices.Clone(raw))
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	switch {
	case err != nil:
		r.s.fails("reader %d: %v", r.n, err)
		return nil
	case p == nil || !p.Whole || p.Flags&frame.FlagWhole == 0:
		return nil
	}
	r.s.seen["frames"]++
	if slow {
		r.s.seen["slow frames"]++
	}
	if r.starts > 1 {
		r.s.seen["second snapshots"]++
	}
	state := r.s.states[p.Index]
	if state == nil {
		r.s.fails("a frame shows index %d, which no state had", p.Index)
		return nil
	}
	r.whole = p.Index
	got, diff := r.shown(p), ""
	for ; r.salt <= r.looks; r.salt++ { // a frame that was being sent may show what the reader might see before
		want := r.expected(state, r.sight(r.salt))
		if reflect.DeepEqual(want, got) {
			return nil
		}
		diff = cmp.Diff(want, got)
	}
	r.s.fails("reader %d at index %d (-want +got):\n%s", r.n, p.Index, diff)
	return nil
}

func (s *streams) fails(format string, args ...any) {
	if s.fault == "" {
		s.fault = fmt.Sprintf(format, args...)
	}
}

// check fails the test if a reader has found a fault.
func (s *streams) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != "" {
		s.t.Fatal(s.fault)
	}
}

// rows are the rows of a picture or a state as texts, sorted, and what is hidden.
type rows struct {
	Nodes, Groups, Instances []string
	Counts                   frame.Counts
}

func (r *reader) shown(p *frame.Picture) (all rows) {
	for h, state := range p.Nodes.Columns[frame.State] {
		if state != 0 {
			row := p.Nodes.Names[h]
			for _, c := range p.Nodes.Columns {
				row += fmt.Sprint(" ", c[h])
			}
			all.Nodes = append(all.Nodes, row)
		}
	}
	for h, state := range p.Groups.Columns[frame.State] {
		if state != 0 {
			all.Groups = append(all.Groups, p.Groups.Names[h])
		}
	}
	c := p.Instances.Columns
	for h, state := range c[frame.State] {
		if state == 0 {
			continue
		}
		if !p.Nodes.Has(c[frame.InstanceNode][h]) || !p.Groups.Has(c[frame.InstanceGroup][h]) {
			r.s.fails("instance %d is on no node or of no group", h)
			continue
		}
		all.Instances = append(all.Instances, fmt.Sprintf("%s %s %d %x", p.Nodes.Names[c[frame.InstanceNode][h]],
			p.Groups.Names[c[frame.InstanceGroup][h]], c[frame.InstanceSlot][h], state))
	}
	slices.Sort(all.Nodes)
	slices.Sort(all.Groups)
	slices.Sort(all.Instances)
	all.Counts = p.Counts
	return all
}

// expected computes from a state, without the Publisher, what the reader should have.
func (r *reader) expected(s *fsm.State, sight fleet.Sight) (all rows) {
	counts := frame.Counts{Nodes: map[string]int{"total": 0}, Instances: map[string]int{"total": 0}}
	for _, state := range frame.NodeStates() {
		counts.Nodes[string(state)] = 0
	}
	for _, o := range frame.ObservedStates() {
		counts.Instances[string(o)] = 0
	}
	used := map[model.NodeID]bool{}
	for _, i := range s.Instances.All() {
		job, _ := i.Group.Split()
		n, _ := s.Nodes.Get(i.Node)
		if i.Terminal() || r.scope.Job != "" && r.scope.Job != job {
			continue
		}
		class := model.ClassProduction
		if j, ok := s.Jobs.Get(job); ok {
			class = j.Class
		}
		if sight.Instance != nil && !sight.Instance(job, class, n.Name) {
			counts.HiddenInstances++
			r.s.seen["hidden instances"]++
			continue
		}
		used[i.Node] = true
		counts.Instances["total"]++
		counts.Instances[string(i.Status.Observed)]++
		state := uint32(slices.Index(frame.ObservedStates(), i.Status.Observed) + 1)
		switch i.Desired {
		case model.DesiredDraining:
			state |= frame.DesiredDraining
		case model.DesiredStopped:
			state |= frame.DesiredStopped
		case model.DesiredRunning:
		}
		if i.Eviction.Requested {
			state |= frame.InstanceRequested
		}
		if i.Links.HasVolumes {
			state |= frame.InstanceVolumes
		}
		all.Instances = append(all.Instances, fmt.Sprintf("%s %s %d %x", n.Name, i.Group, i.Slot, state))
		all.Groups = append(all.Groups, string(i.Group))
	}
	for _, n := range s.Nodes.All() {
		may := sight.Node == nil || sight.Node(n.Name)
		state := slices.Index(frame.NodeStates(), n.State()) + 1
		switch {
		case r.scope.Job != "":
		case may:
			counts.Nodes["total"]++
			counts.Nodes[string(n.State())]++
		default:
			counts.HiddenNodes++
		}
		switch {
		case may && (r.scope.Job == "" || used[n.ID]):
			all.Nodes = append(all.Nodes, fmt.Sprintf("%s %d %d %d %d %d %d", n.Name, state,
				max(n.Allocatable().CPU, 0), max(n.Allocatable().MemoryBytes>>20, 0), n.Placed.CPU,
				n.Placed.MemoryBytes>>20, n.Placed.Instances))
		case used[n.ID]:
			r.s.seen["named nodes"]++
			all.Nodes = append(all.Nodes, fmt.Sprintf("%s %d 0 0 0 0 0", n.Name, frame.NodeNamed))
		}
	}
	slices.Sort(all.Nodes)
	slices.Sort(all.Groups)
	all.Groups = slices.Compact(all.Groups)
	slices.Sort(all.Instances)
	all.Counts = counts
	return all
}
