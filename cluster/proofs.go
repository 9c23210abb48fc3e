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

// Limits for proving claims in gossip. A change of the servers that rests on such a claim waits for the proof.
const (
	proofsAtOnce   = 8
	proofsKept     = 2                // of proofsAtOnce: for the servers that have waited longest, whatever their failures
	claimsNew      = 100              // new claims of each kind in one look at the servers
	claimsMost     = 20_000           // more than the members of a full pool can make
	proofRetry     = 5 * time.Second  // after the first failure in a row; twice as long after each further one
	proofRetryMost = time.Minute      // upper bound of that wait
	proofHolds     = 10 * time.Second // after that, a proven claim must be proven again and an unwanted one is dropped
	proofMemory    = 10 * time.Minute // how long failures count
)

// proofs proves the claims of gossip concurrently with the loop that changes the servers. Anyone with the gossip key
// can claim servers where nobody answers, and each attempt to reach one takes seconds. Servers that failed less often
// go first, then those that wait longer. Some places are kept for those that wait longest. Names don't affect the
// order, because an attacker chooses them. It is safe for many goroutines.
type proofs struct {
	prove  func(Change) error // it blocks for at most helloTimeout
	failed func(Change, error)
	wg     sync.WaitGroup

	mu     sync.Mutex
	claims map[Change]*claim
	fresh  map[ChangeKind]int // new claims since the last start
	number uint64             // of the newest claim
	record map[model.ServerID]*record
	flying map[bool]int // attempts under way: in kept places (true), and in the others
}

// claim is what must be proven before one change.
type claim struct {
	first  time.Time // when the change was first wanted
	number uint64    // orders claims that were first wanted at the same time
	asked  time.Time // when the change was last wanted
	proven time.Time // zero: not proven
}

// record is the outcome of the attempts to reach one server.
type record struct {
	failures int // in a row
	tried    time.Time
	flying   bool
	kept     bool // whether it flies in a kept place
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

// holds reports whether the claim that a change rests on was proven within proofHolds. Otherwise the next start tries
// to prove it. After claimsNew new claims of a kind since the last start, further ones have to wait for a later call.
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

// start begins to prove the claims that were wanted since a time, if their servers may be tried again. It does not
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
	since    time.Time // when it was first wanted, or its server was last tried
	number   uint64    // of the claim
}

// longer orders claims by how long they have waited, the longest first.
func (w waiting) longer(other waiting) int {
	return cmp.Or(w.since.Compare(other.since), cmp.Compare(w.number, other.number))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// fly begins due attempts in order, while places are free: the kept ones, or the others. p.mu is held.
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

// of returns the record of the server that a change has to reach. p.mu is held.
func (p *proofs) of(c Change) *record {
	if r := p.record[c.prover()]; r != nil {
		return r
	}
	return &record{}
}

// wait blocks until no attempt is under way, for at most helloTimeout.
func (p *proofs) wait() { p.wg.Wait() }

// prover returns the server that must prove its address before a change is made; empty if none must.
func (c Change) prover() model.ServerID {
	if c.Kind == ChangeAdd || c.Kind == ChangeMove {
		return c.ID
	}
	return c.Successor
}
