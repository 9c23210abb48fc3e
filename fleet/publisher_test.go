package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/api/frame"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// picture follows a stream in a test.
type picture struct {
	frame.Reader
	last *frame.Picture
}

func (p *picture) take(raw []byte) error {
	last, err := p.Apply(raw)
	p.last = last
	return err
}

// Readers of the same rights share each frame, and nobody else gets it.
func TestReadersShareFrames(t *testing.T) {
	m := newFleet(t, 4, 3, 4)
	p := newTestPublisher(m)
	some := func(key string) func(*fsm.State) (Sight, error) {
		return func(*fsm.State) (Sight, error) {
			return Sight{Key: key, Instance: func(job model.JobName, _ model.ClassName, _ string) bool {
				return job == jobName(0)
			}}, nil
		}
	}
	var readers []*conn
	for _, look := range []func(*fsm.State) (Sight, error){seesAll, seesAll, some("x"), some("x"), some("y")} {
		c := must(p.join(Scope{}, look))(t)
		halt(p)
		drain(t, p, c)
		readers = append(readers, c)
	}
	defer leaveAll(p, readers)
	apply(t, m, []fsm.Command{report(0, instanceID(0, 0), 2, model.ObservedUnready)})
	p.tick(t.Context())
	var got []*byte
	for _, c := range readers {
		got = append(got, &must(p.take(c))(t)[0])
	}
	if got[0] != got[1] || got[2] != got[3] || got[0] == got[2] || got[2] == got[4] || got[0] == got[4] {
		t.Errorf("the frames are %v", got)
	}
}

// A reader whose socket is full holds no more than its bound, however much changes, and has the newest rows once it
// reads again.
func TestSlowReaderHoldsLittle(t *testing.T) {
	m := newFleet(t, 50, 80, 100)
	p := newTestPublisher(m)
	here, there := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = p.Serve(ctx, nil, Scope{}, seesAll, func(b []byte) error { _, err := here.Write(b); return err })
	})
	defer wg.Wait()
	defer cancel()
	defer here.Close()
	generation := uint64(1)
	most, behind := 0, false
	for round := range 30 {
		generation++
		o := model.ObservedUnready
		if round/4%2 == 1 {
			o = model.ObservedReady
		}
		var groups [][]fsm.Command
		for i := range 2000 { // of 8,000, so that the rows don't fit into one frame
			i += round % 4 * 2000
			groups = append(groups, []fsm.Command{report(i%50, instanceID(i/100, i%100), generation, o)})
		}
		apply(t, m, groups...)
		p.tick(ctx)
		p.mu.Lock()
		for _, c := range p.conns {
			most, behind = max(most, c.memory()), c.behind
		}
		p.mu.Unlock()
	}
	if most == 0 || most > 64<<10 || !behind {
		t.Errorf("the slow reader held up to %d bytes; it is behind: %v", most, behind)
	}
	var seen picture
	var buf []byte
	_ = there.SetReadDeadline(time.Now().Add(30 * time.Second))
	for seen.last == nil || !seen.last.Whole || seen.last.Index != m.Current().Index {
		var err error
		if buf, err = frame.Read(there, buf); err != nil {
			t.Fatal(err)
		}
		if err := seen.take(buf); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]uint32{}
	c := seen.last.Instances.Columns
	for h := range c[frame.State] {
		key := fmt.Sprint(seen.last.Groups.Names[c[frame.InstanceGroup][h]], " ", c[frame.InstanceSlot][h])
		got[key] = c[frame.State][h]
	}
	if len(got) != 8000 {
		t.Errorf("%d instances in the whole picture, want 8000", len(got))
	}
	for _, i := range m.Current().Instances.All() {
		if key := fmt.Sprint(i.Group, " ", i.Slot); got[key] != instanceState(i) {
			t.Fatalf("instance %s has the state %d, want %d", key, got[key], instanceState(i))
		}
	}
}

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (here, there net.Conn) {
	t.Helper()
	l := must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	there = must((&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String()))(t)
	here = must(l.Accept())(t)
	t.Cleanup(func() { here.Close(); there.Close() })
	must(0, here.(*net.TCPConn).SetWriteBuffer(4096))(t) // so that a reader that takes nothing soon blocks the writer
	must(0, there.(*net.TCPConn).SetReadBuffer(4096))(t)
	return here, there
}

