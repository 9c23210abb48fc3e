package crowd

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	pollWait = 45 * time.Second      // how long a server may take to answer a poll, as in package agent
	coalesce = 30 * time.Millisecond // changes within this time are sent in one report, as in package agent
	doubt    = time.Second           // pause after the first answer that asks for a registration; that server may only lag
)

// backoff is a pause that doubles with each failure in a row, from 100 ms to 5 s. Up to a quarter of it is random.
type backoff struct{ now time.Duration }

func (b *backoff) wait(ctx context.Context) {
	b.now = min(max(2*b.now, 100*time.Millisecond), 5*time.Second)
	wait(ctx, b.now*3/4+time.Duration(rand.Int64N(int64(b.now/4))))
}

func (b *backoff) reset() { b.now = 0 }

// node is one simulated agent.
type node struct {
	crowd  *Crowd
	id     model.NodeID
	name   string
	labels map[string]string
	client *transport.Client
	beater *cluster.Beater
	inbox  chan []byte
	end    context.CancelFunc // stops the agent
	ended  chan struct{}      // closed when the agent has stopped

	mu sync.Mutex
	// boot is written only while the agent is stopped; gossip may read it then.
	boot       string
	process    string                                    // as boot
	life       uint32                                    // incarnation in gossip
	unanswered map[string]int                            // heartbeats in a row without an answer, by server
	introduced map[string]bool                           // servers to which the agent has introduced itself
	epoch      uint64                                    // 0 means not registered since the start
	known      chan struct{}                             // closed when the agent has registered
	work       map[model.InstanceID]model.InstanceStatus // written only by live, and by Kill after live has returned
	groups     []model.GroupID                           // groups of the agent's instances
	regrouped  chan struct{}                             // capacity 1; gets a value when groups has changed
}

// live registers and carries out assignments until ctx ends.
func (n *node) live(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = n.beater.Run(ctx) }) // Run returns only when ctx ends
	wg.Go(func() { n.followServices(ctx) })
	wg.Go(func() { n.followPeers(ctx) })
	var again backoff
	for ctx.Err() == nil {
		if err := n.register(ctx); err != nil {
			n.crowd.trouble(ctx, "register", err)
			again.wait(ctx)
			continue
		}
		again.reset()
		n.serve(ctx)
	}
}

func (n *node) register(ctx context.Context) error {
	select {
	case n.crowd.desks <- struct{}{}:
		defer func() { <-n.crowd.desks }()
	case <-ctx.Done():
		return ctx.Err()
	}
	reply, err := n.client.Register(ctx, transport.RegisterRequest{
		Node: n.id, Name: n.name,
		Agent: model.AgentInfo{BootID: n.boot, Incarnation: n.process, Address: n.crowd.cfg.Address, Version: "bench"},
		Shape: model.NodeShape{
			Capacity: n.crowd.cfg.Capacity, Labels: n.labels, PortMin: 20000, PortMax: 31999,
			Attributes: map[string]string{"os": "linux", "arch": "amd64", "cpus": "16", "kernel": "6.1.0", "hostname": n.name},
		},
	})
	if err != nil {
		return err
	}
	n.crowd.gossip.learn(reply.Servers)
	n.mu.Lock()
	if n.epoch == 0 {
		close(n.known)
	}
	n.epoch = reply.Epoch
	n.mu.Unlock()
	n.beater.Register(reply.Key, reply.Epoch, time.Duration(reply.Heartbeat)*time.Millisecond)
	n.beater.SetFacts(reply.Epoch, 1)
	return nil
}

// serve polls and carries out the assignments of one epoch. It returns when the servers ask for a new registration, or
// when ctx ends.
func (n *node) serve(ctx context.Context) {
	epoch := n.registered()
	index, incarnation, full, doubted := uint64(0), uint64(0), true, false
	var again backoff
	for ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, pollWait+10*time.Second)
		answer, err := n.client.Assignments(poll, transport.AssignmentsRequest{
			Node: n.id, Epoch: epoch, Index: index, Incarnation: incarnation, Wait: model.Duration(pollWait / time.Millisecond),
		})
		cancel()
		if err != nil {
			n.crowd.trouble(ctx, "assignments", err)
			again.wait(ctx)
			continue
		}
		if answer.Register {
			if doubted {
				return
			}
			doubted = true
			wait(ctx, doubt)
			continue
		}
		doubted = false
		if answer.Incarnation == incarnation && answer.Index < index {
			again.wait(ctx) // the server lags
			continue
		}
		again.reset()
		repeat := answer.Incarnation != incarnation // after a restore, all instances are reported again
		index, incarnation = answer.Index, answer.Incarnation
		if answer.Heartbeat > 0 {
			n.beater.SetInterval(time.Duration(answer.Heartbeat) * time.Millisecond)
		}
		news := n.converge(answer.Instances, repeat)
		if len(news) == 0 && !full {
			continue
		}
		if !full {
			wait(ctx, coalesce)
		}
		if !n.report(ctx, epoch, full, news) {
			return
		}
		full = false
	}
}

