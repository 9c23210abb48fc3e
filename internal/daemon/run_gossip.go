package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/model"
)

// The first and the longest pause between attempts to open gossip again, or between checks whether the configured port
// is free. Each pause is twice as long as the one before.
const (
	regossipFirst = time.Second
	regossipMost  = time.Minute
)

// agentGossip is an agent's member of the gossip pool. While another process holds the configured port, agentGossip
// uses any free port, because without gossip there are no heartbeats, and the node would become offline. It is safe for
// concurrent use.
type agentGossip struct {
	cfg  cluster.PoolConfig
	log  hclog.Logger
	tell func(port int, problem *model.PortProblem) // reports why the configured port is not open; nil means open

	inbox chan []byte
	mu    sync.Mutex
	pool  *cluster.Pool
	spare bool     // the pool is on a port other than the configured one
	join  []string // addresses of the latest Join; the next pool joins them
}

var _ cluster.Courier = (*agentGossip)(nil)

func openAgentGossip(cfg cluster.PoolConfig, tell func(int, *model.PortProblem)) (*agentGossip, error) {
	g := &agentGossip{cfg: cfg, log: cfg.Logger, tell: tell, inbox: make(chan []byte)}
	if err := g.open(); err != nil {
		return nil, err
	}
	return g, nil
}

// open opens the pool on the configured port. If that port is taken, open uses any free port and reports the problem.
func (g *agentGossip) open() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	cfg := g.cfg
	cfg.Join = g.join
	pool, err := cluster.OpenPool(cfg)
	g.spare = inUse(err) && cfg.Port != 0
	if g.spare {
		cfg.Port = 0
		pool, err = cluster.OpenPool(cfg)
	}
	if err != nil {
		return err
	}
	g.pool = pool
	if g.spare {
		reason := fmt.Sprintf("another process holds it; gossip uses %s until it is free", pool.Address())
		g.log.Warn("gossip port is taken, using another one", "port", g.cfg.Port, "address", pool.Address())
		g.tell(g.cfg.Port, &model.PortProblem{Port: g.cfg.Port, Code: model.PortTaken, Reason: reason})
	}
	return nil
}

func inUse(err error) bool {
	var refused *model.Error
	return errors.As(err, &refused) && refused.Code == model.CodeAddressInUse
}

func (g *agentGossip) now() (*cluster.Pool, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pool, g.spare
}

// run runs the pool until ctx is canceled. While the pool is on a port other than the configured one, run waits until
// the configured port is free. Then it opens a new pool on that port.
func (g *agentGossip) run(ctx context.Context) error {
	for {
		g.runPool(ctx)
		if ctx.Err() != nil {
			return nil
		}
		pool, _ := g.now()
		_ = pool.Close() // Close announces that this member leaves; the next pool joins under the same name
		for pause := regossipFirst; ; pause = min(2*pause, regossipMost) {
			err := g.open()
			if err == nil {
				break
			}
			g.log.Error("gossip could not be opened again", "error", err)
			if !waited(ctx, pause) {
				return nil
			}
		}
		if _, spare := g.now(); !spare {
			g.log.Info("gossip port is open", "port", g.cfg.Port)
			g.tell(g.cfg.Port, nil)
		}
	}
}

// runPool runs the current pool until ctx is canceled. If the pool is on a port other than the configured one, runPool
// also returns when the configured port is free.
func (g *agentGossip) runPool(ctx context.Context) {
	pool, spare := g.now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = pool.Run(ctx) }) // Run always returns nil
	wg.Go(func() {
		for {
			select {
			case msg := <-pool.Receive():
				select {
				case g.inbox <- msg:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	for pause := regossipFirst; spare; pause = min(2*pause, regossipMost) {
		if !waited(ctx, pause) {
			return
		}
		if cluster.GossipPortFree(g.cfg.Bind, g.cfg.Port) {
			return
		}
	}
	<-ctx.Done()
}

// Join contacts the gossip of servers. It blocks for at most 5 s for each address.
func (g *agentGossip) Join(addresses ...string) error {
	g.mu.Lock()
	g.join = addresses
	pool := g.pool
	g.mu.Unlock()
	return pool.Join(addresses...)
}

// SetKeys implements trust.Gossip.
func (g *agentGossip) SetKeys(keys [][]byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.pool.SetKeys(keys); err != nil {
		return err
	}
	g.cfg.Key, g.cfg.OtherKeys = keys[0], keys[1:] // for the next pool
	return nil
}

// Keys implements trust.Gossip.
func (g *agentGossip) Keys() [][]byte {
	pool, _ := g.now()
	return pool.Keys()
}

// Servers implements cluster.Courier.
func (g *agentGossip) Servers() []cluster.Member {
	pool, _ := g.now()
	return pool.Servers()
}

// Address implements cluster.Courier.
func (g *agentGossip) Address() string {
	pool, _ := g.now()
	return pool.Address()
}

// Send implements cluster.Courier.
func (g *agentGossip) Send(name string, msg []byte) error {
	pool, _ := g.now()
	return pool.Send(name, msg)
}

// Receive implements cluster.Courier.
func (g *agentGossip) Receive() <-chan []byte { return g.inbox }

// Close leaves the pool.
func (g *agentGossip) Close() error {
	pool, _ := g.now()
	return pool.Close()
}

// waited waits for d, and returns true. It returns false at once when ctx is canceled.
func waited(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
