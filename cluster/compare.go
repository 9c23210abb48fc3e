package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// CompareConfig says how servers compare their states. The zero value means the defaults.
type CompareConfig struct {
	// Every is the time between comparisons that nothing else causes; default 10 min. A comparison reads the whole state
	// once, which takes a second of one core for 100,000 instances. It doesn't delay the log.
	Every time.Duration
	// Compared gets the result of each comparison, for metrics. It must not block. Optional.
	Compared func(ComparisonResult)
}

const (
	compareEvery     = 10 * time.Minute
	compareFirst     = 2 * time.Second  // after this server has caught up
	compareSoon      = time.Second      // after a restore, a verification, or a difference that another server found
	compareLater     = time.Minute      // after a snapshot
	compareUndecided = time.Minute      // between comparisons, while servers differ and no state has a majority
	compareRetry     = 10 * time.Second // after too few servers could be compared; doubled each time in a row
	comparePatience  = 10 * time.Second // how long to wait for a server that lags
	comparePoll      = 250 * time.Millisecond

	statesTimeout = 2 * time.Second
	digestTimeout = 30 * time.Second
)

// comparer finds out whether this server's state equals that of the other servers. If a majority has another state, the
// comparer stops this server. It writes nothing to the log, so servers can compare in a settled cluster too.
type comparer struct {
	s       *Server
	log     hclog.Logger
	past    pastStates
	digests *digester
	wrong   atomic.Bool // a majority has another state, so this server no longer leads

	restored, snapshot chan struct{} // requests made by soon and by later; capacity 1 each

	mu        sync.Mutex
	differing map[model.ServerID]Difference
}

// Difference describes a state of another server that differed from this server's.
type Difference struct {
	Index  uint64 // of the states that were compared
	Digest string // of the other server's state
	At     time.Time
}

func newComparer(s *Server) *comparer {
	return &comparer{
		s: s, log: s.log.Named("compare"), digests: newDigester(), restored: make(chan struct{}, 1),
		snapshot:  make(chan struct{}, 1),
		differing: map[model.ServerID]Difference{},
	}
}

// soon requests a comparison after compareSoon. The method later requests a comparison within compareLater. Neither
// method blocks.
func (c *comparer) soon()  { signal(c.restored) }
func (c *comparer) later() { signal(c.snapshot) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func forget(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// run compares until ctx ends or a majority has another state. The first comparison is made once everything that was
// committed before the start is applied. So it shows whether a snapshot and the log after it lead to the same state.
func (c *comparer) run(ctx context.Context) {
	for ctx.Err() == nil && !c.s.CaughtUp() {
		pause(ctx, comparePoll)
	}
	pause(ctx, compareFirst)
	retry := compareRetry
	for ctx.Err() == nil {
		forget(c.restored)
		forget(c.snapshot)
		result, ok := c.round(ctx)
		next := c.s.cfg.Compare.Every
		switch {
		case ctx.Err() != nil || result == InMinority:
			return
		case ok && result == StatesUndecided:
			next = min(next, compareUndecided)
		case ok && result == NotCompared:
			next = min(next, retry)
			retry = min(2*retry, c.s.cfg.Compare.Every)
		default:
			retry = compareRetry
		}
		c.rest(ctx, next)
	}
}

func (c *comparer) rest(ctx context.Context, next time.Duration) {
	due := time.Now().Add(next)
	timer := time.NewTimer(next)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-c.restored:
			pause(ctx, compareSoon)
			return
		case <-c.snapshot:
			timer.Reset(min(time.Until(due), compareLater))
		}
	}
}

// round compares this server with every voter, and acts on the result. ok is false if there is no other voter, or if
// ctx has ended.
func (c *comparer) round(ctx context.Context) (result ComparisonResult, ok bool) {
	voters := c.voters()
	others := slices.DeleteFunc(slices.Clone(voters), func(id model.ServerID) bool { return id == c.s.dir.id })
	if len(others) == 0 {
		return "", false
	}
	m, err := c.meet(ctx, others, comparePatience, false)
	if err != nil {
		return "", false
	}
	judged := m.comparison(c.s.dir.id, voters)
	result = judged.Result()
	c.remember(m, judged)
	switch result {
	case StatesEqual:
		c.log.Debug("the states are equal", "index", m.key.Index, "servers", len(m.sums), "voters", len(voters))
		if len(m.sums) == len(voters) {
			c.past.settle(m.key)
		}
	case NotCompared:
		c.log.Info("too few servers could be compared", "index", m.key.Index, "compared", len(m.sums), "voters", len(voters))
	case OthersDiffer:
		c.log.Error("servers have another state than the majority", "index", m.key.Index, "servers",
			judged.others(m.own().digest))
	case StatesUndecided:
		c.log.Error("servers have different states, and none of them has a majority; nobody stops", "index",
			m.key.Index, "digests", judged.Digests)
	}
	if told := c.s.cfg.Compare.Compared; told != nil {
		told(result)
	}
	if result == InMinority {
		c.condemn(m, judged)
	}
	return result, true
}

