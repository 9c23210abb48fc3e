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
	"github.com/outspan/outspan/model"
)

// soak keeps the filled cluster busy for o.soak: clients write, nodes are drained one after another, and a job is
// started and removed repeatedly. It compares the resources that the servers use in the last quarter of that time with
// those of the second quarter. o.soak should be at least 40 minutes, because servers remember request ids for ten
// minutes, and this memory must be full before the second quarter.
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
	// The servers' history of instances must also be full, so that it doesn't grow during the soak.
	if err := st.fillHistory(ctx); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, o.soak)
	defer stop()
	var work errgroup
	var done counters
	for _, one := range []func(context.Context, *counters) error{st.writeSteadily, st.drainSteadily, st.churnSteadily} {
		work.do(func() error {
			err := one(ctx, &done)
			if err != nil {
				stop() // after an error, further measurements would show nothing
			}
			return err
		})
	}
	samples, err := st.sample(ctx)
	stop()
	if err := errors.Join(err, work.wait()); err != nil {
		st.explain()
		return st.figures, err
	}
	st.add(Figure{What: "writes acknowledged", Value: float64(done.writes.Load())})
	st.add(Figure{What: "writes refused or lost", Value: float64(done.failed.Load()), Goal: below(0)})
	st.add(Figure{What: "nodes drained", Value: float64(done.drains.Load())})
	st.add(Figure{What: "instances started and stopped again by a job", Value: float64(done.churned.Load())})
	samples.book(st)
	return st.figures, nil
}

// keptEnded is the number of terminal instances that the servers keep in each slot.
const keptEnded = 2

// fillHistory drains every node keptEnded times, a fifth of the nodes at a time. Each slot then has keptEnded terminal
// instances.
func (st *stage) fillHistory(ctx context.Context) error {
	for range keptEnded {
		for part := range 5 {
			var numbers []int
			for i := part; i < st.crowd.Len(); i += 5 {
				numbers = append(numbers, i)
			}
			if len(numbers) == 0 {
				continue
			}
			id, err := st.drain(ctx, numbers...)
			if err == nil {
				err = st.waitDrained(ctx, id)
			}
			if err == nil {
				err = st.uncordon(ctx, numbers...)
			}
			if err != nil {
				return err
			}
		}
	}
	st.say("every node was emptied %d times", keptEnded)
	return nil
}

type counters struct{ writes, failed, drains, churned atomic.Int64 }

// soakWrites is the number of labels that the soak sets per second. One caller may make 50,000 requests with a request
// id in ten minutes. The labels use 42,000 of them, and the drains and jobs need some more.
const soakWrites = 70

// soakClients is the maximum number of concurrent writes.
const soakClients = 64

// writeSteadily sets soakWrites labels per second until ctx ends. It counts failed writes and continues after them.
func (st *stage) writeSteadily(ctx context.Context, done *counters) error {
	tick := time.NewTicker(time.Second / soakWrites)
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, soakClients)
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
			_, err := fleet.Post(ctx, st.fleet.Any(), "/v1/nodes/"+st.crowd.Name(int(n)%st.crowd.Len())+"/label",
				labelBody(n), nil)
			switch {
			case err == nil:
				done.writes.Add(1)
			case ctx.Err() == nil:
				done.failed.Add(1)
			}
		})
	}
}

// drainPause is the pause between two drains of a soak.
const drainPause = 5 * time.Second

// drainSteadily drains one node after another until ctx ends or a step fails.
func (st *stage) drainSteadily(ctx context.Context, done *counters) error {
	for i := 0; ; i++ {
		node := i % st.crowd.Len()
		id, err := st.drain(ctx, node)
		if err == nil {
			err = st.waitDrained(ctx, id)
		}
		if err == nil {
			err = st.uncordon(ctx, node)
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of the soak interrupted the round
		}
		if err != nil {
			return err
		}
		done.drains.Add(1)
		_ = pause(ctx, drainPause) // if ctx has ended, the next drain fails
	}
}

// churnSteadily repeatedly starts and removes a job with a tenth of o.instances, until ctx ends or a step fails. It
// pauses for as long as each round took.
func (st *stage) churnSteadily(ctx context.Context, done *counters) error {
	for {
		began := time.Now()
		jobs := st.newJobs([]model.GroupSpec{groupSpec("g", max(10, st.o.instances/10))})
		err := st.submit(ctx, jobs[0])
		if err == nil {
			err = st.waitReady(ctx, jobs)
		}
		if err == nil {
			err = st.purge(ctx, jobs)
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of the soak interrupted the round
		}
		if err != nil {
			return err
		}
		done.churned.Add(int64(instances(jobs)))
		_ = pause(ctx, time.Since(began)) // if ctx has ended, the next submit fails
	}
}

// sample is what all servers together use at one moment. memory and disk are in MiB.
type sample struct {
	memory, descriptors, disk, goroutines float64
}

type samples []sample

// sample takes about 80 samples per soak, at least 0.5 s apart, until ctx ends.
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
		st.say("%.0f MiB, %.0f goroutines, %.0f open files and sockets, %.0f MiB of files", one.memory, one.goroutines,
			one.descriptors, one.disk)
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

// book records the means of the last quarter of the samples, with the means of the second quarter as limits. It records
// nothing if there are fewer than four samples.
func (all samples) book(st *stage) {
	quarter := len(all) / 4
	if quarter == 0 {
		return // the soak was interrupted
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
		before, last := mean(all[quarter:2*quarter], row.of), mean(all[len(all)-quarter:], row.of)
		st.add(Figure{
			What: row.what + " of all servers, last quarter", Value: last, Unit: row.unit,
			Limit: Limit{before, "in the second quarter"},
			Note:  fmt.Sprintf("%d samples in %s", len(all), st.o.soak),
		})
	}
}
