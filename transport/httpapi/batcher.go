package httpapi

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// batcher sends calls in batches. It sends a call at once if fewer than bounds.flying batches are being sent. Otherwise
// the call waits, and is sent together with other waiting calls. The goroutine of a batch's first call sends the batch,
// even if the context of that call has ended. Safe for concurrent use.
type batcher[Q, A any] struct {
	send   func(ctx context.Context, calls []Q) ([]A, error) // one answer for each call
	weight func(Q) int                                       // what a call adds to the weight of its batch
	bounds batchBounds

	mu      sync.Mutex
	flying  int              // batches that are being sent
	waiting []*batched[Q, A] // in order of arrival, not yet in a batch
}

// batchBounds limits each batch, and how many are sent at once.
type batchBounds struct {
	calls  int
	weight int // limit for all calls of a batch together; a heavier call is sent alone
	flying int // batches sent at once; more than one, so that a slow batch delays only some of the calls
	time   time.Duration
}

// batched is a call between its arrival and its answer.
type batched[Q, A any] struct {
	call   Q
	batch  *batch[Q, A]
	turn   chan struct{} // closed when this call must send its batch
	done   chan struct{} // closed when there is an answer
	answer A
	err    error
}

// batch is sent as one request. It is canceled when no caller waits any more.
type batch[Q, A any] struct {
	calls  []*batched[Q, A]
	wanted int // number of callers that still wait; guarded by batcher.mu
	ctx    context.Context
	giveUp context.CancelFunc
}

// do returns the answer to a call. It blocks until the answer has arrived or ctx ends. A call that sends a batch waits
// until the batch is answered, even if ctx ends, for at most bounds.time. Codes: timeout, and those of send.
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

// leave withdraws a call whose caller no longer waits. It returns true if the caller must still send the batch.
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

// next makes a batch of as many waiting calls as fit, unless bounds.flying batches are being sent already. It wakes the
// goroutine of the batch's first call to send the batch. The caller holds b.mu.
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

// fly sends a batch and gives each call its answer. If send panics, the other calls get an error, and the panic
// continues in the caller of fly.
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