// Nothing runs and nothing is collected while nobody reads: not before the first reader, and not after the last.
func TestNothingRunsWithoutReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFleet(t, 2, 1, 2)
		p := newTestPublisher(m)
		for range 2 {
			if p.running != nil {
				t.Fatal("it runs before there is a reader")
			}
			a, b := must(p.join(Scope{}, seesAll))(t), must(p.join(Scope{}, seesAll))(t)
			p.leave(a)
			if p.running == nil || p.table == nil {
				t.Fatal("it does not run, and there is a reader")
			}
			p.leave(b)
			if p.running != nil || p.table != nil || p.changes != nil {
				t.Fatal("it runs after the last reader has left")
			}
		}
		refused := errors.New("refused")
		err := p.Serve(t.Context(), nil, Scope{}, func(*fsm.State) (Sight, error) { return Sight{}, refused }, nil)
		if !errors.Is(err, refused) || p.running != nil {
			t.Errorf("a refused reader: %v, and it runs: %v", err, p.running != nil)
		}
	})
}

// Each frame names the server, the index and the age. A server without a leader says so, and every second that it is
// still there.
func TestStreamSaysHowOldItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFleet(t, 2, 1, 2)
		p := newTestPublisher(m)
		var mu sync.Mutex
		leader, since := "s1", time.Now()
		p.cfg.Leader = func() string { mu.Lock(); defer mu.Unlock(); return leader }
		p.cfg.Age = func() time.Duration {
			if p.cfg.Leader() != "" {
				return 0
			}
			return time.Since(since)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var seen picture
		frames := 0
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = p.Serve(ctx, nil, Scope{}, func(*fsm.State) (Sight, error) { return Sight{Status: true}, nil },
				func(b []byte) error { frames++; return seen.take(b) })
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := seen.last; s.Server != "s1" || s.Index != m.Current().Index || s.Age != 0 || s.Alone() ||
			s.Banner.Leader != "s1" || s.Banner.Build != "1.2.3" || s.Banner.Problems[api.ProblemPaused] != 1 {
			t.Errorf("with a leader: %+v %+v", s.Header, s.Banner)
		}
		before := frames
		mu.Lock()
		leader, since = "", time.Now()
		mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := seen.last; !s.Alone() || s.Age < 8*time.Second || s.Banner.Leader != "" {
			t.Errorf("without a leader: %+v %+v", s.Header, s.Banner)
		}
		if n := frames - before; n < 9 || n > 13 {
			t.Errorf("%d frames in 10 s in which nothing changes but the leader", n)
		}
		cancel()
		wg.Wait()
	})
}

// What a reader may not read is in no frame, but in one sum. A change of rights gives a new snapshot within a tick, and
// a lost right ends the stream.
func TestRightsAreFiltered(t *testing.T) {
	m := newFleet(t, 4, 3, 4) // instance i of a job is on node i
	p := newTestPublisher(m)
	lost := errors.New("lost")
	may := "job-0001"
	look := func(*fsm.State) (Sight, error) {
		if may == "" {
			return Sight{}, lost
		}
		only := model.JobName(may)
		return Sight{Key: may, Node: func(name string) bool { return name == "node-0000" },
			Instance: func(job model.JobName, _ model.ClassName, _ string) bool { return job == only }}, nil
	}
	c := must(p.join(Scope{}, look))(t)
	defer p.leave(c)
	halt(p)
	var seen picture
	var raw []byte
	read := func() {
		t.Helper()
		raw = nil
		for {
			b := must(p.take(c))(t)
			if b == nil {
				return
			}
			raw = append(raw, b...)
			must(0, seen.take(b))(t)
		}
	}
	check := func(group string) {
		t.Helper()
		s := seen.last
		var names []string
		for h, name := range s.Groups.Names {
			if s.Groups.Has(uint32(h)) {
				names = append(names, name)
			}
		}
		if len(names) != 1 || names[0] != group {
			t.Errorf("groups %q, want %s", names, group)
		}
		if n := s.Counts; n.HiddenInstances != 8 || n.HiddenNodes != 3 || n.Instances["total"] != 4 || n.Nodes["total"] != 1 {
			t.Errorf("counts %+v", n)
		}
		for h, name := range s.Nodes.Names {
			named := s.Nodes.Columns[frame.State][h] == frame.NodeNamed
			if named != (name != "node-0000") || named && s.Nodes.Columns[frame.NodeCPU][h] != 0 {
				t.Errorf("node %s has the state %d and a CPU of %d", name, s.Nodes.Columns[frame.State][h],
					s.Nodes.Columns[frame.NodeCPU][h])
			}
		}
	}
	read()
	check("job-0001/api")
	apply(t, m, []fsm.Command{report(2, instanceID(2, 2), 2, model.ObservedUnready)})
	p.tick(t.Context())
	if read(); len(raw) != 0 {
		t.Errorf("a change of a hidden instance gave %d bytes", len(raw))
	}
	may = "job-0002"
	apply(t, m, []fsm.Command{&fsm.RoleSet{Role: anyRole()}})
	p.tick(t.Context())
	read()
	check("job-0002/api")
	may = ""
	apply(t, m, []fsm.Command{&fsm.RoleRemove{Name: anyRole().Name}})
	p.tick(t.Context())
	if _, err := p.take(c); !errors.Is(err, lost) {
		t.Errorf("after the right is lost: %v", err)
	}
}

