package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/bench/nomad"
	"github.com/outspan/outspan/internal/procs"
)

// nomadNodes is the number of nodes in Nomad's cluster. Each node needs a real process, so there can't be as many as in
// outspan's cluster. Fewer nodes make placements easier for Nomad.
const nomadNodes = 5

// besideNomad runs the chosen cases that Nomad supports on a Nomad cluster on this machine. These cases are as close to
// outspan's as Nomad's API allows. After an error, besideNomad still returns the figures measured so far.
func besideNomad(ctx context.Context, o options, out io.Writer) (_ []Figure, err error) {
	st := &stage{o: o, out: out, now: "nomad"}
	c, err := nomad.Start(ctx, o.nomad, o.dir)
	if err != nil {
		return nil, fmt.Errorf("nomad: %w", err)
	}
	defer func() {
		if err != nil {
			for _, s := range c.Servers {
				st.say("-- end of the log of %s\n%s", s.Name, s.LastLines(15))
			}
		}
		err = errors.Join(err, c.Close())
	}()
	for _, one := range []struct {
		name string
		run  func(context.Context, *stage, *nomad.Cluster) error
	}{{"cli", nomadStart}, {"writes", nomadWrites}, {"placements", nomadPlacements}, {"snapshots", nomadSnapshots},
		{"failover", nomadFailover}} {
		if !o.only.MatchString(one.name) {
			continue
		}
		st.now = "nomad " + one.name
		if err := one.run(ctx, st, c); err != nil {
			return st.figures, fmt.Errorf("%s: %w", st.now, err)
		}
	}
	return st.figures, nil
}

func nomadStart(ctx context.Context, st *stage, _ *nomad.Cluster) error {
	var all []time.Duration
	for range 10 {
		began := time.Now()
		if out, err := exec.CommandContext(ctx, st.o.nomad, "version").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		all = append(all, time.Since(began))
	}
	st.add(Figure{What: "nomad version, median", Value: millis(quantile(all, 0.5)), Unit: Millis})
	return nil
}

// nomadWrites measures how fast clients set variables. Setting a variable is the smallest write in Nomad's API.
func nomadWrites(ctx context.Context, st *stage, c *nomad.Cluster) error {
	leader, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	var n atomic.Int64
	for _, clients := range writers() {
		r, err := load(ctx, clients, st.o.length, func(ctx context.Context, client int) error {
			return c.Write(ctx, leader, fmt.Sprint(client), n.Add(1))
		})
		if err != nil {
			return err
		}
		st.add(Figure{What: fmt.Sprintf("%d clients", clients), Value: r.rate(), Unit: PerSecond,
			Note: "variables, without request ids"})
		st.add(Figure{What: fmt.Sprintf("%d clients, p99", clients), Value: millis(quantile(r.times, 0.99)), Unit: Millis})
	}
	return nil
}

func nomadPlacements(ctx context.Context, st *stage, c *nomad.Cluster) error {
	if err := c.AddNodes(ctx, nomadNodes); err != nil {
		return err
	}
	leader, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	follower, began := (leader+1)%len(c.Servers), time.Now()
	if err := c.Place(ctx, leader, "one", st.o.group); err != nil {
		return err
	}
	err = procs.Until(ctx, drainLimit, 5*time.Millisecond, func(ctx context.Context) error {
		placed, err := c.Placed(ctx, follower, "one")
		if err == nil && placed < st.o.group {
			err = fmt.Errorf("%d of %d are placed", placed, st.o.group)
		}
		return err
	})
	if err != nil {
		return err
	}
	st.add(Figure{What: fmt.Sprintf("1 group of %d, on a follower", st.o.group),
		Value: float64(st.o.group) / time.Since(began).Seconds(), Unit: PerSecond, Note: fmt.Sprintf("%d nodes", nomadNodes)})
	for i, s := range c.Servers {
		use, err := s.Usage()
		if err != nil {
			return err
		}
		st.add(
			Figure{What: fmt.Sprintf("memory of the %s, %d instances",
				map[bool]string{true: "leader", false: "follower"}[i == leader], st.o.group), Value: mib(use.Memory), Unit: MiB})
	}
	return nil
}

func nomadSnapshots(ctx context.Context, st *stage, c *nomad.Cluster) error {
	leader, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	saved, err := c.Save(ctx, leader)
	if err != nil {
		return err
	}
	st.add(Figure{What: "save", Value: time.Since(began).Seconds(), Unit: Seconds, Note: "of what the cases before left"})
	st.add(Figure{What: "size", Value: mib(int64(len(saved))), Unit: MiB})
	began = time.Now()
	if err := c.Restore(ctx, leader, saved); err != nil {
		return err
	}
	st.add(Figure{What: "restore", Value: time.Since(began).Seconds(), Unit: Seconds})
	return nil
}

// nomadFailover kills the leader repeatedly, and measures the time from each kill to the next acknowledged write.
func nomadFailover(ctx context.Context, st *stage, c *nomad.Cluster) error {
	var all []time.Duration
	rounds := (st.o.rounds + 1) / 2
	for round := range rounds {
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		killed := time.Now()
		c.Servers[leader].Kill()
		err = procs.Until(ctx, electionLimit, 20*time.Millisecond, func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			for i, s := range c.Servers {
				if s.Running() {
					if err = c.Write(ctx, i, "failover", int64(round)); err == nil {
						return nil
					}
				}
			}
			return err
		})
		if err != nil {
			return err
		}
		all = append(all, time.Since(killed))
		if err := c.Servers[leader].Start(); err != nil {
			return err
		}
		// Once the killed server accepts a write, it has joined the cluster again.
		err = procs.Until(ctx, electionLimit, 100*time.Millisecond, func(ctx context.Context) error {
			return c.Write(ctx, leader, "failover", int64(round))
		})
		if err != nil {
			return err
		}
	}
	st.add(Figure{What: "next acknowledged write, median", Value: quantile(all, 0.5).Seconds(), Unit: Seconds,
		Note: fmt.Sprintf("%d times kill -9, at most %.1f s", rounds, quantile(all, 1).Seconds())})
	return nil
}
