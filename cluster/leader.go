package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// leadership describes this server's leadership in one term. It begins once the term's first Barrier is done and the
// first entries of a new or recovered cluster are written.
type leadership struct {
	term  uint64
	since time.Time
	// confirmed is when this server started the last Barrier that proved its leadership: the first Barrier of the term, or
	// one after a pause of this process.
	confirmed time.Time
}

var errLostLeadership = errors.New("this server no longer leads")

// followTerms runs Server.term in each term that this server leads, until ctx ends. raft's main loop blocks while
// nobody reads its notifications, so one goroutine does nothing but read them. followTerms returns only after drained
// is closed, which must happen after raft has stopped.
func (s *Server) followTerms(ctx context.Context, drained <-chan struct{}) {
	var box mailbox
	box.wake = make(chan struct{}, 1)
	if plant.Is(plant.UnreadNotify) {
		s.runTerms(ctx, &box, s.notes)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case leads := <-s.notes:
				box.put(leads)
			case <-drained:
				return
			}
		}
	})
	s.runTerms(ctx, &box, nil)
	wg.Wait()
}

// runTerms starts and ends terms as the notifications in box say. It also reads notifications from direct, which is
// raft's own channel or nil. When ctx ends, runTerms ends the current term and returns.
func (s *Server) runTerms(ctx context.Context, box *mailbox, direct <-chan bool) {
	end := func() {}
	defer func() { end() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-box.wake:
		case leads := <-direct:
			box.put(leads)
		}
		for _, leads := range box.take() {
			end()
			end = func() {}
			if leads {
				end = s.startTerm(ctx)
			}
		}
	}
}

// mailbox keeps notifications in order for a reader that may be slow.
type mailbox struct {
	mu   sync.Mutex
	all  []bool
	wake chan struct{}
}

func (m *mailbox) put(leads bool) {
	m.mu.Lock()
	m.all = append(m.all, leads)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() []bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.all
	m.all = nil
	return out
}

// startTerm runs Server.term in a goroutine. The function end stops term and waits until it has returned.
func (s *Server) startTerm(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if plant.Is(plant.UnreadNotify) {
		s.settle(ctx)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.term(ctx)
	}()
	return func() {
		cancel(errLostLeadership)
		s.state.leadership.Store(nil) // must follow cancel: term checks ctx again after it has stored its leadership
		for {
			select {
			case <-done:
				return
			case <-time.After(releaseTimeout):
				s.log.Error("what runs while leading does not end", "goroutines", goroutines())
			}
		}
	}
}