func (c *comparer) voters() []model.ServerID {
	var ids []model.ServerID
	for _, v := range c.s.voters() {
		ids = append(ids, model.ServerID(v.ID))
	}
	return ids
}

// remember notes which servers have another state, so that this is still known when they no longer answer. It forgets
// the servers that were found equal.
func (c *comparer) remember(m meeting, judged Comparison) {
	for id, sums := range m.sums {
		switch {
		case id == c.s.dir.id:
		case sums.digest == m.own().digest:
			c.mu.Lock()
			delete(c.differing, id)
			c.mu.Unlock()
		default:
			c.noteDifference(id, m.key, m.own(), sums)
		}
	}
}

// noteDifference remembers that a server has another state. If this was not known yet, it logs the difference and
// returns true.
func (c *comparer) noteDifference(id model.ServerID, key stateKey, own, theirs stateSums) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.differing[id]
	c.differing[id] = Difference{Index: key.Index, Digest: theirs.digest, At: time.Now()}
	if !known {
		c.log.Error("another server has another state", "server", id, "index", key.Index, "own",
			own.digest, "other", theirs.digest,
			"tables", namesOf(fsm.DifferentTables(own.tables, theirs.tables)))
	}
	return !known
}

func (c *comparer) difference(id model.ServerID) (Difference, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok := c.differing[id]
	return d, ok
}

func namesOf(tables []fsm.TableDifference) []string {
	var names []string
	for _, t := range tables {
		names = append(names, t.Name)
	}
	return names
}

// meeting holds what the servers reported in one comparison. sums has the digests of the state under key.
type meeting struct {
	self model.ServerID
	key  stateKey
	sums map[model.ServerID]stateSums
	held map[model.ServerID][]stateKey // of each other server that answered
	errs map[model.ServerID]error      // of each other server that did not
}

func (m meeting) own() stateSums { return m.sums[m.self] }

func (m meeting) comparison(self model.ServerID, voters []model.ServerID) Comparison {
	c := Comparison{Self: self, Voters: voters, Digests: map[model.ServerID]string{}}
	for id, sums := range m.sums {
		c.Digests[id] = sums.digest
	}
	return c
}

var errNoState = errors.New("it has this state no more")

// meet finds a state that all answering servers hold and that is no older than the call, so that an existing difference
// shows. While entries arrive all the time, that is the next checkpoint. Then meet asks each server for its digest of
// the state. If no such state is found within patience, meet takes the state that most servers hold. If judge is true,
// all servers also look for contradictions in their own state. meet fails only if ctx ends.
func (c *comparer) meet(ctx context.Context, others []model.ServerID, patience time.Duration,
	judge bool) (meeting, error) {
	deadline, from := time.Now().Add(patience), c.s.cfg.Machine.State().Index
	for {
		state, holders, m := c.gather(ctx, others)
		late := time.Now().After(deadline)
		if late || holders == len(m.held) && state.Index >= from {
			if err := c.digestAll(ctx, state, &m, judge); err != nil {
				return m, err
			}
			if late || len(m.sums) == 1+len(m.held) {
				return m, nil
			}
		}
		pause(ctx, comparePoll)
		if ctx.Err() != nil {
			return m, context.Cause(ctx)
		}
	}
}

// gather asks the other servers which states they hold. It chooses the state of this server that most of them hold, and
// returns how many do.
func (c *comparer) gather(ctx context.Context, others []model.ServerID) (s fsm.State, holders int, m meeting) {
	own := c.past.hold(c.s.cfg.Machine.State())
	m = meeting{self: c.s.dir.id, held: map[model.ServerID][]stateKey{}, errs: map[model.ServerID]error{},
		sums: map[model.ServerID]stateSums{}}
	var mu sync.Mutex
	c.eachOf(others, func(id model.ServerID) {
		held, err := c.askStates(ctx, id)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			m.errs[id] = err
			return
		}
		m.held[id] = held
	})
	s, holders = commonState(own, m.held)
	m.key = keyOf(s)
	return s, holders, m
}

// digestAll computes the digest of the chosen state here, and asks the servers that hold the state for theirs. It notes
// the digests and the errors in m.
func (c *comparer) digestAll(ctx context.Context, s fsm.State, m *meeting, judge bool) error {
	own, err := c.digests.of(ctx, s)
	if err != nil {
		return err
	}
	if judge {
		own.contradiction = contradiction(s)
	}
	m.sums[m.self] = own
	var holders []model.ServerID
	for id, held := range m.held {
		if slices.Contains(held, m.key) {
			holders = append(holders, id)
		}
	}
	var mu sync.Mutex
	c.eachOf(holders, func(id model.ServerID) {
		sums, err := c.askDigest(ctx, id,
			digestQuery{Server: m.self, Key: m.key, Digest: own.digest, Tables: own.tables, Judge: judge})
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			m.sums[id] = sums
		case !errors.Is(err, errNoState):
			delete(m.held, id)
			m.errs[id] = err
		}
	})
	return nil
}

// eachOf runs fn for all servers at once, and returns when the last call has returned.
func (c *comparer) eachOf(ids []model.ServerID, fn func(model.ServerID)) {
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() { fn(id) })
	}
	wg.Wait()
}
