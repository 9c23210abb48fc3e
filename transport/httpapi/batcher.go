package httpapi

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// batcher has calls that come while others are under way sent together; one that comes alone goes at once. It has no
// goroutine: the first of those who wait sends for all, and to the end also if it is itself not waited for any more.
// Safe for many goroutines.
type batcher[Q, A any] struct {
	send   func(ctx context.Context, calls []Q) ([]A, error) // one answer for each call
	weight func(Q) int                                       // what a call adds to its batch
	bounds batchBounds

	mu      sync.Mutex
	flying  int              // batches under way
	waiting []*batched[Q, A] // in the order of their coming, not yet in a batch
}

// batchBounds are those of what is sent at once.
type batchBounds struct {
	calls  int
	weight int // of all calls, unless one alone has more
	flying int // batches at once, so that one that is slow holds up only a part
	time   time.Duration
}

// batched is one call on its way.
type batched[Q, A any] struct {
	call   Q
	batch  *batch[Q, A]
	turn   chan struct{} // closed when it has to send its batch
	done   chan struct{} // closed when there is an answer
	answer A
	err    error
}

// batch is given up once nobody waits for any of its calls.
type batch[Q, A any] struct {
	calls  []*batched[Q, A]
	wanted int // of batcher.mu
	ctx    context.Context
	giveUp context.CancelFunc
}

// do returns the answer to a call. It blocks until there is one, or ctx ends; who sends for others has to wait for
// theirs, for at most the time of a batch.
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

// leave takes back a call that nobody waits for. It reports whether the call has a batch to send all the same.
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

// next has the first of those who wait send for as many as one batch takes, if one more may be under way. b.mu is held.
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

// fly sends a batch and gives everybody the answer, also where sending panics: the panic is the sender's, and the
// others are told of it.
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
