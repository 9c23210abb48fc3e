package agent

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	reportCoalesce = 30 * time.Millisecond // pause before a report, so that it also has the changes that follow at once
	reportTimeout  = 10 * time.Second      // of one attempt to send a report
	reportBatch    = 2000                  // most statuses in one report, except the full inventory
	reportBytes    = 256 << 10             // most bytes of statuses in one report; a larger inventory has no facts
)

// reporter sends changes to the servers, in batches, until they acknowledge them. Each status has a generation, so
// sending the same status twice changes nothing. Safe for concurrent use.
type reporter struct {
	node model.NodeID
	send func(context.Context, transport.ReportRequest) (transport.ReportReply, error)
	log  hclog.Logger
	wake chan struct{} // capacity 1; has a token when there may be something to send

	mu          sync.Mutex
	latest      map[model.InstanceID]model.InstanceStatus
	acked       map[model.InstanceID]uint64 // the newest generation that the servers have
	turns       map[model.InstanceID]turn
	round       uint64 // acknowledgements of reports from earlier rounds are ignored
	moves       map[model.TransferID]transferWord
	now         registration // the registration to report under; zero while reports are suspended
	full        bool         // the next report must be the full inventory
	incarnation uint64       // the incarnation of the servers' state that the inventory is for
	holds       func() []model.Holding
	moved       chan struct{}      // closed and replaced at each acknowledgement
	stale       func(registration) // called when the servers don't know the registration any more
	facts       factsCount
	self        selfReport
}

// factsCount has the facts generation of the node. It is 1 at each registration, and grows with each change of a fact.
// Heartbeats carry it, so that servers know of a change before its report arrives.
type factsCount struct {
	tell  func(epoch, generation uint64) // sets the generation that heartbeats carry; must not block
	term  registration
	now   uint64
	acked uint64
}

func newReporter(node model.NodeID, send func(context.Context, transport.ReportRequest) (transport.ReportReply, error),
	log hclog.Logger) *reporter {
	return &reporter{
		node: node, send: send, log: log, wake: make(chan struct{}, 1), stale: func(registration) {},
		latest: map[model.InstanceID]model.InstanceStatus{}, acked: map[model.InstanceID]uint64{}, moved: make(chan struct{}),
		moves: map[model.TransferID]transferWord{},
		turns: map[model.InstanceID]turn{},
		holds: func() []model.Holding { return nil },
		facts: factsCount{tell: func(uint64, uint64) {}}, self: selfReport{now: 1, acked: 1},
	}
}

func (r *reporter) set(s model.InstanceStatus) {
	r.mu.Lock()
	r.queue(r.latest[s.ID], s)
	if !maps.Equal(r.latest[s.ID].Facts, s.Facts) {
		r.facts.now++
		r.facts.tell(r.facts.term.epoch, r.facts.now)
	}
	r.latest[s.ID] = s
	r.mu.Unlock()
	r.kick()
}

// newRegistration restarts the count of facts for a new registration. It does not start the reports; see begin.
func (r *reporter) newRegistration(now registration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts.term, r.facts.now, r.facts.acked = now, 1, 0
	r.facts.tell(now.epoch, 1)
}

// resend sends the newest status of an instance again. Acknowledgements of reports that were built before are ignored.
func (r *reporter) resend(id model.InstanceID) {
	r.mu.Lock()
	r.round++
	r.requeue(id)
	r.mu.Unlock()
	r.kick()
}

// forget drops an instance that the servers don't have any more.
func (r *reporter) forget(id model.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.latest, id)
	delete(r.acked, id)
	delete(r.turns, id)
}

func (r *reporter) status(id model.InstanceID) (model.InstanceStatus, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.latest[id]
	return s, ok
}

// suspend stops the reports until begin is called.
func (r *reporter) suspend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = registration{}
}

