package crowd

import (
	"context"
	"fmt"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// atOnce is the maximum number of agents that register at the same time. The machines of a real cluster do not all
// start at the same moment either.
const atOnce = 16

// Config configures a Crowd. All fields are required.
type Config struct {
	Nodes    int
	Servers  []string // host:port of the servers' APIs; the agents are spread over the servers
	TLS      string   // directory with the cluster's CA and gossip key, like tls.dir of a server
	Cluster  string
	Address  string                        // IP address that all agents register and that their gossip socket uses
	Capacity model.Resources               // of each agent
	Labels   func(i int) map[string]string // labels of agent i; the first agent has the number 0
}

// Crowd is many agents. It is safe for concurrent use, but calls of Kill and Revive for the same agent must not
// overlap.
type Crowd struct {
	cfg    Config
	gossip *gossip
	nodes  []*node
	desks  chan struct{}   // limits concurrent registrations
	doors  chan struct{}   // limits concurrent TLS handshakes
	ctx    context.Context // for all goroutines of the crowd; Close cancels it
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	troubles map[string]int // number of failed calls, by the kind of call
	last     error          // error of the last failed call
}

// Open makes certificates for all agents and starts the agents. It does not wait until they have registered. Close
// stops the agents.
func Open(ctx context.Context, cfg Config) (*Crowd, error) {
	ca, key, err := transport.OpenDir(cfg.TLS, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	g, err := newGossip(ctx, cfg.Address, cfg.Cluster, key)
	if err != nil {
		return nil, err
	}
	c := &Crowd{cfg: cfg, gossip: g, desks: make(chan struct{}, atOnce), doors: make(chan struct{}, atTheDoor),
		troubles: map[string]int{}}
	c.ctx, c.stop = context.WithCancel(ctx)
	c.wg.Go(func() { g.run(c.ctx) })
	for i := range cfg.Nodes {
		n, err := c.newNode(i, ca)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.nodes = append(c.nodes, n)
		c.start(n)
	}
	return c, nil
}

func (c *Crowd) newNode(i int, ca *transport.Authority) (*node, error) {
	name := fmt.Sprintf("n%05d", i)
	creds, err := ca.Credentials(pki.RoleAgent, name)
	if err != nil {
		return nil, err
	}
	var urls []string
	for k := range c.cfg.Servers {
		urls = append(urls, "https://"+c.cfg.Servers[(i+k)%len(c.cfg.Servers)])
	}
	client, err := transport.NewClient(transport.ClientConfig{Addresses: urls, Credentials: creds, Dial: c.dialFrom(i)})
	if err != nil {
		return nil, err
	}
	n := &node{
		crowd: c, id: model.NodeID(ulid.Make().String()), name: name, boot: ulid.Make().String(),
		labels: c.cfg.Labels(i), client: client,
		inbox: make(chan []byte, inboxSize), unanswered: map[string]int{}, introduced: map[string]bool{},
		work: map[model.InstanceID]model.InstanceStatus{},
	}
	return n, nil
}

// start starts an agent as a new process, with a new incarnation.
func (c *Crowd) start(n *node) {
	n.mu.Lock()
	n.process = ulid.Make().String()
	n.mu.Unlock()
	n.beater = cluster.NewBeater(cluster.BeaterConfig{Node: n.id, BootID: n.boot, Incarnation: n.process, Pool: n})
	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan struct{})
	n.end, n.ended = cancel, ended
	n.mu.Lock()
	n.life++
	n.introduced, n.known = map[string]bool{}, make(chan struct{})
	n.regrouped = make(chan struct{}, 1)
	n.mu.Unlock()
	c.gossip.enter(n)
	c.wg.Go(func() {
		defer close(ended)
		n.live(ctx)
	})
}

// Kill stops agents as if their machines had lost power, so their programs have stopped too. The agents are numbered as
// in Config.Labels. Kill blocks until the agents have stopped.
func (c *Crowd) Kill(numbers ...int) {
	for _, i := range numbers {
		c.gossip.leave(c.nodes[i])
		c.nodes[i].end()
	}
	for _, i := range numbers {
		n := c.nodes[i]
		<-n.ended
		n.client.Close()
		n.mu.Lock()
		n.epoch, n.work = 0, map[model.InstanceID]model.InstanceStatus{}
		n.mu.Unlock()
	}
}

// Revive starts killed agents again, as after a boot of their machines. The agents are numbered as in Config.Labels.
func (c *Crowd) Revive(numbers ...int) {
	for _, i := range numbers {
		n := c.nodes[i]
		n.mu.Lock()
		n.boot = ulid.Make().String()
		n.mu.Unlock()
		c.start(n)
	}
}

// ID returns the node id of agent i.
func (c *Crowd) ID(i int) model.NodeID { return c.nodes[i].id }

// Name returns the name of agent i.
func (c *Crowd) Name(i int) string { return c.nodes[i].name }

// Len returns the number of agents.
func (c *Crowd) Len() int { return len(c.nodes) }

// Registered returns how many of the running agents have registered.
func (c *Crowd) Registered() int {
	known := 0
	for _, n := range c.nodes {
		if n.registered() > 0 {
			known++
		}
	}
	return known
}

// Running returns how many programs the agents would run if they were real, according to their assignments.
func (c *Crowd) Running() int {
	running := 0
	for _, n := range c.nodes {
		n.mu.Lock()
		for _, s := range n.work {
			if s.Observed == model.ObservedReady {
				running++
			}
		}
		n.mu.Unlock()
	}
	return running
}

// trouble records a failed call, unless ctx has ended.
func (c *Crowd) trouble(ctx context.Context, call string, err error) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.troubles[call]++
	c.last = fmt.Errorf("%s: %w", call, err)
}

// Troubles returns how many calls have failed so far, and the last error.
func (c *Crowd) Troubles() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, n := range c.troubles {
		sum += n
	}
	return sum, c.last
}

// Close stops all agents without notice to the servers, and waits until they have stopped.
func (c *Crowd) Close() {
	c.stop()
	c.wg.Wait()
	for _, n := range c.nodes {
		n.client.Close()
	}
}
