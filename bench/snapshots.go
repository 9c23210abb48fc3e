package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/outspan/outspan/bench/fleet"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/transport"
)

// snapshots saves the state while a client writes, and restores it. It must be the last case on its cluster: it does
// not confirm the restore, and servers stop no instances until a restore is confirmed.
func snapshots(ctx context.Context, st *stage) error {
	if err := st.fill(ctx); err != nil {
		return err
	}
	_, leader, err := st.leaderClient(ctx)
	if err != nil {
		return err
	}
	defer leader.Close()
	quiet, _, _, err := writeBeside(ctx, st, leader, func() ([]byte, error) { return nil, pause(ctx, st.o.length/2) })
	if err != nil {
		return err
	}
	stall, took, saved, err := writeBeside(ctx, st, leader, func() ([]byte, error) { return save(ctx, leader) })
	if err != nil {
		return err
	}
	full := st.filled >= 100_000
	goal := func(g Goal) Goal { return Goal{Value: g.Value, AtLeast: g.AtLeast, Set: full} }
	st.add(Figure{What: fmt.Sprintf("save, %d instances", st.filled), Value: took.Seconds(),
		Unit: Seconds, Goal: goal(below(0.5))})
	st.add(Figure{What: "longest write meanwhile", Value: millis(stall), Unit: Millis, Goal: below(50),
		Limit: Limit{millis(quiet), "ms the longest without it"}})
	st.add(Figure{What: "size", Value: mib(int64(len(saved))), Unit: MiB, Goal: goal(below(30))})
	restored, err := restore(ctx, st, saved)
	if err != nil {
		return err
	}
	st.add(Figure{What: "restore", Value: restored.Seconds(), Unit: Seconds, Goal: goal(below(2))})
	return nil
}

// restore restores a saved state. It repeats failed attempts for up to a minute, because the leader may change, and
// returns how long the successful attempt took.
func restore(ctx context.Context, st *stage, saved []byte) (took time.Duration, err error) {
	err = procs.Until(ctx, time.Minute, time.Second, func(ctx context.Context) error {
		began := time.Now()
		_, err := st.fleet.Any().Send(ctx, reach.Request{
			Method: http.MethodPut, Path: "/v1/snapshot", Body: saved, Content: "application/octet-stream", Limit: time.Minute,
		})
		took = time.Since(began)
		return err
	})
	return took, err
}

func save(ctx context.Context, c *transport.Client) ([]byte, error) {
	resp, err := c.Open(ctx, reach.Request{Path: "/v1/snapshot", Limit: time.Minute})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var buf bytes.Buffer
	_, err = io.Copy(&buf, resp.Body)
	return buf.Bytes(), err
}

// writeBeside calls do while c writes one label after another. It returns the duration of the longest write that
// began before do returned, the duration of do, and the result of do.
func writeBeside(ctx context.Context, st *stage, c *transport.Client, do func() ([]byte, error)) (longest,
	took time.Duration, out []byte, err error) {
	writing, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var times []time.Duration
	begun := make(chan struct{})
	var failed error
	wg.Go(func() {
		for n := int64(0); ; n++ {
			began := time.Now()
			_, err := fleet.Post(ctx, c, "/v1/nodes/"+st.crowd.Name(0)+"/label", labelBody(n), nil)
			if n == 0 {
				close(begun)
			}
			times = append(times, time.Since(began))
			if err != nil || writing.Err() != nil {
				failed = err
				return
			}
		}
	})
	<-begun
	began := time.Now()
	out, err = do()
	took = time.Since(began)
	stop()
	wg.Wait()
	if err == nil {
		err = failed
	}
	return quantile(times, 1), took, out, err
}