// term leads until ctx ends. It first waits for a Barrier, because raft signals leadership before the entries of older
// terms are applied. Then it runs everything that a leader does.
func (s *Server) term(ctx context.Context) {
	began := time.Now()
	number, ok := s.settle(ctx)
	if !ok {
		return
	}
	s.clock.hear(s.cfg.Machine.State().Now)
	for {
		err := s.beginCluster(ctx)
		if err == nil {
			err = s.markRecovery(ctx)
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("can't begin to lead", "error", err)
		pause(ctx, time.Second)
	}
	s.log.Info("leading", "term", number)
	s.state.leadership.Store(&leadership{term: number, since: time.Now(), confirmed: began})
	s.state.progress.caughtUp.Store(true)
	defer s.state.leadership.Store(nil)
	if ctx.Err() != nil {
		return
	}
	var wg sync.WaitGroup
	for _, part := range [...]func(context.Context, uint64){s.ticks, s.confirm, s.keepMembers,
		s.stepAside, s.seen.judge.run} {
		wg.Go(func() { part(ctx, number) })
	}
	wg.Go(func() {
		if s.cfg.Lead == nil {
			return
		}
		// A leader that can't decide is worse than no leader, so this server stops and another one can take over.
		if err := s.cfg.Lead(ctx, number); err != nil && ctx.Err() == nil {
			s.fatal(fmt.Errorf("lead in term %d: %w", number, err))
		}
	})
	wg.Wait()
	s.log.Info("no longer leading", "term", number, "cause", context.Cause(ctx))
}

// announce writes an entry that names this term's leader, so that an event shows who leads. It tries until it succeeds
// or ctx ends. Writing the entry twice is harmless. No other work of the leader waits for the entry, because a server
// with a full disk must lead too. The entry sets the time that people see, which must not come from one wrong clock. So
// ticks calls announce only when a majority's clocks are known, or after announceRound rounds.
func (s *Server) announce(ctx context.Context, term uint64) {
	begin := &fsm.LeaderBegin{Term: term, Server: s.dir.id, Name: s.cfg.Name}
	for ctx.Err() == nil {
		results, err := s.Propose(ctx, fsm.Entry{Term: term, Actor: model.ActorLeader, Groups: [][]fsm.Command{{begin}}})
		if err == nil {
			if refusal := results[0].Refusal; refusal != nil {
				s.log.Warn("can't write who leads", "term", term, "error", refusal)
			}
			return
		}
		s.log.Debug("can't write who leads yet", "term", term, "error", err)
		pause(ctx, time.Second)
	}
}

// confirm waits for a Barrier after each pause of this process, to prove that this server still leads. Until the
// Barrier is done, Leader returns self as false. raft's lease proves nothing after a pause: raft renews it with old
// answers that were still in the sockets, although another server may lead and write by now.
func (s *Server) confirm(ctx context.Context, _ uint64) {
	for ctx.Err() == nil {
		r := s.state.leadership.Load()
		if r == nil || r.confirmed.After(s.seen.stall.lastPause()) {
			select {
			case <-s.seen.stall.woken:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		if err := s.raftBarrier(ctx); err != nil {
			s.log.Debug("leadership is not confirmed after a pause", "error", err)
			pause(ctx, 50*time.Millisecond)
			continue
		}
		s.state.leadership.CompareAndSwap(r, &leadership{term: r.term, since: r.since, confirmed: began})
	}
}

// settle waits until a Barrier is committed, and returns the Barrier's term. It tries again after an error. ok is false
// if ctx ended first.
func (s *Server) settle(ctx context.Context) (term uint64, ok bool) {
	for ctx.Err() == nil {
		before := s.raft.CurrentTerm()
		err := s.raftBarrier(ctx)
		if err == nil && s.raft.State() == raft.Leader && s.raft.CurrentTerm() == before {
			return before, true
		}
		if err != nil {
			s.log.Debug("first barrier failed", "error", err)
		}
		pause(ctx, 50*time.Millisecond)
	}
	return 0, false
}

// pause sleeps for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// beginCluster writes the first entry of a new cluster, which sets the cluster's id, name and first settings. It does
// nothing if the state has a cluster id already.
func (s *Server) beginCluster(ctx context.Context) error {
	if s.cfg.Machine.State().Cluster.ID != "" {
		return nil
	}
	results, err := s.Propose(ctx, fsm.Entry{
		Actor:  model.ActorLeader,
		Groups: [][]fsm.Command{{&fsm.ClusterInit{ID: newID(), Name: s.cfg.Cluster, Settings: s.cfg.Settings}}},
	})
	if err != nil {
		return err
	}
	if len(results) > 0 && results[0].Refusal != nil {
		return results[0].Refusal
	}
	return nil
}

// TransferLeader hands leadership to another voter. If no id is given, it chooses one: it prefers voters that answer,
// then voters with more room on their disk, then the one with the longest log. It blocks for at most two election
// timeouts. Codes: no_leader if this server does not lead; not_found if no voter has the given id; conflict if the
// given server leads already, if there is no other voter, or if the transfer failed.
func (s *Server) TransferLeader(ctx context.Context, to model.ServerID) error {
	if s.raft.State() != raft.Leader {
		return s.noLeader()
	}
	target, err := s.transferTarget(to)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.Raft.electionTimeout())
	defer cancel()
	if !s.disk.store.awaitAppend(ctx) { // while raft appends to the log, it does not take the request
		return model.Refuse(model.CodeConflict,
			"leadership was not handed to %s: the disk of the leading server %s does not answer", target.ID, s.cfg.Name).
			WithHint("try again; if its disk hangs the server ends within %s, and another leads", storeHangs)
	}
	if err := await(ctx, s.raft.LeadershipTransferToServer(target.ID, target.Address)); err != nil {
		return model.Refuse(model.CodeConflict, "leadership was not handed to %s: %v", target.ID, err).WithHint("try again")
	}
	return nil
}

// transferTarget returns the voter that TransferLeader hands leadership to.
func (s *Server) transferTarget(to model.ServerID) (raft.Server, error) {
	m := s.membership()
	var best ServerView
	for _, v := range m.Servers {
		if !v.Voter || v.ID == s.dir.id || to != "" && v.ID != to {
			continue
		}
		roomier := v.Room < best.Room || v.Room == best.Room && v.LastIndex > best.LastIndex
		if best.ID == "" || v.works() && (!best.works() || roomier) {
			best = v
		}
	}
	switch {
	case best.ID != "":
		return raft.Server{ID: raft.ServerID(best.ID), Address: raft.ServerAddress(best.Configured)}, nil
	case to == s.dir.id:
		return raft.Server{}, model.Refuse(model.CodeConflict, "server %s leads already", to)
	case to != "":
		return raft.Server{}, model.Refuse(model.CodeNotFound, "there is no server %s with a vote", to).
			WithHint("list them with: outspan server members")
	}
	return raft.Server{}, model.Refuse(model.CodeConflict, "there is no other server with a vote")
}

// Leader returns who leads. self is true if this server leads: raft says so, a Barrier has proved it in this term and
// since the last pause of this process, and no majority contradicts this server's state. ok is false if no leader is
// known, or if raft says that this server leads but self is false. Leader does not block.
func (s *Server) Leader() (leader transport.ServerInfo, self, ok bool) {
	address, id := s.raft.LeaderWithID()
	if id == "" {
		return transport.ServerInfo{}, false, false
	}
	leader = transport.ServerInfo{ID: model.ServerID(id), Name: string(id), APIAddress: string(address)}
	if m, found := s.seen.pool.Member(string(id)); found {
		leader.Name = m.Meta.Name
	}
	if at := s.addressOf(leader.ID); at != "" {
		leader.APIAddress = at
	}
	if model.ServerID(id) != s.dir.id {
		return leader, false, true
	}
	r := s.state.leadership.Load()
	self = r != nil && s.raft.State() == raft.Leader && !s.compare.wrong.Load() &&
		s.seen.stall.ticking(s.cfg.Raft.leaseTimeout()) &&
		(r.confirmed.After(s.seen.stall.lastPause()) || plant.Is(plant.VerifyLeader))
	return leader, self, self
}

// Term returns the term in which this server leads. It returns 0 if this server does not lead, or if its leadership has
// not begun yet (see leadership).
func (s *Server) Term() uint64 {
	if r := s.state.leadership.Load(); r != nil {
		return r.term
	}
	return 0
}

// String returns the name and id of this server, for logs.
func (s *Server) String() string { return fmt.Sprintf("%s (%s)", s.cfg.Name, s.dir.id) }
