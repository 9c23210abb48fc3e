package linear

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// writing is one write, which may be sent in several requests.
type writing struct {
	c  *client
	op Op // the write, with what is known of its outcome so far

	mu    sync.Mutex
	first int // number of answers that say that this very request carried out the write; more than 1 breaks S4
}

// send sends the write through the servers of doors at the same time, and blocks until each has answered or timed out.
func (w *writing) send(ctx context.Context, doors []Door) {
	ask := w.op.Ask
	for _, door := range doors {
		if w.op.Door != "" {
			w.op.Door += ","
		}
		w.op.Door += door.Name
	}
	var wg sync.WaitGroup
	for _, door := range doors {
		limit := w.c.limit()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			got, body := door.send(ctx, ask)
			w.take(got, body, w.c.history.now(), door)
		})
	}
	wg.Wait()
}

// written has the parts of the answer to a write that take checks.
type written struct {
	Index    uint64 `json:"index"`
	Replayed bool   `json:"replayed"` // the answer is the stored outcome of an earlier request
}

// take merges one answer into the result of the write. It records a violation of S4 if the answer can't be read, if the
// write was carried out twice, or if two certain answers differ.
func (w *writing) take(got Answer, body []byte, end time.Duration, door Door) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h, was := w.c.history, w.op
	h.count(func(n *counts) { n.requests++ })
	if got.Outcome == Done {
		var reply written
		if err := json.Unmarshal(body, &reply); err != nil || reply.Index == 0 {
			h.fault("S4: the answer to a write can't be read (%v): %s", err, body)
			return
		}
		got.Index = reply.Index
		if !reply.Replayed {
			w.first++
		}
		if w.first > 1 {
			h.fault("S4: %s carried out for a second time by %s, at index %d:\n  %s", w.op.Request, door.Name, got.Index, was)
		}
	}
	definite := func(o Outcome) bool { return o == Done || o == Conflict }
	switch {
	case definite(was.Outcome) && definite(got.Outcome):
		if was.Outcome != got.Outcome || was.Index != got.Index {
			h.fault("S4: %s was answered twice, and differently: first\n  %s\nthen, by %s: %s at index %d (%s)", w.op.Request,
				was, door.Name, got.Outcome, got.Index, got.Text)
		}
	case definite(was.Outcome):
	case definite(got.Outcome):
		w.op.Answer, w.op.End = got, end
	case was.Outcome == "" || was.Outcome == Nothing && got.Outcome == Unknown:
		// An Unknown answer replaces Nothing: one server did nothing, but another may have carried out the write.
		w.op.Answer, w.op.End = got, end
	}
}
