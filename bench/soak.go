package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/bench/fleet"
)

// soak keeps the filled cluster at about half of what it can take for a long time, and compares what the servers hold in the first quarter with the last.
func soak(ctx context.Context, o options, out io.Writer) (_ []Figure, err error) {
	st, err := openStage(ctx, o, &limits{}, setting{nodes: o.nodes}, out)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	st.now = "soak"
	if err := st.fill(ctx); err != nil {
		return nil, err
	}
	full, err := soakRate(ctx, st)
	if err != nil {
		return nil, err
	}
	st.say("%.0f writes a second are possible, half of that from now on", full)
	ctx, stop := context.WithTimeout(ctx, o.soak)
	defer stop()
	var work errgroup
	var done counters
	work.do(func() error { return st.writeSteadily(ctx, full/2, &done) })
	work.do(func() error { return st.drainSteadily(ctx, &done) })
	samples, err := st.sample(ctx)
	stop()
	if err := errors.Join(err, work.wait()); err != nil {
		return st.figures, err
	}
	st.add(Figure{What: "writes acknowledged", Value: float64(done.writes.Load())})
	st.add(Figure{What: "writes refused or lost", Value: float64(done.failed.Load()), Goal: below(0)})
	st.add(Figure{What: "nodes drained", Value: float64(done.drains.Load())})
	samples.book(st)
	return st.figures, nil
}

type counters struct{ writes, failed, drains atomic.Int64 }

// soakClients write side by side.
const soakClients = 16

func soakRate(ctx context.Context, st *stage) (float64, error) {
	leader, err := st.fleet.Leader(ctx)
	if err != nil {
		return 0, err
	}
	r, err := postLoad(ctx, st.fleet.Credentials(), leader.API(), soakClients, max(time.Second, st.o.length), func(n int64) (string, any) {
		return "/v1/nodes/" + st.crowd.Name(int(n)%st.crowd.Len()) + "/label", labelBody(n)
	})
	return r.rate(), err
}

// writeSteadily writes so many labels a second until ctx ends.
func (st *stage) writeSteadily(ctx context.Context, rate float64, done *counters) error {
	tick := time.NewTicker(time.Duration(float64(time.Second) / max(1, rate)))
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, 4*soakClients)
	for n := int64(0); ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		wg.Go(func() {
			defer func() { <-places }()
			_, err := fleet.Post(ctx, st.fleet.Any(), "/v1/nodes/"+st.crowd.Name(int(n)%st.crowd.Len())+"/label", labelBody(n), nil)
			switch {
			case err == nil:
				done.writes.Add(1)
			case ctx.Err() == nil:
				done.failed.Add(1)
			}
		})
	}
}

// drainPause lies between two drains of a soak.
const drainPause = 5 * time.Second

// drainSteadily empties one node after the other until ctx ends.
func (st *stage) drainSteadily(ctx context.Context, done *counters) error {
	for i := 0; ctx.Err() == nil; i++ {
		node := i % st.crowd.Len()
		id, err := st.drain(ctx, node)
		if err == nil {
			err = st.waitDrained(ctx, id)
		}
		if err == nil {
			err = st.uncordon(ctx, node)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		done.drains.Add(1)
		_ = pause(ctx, drainPause) // it ends with its context
	}
	return nil
}

// sample is what all servers together hold at a moment.
type sample struct {
	memory, descriptors, disk, goroutines float64
}

type samples []sample

// sample looks at the servers again and again until ctx ends.
func (st *stage) sample(ctx context.Context) (samples, error) {
	var all samples
	step := max(500*time.Millisecond, st.o.soak/80)
	for pause(ctx, step) == nil {
		var one sample
		for _, s := range st.fleet.Servers {
			u, err := s.Usage()
			if err != nil {
				return all, err
			}
			one.memory += mib(u.Memory)
			one.disk += mib(s.DiskBytes())
			one.descriptors += float64(s.Descriptors())
			n, err := st.goroutines(ctx, s)
			if ctx.Err() != nil {
				return all, nil
			}
			if err != nil {
				return all, err
			}
			one.goroutines += n
		}
		all = append(all, one)
	}
	return all, nil
}

func (st *stage) goroutines(ctx context.Context, s *fleet.Server) (float64, error) {
	c, err := st.fleet.Client(s)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return s.Metric(ctx, c, "go_goroutines")
}

// book compares the quarters.
func (all samples) book(st *stage) {
	quarter := max(1, len(all)/4)
	if len(all) == 0 {
		return
	}
	mean := func(part samples, of func(sample) float64) float64 {
		sum := 0.0
		for _, s := range part {
			sum += of(s)
		}
		return sum / float64(len(part))
	}
	for _, row := range []struct {
		what string
		unit Unit
		of   func(sample) float64
	}{
		{"memory", MiB, func(s sample) float64 { return s.memory }},
		{"goroutines", Count, func(s sample) float64 { return s.goroutines }},
		{"open files and sockets", Count, func(s sample) float64 { return s.descriptors }},
		{"files of the data directories", MiB, func(s sample) float64 { return s.disk }},
	} {
		first, last := mean(all[:quarter], row.of), mean(all[len(all)-quarter:], row.of)
		st.add(Figure{
			What: row.what + " of all servers, last quarter", Value: last, Unit: row.unit, Limit: Limit{first, "in the first quarter"},
			Note: fmt.Sprintf("%d samples in %s", len(all), st.o.soak),
		})
	}
}
