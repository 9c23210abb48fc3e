package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Watch and Events.Follow pause before they try again: at first for firstPause, then twice as long each time, up to
// mostPause.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 2 * time.Second
)

// WatchOptions are the options of Watch.
type WatchOptions struct {
	// Every is how long one read waits for a change. If nothing changes in that time, Watch yields the object unchanged.
	// Default 10 s, at most 1 min.
	Every time.Duration
	// Lost is called in the caller's goroutine when a read fails with a transient error, and not again until a read has
	// succeeded.
	Lost func(why error)
}

// Watch yields an object now, and again each time it changes:
//
//	node := func(ctx context.Context, o client.ReadOptions) (client.Response[api.Node], error) {
//		return c.Nodes.Get(ctx, "n1", o)
//	}
//	for got, err := range client.Watch(ctx, node, client.WatchOptions{}) { ... }
//
// Watch blocks between changes. After a transient error, for example during a change of leaders, Watch tries again with
// growing pauses of up to 2 s. Any other error is yielded, and Watch stops. When ctx ends, Watch yields the cause of
// ctx and stops.
func Watch[T any](
	ctx context.Context, read func(context.Context, ReadOptions) (Response[T], error), o WatchOptions,
) iter.Seq2[Response[T], error] {
	if o.Every <= 0 {
		o.Every = 10 * time.Second
	}
	return func(yield func(Response[T], error) bool) {
		var at ReadOptions
		lost := false
		for pause := firstPause; ; {
			got, err := read(ctx, at)
			switch {
			case ctx.Err() != nil:
				yield(got, context.Cause(ctx))
				return
			case err != nil && !Transient(err):
				yield(got, err)
				return
			case err != nil:
				if !lost && o.Lost != nil {
					o.Lost(err)
				}
				lost = true
				if !sleep(ctx, pause) {
					yield(got, context.Cause(ctx))
					return
				}
				pause = min(2*pause, mostPause)
				continue
			}
			lost, pause = false, firstPause
			if !yield(got, nil) {
				return
			}
			at = ReadOptions{Index: got.Index, Wait: o.Every}
		}
	}
}

// Transient reports whether a call that failed with err may succeed later. To repeat a write, use the same request id.
func Transient(err error) bool {
	var known *model.Error
	if errors.As(err, &known) {
		return api.Retryable(known.Code)
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