// A stream ends with the error of a reader that takes nothing, and with its context.
func TestStreamEnds(t *testing.T) {
	m := newFleet(t, 2, 1, 2)
	p := newTestPublisher(m)
	if err := p.Serve(t.Context(), nil, Scope{}, seesAll, func([]byte) error { return io.ErrClosedPipe }); !errors.Is(err,
		io.ErrClosedPipe) {
		t.Error(err)
	}
	over := make(chan struct{})
	close(over)
	if err := p.Serve(t.Context(), over, Scope{}, seesAll, func([]byte) error { return nil }); err != nil {
		t.Error(err)
	}
}

// A stream ends with its server also while there is more to send.
func TestStreamEndsInASnapshot(t *testing.T) {
	m := newFleet(t, 50, 200, 100)
	p := newTestPublisher(m)
	over, sent := make(chan struct{}), 0
	err := p.Serve(t.Context(), over, Scope{}, seesAll, func([]byte) error {
		if sent++; sent == 1 {
			close(over)
		}
		return nil
	})
	if err != nil || sent != 1 {
		t.Errorf("after %d frames: %v", sent, err)
	}
}

// No problems are told from problems that nobody has looked for, as after some time without a reader who may see them.
func TestProblemsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPublisher(newFleet(t, 2, 1, 2))
		p.cfg.Problems = func() map[api.ProblemCode]int { time.Sleep(time.Millisecond); return map[api.ProblemCode]int{} }
		look := func(*fsm.State) (Sight, error) { return Sight{Status: true}, nil }
		problems := func(c *conn) map[api.ProblemCode]int {
			var seen picture
			for b := must(p.take(c))(t); b != nil; b = must(p.take(c))(t) {
				must(0, seen.take(b))(t)
			}
			return seen.last.Banner.Problems
		}
		other := must(p.join(Scope{}, seesAll))(t)
		defer p.leave(other)
		for range 2 {
			c := must(p.join(Scope{Bare: true}, look))(t)
			if got := problems(c); got != nil {
				t.Errorf("before anybody looked: %v", got)
			}
			time.Sleep(4 * time.Second)
			p.mu.Lock()
			c.view.version, c.reset, c.behind = c.view.version+1, true, true
			p.mu.Unlock()
			if got := problems(c); got == nil || len(got) > 0 {
				t.Errorf("after somebody looked: %v", got)
			}
			p.leave(c)
			time.Sleep(10 * time.Second)
		}
	})
}

// A scope has its own rows and counts.
func TestScopes(t *testing.T) {
	m := newFleet(t, 4, 3, 4)
	p := newTestPublisher(m)
	for _, tt := range []struct {
		scope                    Scope
		nodes, groups, instances int
		counted, countedNodes    int
	}{
		{Scope{}, 4, 3, 12, 12, 4},
		{Scope{Bare: true}, 0, 0, 0, 12, 4},
		{Scope{Job: "job-0001"}, 4, 1, 4, 4, 0},
		{Scope{Node: "node-0002"}, 1, 3, 3, 3, 1},
		{Scope{Job: "job-0001", Node: "node-0002"}, 1, 1, 1, 1, 0},
		{Scope{Job: "none"}, 0, 0, 0, 0, 0},
	} {
		c := must(p.join(tt.scope, seesAll))(t)
		var seen picture
		for b := must(p.take(c))(t); b != nil; b = must(p.take(c))(t) {
			must(0, seen.take(b))(t)
		}
		rows := func(table frame.Table) (n int) {
			for h := range table.Len() {
				if table.Has(uint32(h)) {
					n++
				}
			}
			return n
		}
		s := seen.last
		if got := [...]int{rows(s.Nodes), rows(s.Groups), rows(s.Instances), s.Counts.Instances["total"],
			s.Counts.Nodes["total"]}; got != [...]int{tt.nodes, tt.groups, tt.instances, tt.counted, tt.countedNodes} {
			t.Errorf("%+v: %v", tt.scope, got)
		}
		p.leave(c)
	}
}
