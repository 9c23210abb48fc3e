package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/outspan/outspan/bench/fleet"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// failover kills the leader repeatedly while clients write, and submits a job after each kill. It measures the times
// from the kill until the next write is acknowledged, until the first instance of the job is placed, and until all
// instances of the job are ready.
func failover(ctx context.Context, st *stage) error {
	if err := st.fill(ctx); err != nil {
		return err
	}
	var writes, decisions, backlogs []time.Duration
	lost := 0
	rounds := (st.o.rounds + 1) / 2
	for range rounds {
		one, err := killLeader(ctx, st)
		if err != nil {
			return err
		}
		writes, decisions, backlogs, lost = append(writes, one.write), append(decisions, one.decision),
			append(backlogs, one.backlog), lost+one.lost
	}
	note := fmt.Sprintf("%d times kill -9, at most", rounds)
	line := func(what string, times []time.Duration, goal Goal) {
		st.add(Figure{What: what, Value: quantile(times, 0.5).Seconds(), Unit: Seconds, Goal: goal,
			Note: fmt.Sprintf("%s %.1f s", note, quantile(times, 1).Seconds())})
	}
	line("next acknowledged write, median", writes, below(3))
	line("next decision, median", decisions, below(3))
	line("backlog gone, median", backlogs, below(5))
	st.add(Figure{What: "acknowledged writes lost", Value: float64(lost), Goal: below(0)})
	return nil
}

type outage struct {
	write, decision, backlog time.Duration
	lost                     int
}

// outageWriters is the number of clients that write during an outage. Each writes to its own node.
const outageWriters = 4

func killLeader(ctx context.Context, st *stage) (outage, error) {
	var o outage
	w := newWitness(ctx, st)
	defer w.stop()
	if err := w.wait(ctx, time.Now()); err != nil { // every writer must have written before the kill
		return o, err
	}
	leader, err := st.fleet.Leader(ctx)
	if err != nil {
		return o, err
	}
	killed := time.Now()
	leader.Kill()
	jobs := st.newJobs([]model.GroupSpec{groupSpec("g", max(10, st.o.group/10))})
	err = procs.Until(ctx, electionLimit, 20*time.Millisecond, func(ctx context.Context) error {
		return st.submitOnce(ctx, jobs[0])
	})
	if err != nil {
		return o, err
	}
	decided, err := st.firstPlaced(ctx, jobs[0])
	if err != nil {
		return o, err
	}
	if err := st.waitReady(ctx, jobs); err != nil {
		return o, err
	}
	o.decision, o.backlog = decided.Sub(killed), time.Since(killed)
	o.write = w.firstAfter(killed).Sub(killed)
	w.stop()
	if o.lost, err = w.lost(ctx); err != nil {
		return o, err
	}
	if err := leader.Start(); err != nil {
		return o, err
	}
	if err := st.purge(ctx, jobs); err != nil {
		return o, err
	}
	return o, st.caughtUp(ctx, leader)
}

const electionLimit = 30 * time.Second

// submitOnce submits a job, but gives up after 2 s. The caller may call it again, because submitting the same job twice
// changes nothing.
func (st *stage) submitOnce(ctx context.Context, job model.JobSpec) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return st.submit(ctx, job)
}

// firstPlaced waits until an instance of the job is placed, and returns the time of the placement. The leader took this
// time from the clock of this machine, so it can be compared with local times.
func (st *stage) firstPlaced(ctx context.Context, job model.JobSpec) (at time.Time, err error) {
	err = procs.Until(ctx, electionLimit, 20*time.Millisecond, func(ctx context.Context) error {
		events, err := recentEvents(ctx, st.fleet.Any(), model.EventAllocated, max(10, st.o.group/10))
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Data["group"] == string(job.Name)+"/g" || e.Data["job"] == string(job.Name) {
				at = e.Time
				return nil
			}
		}
		return errors.New("nothing is placed")
	})
	return at, err
}

