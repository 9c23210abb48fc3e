package main

import (
	"context"
	"fmt"

	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/model"
)

// growth fills the cluster group by group. For the first and the last group it records the average time to place one
// instance, the rate at which instances start, and the memory of the largest server.
func growth(ctx context.Context, st *stage) error {
	first := 0.0
	for st.filled < st.o.instances {
		n := min(st.o.group, st.o.instances-st.filled)
		placed, ready, err := st.timeJobs(ctx, st.newJobs([]model.GroupSpec{groupSpec("g", n)}))
		if err != nil {
			return err
		}
		st.filled += n
		each := placed.Seconds() / float64(n) * 1e6
		if first == 0 {
			first = each
		}
		if st.filled == n || st.filled >= st.o.instances {
			st.add(Figure{What: fmt.Sprintf("placing one more at %d, in microseconds", st.filled), Value: each,
				Limit: Limit{first, "the first ones"}})
			st.add(Figure{What: fmt.Sprintf("running, at %d", st.filled), Value: float64(n) / ready.Seconds(),
				Unit: PerSecond, Goal: atLeast(15_000)})
			if err := st.memory(); err != nil {
				return err
			}
		}
	}
	return st.quiet(ctx)
}

// memory records the memory of the server that uses the most memory.
func (st *stage) memory() error {
	goal := Goal{}
	switch {
	case st.filled <= 10_000:
		goal = below(80)
	case st.filled <= 100_000:
		goal = below(400)
	}
	var largest procs.Usage
	for _, s := range st.fleet.Servers {
		u, err := s.Usage()
		if err != nil {
			return err
		}
		if u.Memory > largest.Memory {
			largest = u
		}
	}
	st.add(Figure{
		What:  fmt.Sprintf("memory of the largest server, %d nodes, %d instances", st.crowd.Len(), st.filled),
		Value: mib(largest.Memory), Unit: MiB, Goal: goal,
		Note: fmt.Sprintf("%.0f of it are pages of the program and its log; at most %.0f so far",
			mib(largest.Files), mib(largest.Peak)),
	})
	return nil
}
