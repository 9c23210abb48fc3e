package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

type loadResult struct {
	calls int             // number of successful calls
	took  time.Duration   // duration of the whole load
	times []time.Duration // duration of each successful call, in no order
}

func (r loadResult) rate() float64 { return float64(r.calls) / r.took.Seconds() }

// load runs concurrent clients for the given length. Each client calls do again as soon as its last call has returned,
// and stops at its first error. load waits for all clients. If several clients fail, it returns the error of one
// client.
func load(ctx context.Context, clients int, length time.Duration,
	do func(ctx context.Context, client int) error) (loadResult, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var result loadResult
	var failed error
	began := time.Now()
	end := began.Add(length)
	for i := range clients {
		wg.Go(func() {
			var times []time.Duration
			var err error
			for err == nil && time.Now().Before(end) && ctx.Err() == nil {
				call := time.Now()
				if err = do(ctx, i); err == nil {
					times = append(times, time.Since(call))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			result.times = append(result.times, times...)
			if failed == nil { // one error is enough, because the others probably have the same reason
				failed = err
			}
		})
	}
	wg.Wait()
	result.calls, result.took = len(result.times), time.Since(began)
	return result, failed
}

// errgroup runs functions concurrently and joins their errors. The zero value is ready to use.
type errgroup struct {
	wg     sync.WaitGroup
	mu     sync.Mutex
	failed error
}

func (g *errgroup) do(f func() error) {
	g.wg.Go(func() {
		err := f()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.failed = errors.Join(g.failed, err)
	})
}

func (g *errgroup) wait() error {
	g.wg.Wait()
	return g.failed
}
