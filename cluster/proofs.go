package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// Limits for proving claims in gossip. A change of the configuration that depends on a claim waits for the proof.
const (
	proofsAtOnce   = 8                // attempts that may run at a time
	proofsKept     = 2                // of these, kept for the servers that have waited longest, despite their failures
	claimsNew      = 100              // new claims of each kind between two calls of start
	claimsMost     = 20_000           // claims in all; the members of a full gossip pool cause fewer
	proofRetry     = 5 * time.Second  // pause after a failure; it doubles with each further failure in a row
	proofRetryMost = time.Minute      // upper bound of that pause
	proofHolds     = 10 * time.Second // how long a proof is valid, and how long a claim that no change needs is kept
	proofMemory    = 10 * time.Minute // how long the record of a server is kept after the last attempt
)

// proofs proves claims in gossip while keepMembers makes other changes. Anyone with the gossip key can claim servers
// that do not exist, and each attempt to reach one takes seconds. So servers with fewer failures are tried first, and
// among equals the servers that have waited longer. Some places are kept for the servers that have waited longest. Safe
// for concurrent use.
type proofs struct {
	prove  func(Change) error  // blocks for at most helloTimeout
	failed func(Change, error) // called after each failed attempt, unless the term has ended
	wg     sync.WaitGroup

	mu     sync.Mutex
	claims map[Change]*claim
	fresh  map[ChangeKind]int // the number of new claims since the last call of start
	number uint64             // of the newest claim
	record map[model.ServerID]*record
	flying map[bool]int // number of running attempts: in kept places (true), in other places (false)
}

// claim is what must be proven before one change.
type claim struct {
	first  time.Time // when the change was first wanted
	number uint64    // orders claims that were first wanted at the same time; unlike an id, an attacker can't choose it
	asked  time.Time // when the change was last wanted
	proven time.Time // when the claim was proven; zero if it is not proven now
}

// record is the result of the attempts to reach one server.
type record struct {
	failures int       // in a row
	tried    time.Time // when the running attempt began, or else when the last attempt ended
	flying   bool      // an attempt is running
	kept     bool      // the running attempt uses a kept place
}

// retry returns when the server may be tried again.
func (r *record) retry() time.Time {
	if r.failures == 0 {
		return r.tried
	}
	return r.tried.Add(min(proofRetry<<min(r.failures-1, 8), proofRetryMost))
}

func newProofs(prove func(Change) error, failed func(Change, error)) *proofs {
	return &proofs{
		prove: prove, failed: failed, claims: map[Change]*claim{}, fresh: map[ChangeKind]int{},
		record: map[model.ServerID]*record{}, flying: map[bool]int{},
	}
}

// holds reports whether the claim that a change depends on was proven less than proofHolds ago. If not, holds records
// the claim, so that the next call of start may try to prove it. Between two calls of start it records at most
// claimsNew new claims of each kind of change.
func (p *proofs) holds(c Change) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	one := p.claims[c]
	if one == nil {
		if p.fresh[c.Kind] == claimsNew || len(p.claims) == claimsMost {
			return false
		}
		p.fresh[c.Kind]++
		p.number++
		one = &claim{first: now, number: p.number}
		p.claims[c] = one
	}
	one.asked = now
	if !one.proven.IsZero() && now.Sub(one.proven) >= proofHolds {
		one.proven = time.Time{}
	}
	return !one.proven.IsZero()
}

// start begins attempts to prove claims for which holds was called at the time since or later. It skips servers that
// must wait for their next attempt, and stops when no place is free. It also drops old claims and records. It does not
// block.
func (p *proofs) start(ctx context.Context, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	clear(p.fresh)
	maps.DeleteFunc(p.claims, func(_ Change, one *claim) bool { return now.Sub(one.asked) >= proofHolds })
	maps.DeleteFunc(p.record, func(_ model.ServerID, r *record) bool {
		return !r.flying && now.Sub(r.tried) >= proofMemory
	})
	var due []waiting
	for c, one := range p.claims {
		r := p.of(c)
		if one.proven.IsZero() && !one.asked.Before(since) && !r.flying && !now.Before(r.retry()) {
			due = append(due, waiting{c, r.failures, latest(one.first, r.tried), one.number})
		}
	}
	slices.SortFunc(due, func(a, b waiting) int { return cmp.Or(a.failures-b.failures, a.longer(b)) })
	p.fly(ctx, now, due, false)
	slices.SortFunc(due, waiting.longer)
	p.fly(ctx, now, due, true)
}

// waiting is a claim that may be tried now.
type waiting struct {
	change   Change
	failures int       // of its server
	since    time.Time // when the change was first wanted or the server was last tried, whichever is later
	number   uint64    // of the claim
}

// longer compares two claims for sorting: the claim that has waited longer sorts first.
func (w waiting) longer(other waiting) int {
	return cmp.Or(w.since.Compare(other.since), cmp.Compare(w.number, other.number))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// fly begins attempts for the claims in due, in order, while places are free. If kept is true, it uses the kept places,
// otherwise the other places. p.mu is held.
func (p *proofs) fly(ctx context.Context, now time.Time, due []waiting, kept bool) {
	places := proofsAtOnce - proofsKept
	if kept {
		places = proofsKept
	}
	for _, w := range due {
		if p.flying[kept] >= places || ctx.Err() != nil {
			return
		}
		r := p.of(w.change)
		if r.flying {
			continue
		}
		r.flying, r.tried, r.kept = true, now, kept
		p.record[w.change.prover()] = r
		p.flying[kept]++
		p.wg.Go(func() { p.try(ctx, w.change) })
	}
}

func (p *proofs) try(ctx context.Context, c Change) {
	err := p.prove(c)
	p.mu.Lock()
	r := p.of(c)
	p.flying[r.kept]--
	r.flying, r.tried = false, time.Now()
	if err == nil {
		r.failures = 0
		if one := p.claims[c]; one != nil {
			one.proven = r.tried
		}
	} else {
		r.failures++
	}
	p.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		p.failed(c, err)
	}
}

// of returns the record of the server that must prove a change. If there is none, it returns an empty record, which it
// does not store. p.mu is held.
func (p *proofs) of(c Change) *record {
	if r := p.record[c.prover()]; r != nil {
		return r
	}
	return &record{}
}

// wait blocks until no attempt is running, for at most helloTimeout.
func (p *proofs) wait() { p.wg.Wait() }

// prover returns the server that must prove its address before the change is made, or an empty id if no server must.
func (c Change) prover() model.ServerID {
	if c.Kind == ChangeAdd || c.Kind == ChangeMove {
		return c.ID
	}
	return c.Successor
}
