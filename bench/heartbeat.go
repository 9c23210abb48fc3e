package main

import (
	"context"
	"fmt"
	"time"

	"github.com/outspan/outspan/bench/fleet"
)

// heartbeats measures how busy the busiest server is, and how many entries are written to the log, while the agents
// send only heartbeats.
func heartbeats(ctx context.Context, st *stage) error {
	if err := st.quiet(ctx); err != nil {
		return err
	}
	before, err := st.status(ctx)
	if err != nil {
		return err
	}
	used, err := cpuOf(st.fleet.Servers)
	if err != nil {
		return err
	}
	length := 4 * st.o.length
	began := time.Now()
	if err := pause(ctx, length); err != nil {
		return err
	}
	took := time.Since(began)
	now, err := cpuOf(st.fleet.Servers)
	if err != nil {
		return err
	}
	after, err := st.status(ctx)
	if err != nil {
		return err
	}
	worst := 0.0
	for i := range now {
		worst = max(worst, 100*float64(now[i]-used[i])/float64(took))
	}
	st.add(Figure{What: fmt.Sprintf("%d nodes, the busiest server", st.crowd.Len()), Value: worst,
		Unit: Percent, Goal: below(15)})
	st.add(Figure{What: "entries in the log meanwhile", Value: float64(after.Index - before.Index), Goal: below(0)})
	return nil
}

func cpuOf(servers []*fleet.Server) ([]time.Duration, error) {
	var all []time.Duration
	for _, s := range servers {
		u, err := s.Usage()
		if err != nil {
			return nil, err
		}
		all = append(all, u.CPU)
	}
	return all, nil
}

// pause waits for d. It returns an error if ctx ends earlier.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
