package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outspan/outspan/bench/fleet"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/model"
)

// killOne kills one machine per round, and measures how long the servers take to place the machine's instances
// elsewhere.
func killOne(ctx context.Context, st *stage) error {
	return kills(ctx, st, 1, st.o.rounds, below(2.5), below(4))
}

// killTen measures the same as killOne with ten machines that are killed at the same time.
func killTen(ctx context.Context, st *stage) error {
	return kills(ctx, st, 10, max(1, st.o.rounds/5), below(10), Goal{})
}

// perNode is the number of instances per node that kills starts if the cluster is still empty.
const perNode = 20

func kills(ctx context.Context, st *stage, atOnce, rounds int, median, worst Goal) error {
	if st.filled == 0 {
		n := perNode * st.crowd.Len()
		g := groupSpec("g", n)
		g.Spreads = []model.Spread{{Attribute: "node.name"}} // so that each node runs the same number
		jobs := st.newJobs([]model.GroupSpec{g})
		if err := st.submit(ctx, jobs[0]); err != nil {
			return err
		}
		if err := st.waitReady(ctx, jobs); err != nil {
			return err
		}
		st.filled = n
	}
	if err := st.settle(ctx); err != nil {
		return err
	}
	// Kill at most a fifth of the nodes, because a HOLD would delay all replacements. A HOLD begins when more than 34 % of
	// the nodes are silent, or more than half of them if there are fewer than ten.
	atOnce = min(atOnce, max(1, st.crowd.Len()/5))
	var times []time.Duration
	for range rounds {
		numbers, err := st.fullest(ctx, atOnce)
		if err != nil {
			return err
		}
		took, err := st.kill(ctx, numbers)
		if err != nil {
			return err
		}
		times = append(times, took)
	}
	what := fmt.Sprintf("%d of %d nodes", atOnce, st.crowd.Len())
	note := fmt.Sprintf("%d times, at most %.1f s", rounds, quantile(times, 1).Seconds())
	if holds, err := recentEvents(ctx, st.fleet.Any(), model.EventHold, 100); err != nil {
		return err
	} else if len(holds) > 0 { // probably this process sent its agents' heartbeats too late
		note += fmt.Sprintf("; the cluster held still %d times", (len(holds)+1)/2)
	}
	st.add(Figure{What: what + " -> all replacements placed, median", Value: quantile(times, 0.5).Seconds(),
		Unit: Seconds, Goal: median, Note: note})
	st.add(Figure{What: what + " -> all replacements placed, p99", Value: quantile(times, 0.99).Seconds(),
		Unit: Seconds, Goal: worst, Note: note})
	return nil
}

// fullest returns the numbers of the n agents with the most instances. Agents that were killed in earlier rounds have
// started empty again, so others are usually chosen first.
func (st *stage) fullest(ctx context.Context, n int) ([]int, error) {
	var list nodeList
	if err := fleet.Get(ctx, st.fleet.Any(), "/v1/nodes", &list); err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, node := range list.Items {
		count[node.Name] = node.Instances
	}
	var numbers []int
	for i := range st.crowd.Len() {
		numbers = append(numbers, i)
	}
	slices.SortStableFunc(numbers, func(a, b int) int { return count[st.crowd.Name(b)] - count[st.crowd.Name(a)] })
	return numbers[:n], nil
}

// kill stops agents without notice, as if their machines had lost power. Once all replacements run, it starts the
// agents again. It returns the time from the kill to the event of the last placement.
func (st *stage) kill(ctx context.Context, numbers []int) (time.Duration, error) {
	count, err := st.running(ctx, numbers)
	if err != nil {
		return 0, err
	}
	if count == 0 {
		return 0, fmt.Errorf("nothing runs on agents %v", numbers)
	}
	killed := time.Now()
	st.crowd.Kill(numbers...)
	err = procs.Until(ctx, time.Minute, 50*time.Millisecond, func(context.Context) error {
		if running := st.crowd.Running(); running < st.filled {
			return fmt.Errorf("agents run %d instances, want %d", running, st.filled)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	events, err := recentEvents(ctx, st.fleet.Any(), model.EventAllocated, count)
	if err != nil {
		return 0, err
	}
	last := killed
	for _, e := range events {
		if e.Time.After(last) {
			last = e.Time
		}
	}
	st.crowd.Revive(numbers...)
	if err := st.waitNodes(ctx, st.crowd.Len()); err != nil {
		return 0, err
	}
	return last.Sub(killed), st.settle(ctx)
}