// caughtUp waits until a restarted server has applied as many entries as the leader.
func (st *stage) caughtUp(ctx context.Context, s *fleet.Server) error {
	c, err := st.fleet.Client(s)
	if err != nil {
		return err
	}
	defer c.Close()
	return procs.Until(ctx, time.Minute, 100*time.Millisecond, func(ctx context.Context) error {
		all, err := st.status(ctx)
		if err != nil {
			return err
		}
		index, err := s.Applied(ctx, c)
		if err == nil && index < all.Index {
			err = fmt.Errorf("%s is at %d of %d", s.Name, index, all.Index)
		}
		return err
	})
}

// witness runs several writers, each of which writes growing numbers to a label of its own node. It records which
// numbers the servers acknowledged.
type witness struct {
	st     *stage
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	acked map[int]int64 // the latest acknowledged number of each writer
	times []time.Time   // times of the acknowledgements
}

func newWitness(ctx context.Context, st *stage) *witness {
	ctx, cancel := context.WithCancel(ctx)
	w := &witness{st: st, cancel: cancel, acked: map[int]int64{}}
	for i := range outageWriters {
		w.wg.Go(func() { w.write(ctx, i) })
	}
	return w
}

func (w *witness) write(ctx context.Context, writer int) {
	c, err := transport.NewClient(transport.ClientConfig{Addresses: urls(w.st.fleet),
		Credentials: w.st.fleet.Credentials(), RetryFor: -1})
	if err != nil {
		return // without this writer's acknowledgements, wait fails
	}
	defer c.Close()
	for n := time.Now().UnixMicro(); ctx.Err() == nil; n++ {
		call, cancel := context.WithTimeout(ctx, time.Second)
		_, err := fleet.Post(call, c, w.path(writer), labelBody(n), nil)
		cancel()
		if err != nil {
			_ = pause(ctx, 20*time.Millisecond) // the loop checks ctx
			continue
		}
		w.mu.Lock()
		w.acked[writer], w.times = n, append(w.times, time.Now())
		w.mu.Unlock()
	}
}

func (w *witness) path(writer int) string {
	return "/v1/nodes/" + w.st.crowd.Name(writer) + "/label"
}

// wait blocks until every writer has got an acknowledgement, and at least one acknowledgement arrived later than since.
func (w *witness) wait(ctx context.Context, since time.Time) error {
	return procs.Until(ctx, electionLimit, 10*time.Millisecond, func(context.Context) error {
		w.mu.Lock()
		n := len(w.acked)
		w.mu.Unlock()
		if n < outageWriters || w.firstAfter(since).IsZero() {
			return fmt.Errorf("%d of %d writers were acknowledged", n, outageWriters)
		}
		return nil
	})
}

// firstAfter returns the time of the first acknowledgement that arrived more than 5 ms after moment, or the zero time
// if there was none. Within the 5 ms, an acknowledgement of a leader that was killed at moment may still arrive.
func (w *witness) firstAfter(moment time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.times {
		if t.After(moment.Add(5 * time.Millisecond)) {
			return t
		}
	}
	return time.Time{}
}

func (w *witness) stop() {
	w.cancel()
	w.wg.Wait()
}

// lost returns the number of writers whose latest acknowledged number is not in the state. Call it only after stop.
func (w *witness) lost(ctx context.Context) (int, error) {
	lost := 0
	for writer, acked := range w.acked {
		var node struct {
			Labels map[string]string `json:"labels"`
		}
		if err := fleet.Get(ctx, w.st.fleet.Any(), "/v1/nodes/"+w.st.crowd.Name(writer)+"?consistency=consistent",
			&node); err != nil {
			return 0, err
		}
		if n, _ := strconv.ParseInt(node.Labels["bench"], 10, 64); n < acked {
			lost++
		}
	}
	return lost, nil
}

func urls(f *fleet.Fleet) []string {
	var all []string
	for _, api := range f.APIs() {
		all = append(all, "https://"+api)
	}
	return all
}
