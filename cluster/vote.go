package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// Bounds of the questions whether a server may vote.
const (
	voteTime  = 5 * time.Second  // for one question; Config.MayVote must return after that
	voteAgain = time.Second      // pause after a refusal
	voteHolds = 10 * time.Second // how long a permission is valid
)

// votes asks Config.MayVote about servers that are to get a vote, while keepMembers makes other changes. It asks about
// each server once at a time. It is safe for concurrent use.
type votes struct {
	ask func(ctx context.Context, id model.ServerID, address string) error // blocks for at most voteTime
	wg  sync.WaitGroup

	mu     sync.Mutex
	ballot map[model.ServerID]ballot
}

// ballot is the last answer about one server at an address. Until the first answer, at is zero.
type ballot struct {
	address string
	asking  bool
	at      time.Time // of the answer
	refused error     // nil: the server may vote
}

func newVotes(ask func(context.Context, model.ServerID, string) error) *votes {
	return &votes{ask: ask, ballot: map[model.ServerID]ballot{}}
}

// allows reports whether a server was allowed to vote less than voteHolds ago. Otherwise it starts a question, unless
// one is under way or was answered less than voteAgain ago. It does not block.
func (v *votes) allows(ctx context.Context, id model.ServerID, address string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	b, now := v.ballot[id], time.Now()
	answered := !b.at.IsZero() && b.address == address
	switch {
	case b.asking:
		return false
	case answered && b.refused == nil && now.Sub(b.at) < voteHolds:
		return true
	case answered && b.refused != nil && now.Sub(b.at) < voteAgain, ctx.Err() != nil:
		return false
	}
	b.asking = true
	v.ballot[id] = b
	v.wg.Go(func() {
		err := v.ask(ctx, id, address)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.ballot[id] = ballot{address: address, at: time.Now(), refused: err}
	})
	return false
}

// reason returns why a server got no vote, or nil if it was allowed to vote or was not asked about of late.
func (v *votes) reason(id model.ServerID) error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if b := v.ballot[id]; time.Since(b.at) < voteHolds {
		return b.refused
	}
	return nil
}

// wait blocks until no question is under way, for at most voteTime after ctx has ended.
func (v *votes) wait() { v.wg.Wait() }

// mayVote asks Config.MayVote about the server at address. Codes: those of Config.MayVote.
func mayVote(ctx context.Context, s *Server, id model.ServerID, address string) error {
	if s.cfg.MayVote == nil {
		return nil
	}
	name := string(id)
	if m, ok := s.seen.pool.Member(string(id)); ok {
		name = m.Meta.Name
	}
	ctx, cancel := context.WithTimeout(ctx, voteTime)
	defer cancel()
	return s.cfg.MayVote(ctx, name, address)
}
