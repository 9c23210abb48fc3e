package bubble

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/outspan/outspan/agent"
	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/memdisk"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// node is a worker machine with its agent. Its disk and programs survive the end of the agent.
type node struct {
	w        *world
	name     string
	host     string
	disk     *memdisk.Disk
	random   *rand.Rand
	programs *programs
	images   *store // nil if the machine runs no containers
	id       model.NodeID
	*agentProcess
}

// agentProcess is one run of an agent, wired as in the real program.
type agentProcess struct {
	agent  *agent.Agent
	pool   *cluster.Pool
	beater *cluster.Beater
	client *transport.Client
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

const nodeMemory = 4 << 30

func newNode(w *world, i int) *node {
	n := &node{w: w, name: fmt.Sprintf("n%d", i), host: nodeHost(i), random: rand.New(rand.NewPCG(w.seed, uint64(100+i)))}
	must(w.t, os.Mkdir(filepath.Join(w.root, n.name), 0o711)) //nolint:gosec // users of programs must be able to enter
	n.disk = memdisk.New(filepath.Join(w.root, n.name), rand.New(rand.NewPCG(w.seed, uint64(200+i))))
	n.programs = newPrograms(w.truth, n.name)
	if w.registry != nil {
		n.images = newStore(w.registry)
		n.programs.images = n.images
	}
	return n
}

// start starts the agent on the machine's disk. After powerOff it also switches the machine on again.
func (n *node) start() {
	n.w.t.Helper()
	n.w.net.Revive(n.host)
	n.programs.powerOn()
	p := &agentProcess{done: make(chan struct{}), client: n.w.client(pki.RoleAgent, n.name, n.host)}
	n.agentProcess = p
	log := n.w.log.Named(n.name)
	cfg := agent.Config{
		Name: n.name, DataDir: n.disk.Dir(), Version: "test", Runtime: n.programs, Servers: &registrar{p.client, p.join},
		Log: log.Named("agent"), SelfCheckEvery: -1,
		Node: agent.NodeConfig{Address: n.host, Capacity: model.Resources{CPU: 8000, MemoryBytes: nodeMemory}},
	}
	if n.images != nil {
		cfg.Images = n.images
	}
	var err error
	p.agent, err = agent.New(cfg)
	must(n.w.t, err)
	id := p.agent.Identity()
	n.id = id.Node
	p.pool, err = cluster.OpenPool(cluster.PoolConfig{
		Name: string(id.Node), Cluster: clusterName, Key: gossipKey(), Profile: n.w.profile,
		Transport: n.w.net.Packets(n.host + gossipPort),
		Meta:      cluster.Meta{Role: pki.RoleAgent, BootID: id.BootID, Incarnation: id.Incarnation, Name: id.Name},
		Logger:    log.Named("gossip"),
	})
	must(n.w.t, err)
	p.beater = cluster.NewBeater(cluster.BeaterConfig{Node: id.Node, BootID: id.BootID, Incarnation: id.Incarnation,
		Pool: p.pool, Logger: log.Named("beats")})
	p.agent.UseHeartbeats(p.beater)
	p.run()
}

// join makes the agent's gossip join the servers that a registration named.
func (p *agentProcess) join(servers []transport.ServerInfo) {
	for _, s := range servers {
		if s.Gossip != "" {
			_ = p.pool.Join(s.Gossip) // the pool keeps trying
		}
	}
}

// registrar is the agent's client of the servers. After each registration it passes the servers in the answer to
// joined.
type registrar struct {
	*transport.Client
	joined func([]transport.ServerInfo)
}

// Register implements agent.Servers.
func (r *registrar) Register(ctx context.Context, request transport.RegisterRequest) (transport.RegisterReply, error) {
	// After a power loss, memdisk uses a new directory, whose time of creation would make the agent look like a copy.
	request.Agent.Born = 0
	reply, err := r.Client.Register(ctx, request)
	if err == nil {
		r.joined(reply.Servers)
	}
	return reply, err
}

func (p *agentProcess) run() {
	ctx, cancel := context.WithCancel(context.Background())
	below, stop := context.WithCancel(context.Background()) // for the parts that the agent needs until its Run returns
	p.cancel = cancel
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.pool.Run(below) })
	wg.Go(func() { _ = p.beater.Run(below) })
	go func() {
		defer close(p.done)
		p.err = p.agent.Run(ctx)
		stop()
		wg.Wait()
		_ = p.pool.Close()
		p.client.Close()
	}()
}

// stopAgent stops the agent gracefully. Its programs continue. stopAgent does nothing if the agent was never started.
func (n *node) stopAgent() {
	if n.agentProcess == nil {
		return
	}
	n.cancel()
	<-n.done
	if n.err != nil {
		n.w.t.Errorf("agent of %s: %v", n.name, n.err)
	}
}

// killAgent kills the agent. Its programs continue.
func (n *node) killAgent() {
	n.w.net.Kill(n.host)
	n.cancel()
}

// powerOff cuts the machine's power: its connections fall silent, its programs are gone, and the journal's last record
// may be incomplete.
func (n *node) powerOff() {
	n.w.t.Helper()
	n.w.net.Vanish(n.host)
	_, err := n.disk.PowerLoss()
	must(n.w.t, err)
	n.tearJournal()
	n.cancel()
	n.programs.powerOff()
}

// restart waits until the previous agent process has stopped completely, and starts a new one.
func (n *node) restart() {
	n.w.t.Helper()
	<-n.done
	n.start()
}

// row returns the node's row in the latest state, or an empty row if there is none.
func (n *node) row() *fsm.Node {
	st := n.w.state()
	row, ok := st.Nodes.Get(n.id)
	if !ok {
		return &fsm.Node{}
	}
	return row
}

// unplug drops all packets between the node and the given servers.
func (n *node) unplug(servers ...*server) {
	for _, s := range servers {
		n.w.net.Drop(n.host, s.host)
		n.w.net.Drop(s.host, n.host)
	}
}

// plug undoes unplug.
func (n *node) plug(servers ...*server) {
	for _, s := range servers {
		n.w.net.Mend(n.host, s.host)
	}
}

// unplugAll drops all packets between the node and every other machine.
func (n *node) unplugAll() {
	n.unplug(n.w.servers...)
	for _, other := range n.w.nodes {
		if other != n {
			n.w.net.Drop(n.host, other.host)
			n.w.net.Drop(other.host, n.host)
		}
	}
}

func (n *node) plugAll() {
	n.plug(n.w.servers...)
	for _, other := range n.w.nodes {
		n.w.net.Mend(n.host, other.host)
	}
}

// placed lists the instances on the node that are not known to be stopped.
func (n *node) placed() []*fsm.Instance {
	st := n.w.state()
	var out []*fsm.Instance
	for i := range st.InstancesOn(n.id) {
		if i.Status.Observed != model.ObservedStopped {
			out = append(out, i)
		}
	}
	return out
}

const heartbeat = time.Second * 2 / 6 // a sixth of offline_after
