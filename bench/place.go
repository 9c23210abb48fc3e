package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/outspan/outspan/bench/fleet"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// placements measures how fast the same number of instances is placed in three shapes: one group, 100 groups, and one
// group with a spread and a constraint. It removes the jobs of each shape before it submits the next.
func placements(ctx context.Context, st *stage) error {
	n := st.o.group
	spread := groupSpec("g", n)
	spread.Spreads = []model.Spread{{Attribute: "node.label.rack"}}
	spread.Constraints = []model.Constraint{{Attribute: "node.label.disk", Operator: "=", Value: "ssd"}}
	var many []model.GroupSpec
	for i := range 100 {
		many = append(many, groupSpec(fmt.Sprintf("g%03d", i), n/100))
	}
	shapes := []struct {
		what string
		jobs []model.JobSpec
		goal Goal
	}{
		{fmt.Sprintf("1 group of %d", n), st.newJobs([]model.GroupSpec{groupSpec("g", n)}), atLeast(50_000)},
		// These are two jobs, because a job has at most 64 groups.
		{fmt.Sprintf("100 groups of %d", n/100), st.newJobs(many[:50], many[50:]), atLeast(20_000)},
		{fmt.Sprintf("1 group of %d, spread, constraint", n), st.newJobs([]model.GroupSpec{spread}), atLeast(50_000)},
	}
	for _, shape := range shapes {
		if err := st.place(ctx, shape.what, shape.jobs, shape.goal); err != nil {
			return err
		}
		if err := st.purge(ctx, shape.jobs); err != nil {
			return err
		}
		if err := st.quiet(ctx); err != nil {
			return err
		}
	}
	return nil
}

// place submits jobs and records two rates, both seen on a follower: how many instances per second were placed, and how
// many per second were reported as running.
func (st *stage) place(ctx context.Context, what string, jobs []model.JobSpec, goal Goal) error {
	placed, ready, err := st.timeJobs(ctx, jobs)
	if err != nil {
		return err
	}
	n := float64(instances(jobs))
	limit := Limit{Value: st.limits.placements, Of: "bare raft"}
	st.add(Figure{
		What: what + ", on a follower", Value: n / placed.Seconds(), Unit: PerSecond, Goal: goal, Limit: limit,
		Note: fmt.Sprintf("decoded and applied in one loop: %.0f/s", st.limits.apply),
	})
	st.add(Figure{What: what + ", running", Value: n / ready.Seconds(), Unit: PerSecond, Goal: atLeast(15_000)})
	return nil
}

// timeJobs submits jobs and waits until all their instances are ready. It returns how long it took until a follower had
// applied the last placement, and how long until it had applied the last report of an instance.
func (st *stage) timeJobs(ctx context.Context, jobs []model.JobSpec) (placed, ready time.Duration, err error) {
	server, c, err := st.followerClient(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	if _, err := server.Applied(ctx, c); err != nil { // opens the connection before the measurement
		return 0, 0, err
	}
	line := startTimeline(ctx, server, c)
	began := time.Now()
	for _, job := range jobs {
		if err == nil {
			err = st.submit(ctx, job)
		}
	}
	if err == nil {
		err = st.waitReady(ctx, jobs)
	}
	points := line.stop()
	if err != nil {
		return 0, 0, err
	}
	lastPlaced, err := lastEvent(ctx, c, model.EventAllocated)
	if err != nil {
		return 0, 0, err
	}
	lastReady, err := lastEvent(ctx, c, model.EventStatus)
	return points.reached(lastPlaced).Sub(began), points.reached(lastReady).Sub(began), err
}

// timeline records which index a server had applied at which time. It polls the index, because that costs the server
// little. Polling the progress of a job would cost a whole decision each time.
type timeline struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	points points
}

type point struct {
	at    time.Time
	index uint64
}

type points []point

const timelineStep = 5 * time.Millisecond

func startTimeline(ctx context.Context, s *fleet.Server, c *transport.Client) *timeline {
	ctx, cancel := context.WithCancel(ctx)
	t := &timeline{cancel: cancel}
	t.wg.Go(func() {
		tick := time.NewTicker(timelineStep)
		defer tick.Stop()
		for {
			index, err := s.Applied(ctx, c)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				t.points = append(t.points, point{time.Now(), index})
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return t
}

func (t *timeline) stop() points {
	t.cancel()
	t.wg.Wait()
	return append(t.points, point{time.Now(), 1 << 63})
}

// reached returns the time at which the server was first seen to have applied the index.
func (p points) reached(index uint64) time.Time {
	for _, one := range p {
		if one.index >= index {
			return one.at
		}
	}
	return time.Time{}
}

// lastEvent returns the index of the latest event of a type, or an error if there is no such event.
func lastEvent(ctx context.Context, c *transport.Client, kind model.EventType) (uint64, error) {
	events, err := recentEvents(ctx, c, kind, 1)
	if err == nil && len(events) == 0 {
		err = fmt.Errorf("there is no event %s", kind)
	}
	if err != nil {
		return 0, err
	}
	return events[len(events)-1].Index, nil
}

// event has the fields of an event that the benchmark uses.
type event struct {
	Index uint64            `json:"index"`
	Time  time.Time         `json:"time"`
	Data  map[string]string `json:"data"`
}

// recentEvents returns the latest n events of a type, oldest first.
func recentEvents(ctx context.Context, c *transport.Client, kind model.EventType, n int) ([]event, error) {
	answer, err := c.Send(ctx, reach.Request{
		Path:   "/v1/events",
		Query:  map[string][]string{"type": {string(kind)}, "tail": {strconv.Itoa(n)}, "follow": {"false"}},
		Header: map[string][]string{"Accept": {"application/x-ndjson"}},
	})
	if err != nil {
		return nil, err
	}
	var events []event
	for line := range bytes.Lines(answer.Body) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("events of %s: %w", kind, err)
		}
		events = append(events, e)
	}
	return events, nil
}
