package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/transport"
)

// probeTimeout is how long a probe waits for an answer.
const probeTimeout = 10 * time.Second

// answers wraps Servers. It adds the history that this node follows (model.History) to all requests but Register, and
// records when a server last answered. Heartbeats carry that time: a node without answers gets no new work, even if its
// heartbeats arrive.
type answers struct {
	Servers
	follows func() string // returns that history as text
	last    atomic.Pointer[time.Time]
	note    atomic.Pointer[func(time.Time)] // called with the time of each answer; may be nil
}

// Follows returns the history that this node follows (model.History) as text. It is "" before the first registration.
func (a *Agent) Follows() string { return a.servers.follows() }

// Register implements Servers.
func (s *answers) Register(ctx context.Context, r transport.RegisterRequest) (transport.RegisterReply, error) {
	return answered(s, func() (transport.RegisterReply, error) { return s.Servers.Register(ctx, r) })
}

// Report implements Servers.
func (s *answers) Report(ctx context.Context, r transport.ReportRequest) (transport.ReportReply, error) {
	r.Cluster = s.follows()
	return answered(s, func() (transport.ReportReply, error) { return s.Servers.Report(ctx, r) })
}

// Assignments implements Servers.
func (s *answers) Assignments(ctx context.Context, r transport.AssignmentsRequest) (transport.Assignments, error) {
	r.Cluster = s.follows()
	return answered(s, func() (transport.Assignments, error) { return s.Servers.Assignments(ctx, r) })
}

// Services implements Servers.
func (s *answers) Services(ctx context.Context, r transport.ServicesRequest) (transport.Services, error) {
	r.Cluster = s.follows()
	return answered(s, func() (transport.Services, error) { return s.Servers.Services(ctx, r) })
}

// Peers implements Servers.
func (s *answers) Peers(ctx context.Context, r transport.PeersRequest) (transport.Peers, error) {
	r.Cluster = s.follows()
	return answered(s, func() (transport.Peers, error) { return s.Servers.Peers(ctx, r) })
}

func answered[A any](s *answers, call func() (A, error)) (A, error) {
	reply, err := call()
	if err == nil {
		now := time.Now()
		s.last.Store(&now)
		if note := s.note.Load(); note != nil {
			(*note)(now)
		}
	}
	return reply, err
}

// age returns how long ago a server last answered. Before the first answer it returns 0.
func (s *answers) age() time.Duration {
	if last := s.last.Load(); last != nil {
		return time.Since(*last)
	}
	return 0
}

// keepProbing sends a short request to the servers whenever no server has answered for two heartbeat intervals, until
// ctx ends. The long poll can't show that the servers are silent, because a server may take pollWait to answer it.
func (a *Agent) keepProbing(ctx context.Context) {
	for {
		limit := 2 * time.Duration(a.every.Load())
		now, registered := a.session.current()
		if now == (registration{}) || limit <= 0 {
			sleep(ctx, maxWait, registered)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		if wait := limit - a.servers.age(); wait > 0 {
			if !sleep(ctx, wait, nil) {
				return
			}
			continue
		}
		a.probe(ctx, now)
		if !sleep(ctx, limit, nil) {
			return
		}
	}
}

// probe asks for the assignments without waiting for newer ones. It ignores the assignments in the answer, because
// keepAssigned acts on those. Only the time of the answer is recorded.
func (a *Agent) probe(ctx context.Context, now registration) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	seen := a.session.newest()
	if _, err := a.cfg.Servers.Assignments(ctx, transport.AssignmentsRequest{
		Node: a.home.node, Epoch: now.epoch, Index: seen.Index, Incarnation: seen.Incarnation, Seen: seen,
	}); err != nil {
		a.log.Debug("no server answers", "for", a.servers.age(), "error", err)
	}
}
