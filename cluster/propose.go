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
)

const (
	enqueueTimeout = 5 * time.Second  // until raft's main loop takes an entry
	outcomeTimeout = 30 * time.Second // until the entry is applied; raft itself has no limit
)

// await returns the error of a future of raft, or context.Cause(ctx) if ctx ends first. raft's futures have no
// deadline: if a leader's disk hangs, a future may never complete.
func await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Pending is a submitted entry whose outcome may not be known yet.
type Pending struct {
	s        *Server
	future   raft.ApplyFuture
	restores uint64 // the number in Server.restores before the entry was submitted
}

// Propose commits an entry, and returns the outcome of each of its groups once this server has applied it. Propose sets
// the entry's format, cluster time and wall clock; the caller sets all other fields. It blocks for at most 35 s, and
// returns within 5 s after ctx ends. Codes: those of Submit and Wait.
func (s *Server) Propose(ctx context.Context, e fsm.Entry) ([]fsm.Result, error) {
	p, err := s.Submit(ctx, e)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

// Submit puts an entry into raft's queue and does not wait for its outcome, so that a caller can submit many entries at
// once. Entries that one goroutine submits are logged in the same order. Submit blocks for at most 5 s. After an error
// the entry is certainly not in the log. Codes: no_leader; disk_full; busy during a restore; timeout if ctx has ended;
// invalid or needs_format if the entry can't be encoded.
func (s *Server) Submit(ctx context.Context, e fsm.Entry) (*Pending, error) {
	if err := ctx.Err(); err != nil {
		return nil, model.Refuse(model.CodeTimeout, "the request ended before it was written: %v", context.Cause(ctx))
	}
	if s.raft.State() != raft.Leader || s.compare.wrong.Load() {
		return nil, s.noLeader()
	}
	if err := s.checkRoom(); err != nil {
		return nil, err
	}
	restores := s.restores.Load()
	if restores%2 != 0 {
		return nil, model.Refuse(model.CodeBusy, "a snapshot is being restored").WithHint("try again in a moment")
	}
	state := s.cfg.Machine.State()
	e.Format, e.At, e.Wall = state.Format, s.clock.now(), s.WallClock().UnixMilli()
	data, err := fsm.EncodeEntry(e)
	if err != nil {
		return nil, err
	}
	return &Pending{s, s.raft.Apply(data, enqueueTimeout), restores}, nil
}

// Wait returns the outcome of each group of the entry. It blocks until this server has applied the entry, until ctx
// ends, or for 30 s. Codes: no_leader and busy if the entry is certainly not in the log; unknown if it may be in the
// log, or if a restore has begun since Submit and may have lost it. After unknown, try again with the same request id.
func (p *Pending) Wait(ctx context.Context) ([]fsm.Result, error) {
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > outcomeTimeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, outcomeTimeout)
		defer cancel()
	}
	err := await(ctx, p.future)
	p.s.state.transfer.note(p.s, err)
	if err != nil {
		return nil, p.s.outcome(err)
	}
	if p.s.restores.Load() != p.restores {
		return nil, unknownOutcome(errors.New("a snapshot was restored meanwhile"))
	}
	results, ok := p.future.Response().([]fsm.Result)
	if !ok {
		return nil, unknownOutcome(errors.New("this server failed while it applied the entry"))
	}
	return results, nil
}

// outcome turns an error of raft into a code: no_leader or busy if the entry is certainly not in the log, and otherwise
// unknown.
func (s *Server) outcome(err error) *model.Error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return s.noLeader()
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return model.Refuse(model.CodeBusy, "the log took no entry for %s", enqueueTimeout).WithHint("try again")
	}
	return unknownOutcome(err)
}

func unknownOutcome(err error) *model.Error {
	return model.Refuse(model.CodeUnknownOutcome, "the write may or may not have been committed: %v", err).
		WithHint("try again with the same request id")
}

// noLeader is the error for a call that only a leader can serve.
func (s *Server) noLeader() *model.Error {
	if leader, self, ok := s.Leader(); ok && !self {
		return model.Refuse(model.CodeNoLeader, "this server does not lead").
			WithHint("ask %s at %s", leader.Name, leader.APIAddress)
	}
	return model.Refuse(model.CodeNoLeader, "the cluster has no leader now").WithHint("try again in a few seconds")
}

// raftBarrier commits a Barrier and waits until this server has applied all earlier entries, for at most
// outcomeTimeout.
func (s *Server) raftBarrier(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, outcomeTimeout)
	defer cancel()
	err := await(ctx, s.raft.Barrier(enqueueTimeout))
	s.state.transfer.note(s, err)
	return err
}

// ReadBarrier returns once this leader has applied everything that was committed before the call, so that a later read
// of the state is linearizable. Concurrent callers share one Barrier. Codes: no_leader, timeout, disk_full.
func (s *Server) ReadBarrier(ctx context.Context) error {
	if s.raft.State() != raft.Leader {
		return s.noLeader()
	}
	if err := s.disk.space.check(s.cfg.Name); err != nil { // a Barrier is an entry, too
		return err
	}
	err := s.confirmLeader(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return model.Refuse(model.CodeTimeout, "the read was not confirmed in time: %v", context.Cause(ctx)).
			WithHint("try again")
	}
	s.log.Debug("barrier failed", "error", err)
	return s.noLeader()
}

func (s *Server) confirmLeader(ctx context.Context) error {
	if plant.Is(plant.VerifyLeader) {
		return await(ctx, s.raft.VerifyLeader())
	}
	// raft's VerifyLeader would be cheaper, but after a pause of the process it accepts answers from before the pause.
	return s.barrier.wait(ctx)
}

// coalescer lets concurrent callers share one run of a function. A call that arrives during a run waits for the next
// run, so each run begins after the calls that share it.
type coalescer struct {
	run func(context.Context) error

	mu      sync.Mutex
	running bool
	next    *round
}

type round struct {
	done chan struct{}
	err  error
}

func (c *coalescer) wait(ctx context.Context) error {
	c.mu.Lock()
	r := c.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		c.next = r
	}
	if !c.running {
		c.running = true
		go c.loop()
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loop calls run until no caller waits. run must limit its own time.
func (c *coalescer) loop() {
	for {
		c.mu.Lock()
		r := c.next
		c.next = nil
		c.running = r != nil
		c.mu.Unlock()
		if r == nil {
			return
		}
		r.err = c.run(context.Background())
		close(r.done)
	}
}

// transferWatch detects a leadership transfer that never ends. raft sometimes fails to clear its flag for a transfer.
// raft then refuses every entry, even after a new election, until the process is restarted.
type transferWatch struct {
	mu    sync.Mutex
	since time.Time // when raft began to refuse because of a transfer; zero if raft does not refuse
}

// note takes the error of an entry or a Barrier. It stops the server if raft has refused because of a transfer for
// longer than two election timeouts.
func (t *transferWatch) note(s *Server, err error) {
	limit := 2 * s.cfg.Raft.electionTimeout()
	if t.stuck(err, limit) && !plant.Is(plant.StuckTransfer) {
		s.fatal(fmt.Errorf("a leadership transfer has not ended for %s; raft refuses every write until this "+
			"process is restarted", limit))
	}
}

func (t *transferWatch) stuck(err error, limit time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !errors.Is(err, raft.ErrLeadershipTransferInProgress):
		t.since = time.Time{}
	case t.since.IsZero():
		t.since = time.Now()
	default:
		return time.Since(t.since) > limit
	}
	return false
}
