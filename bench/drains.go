package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outspan/outspan/bench/fleet"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/model"
)

const drainLimit = 3 * time.Minute

type drainAnswer struct {
	Drain string `json:"drain"`
}

// drain starts one drain of several nodes, which are given by their numbers in st.crowd. It returns the drain's id.
func (st *stage) drain(ctx context.Context, numbers ...int) (string, error) {
	var names []string
	for _, i := range numbers {
		names = append(names, st.crowd.Name(i))
	}
	var answer drainAnswer
	_, err := fleet.Post(ctx, st.fleet.Any(), "/v1/drains", map[string]any{"nodes": names, "message": "bench"}, &answer)
	return answer.Drain, err
}

func (st *stage) uncordon(ctx context.Context, numbers ...int) error {
	for _, i := range numbers {
		if _, err := fleet.Post(ctx, st.fleet.Any(), "/v1/nodes/"+st.crowd.Name(i)+"/uncordon", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// waitDrained blocks until a drain is over, at most drainLimit. It returns an error unless the drain emptied its nodes.
func (st *stage) waitDrained(ctx context.Context, id string) error {
	var drain struct {
		Phase string `json:"phase"`
	}
	err := procs.Until(ctx, drainLimit, 20*time.Millisecond, func(ctx context.Context) error {
		err := fleet.Get(ctx, st.fleet.Any(), "/v1/drains/"+id, &drain)
		if err == nil && drain.Phase == "draining" {
			err = fmt.Errorf("drain %s goes on", id)
		}
		return err
	})
	if err == nil && drain.Phase != "drained" {
		err = fmt.Errorf("drain %s ended %s", id, drain.Phase)
	}
	return err
}

// drainAcks measures how long the servers take to acknowledge the start of a drain while other clients write. It
// cancels each drain by uncordoning its node before it starts the next one.
func drainAcks(ctx context.Context, st *stage) error {
	if err := st.fill(ctx); err != nil {
		return err
	}
	leader, err := st.fleet.Leader(ctx)
	if err != nil {
		return err
	}
	acks := max(20, 4*st.o.rounds)
	loaded, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, _ = postLoad(loaded, st.fleet.Credentials(), leader.API(), ackWriters, drainLimit, func(n int64) (string, any) {
			return "/v1/nodes/" + st.crowd.Name(int(n)%st.crowd.Len()) + "/label", labelBody(n)
		}) // the load returns an error when stop interrupts it
	})
	var times []time.Duration
	for i := range acks {
		node := i % st.crowd.Len()
		began := time.Now()
		if _, err := st.drain(ctx, node); err != nil {
			return err
		}
		times = append(times, time.Since(began))
		if err := st.uncordon(ctx, node); err != nil {
			return err
		}
	}
	stop()
	wg.Wait()
	note := fmt.Sprintf("%d drains while %d clients write", acks, ackWriters)
	st.add(Figure{What: "acknowledged, p50", Value: millis(quantile(times, 0.5)), Unit: Millis, Note: note})
	st.add(Figure{What: "acknowledged, p99", Value: millis(quantile(times, 0.99)), Unit: Millis,
		Goal: below(100), Note: note})
	return st.settle(ctx)
}

// ackWriters is the number of clients that write during drainAcks.
const ackWriters = 16

// drains measures how long it takes to drain one full node, and then many nodes at the same time.
func drains(ctx context.Context, st *stage) error {
	if err := st.fill(ctx); err != nil {
		return err
	}
	if err := drainOne(ctx, st); err != nil {
		return err
	}
	var numbers []int
	for i := range min(100, st.crowd.Len()/5) {
		numbers = append(numbers, i)
	}
	before, err := st.running(ctx, numbers)
	if err != nil {
		return err
	}
	began := time.Now()
	id, err := st.drain(ctx, numbers...)
	if err == nil {
		err = st.waitDrained(ctx, id)
	}
	if err != nil {
		return err
	}
	st.add(Figure{What: fmt.Sprintf("%d nodes at once, %d instances", len(numbers), before), Value: time.Since(began).
		Seconds(), Unit: Seconds, Goal: below(20)})
	if err := st.uncordon(ctx, numbers...); err != nil {
		return err
	}
	return st.settle(ctx)
}

// drainOne drains a node with up to 200 instances of one job. The job may run only on nodes with the label pool=full.
// At first only this node has the label, so all instances are placed on it. Before the drain, up to ten other nodes get
// the label.
func drainOne(ctx context.Context, st *stage) error {
	count := min(200, st.o.instances/5)
	pool := func(i int, value string) error {
		_, err := fleet.Post(ctx, st.fleet.Any(), "/v1/nodes/"+st.crowd.Name(i)+"/label",
			map[string]any{"labels": map[string]string{"pool": value}}, nil)
		return err
	}
	if err := pool(0, "full"); err != nil {
		return err
	}
	g := groupSpec("g", count)
	g.Constraints = []model.Constraint{{Attribute: "node.label.pool", Operator: "=", Value: "full"}}
	jobs := st.newJobs([]model.GroupSpec{g})
	if err := st.submit(ctx, jobs[0]); err != nil {
		return err
	}
	if err := st.waitReady(ctx, jobs); err != nil {
		return err
	}
	for i := 1; i < min(11, st.crowd.Len()); i++ {
		if err := pool(i, "full"); err != nil {
			return err
		}
	}
	before, err := st.running(ctx, []int{0})
	if err != nil {
		return err
	}
	began := time.Now()
	id, err := st.drain(ctx, 0)
	if err == nil {
		err = st.waitDrained(ctx, id)
	}
	if err != nil {
		return err
	}
	st.add(Figure{What: fmt.Sprintf("1 node, %d instances", before), Value: time.Since(began).Seconds(),
		Unit: Seconds, Goal: below(5)})
	if err := st.uncordon(ctx, 0); err != nil {
		return err
	}
	return st.purge(ctx, jobs)
}

// running returns how many instances several nodes have together. The nodes are given by their numbers in st.crowd.
func (st *stage) running(ctx context.Context, numbers []int) (int, error) {
	sum := 0
	for _, i := range numbers {
		var node struct {
			Instances int `json:"instances"`
		}
		if err := fleet.Get(ctx, st.fleet.Any(), "/v1/nodes/"+st.crowd.Name(i), &node); err != nil {
			return 0, err
		}
		sum += node.Instances
	}
	return sum, nil
}
