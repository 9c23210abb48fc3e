package httpapi

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// batcher sends calls together that arrive while others are under way; a single call is sent at once. It has no
// goroutine: the first waiting call sends for all of its batch, even if its own caller no longer waits. It is safe for
// many goroutines.
type batcher[Q, A any] struct {
	send   func(ctx context.Context, calls []Q) ([]A, error) // one answer for each call
	weight func(Q) int                                       // what a call adds to its batch
	bounds batchBounds

	mu      sync.Mutex
	flying  int              // batches under way
	waiting []*batched[Q, A] // in order of arrival, not yet in a batch
}

// batchBounds bounds what is sent at once.
type batchBounds struct {
	calls  int
	weight int // of all calls, unless one alone has more
	flying int // batches at once, so that a slow one delays only a part
	time   time.Duration
}

// batched is one call on its way.
type batched[Q, A any] struct {
	call   Q
	batch  *batch[Q, A]
	turn   chan struct{} // closed when the call has to send its batch
	done   chan struct{} // closed when there is an answer
	answer A
	err    error
}

// batch is canceled once nobody waits for any of its calls.
type batch[Q, A any] struct {
	calls  []*batched[Q, A]
	wanted int // callers that still wait; guarded by batcher.mu
	ctx    context.Context
	giveUp context.CancelFunc
}

// do returns the answer to a call. It blocks until there is one, or ctx ends. A call that sends for others also waits
// for their answers, at most for the time of a batch.
func (b *batcher[Q, A]) do(ctx context.Context, call Q) (answer A, err error) {
	one := &batched[Q, A]{call: call, turn: make(chan struct{}), done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, one)
	b.next()
	b.mu.Unlock()
	select {
	case <-one.done:
	case <-one.turn:
		stop := context.AfterFunc(ctx, func() { b.leave(one) })
		b.fly(one.batch)
		stop()
	case <-ctx.Done():
		if b.leave(one) {
			b.fly(one.batch)
		}
		return answer, model.Refuse(model.CodeTimeout, "the request ended before it was answered: %v", context.Cause(ctx))
	}
	return one.answer, one.err
}

// leave withdraws a call for which nobody waits. It reports whether the call still has to send its batch.
func (b *batcher[Q, A]) leave(one *batched[Q, A]) (sends bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one.batch == nil {
		if i := slices.Index(b.waiting, one); i >= 0 {
			b.waiting = slices.Delete(b.waiting, i, i+1)
		}
		return false
	}
	if one.batch.wanted--; one.batch.wanted == 0 {
		one.batch.giveUp()
	}
	return one.batch.calls[0] == one
}

// next lets the first waiting call send a batch of as many calls as fit, if one more batch may be under way. b.mu is
// held.
func (b *batcher[Q, A]) next() {
	if b.flying == b.bounds.flying || len(b.waiting) == 0 {
		return
	}
	n, weight := 1, b.weight(b.waiting[0].call)
	for n < min(len(b.waiting), b.bounds.calls) && weight+b.weight(b.waiting[n].call) <= b.bounds.weight {
		weight += b.weight(b.waiting[n].call)
		n++
	}
	flight := &batch[Q, A]{calls: slices.Clone(b.waiting[:n]), wanted: n}
	flight.ctx, flight.giveUp = context.WithTimeout(context.Background(), b.bounds.time)
	for _, one := range flight.calls {
		one.batch = flight
	}
	b.waiting = slices.Delete(b.waiting, 0, n)
	b.flying++
	close(flight.calls[0].turn)
}

// fly sends a batch and hands out the answers. If sending panics, the panic goes on in the sender, and the other calls
// get an error.
func (b *batcher[Q, A]) fly(flight *batch[Q, A]) {
	defer flight.giveUp()
	calls := make([]Q, len(flight.calls))
	for i, one := range flight.calls {
		calls[i] = one.call
	}
	var answers []A
	var err error = model.Refuse(model.CodeInternal, "the server failed").WithHint("its log says why")
	defer func() { b.land(flight, answers, err) }()
	answers, err = b.send(flight.ctx, calls)
}

func (b *batcher[Q, A]) land(flight *batch[Q, A], answers []A, err error) {
	for i, one := range flight.calls {
		if one.err = err; err == nil {
			one.answer = answers[i]
		}
		close(one.done)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flying--
	b.next()
}