// begin starts the reports. The parameter now is the registration to report under. The first report is the full
// inventory, so the caller must have set the status of each instance. incarnation is the incarnation of the servers'
// state.
func (r *reporter) begin(now registration, incarnation uint64) {
	r.mu.Lock()
	r.now, r.full, r.incarnation = now, true, incarnation
	r.mu.Unlock()
	r.kick()
}

// resendInventory makes the next report a full inventory again, because the servers' state was restored. incarnation is
// the incarnation of the restored state.
func (r *reporter) resendInventory(incarnation uint64) {
	r.mu.Lock()
	r.full, r.incarnation = true, incarnation
	r.mu.Unlock()
	r.kick()
}

// repeat sends everything again after a snapshot was restored, because the snapshot may lack what was acknowledged.
// Acknowledgements of reports that were built before are ignored.
func (r *reporter) repeat() {
	r.mu.Lock()
	r.round++
	for id := range r.turns {
		r.requeue(id)
	}
	r.facts.acked, r.self.acked = 0, 0
	for id, w := range r.moves {
		r.moves[id] = transferWord{latest: w.latest}
	}
	r.mu.Unlock()
	r.kick()
}

// delivered reports whether the servers have acknowledged this generation of the instance, or a newer one.
func (r *reporter) delivered(id model.InstanceID, generation uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked[id] >= generation
}

// await blocks until the servers have acknowledged this generation of the instance, or a newer one, and returns true.
// It returns false if ctx ends or the time limit is over before that.
func (r *reporter) await(ctx context.Context, id model.InstanceID, generation uint64, limit time.Duration) bool {
	return r.awaitThat(ctx, limit, func() bool { return r.acked[id] >= generation })
}

// awaitThat blocks until done returns true, and then returns true. It calls done under the lock, at once and after each
// acknowledgement. It returns false if ctx ends or the time limit is over before that.
func (r *reporter) awaitThat(ctx context.Context, limit time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		r.mu.Lock()
		is, moved := done(), r.moved
		r.mu.Unlock()
		if is {
			return true
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}

// drain blocks until nothing is left to report, or ctx ends. It returns at once if reports are suspended.
func (r *reporter) drain(ctx context.Context) {
	for {
		r.mu.Lock()
		idle, moved := !r.unsent(), r.moved
		r.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reporter) kick() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reporter) run(ctx context.Context) {
	retry := backoff{first: 100 * time.Millisecond, most: 5 * time.Second}
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		if !sleep(ctx, reportCoalesce, nil) {
			return
		}
		for ctx.Err() == nil {
			more, err := r.flush(ctx, retry.level())
			if err == nil && !more {
				retry.reset()
				break
			}
			if err != nil {
				sleep(ctx, retry.next(rand.Float64()), nil)
			}
		}
	}
}

// flush sends the next report, and records its acknowledgement. If the servers don't know the registration any more, it
// suspends the reports and calls stale. more is true if there is more to send.
func (r *reporter) flush(ctx context.Context, level hclog.Level) (more bool, err error) {
	req, sent, ok := r.next()
	if !ok {
		return false, nil
	}
	call, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	_, err = r.send(call, req)
	var refused *model.Error
	switch {
	case err == nil:
		return r.record(req, sent), nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.As(err, &refused) && (refused.Code == model.CodeStale || refused.Code == model.CodeNotFound):
		r.log.Info("the servers do not know this registration any more", "epoch", req.Epoch, "error", err)
		r.mu.Lock()
		if r.now == sent.term {
			r.now = registration{}
		}
		stale := r.stale
		r.mu.Unlock()
		stale(sent.term)
		return false, nil
	}
	r.log.Log(level, "report was not taken", "instances", len(req.Instances), "full", req.Full, "error", err)
	return true, err
}

// sending is the state of the reporter when a report was built.
type sending struct {
	term  registration
	round uint64
	self  uint64 // selfReport.now
}

