package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/api/frame"
	"github.com/outspan/outspan/fsm"
)

const (
	tickTime   = 250 * time.Millisecond
	signOfLife = time.Second // how long a stream stays silent at most

	problemsTime  = 5 * time.Second // between two looks at the problems
	problemsShare = 100             // the looks take at most this part of the time
)

// Config is what a Publisher needs.
type Config struct {
	Server, Build string
	// Changes begins to collect which rows entries touch.
	Changes func() *fsm.Changes
	// Leader returns the name of the leader, or "" if none is known. It must not block.
	Leader func() string
	// Age returns how long ago this server last provably had everything that was committed; negative if it never had. It
	// must not block.
	Age func() time.Duration
	// Problems returns the number of current problems by code.
	Problems func() map[api.ProblemCode]int
}

// Publisher publishes the state of one server. Safe for concurrent use.
type Publisher struct {
	cfg Config

	mu      sync.Mutex
	conns   []*conn
	running *running // nil while nobody reads, and then the fields below have no meaning
	changes *fsm.Changes
	state   *fsm.State
	table   *table
	views   map[string]*view

	problems map[api.ProblemCode]int // nil: not known
	quiet    int                     // ticks since the last frame of each view

	builder frame.Builder
	handles []uint32   // scratch
	columns [][]uint32 // scratch
	names   []string   // scratch
}

// running is the goroutines that work while there are readers.
type running struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

// New returns a Publisher. It starts nothing.
func New(cfg Config) *Publisher { return &Publisher{cfg: cfg} }

// Serve sends frames to one reader by send until ctx ends or over is closed, and then returns nil. It returns the error
// of send, and that of look, which judges what the reader may see: at once, and after each change of the rights. send
// may keep a frame no longer than until it returns. It should bound how long it blocks: meanwhile, a reader costs only
// its sets of dirty handles.
func (p *Publisher) Serve(ctx context.Context, over <-chan struct{}, scope Scope,
	look func(*fsm.State) (Sight, error), send func([]byte) error) error {
	c, err := p.join(scope, look)
	if err != nil {
		return err
	}
	defer p.leave(c)
	for ctx.Err() == nil {
		select {
		case <-over:
			return nil
		default:
		}
		b, err := p.take(c)
		if err != nil {
			return err
		}
		if b != nil {
			if err := send(b); err != nil {
				return err
			}
			continue
		}
		select {
		case <-c.wake:
		case <-over:
			return nil
		case <-ctx.Done():
		}
	}
	return nil
}

// join adds a reader. The first one starts the ticks.
func (p *Publisher) join(scope Scope, look func(*fsm.State) (Sight, error)) (*conn, error) {
	p.mu.Lock()
	if p.running == nil {
		p.start()
	}
	c := &conn{look: look, scope: scope, wake: make(chan struct{}, 1)}
	sight, err := look(p.state)
	if err == nil {
		p.conns = append(p.conns, c)
		p.attach(c, sight)
	}
	stopped := p.stopIfIdle()
	p.mu.Unlock()
	stopped.ended()
	return c, err
}

// leave removes a reader. With the last one it stops the ticks and waits for their end.
func (p *Publisher) leave(c *conn) {
	p.mu.Lock()
	p.conns = slices.DeleteFunc(p.conns, func(one *conn) bool { return one == c })
	p.detach(c)
	stopped := p.stopIfIdle()
	p.mu.Unlock()
	stopped.ended()
}

// ended waits until the goroutines have ended. r may be nil.
func (r *running) ended() {
	if r != nil {
		r.wait.Wait()
	}
}

// start begins to publish. p.mu must be held.
func (p *Publisher) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel}
	p.running, p.changes, p.views, p.problems, p.quiet = r, p.cfg.Changes(), map[string]*view{}, nil, 0
	p.state, _ = p.changes.Take()
	p.table = newTable(p.state)
	r.wait.Go(func() { p.runTicks(ctx) })
	r.wait.Go(func() { p.runProblems(ctx) })
}

// stopIfIdle ends what start began if there is no reader. The caller waits for the result after it has released p.mu,
// which must be held.
func (p *Publisher) stopIfIdle() (stopped *running) {
	if len(p.conns) > 0 || p.running == nil {
		return nil
	}
	stopped = p.running
	stopped.cancel()
	p.changes.Close()
	p.running, p.changes, p.state, p.table, p.views = nil, nil, nil, nil, nil
	p.handles, p.columns, p.names, p.builder = nil, nil, nil, frame.Builder{}
	return stopped
}

