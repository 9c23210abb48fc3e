package bubble

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/invariant"
	"github.com/outspan/outspan/model"
)

// answered is the outcome of one request, as its client knows it.
type answered string

const (
	answeredDone    answered = "done"
	answeredRefused answered = "refused" // refused when it was applied, or before it was logged
	answeredUnknown answered = "unknown"
)

// receipts are the outcomes of requests as clients know them, by request id. Safe for concurrent use.
type receipts struct {
	mu  sync.Mutex
	all map[model.RequestID]receipt
}

type receipt struct {
	what string
	told answered
	err  error
}

func newReceipts() *receipts { return &receipts{all: map[model.RequestID]receipt{}} }

// note records the outcome of a request, in place of an earlier outcome of the same request.
func (r *receipts) note(id model.RequestID, what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[id] = receipt{what, told(err), err}
}

// told returns the outcome that a client may conclude from err. The outcome is a refusal only if the server's code
// means that the request will never be carried out.
func told(err error) answered {
	var refused *model.Error
	switch {
	case err == nil:
		return answeredDone
	case !errors.As(err, &refused):
		return answeredUnknown
	}
	switch refused.Code {
	case model.CodeUnreachable, model.CodeUnknownOutcome, model.CodeNoLeader, model.CodeBusy, model.CodeTimeout,
		model.CodeInternal, model.CodeStaleTerm,
		model.CodeNotCaughtUp, model.CodeRateLimited, model.CodeShutdownTimeout:
		return answeredUnknown
	}
	return answeredRefused
}

// outcome is what the log did with a request.
type outcome struct {
	index    uint64
	accepted bool
}

// durable checks S4 over a whole history. Each acknowledged request was carried out by an entry, and the last state
// still contains the request. No refused request was carried out. invariant.Judge checks that no request was carried
// out twice.
func (r *receipts) durable(entries []committed, last fsm.State) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var f fsm.Findings
	log := map[model.RequestID]outcome{}
	for _, e := range entries {
		if e.Request == "" || len(e.results) == 0 || e.results[0].Replay ||
			invariant.RefusedAs(e.results[0], model.CodeRequestConflict, model.CodeBusy) {
			continue
		}
		log[e.Request] = outcome{e.index, !slices.ContainsFunc(e.results, func(x fsm.Result) bool {
			return x.Refusal != nil
		})}
	}
	for _, id := range slices.Sorted(maps.Keys(r.all)) {
		one := r.all[id]
		done, logged := log[id]
		switch {
		case one.told == answeredDone && !logged:
			f.Add(fsm.S4, "%s (request %s) was acknowledged, and no entry holds it", one.what, id)
		case one.told == answeredDone && !done.accepted:
			f.Add(fsm.S4, "%s (request %s) was acknowledged, and entry %d refused it", one.what, id, done.index)
		case one.told == answeredDone && !last.Requests.Has(id):
			f.Add(fsm.S4, "%s (request %s) was carried out at index %d, and is not remembered", one.what, id, done.index)
		case one.told == answeredRefused && logged && done.accepted:
			f.Add(fsm.S4, "%s (request %s) was refused (%v), and entry %d carried it out", one.what, id, one.err, done.index)
		}
	}
	return f.Err()
}

// forget drops all outcomes. It is called before an older state is restored, which need not contain acknowledged
// requests.
func (r *receipts) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.all)
}

// acknowledged lists the requests that are known to be carried out.
func (r *receipts) acknowledged() (ids []model.RequestID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, one := range r.all {
		if one.told == answeredDone {
			ids = append(ids, id)
		}
	}
	return ids
}

// allThere checks S4 for the state with which a new leader begins: the state contains every request that was
// acknowledged before.
func allThere(acknowledged []model.RequestID, state fsm.State) error {
	var f fsm.Findings
	for _, id := range acknowledged {
		if !state.Requests.Has(id) {
			f.Add(fsm.S4, "request %s was acknowledged, and is not in the state", id)
		}
	}
	return f.Err()
}

// summary describes how many requests had which outcome.
func (r *receipts) summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[answered]int{}
	for _, one := range r.all {
		n[one.told]++
	}
	return fmt.Sprintf("%d requests done, %d refused, %d unknown", n[answeredDone], n[answeredRefused], n[answeredUnknown])
}