// next builds the next report. It returns false if there is nothing to send, or if reports are suspended.
func (r *reporter) next() (transport.ReportRequest, sending, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	req, at := transport.ReportRequest{Node: r.node, Epoch: r.now.epoch, Full: r.full}, sending{r.now, r.round, r.self.now}
	if r.now == (registration{}) {
		return req, at, false
	}
	if r.facts.term == r.now {
		req.FactsGen = r.facts.now
	}
	req.Transfers = r.transferWords(r.full)
	if r.full || r.self.acked < r.self.now {
		req.Self = r.self.report()
	}
	if r.full {
		req.Instances, req.Incarnation = r.collect(func(model.InstanceStatus) bool { return true }), r.incarnation
		if sizeOf(req.Instances) > reportBytes { // send no facts; later reports have them
			for i := range req.Instances {
				req.Instances[i].Facts = nil
			}
			req.FactsGen = r.facts.acked
		}
		for _, h := range r.holds() {
			if r.latest[h.ID].Observed != model.ObservedStopped {
				req.Holds = append(req.Holds, h)
			}
		}
		return req, at, true
	}
	req.Instances = r.pending()
	if n, all := fitting(req.Instances); !all { // only the report with the last status has the newest FactsGen
		req.Instances, req.FactsGen = req.Instances[:n], r.facts.acked
	}
	return req, at, len(req.Instances)+len(req.Transfers) > 0 || req.Self != nil
}

// fitting returns how many statuses at the beginning of list fit in one report, and whether the whole list fits. The
// first status always fits.
func fitting(list []model.InstanceStatus) (n int, all bool) {
	size := 0
	for n < min(len(list), reportBatch) {
		size += statusSize(list[n])
		if size > reportBytes && n > 0 {
			break
		}
		n++
	}
	return n, n == len(list)
}

func sizeOf(list []model.InstanceStatus) (size int) {
	for _, s := range list {
		size += statusSize(s)
	}
	return size
}

// statusSize estimates how many bytes a status takes in a report.
func statusSize(s model.InstanceStatus) int {
	size := 64 + len(s.ID) + len(s.Reason)
	for name, value := range s.Facts {
		size += 4 + len(name) + len(value)
	}
	if s.Hook != nil {
		size += 32 + len(s.Hook.Message)
	}
	return size
}

// pending returns the statuses that the servers don't have, in the order in which they are sent. The caller holds r.mu.
func (r *reporter) pending() []model.InstanceStatus {
	list := r.collect(func(s model.InstanceStatus) bool {
		return s.Observed != model.ObservedPending && s.Generation > r.acked[s.ID] // the servers themselves set pending
	})
	r.byTurn(list)
	return list
}

func (r *reporter) collect(keep func(model.InstanceStatus) bool) []model.InstanceStatus {
	var list []model.InstanceStatus
	for _, s := range r.latest {
		if keep(s) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b model.InstanceStatus) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return list
}

// record records that the servers accepted req, and reports whether there is more to send. If req is from an earlier
// round, record ignores the acknowledgement, and returns true unless reports are suspended.
func (r *reporter) record(req transport.ReportRequest, at sending) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.round != r.round {
		return r.now != registration{}
	}
	for _, s := range req.Instances {
		r.acknowledge(s)
	}
	if req.Full && at.term == r.now {
		r.full = false
	}
	if at.term == r.facts.term {
		r.facts.acked = max(r.facts.acked, req.FactsGen)
	}
	r.bookTransfers(req.Transfers)
	if req.Self != nil {
		r.self.acked = max(r.self.acked, at.self)
	}
	close(r.moved)
	r.moved = make(chan struct{})
	return r.unsent()
}

// unsent reports whether there is something to send, and reports are not suspended. The caller holds r.mu.
func (r *reporter) unsent() bool {
	return r.now != (registration{}) &&
		(r.full || r.self.acked < r.self.now || len(r.pending()) > 0 || len(r.transferWords(false)) > 0)
}