func (p *Publisher) runTicks(ctx context.Context) {
	ticks := time.NewTicker(tickTime)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			p.tick(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// runProblems looks for problems from time to time, while a reader may see them. That may take as long as a decision.
func (p *Publisher) runProblems(ctx context.Context) {
	for {
		pause := problemsTime
		if p.problemsWanted(ctx) {
			began := time.Now()
			found := p.cfg.Problems()
			pause = max(pause, problemsShare*time.Since(began))
			p.mu.Lock()
			if ctx.Err() == nil {
				p.problems = found
			}
			p.mu.Unlock()
		} else {
			pause = time.Second
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (p *Publisher) problemsWanted(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	for _, v := range p.views {
		if v.sight.Status {
			return true
		}
	}
	p.problems = nil // they would be old when somebody wants them
	return false
}

// tick takes over what has changed since the last one, and offers it to the readers.
func (p *Publisher) tick(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	before := p.state.RightsIndex
	state, touched := p.changes.Take()
	p.state = state
	if touched.All {
		p.table, p.views = newTable(state), map[string]*view{}
	} else {
		all := p.table.update(state, touched)
		for _, v := range p.views {
			v.update(p.table, &all)
		}
	}
	if touched.All || p.table.regraded || state.RightsIndex != before {
		p.lookAgain()
	}
	banner := p.banner()
	p.quiet++
	life := p.quiet >= int(signOfLife/tickTime)
	if life {
		p.quiet = 0
	}
	for _, v := range p.views {
		p.publish(v, banner, life)
	}
}

// lookAgain judges anew what each reader may see. Readers that keep their view notice nothing. A view that hides
// something is kept only if neither a job's class nor a node's name has changed.
func (p *Publisher) lookAgain() {
	if p.table.regraded {
		for key, v := range p.views {
			if !v.whole {
				delete(p.views, key)
			}
		}
	}
	for _, c := range p.conns {
		sight, err := c.look(p.state)
		switch {
		case err != nil:
			c.end(err)
		case p.views[viewKey(sight, c.scope)] != c.view:
			p.detach(c)
			p.attach(c, sight)
		}
	}
}

func viewKey(s Sight, scope Scope) string {
	return fmt.Sprintf("%q %v %q %q %v", s.Key, s.Status, scope.Job, scope.Node, scope.Bare)
}

// attach gives a reader the view for what it may see.
func (p *Publisher) attach(c *conn, sight Sight) {
	key := viewKey(sight, c.scope)
	v := p.views[key]
	if v == nil {
		v = newView(key, sight, c.scope, p.table)
		v.tell(p.banner())
		p.views[key] = v
	}
	c.view = v
	v.conns = append(v.conns, c)
	c.begin(p.table)
}

// detach takes a reader from its view, and drops the view with its last reader.
func (p *Publisher) detach(c *conn) {
	v := c.view
	v.conns = slices.DeleteFunc(v.conns, func(one *conn) bool { return one == c })
	if len(v.conns) == 0 && p.views[v.key] == v {
		delete(p.views, v.key)
	}
}

// publish encodes what has changed for a view, and offers it to its readers. If life is true, it also publishes a frame
// without a change.
func (p *Publisher) publish(v *view, banner frame.Banner, life bool) {
	told := v.tell(banner)
	v.frame = nil
	for _, rows := range [...]*[]uint32{&v.dirty.nodes, &v.dirty.groups, &v.dirty.instances} {
		slices.Sort(*rows)
		*rows = slices.Compact(*rows)
	}
	if n := v.dirty.len(); n <= sharedRows && (n > 0 || told || life) {
		p.builder.Begin(nil, p.header())
		p.builder.SetFlags(frame.FlagWhole)
		if told {
			p.builder.Text(frame.KindBanner, v.banner)
			p.builder.Text(frame.KindCounts, v.counts)
		}
		for _, kind := range frame.Tables() {
			p.addRows(&p.builder, v, kind, v.dirty.of(kind))
		}
		v.frame = p.builder.Finish()
	}
	for _, c := range v.conns {
		c.offer()
	}
	v.frame, v.dirty = nil, dirty{}
}

// addRows adds rows to a frame, as the readers of a view see them.
func (p *Publisher) addRows(b *frame.Builder, v *view, kind frame.Kind, rows []uint32) {
	from := p.table.of(kind)
	for len(p.columns) < len(from.Columns) {
		p.columns = append(p.columns, nil)
	}
	columns, names := p.columns[:len(from.Columns)], p.names[:0]
	for i := range columns {
		columns[i] = columns[i][:0]
	}
	for _, h := range rows {
		state := v.state(p.table, kind, h)
		columns[frame.State] = append(columns[frame.State], state)
		only := state == 0 || kind == frame.KindNodes && state == frame.NodeNamed
		for i := 1; i < len(columns); i++ {
			value := uint32(0)
			if !only {
				value = from.Columns[i][h]
			}
			columns[i] = append(columns[i], value)
		}
		if from.Names != nil {
			name := ""
			if state != 0 {
				name = from.Names[h]
			}
			names = append(names, name)
		}
	}
	p.names = names
	if from.Names == nil {
		names = nil
	}
	b.Rows(kind, rows, columns, names)
}

func (p *Publisher) header() frame.Header {
	h := frame.Header{Server: p.cfg.Server, Index: p.state.Index, Age: p.cfg.Age()}
	if p.cfg.Leader() == "" {
		h.Flags |= frame.FlagAlone
	}
	return h
}

func (p *Publisher) banner() frame.Banner {
	s := p.state
	return frame.Banner{Server: p.cfg.Server, Build: p.cfg.Build, Cluster: s.Cluster.Name, Leader: p.cfg.Leader(),
		Hold: s.Hold.Active, Paused: s.Settings.Paused, Restored: s.Unconfirmed, Problems: p.problems}
}
