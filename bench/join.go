package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/outspan/outspan/bench/fleet"
	"github.com/outspan/outspan/internal/testbed/crowd"
)

// register starts the agents and waits until every node is eligible. Then it records how much CPU time and how many log
// entries one agent cost on average. A cost per agent that grows with the number of agents shows here first.
func (st *stage) register(ctx context.Context, nodes int) error {
	before, err := st.spent(ctx)
	if err != nil {
		return err
	}
	st.crowd, err = crowd.Open(ctx, crowd.Config{
		Nodes: nodes, Servers: st.fleet.APIs(), TLS: st.fleet.TLS(), Cluster: fleet.Name, Address: st.fleet.Address(100),
		Capacity: nodeCapacity(), Labels: nodeLabels,
	})
	if err != nil {
		return err
	}
	if err := st.waitNodes(ctx, nodes); err != nil {
		return err
	}
	if err := st.waitEligible(ctx); err != nil {
		return err
	}
	after, err := st.spent(ctx)
	if err != nil {
		return err
	}
	each := func(d time.Duration) float64 { return millis(d) / float64(nodes) }
	st.add(Figure{What: fmt.Sprintf("%d agents, until all take work", nodes),
		Value: after.at.Sub(before.at).Seconds(), Unit: Seconds})
	st.add(Figure{
		What: "for one agent, all servers together", Value: each(after.servers - before.servers), Unit: MillisCPU,
		Note: fmt.Sprintf("the simulated agent itself: %.1f", each(after.own-before.own)),
	})
	st.add(Figure{What: "for one agent, entries in the log", Value: float64(after.index-before.index) / float64(nodes)})
	if n, last := st.crowd.Troubles(); n > 0 {
		st.say("%d calls of agents failed and were repeated, the last: %v", n, last)
	}
	return nil
}

// spent is the CPU time that was used, and the length of the log, at one point in time.
type spent struct {
	at      time.Time
	servers time.Duration // CPU time of all servers
	own     time.Duration // CPU time of this process
	index   uint64        // index of the last log entry
}

func (st *stage) spent(ctx context.Context) (spent, error) {
	now := spent{at: time.Now()}
	all, err := cpuOf(st.fleet.Servers)
	for _, one := range all {
		now.servers += one
	}
	var own syscall.Rusage
	err = errors.Join(err, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	now.own = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	s, statusErr := st.status(ctx)
	now.index = s.Index
	return now, errors.Join(err, statusErr)
}
