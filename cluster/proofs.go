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

// How the claims are proven on which changes of the servers rest.
const (
	proofsAtOnce   = 8
	proofRetry     = 5 * time.Second  // after the first failure in a row; twice as long after each further one
	proofRetryMost = time.Minute      // at most
	proofHolds     = 10 * time.Second // a proven claim is proven anew after that
	proofMemory    = 10 * time.Minute // for so long failures count, and for so long claims are kept that gossip withdrew
)

// proofs has the claims of gossip proven beside the loop that changes the servers: whoever has the gossip key can
// claim that servers are where nobody answers, and each attempt to reach one takes seconds. Servers that failed less
// often go first. Safe for many goroutines.
type proofs struct {
	prove  func(Change) error // it blocks for at most helloTimeout
	failed func(Change, error)
	wg     sync.WaitGroup

	mu     sync.Mutex
	claims map[Change]*claim
	record map[model.ServerID]*record
	flying int
}

// claim is what one change rests on.
type claim struct {
	asked  time.Time // when the change was last wanted
	proven time.Time // zero: it is not
}

// record is how attempts to reach one server went.
type record struct {
	failures int // in a row
	tried    time.Time
	flying   bool
}

// retry is when the server may be tried again.
func (r *record) retry() time.Time {
	if r.failures == 0 {
		return r.tried
	}
	return r.tried.Add(min(proofRetry<<min(r.failures-1, 8), proofRetryMost))
}

func newProofs(prove func(Change) error, failed func(Change, error)) *proofs {
	return &proofs{prove: prove, failed: failed, claims: map[Change]*claim{}, record: map[model.ServerID]*record{}}
}

// holds reports whether what a change rests on was proven lately. If it was not, start has it proven.
func (p *proofs) holds(c Change) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	one := p.claims[c]
	if one == nil {
		one = &claim{}
		p.claims[c] = one
	}
	one.asked = now
	if !one.proven.IsZero() && now.Sub(one.proven) >= proofHolds {
		one.proven = time.Time{}
	}
	return !one.proven.IsZero()
}

// start begins to prove the claims that were wanted since a time, as far as their servers may be tried again. It does
// not block.
func (p *proofs) start(ctx context.Context, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(p.claims, func(_ Change, one *claim) bool { return now.Sub(one.asked) >= proofHolds })
	maps.DeleteFunc(p.record, func(_ model.ServerID, r *record) bool { return !r.flying && now.Sub(r.tried) >= proofMemory })
	var due []Change
	for c, one := range p.claims {
		if r := p.of(c); one.proven.IsZero() && !one.asked.Before(since) && !r.flying && !now.Before(r.retry()) {
			due = append(due, c)
		}
	}
	slices.SortFunc(due, func(a, b Change) int {
		x, y := p.of(a), p.of(b)
		return cmp.Or(x.failures-y.failures, x.tried.Compare(y.tried), cmp.Compare(a.prover(), b.prover()))
	})
	for _, c := range due {
		r := p.of(c)
		if r.flying || p.flying == proofsAtOnce || ctx.Err() != nil {
			continue
		}
		r.flying, r.tried = true, now
		p.record[c.prover()] = r
		p.flying++
		p.wg.Go(func() { p.try(ctx, c) })
	}
}

// try proves one claim.
func (p *proofs) try(ctx context.Context, c Change) {
	err := p.prove(c)
	p.mu.Lock()
	r := p.of(c)
	p.flying--
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

// of is the record of the server that a change has to reach. p.mu is held.
func (p *proofs) of(c Change) *record {
	if r := p.record[c.prover()]; r != nil {
		return r
	}
	return &record{}
}

// wait blocks until no attempt is under way, for at most helloTimeout.
func (p *proofs) wait() { p.wg.Wait() }

// prover is the server that must prove where it is before a change is made; empty if none must.
func (c Change) prover() model.ServerID {
	if c.Kind == ChangeAdd || c.Kind == ChangeMove {
		return c.ID
	}
	return c.Successor
}
