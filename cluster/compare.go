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
	// Every is the time between regular comparisons; default 10 min. A comparison reads the whole state once, and needs
	// one CPU second for 100,000 instances. It doesn't delay the log.
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
	compareRetry     = 10 * time.Second // after too few servers could be compared; doubled each time this happens again
	comparePatience  = 10 * time.Second // how long to wait for a server that lags
	comparePoll      = 250 * time.Millisecond

	statesTimeout = 2 * time.Second
	digestTimeout = 30 * time.Second
)

// comparer finds out whether this server and the other servers have the same state. If a majority has another state,
// the comparer stops this server. A comparison writes nothing to the log, so a settled cluster stays settled.
type comparer struct {
	s       *Server
	log     hclog.Logger
	past    pastStates
	digests *digester
	wrong   atomic.Bool // a majority has another state, so this server no longer leads

	restored, snapshot chan struct{} // requests of the methods soon and later; each has capacity 1

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

// The method soon requests a comparison after compareSoon. The method later requests a comparison when it has not been
// called for compareLater, or at the time of the next regular comparison. So snapshots that are more frequent than
// compareLater delay a comparison, but never beyond the regular one. Both return at once.
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

// run makes comparisons until ctx ends or a majority has another state. Before the first comparison, run waits until
// this server has applied all entries that were committed before its start. So the first comparison shows whether this
// server's snapshot and log lead to the state of the others.
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

// round compares this server with every voter. If a majority has another state, round stops this server. ok is false if
// there is no other voter, or if ctx has ended.
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

// remember notes which servers have another state, so that the difference is still known when they no longer answer. It
// forgets the differences of servers whose state is equal.
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

// noteDifference remembers that a server has another state. If no difference of that server was known yet,
// noteDifference logs the difference and returns true.
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

// meeting is what the servers reported in one comparison.
type meeting struct {
	self model.ServerID
	key  stateKey                      // of the state that is compared
	sums map[model.ServerID]stateSums  // digests of that state, by server
	held map[model.ServerID][]stateKey // the states of each other server that answered
	errs map[model.ServerID]error      // the errors of the other servers that did not answer
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

// meet collects the digests of one state from all servers. It looks for a state that all answering servers have and
// that is not older than the call, so that the digests show every difference that exists now. If there is no such state
// within patience, meet takes the state that most servers have. If judge is true, each server also checks its own state
// for contradictions. meet fails only if ctx ends.
func (c *comparer) meet(ctx context.Context, others []model.ServerID, patience time.Duration,
	judge bool) (meeting, error) {
	deadline, from := time.Now().Add(patience), c.s.cfg.Machine.State().Index
	for {
		// While entries keep arriving, the first state that all servers have is the next checkpoint.
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

// gather asks the other servers which states they have. Of this server's states, it returns the state s that most of
// the others have, and the number of these holders.
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

// digestAll computes this server's digest of s, and asks the other servers that have the state for their digests. It
// notes the digests and errors in m, and removes servers that failed from m.held.
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

// eachOf calls fn for all servers concurrently, and waits for all calls.
func (c *comparer) eachOf(ids []model.ServerID, fn func(model.ServerID)) {
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() { fn(id) })
	}
	wg.Wait()
}