// converge starts and stops instances as assigned, which takes no time. It returns the status of each instance that
// changed, or of all assigned instances if repeat is true.
func (n *node) converge(assigned []transport.Assignment, repeat bool) []model.InstanceStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	var news []model.InstanceStatus
	var groups []model.GroupID
	wanted := make(map[model.InstanceID]model.InstanceStatus, len(assigned))
	for _, a := range assigned {
		status, known := n.work[a.ID]
		want := model.ObservedReady
		if a.Desired != model.DesiredRunning {
			want = model.ObservedStopped
		}
		moved := !known || status.Observed != want
		if moved {
			status = model.InstanceStatus{ID: a.ID, Generation: status.Generation + 1, Observed: want}
		}
		if moved || repeat {
			news = append(news, status)
		}
		wanted[a.ID] = status
		if !slices.Contains(groups, a.Group) {
			groups = append(groups, a.Group)
		}
	}
	n.work = wanted
	if slices.Sort(groups); !slices.Equal(groups, n.groups) {
		n.groups = groups
		select {
		case n.regrouped <- struct{}{}:
		default:
		}
	}
	return news
}

// report sends a report again and again until a server accepts it. It returns false if the servers ask for a new
// registration, or if ctx ends.
func (n *node) report(ctx context.Context, epoch uint64, full bool, news []model.InstanceStatus) bool {
	var again backoff
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := n.client.Report(call,
			transport.ReportRequest{Node: n.id, Epoch: epoch, Full: full, Instances: news, FactsGen: 1})
		cancel()
		if err == nil {
			return true
		}
		if refused, ok := errors.AsType[*model.Error](err); ok &&
			(refused.Code == model.CodeStale || refused.Code == model.CodeNotFound) {
			return false
		}
		n.crowd.trouble(ctx, "report", err)
		again.wait(ctx)
	}
	return false
}

func (n *node) followServices(ctx context.Context) {
	index := uint64(0)
	var again backoff
	select {
	case <-n.known: // thousands of agents that poll before they register would keep one of the servers' cores busy
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, pollWait+10*time.Second)
		answer, err := n.client.Services(poll,
			transport.ServicesRequest{Node: n.id, Index: index, Wait: model.Duration(pollWait / time.Millisecond)})
		cancel()
		if err != nil {
			n.crowd.trouble(ctx, "services", err)
			again.wait(ctx)
			continue
		}
		again.reset()
		index = answer.Index
	}
}

// followPeers polls the peer lists of the groups whose instances the agent runs, as a real agent does.
func (n *node) followPeers(ctx context.Context) {
	known, incarnation := map[model.GroupID]uint64{}, uint64(0)
	var again backoff
	for ctx.Err() == nil {
		q := transport.PeersRequest{Node: n.id, Incarnation: incarnation, Wait: model.Duration(pollWait / time.Millisecond)}
		n.mu.Lock()
		for _, id := range n.groups {
			q.Groups = append(q.Groups, transport.PeersKnown{Group: id, At: known[id]})
		}
		n.mu.Unlock()
		if len(q.Groups) == 0 {
			select {
			case <-n.regrouped:
			case <-ctx.Done():
			}
			continue
		}
		answer, err := n.askPeers(ctx, q)
		if errors.Is(err, context.Canceled) {
			continue
		}
		if err != nil {
			n.crowd.trouble(ctx, "peers", err)
			again.wait(ctx)
			continue
		}
		again.reset()
		if answer.Incarnation != incarnation {
			incarnation = answer.Incarnation
			clear(known)
		}
		for _, raw := range answer.Lists {
			var list transport.GroupPeers
			if err := transport.DecodeCBOR(raw, &list); err != nil {
				n.crowd.trouble(ctx, "peers", err)
			}
			known[list.Group] = list.At
		}
	}
}

// askPeers polls the peer lists. It fails with context.Canceled if the agent's groups change or ctx is canceled.
func (n *node) askPeers(ctx context.Context, q transport.PeersRequest) (transport.Peers, error) {
	ctx, cancel := context.WithTimeout(ctx, pollWait+10*time.Second)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		select {
		case <-n.regrouped:
			cancel()
		case <-ctx.Done():
		}
	})
	return n.client.Peers(ctx, q)
}

func (n *node) registered() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.epoch
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
