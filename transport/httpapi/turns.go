package httpapi

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

const (
	turnWait = 5 * time.Second // how long a call waits for its turn
	// turnLent is how long a turn counts. A call that takes longer is likely to wait for another machine, and must not
	// keep the subject's other calls waiting.
	turnLent = 5 * time.Second
)

// turns limits how many answers are computed at once for one subject, so that large lists for one leave processor time
// for all others. Further calls of the subject wait for their turn, first come, first served. Safe for concurrent use.
type turns struct {
	most       int // of one subject at a time
	wait, lent time.Duration
	beyond     func(Share)

	mu sync.Mutex
	of map[model.Subject]*turnLine
}

// turnLine has the calls of one subject.
type turnLine struct {
	working int
	waiting []chan struct{} // closed when the call's turn begins
}

func newTurns(most int, beyond func(Share)) *turns {
	return &turns{most: max(1, most), wait: turnWait, lent: turnLent, beyond: beyond, of: map[model.Subject]*turnLine{}}
}

// take blocks until the subject may have one more answer computed. The turn ends when the caller calls give, which it
// may do many times, or after t.lent. Codes: busy after t.wait; timeout if ctx has ended.
func (t *turns) take(ctx context.Context, who model.Subject) (give func(), err error) {
	t.mu.Lock()
	line := t.of[who]
	if line == nil {
		line = &turnLine{}
		t.of[who] = line
	}
	if line.working < t.most {
		line.working++
		t.mu.Unlock()
		return t.lend(who), nil
	}
	called := make(chan struct{})
	line.waiting = append(line.waiting, called)
	t.mu.Unlock()
	timer := time.NewTimer(t.wait)
	defer timer.Stop()
	select {
	case <-called:
		return t.lend(who), nil
	case <-ctx.Done():
		err = model.Refuse(model.CodeTimeout, "the request ended before its turn: %v", context.Cause(ctx))
	case <-timer.C:
		t.beyond(ShareWork)
		err = model.Refuse(model.CodeBusy, "%s has more answers computed at once than its share of this server, %d",
			who, t.most).WithHint("ask for less at once, or for less with limit, filter or fields")
	}
	t.forget(who, called)
	return nil, err
}

// lend returns the function that ends a turn.
func (t *turns) lend(who model.Subject) (give func()) {
	end := sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pass(who)
	})
	timer := time.AfterFunc(t.lent, end)
	return func() { timer.Stop(); end() }
}

// forget removes a call that no longer waits. If its turn has begun meanwhile, forget passes the turn on.
func (t *turns) forget(who model.Subject, called chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.of[who]
	if i := slices.Index(line.waiting, called); i >= 0 {
		line.waiting = slices.Delete(line.waiting, i, i+1)
		return
	}
	t.pass(who)
}

// pass gives a turn that has ended to the subject's next call. The caller holds t.mu.
func (t *turns) pass(who model.Subject) {
	line := t.of[who]
	if len(line.waiting) > 0 {
		close(line.waiting[0])
		line.waiting = line.waiting[1:]
		return
	}
	if line.working--; line.working == 0 {
		delete(t.of, who)
	}
}

// work is the turn of one request. A nil work, as that of a server's own request, needs no turn.
type work struct {
	turns *turns
	who   model.Subject

	mu   sync.Mutex
	give func() // nil without a turn
}

// begin waits for a turn, unless the request has one. Codes: those of turns.take.
func (w *work) begin(ctx context.Context) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.give != nil {
		return nil
	}
	give, err := w.turns.take(ctx, w.who)
	w.give = give
	return err
}

// end ends the turn, if the request has one: before the request waits for something, and when its answer is computed.
func (w *work) end() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.give != nil {
		w.give()
		w.give = nil
	}
}

type workKey struct{}

func withWork(ctx context.Context, w *work) context.Context {
	return context.WithValue(ctx, workKey{}, w)
}

// workFrom returns the work of the request to which ctx belongs, or nil.
func workFrom(ctx context.Context) *work {
	w, _ := ctx.Value(workKey{}).(*work)
	return w
}
