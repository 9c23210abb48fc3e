package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/outspan/outspan/bench/fleet"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/internal/testbed/crowd"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// stage is a cluster with its simulated agents, and the figures that cases have measured on it so far.
type stage struct {
	o       options
	limits  *limits
	fleet   *fleet.Fleet
	crowd   *crowd.Crowd
	figures []Figure
	now     string // name of the running case
	out     io.Writer
	filled  int // number of instances that keep running on the stage; the functions fill, growth and kills start them
	jobs    int // number of job names used so far
}

const (
	fastOffline = 2 * time.Second
	joinLimit   = 20 * time.Minute
	racks       = 10
)

// openStage starts servers and agents, and waits until all nodes are eligible.
func openStage(ctx context.Context, o options, l *limits, where setting, out io.Writer) (_ *stage, err error) {
	st := &stage{o: o, limits: l, out: out, now: "start"}
	defer func() {
		if err != nil {
			st.explain()
			err = errors.Join(err, st.close())
		}
	}()
	cfg := fleet.Config{Binary: o.binary, Dir: o.dir, Fast: where.fast, Patience: o.patience}
	if o.profile != "" {
		cfg.Env = []string{"OUTSPAN_PROFILE=" + o.profile}
	}
	if where.fast {
		cfg.OfflineAfter = fastOffline
	}
	began := time.Now()
	if st.fleet, err = fleet.Start(ctx, cfg); err != nil {
		return nil, err
	}
	if err := st.register(ctx, where.nodes); err != nil {
		return nil, err
	}
	st.say("%d servers and %d agents are there after %s", len(st.fleet.Servers), where.nodes,
		time.Since(began).Round(100*time.Millisecond))
	return st, nil
}

// nodeCapacity returns a capacity with room for a few thousand instances.
func nodeCapacity() model.Resources { return model.Resources{CPU: 64_000, MemoryBytes: 256 << 30} }

// nodeLabels returns the labels of node i: one of ten racks, and a disk that is an SSD on four of five nodes.
func nodeLabels(i int) map[string]string {
	disk := "ssd"
	if i%5 == 4 {
		disk = "hdd"
	}
	return map[string]string{"rack": fmt.Sprintf("r%02d", i%racks), "disk": disk}
}

// waitNodes blocks until at least want agents have registered and at least want nodes are active.
func (st *stage) waitNodes(ctx context.Context, want int) error {
	return procs.Until(ctx, joinLimit, 200*time.Millisecond, func(ctx context.Context) error {
		if st.crowd.Registered() < want {
			return fmt.Errorf("%d of %d agents have registered", st.crowd.Registered(), want)
		}
		s, err := st.status(ctx)
		if err == nil && s.Nodes["active"] < want {
			err = fmt.Errorf("nodes: %v, want %d active", s.Nodes, want)
		}
		return err
	})
}

// waitEligible blocks until every node is eligible, so all inventories have arrived. Use it only at the start, because
// a node that was offline may stay ineligible for a while after its return.
func (st *stage) waitEligible(ctx context.Context) error {
	return procs.Until(ctx, joinLimit, 200*time.Millisecond, func(ctx context.Context) error {
		var held nodeList
		err := fleet.Get(ctx, st.fleet.Any(), "/v1/nodes?filter=eligible=false&limit=1", &held)
		if err == nil && len(held.Items) > 0 {
			err = fmt.Errorf("node %s takes no work: %s", held.Items[0].Name, held.Items[0].Reason)
		}
		return err
	})
}

type nodeList struct {
	Items []struct {
		Name      string `json:"name"`
		Instances int    `json:"instances"`
		Reason    string `json:"reason"`
	} `json:"items"`
}

type statusAnswer struct {
	Nodes     map[string]int `json:"nodes"`
	Instances map[string]int `json:"instances"`
	Index     uint64         `json:"index"`
}

func (st *stage) status(ctx context.Context) (statusAnswer, error) {
	var s statusAnswer
	err := fleet.Get(ctx, st.fleet.Any(), "/v1/status", &s)
	return s, err
}

// add records a figure of the current case.
func (st *stage) add(f Figure) {
	f.Case = st.now
	st.figures = append(st.figures, f)
	st.say("%s: %s %s %s", f.Case, f.What, number(f.Value), f.Unit)
}

func (st *stage) say(format string, args ...any) {
	fmt.Fprintf(st.out, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

// explain prints what may explain a failure: the failed calls of agents, and the end of each server's log.
func (st *stage) explain() {
	if st.crowd != nil {
		if n, last := st.crowd.Troubles(); n > 0 {
			st.say("%d calls of agents failed, the last: %v", n, last)
		}
	}
	if st.fleet != nil {
		for _, s := range st.fleet.Servers {
			st.say("-- end of the log of %s\n%s", s.Name, s.LastLines(15))
		}
	}
}

func (st *stage) close() error {
	if st.crowd != nil {
		st.crowd.Close()
	}
	if st.fleet == nil {
		return nil
	}
	var failed error
	if st.o.profile != "" {
		for _, s := range st.fleet.Servers { // only a server that exits normally writes its profiles
			failed = errors.Join(failed, s.Stop(20*time.Second))
		}
	}
	return errors.Join(failed, st.fleet.Close())
}

// leaderClient returns the leader and a client that calls only this server. The caller closes the client.
func (st *stage) leaderClient(ctx context.Context) (*fleet.Server, *transport.Client, error) {
	s, err := st.fleet.Leader(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := st.fleet.Client(s)
	return s, c, err
}

func (st *stage) followerClient(ctx context.Context) (*fleet.Server, *transport.Client, error) {
	s, err := st.fleet.Follower(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := st.fleet.Client(s)
	return s, c, err
}

// quiet waits until no entry has been written to the log for a third of a load's duration (o.length).
func (st *stage) quiet(ctx context.Context) error {
	last := uint64(0)
	return procs.Until(ctx, time.Minute, st.o.length/3, func(ctx context.Context) error {
		s, err := st.status(ctx)
		if err == nil && s.Index != last {
			err, last = fmt.Errorf("the log is at %d and goes on", s.Index), s.Index
		}
		return err
	})
}
