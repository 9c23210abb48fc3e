package agent

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Servers calls the control plane. If one server doesn't answer a call, an implementation sends the call to others.
// Calls are idempotent, and return when their context ends. All methods are safe for concurrent use.
type Servers interface {
	Register(context.Context, transport.RegisterRequest) (transport.RegisterReply, error)
	Report(context.Context, transport.ReportRequest) (transport.ReportReply, error)
	Assignments(context.Context, transport.AssignmentsRequest) (transport.Assignments, error)
	Services(context.Context, transport.ServicesRequest) (transport.Services, error)
	Peers(context.Context, transport.PeersRequest) (transport.Peers, error)
}

// Heartbeats sends heartbeats, which show that this node lives, to every server. Package cluster implements it. No
// method blocks. All methods are safe for concurrent use.
type Heartbeats interface {
	// Register starts heartbeats of epoch, signed with key and sent once per interval. They replace the heartbeats of the
	// earlier epoch.
	Register(key []byte, epoch uint64, interval time.Duration)
	// SetVoters sets the voters among the servers, the index of their configuration, and their history (model.History as a
	// string). Call it before Register. A configuration older than the known one is ignored. Answers from servers of an
	// earlier history, which this history replaced, renew no lease.
	SetVoters(history string, index uint64, voters []model.ServerID)
	// SetInterval changes the interval between heartbeats, after the cluster's setting changed.
	SetInterval(interval time.Duration)
	// SetFacts sets the newest generation of facts of an epoch. Heartbeats of that epoch carry it from now on.
	SetFacts(epoch, generation uint64)
	// SetAnswered sets when a server last answered a request of the agent. Heartbeats carry the time since then.
	SetAnswered(at time.Time)
	// LeaseUntil returns when a lease of the given length ends, with a monotonic reading. The lease is held while a
	// majority of the voters have answered heartbeats that were SENT within that length. LeaseUntil returns the zero time
	// if no majority has answered yet.
	LeaseUntil(length time.Duration) time.Time
	// GivenUp returns a channel that receives an epoch of this node when a server has agreed to call that epoch offline.
	// The agent must then register again, unless it has a newer epoch by then.
	GivenUp() <-chan uint64
}

// asDuration converts a model.Duration to a time.Duration of at most maxWait.
func asDuration(d model.Duration) time.Duration {
	if d >= model.Duration(maxWait/time.Millisecond) {
		return maxWait
	}
	return time.Duration(d) * time.Millisecond
}

// maxWait stands for "for ever" where a timer needs a number.
const maxWait = 100 * 365 * 24 * time.Hour

// sleep waits for d and returns true. It returns false early if ctx ends or wake has a value or is closed.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-wake:
	}
	return false
}

// until returns a context that is also canceled when done is closed. The caller must call stop.
func until(ctx context.Context, done <-chan struct{}) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(); wg.Wait() }
}

// backoff computes pauses that double from first to most. Up to a quarter of each pause is random, so that agents that
// lost the same server don't all call again at the same moment.
type backoff struct {
	first, most time.Duration
	now         time.Duration
}

func (b *backoff) next(random float64) time.Duration {
	b.now = min(max(2*b.now, b.first), b.most)
	return b.now*3/4 + time.Duration(float64(b.now/4)*random)
}

func (b *backoff) reset() { b.now = 0 }

// level returns the log level for a failure: Warn for the first in a row, Debug for later ones.
func (b *backoff) level() hclog.Level {
	if b.now == 0 {
		return hclog.Warn
	}
	return hclog.Debug
}
