package crowd

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// receiveBuffer is the size in bytes of the kernel's buffer for received packets of all agents.
const receiveBuffer = 8 << 20

// gossip is the one UDP socket that all agents share. It is safe for concurrent use.
type gossip struct {
	conn     *net.UDPConn
	envelope envelope

	mu      sync.RWMutex
	nodes   map[string]*node // the running agents, by node id
	servers []cluster.Member
	at      map[string]*net.UDPAddr // gossip addresses by server id
}

func newGossip(ctx context.Context, address, label string, key []byte) (*gossip, error) {
	e, err := newEnvelope(label, key)
	if err != nil {
		return nil, err
	}
	raw, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, fmt.Errorf("open the gossip socket: %w", err)
	}
	conn, ok := raw.(*net.UDPConn)
	if !ok {
		return nil, fmt.Errorf("the gossip socket is a %T", raw)
	}
	_ = conn.SetReadBuffer(receiveBuffer) // on failure the default buffer remains, which is enough for fewer agents
	return &gossip{conn: conn, envelope: e, nodes: map[string]*node{}, at: map[string]*net.UDPAddr{}}, nil
}

// run receives packets until ctx ends. It then closes the socket.
func (g *gossip) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = g.conn.Close() })
	defer stop()
	buf := make([]byte, 64<<10)
	for {
		n, from, err := g.conn.ReadFromUDP(buf)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			continue // one failed read must not end the gossip of all agents
		}
		if msg, err := g.envelope.open(buf[:n]); err == nil {
			g.receive(msg, from)
		}
	}
}

func (g *gossip) receive(msg []byte, from *net.UDPAddr) {
	if len(msg) == 0 {
		return
	}
	switch kind(msg[0]) {
	case kindCompound:
		list, _ := parts(msg) // of a damaged message, the parts before the damage are used
		for _, one := range list {
			if len(one) > 0 && kind(one[0]) != kindCompound {
				g.receive(one, from)
			}
		}
	case kindPing, kindIndirect:
		g.answerProbe(msg, from)
	case kindSuspect, kindDead:
		g.refute(msg)
	case kindUser:
		g.deliver(msg[1:])
	}
}

// answerProbe answers a probe on behalf of the probed agent. If that agent does not run, answerProbe sends a nack to
// probes that ask for one. It answers indirect probes in the same way, since all agents share this process.
func (g *gossip) answerProbe(msg []byte, from *net.UDPAddr) {
	var p probe
	if decode(msg, &p) != nil {
		return
	}
	switch _, here := g.node(p.Node); {
	case here:
		g.send(from, kindAck, ack{SeqNo: p.SeqNo})
	case p.Nack:
		g.send(from, kindNack, nack{SeqNo: p.SeqNo})
	}
}

func (g *gossip) refute(msg []byte) {
	var r rumour
	if decode(msg, &r) != nil {
		return
	}
	if n, here := g.node(r.Node); here {
		n.outbid(r.Incarnation)
	}
}

// deliver passes a server's message to the agent that the message names. It leaves the verification of the message to
// the agent's Beater.
func (g *gossip) deliver(msg []byte) {
	const mac = 32
	var to struct {
		From string `cbor:"1,keyasint"`
		Node string `cbor:"2,keyasint"`
	}
	if len(msg) < 1+mac || cbor.Unmarshal(msg[1:len(msg)-mac], &to) != nil {
		return
	}
	if n, here := g.node(to.Node); here {
		n.answered(to.From, slices.Clone(msg))
	}
}

func (g *gossip) node(id string) (*node, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	n, ok := g.nodes[id]
	return n, ok
}

func (g *gossip) send(to *net.UDPAddr, k kind, body any) {
	if msg, err := encode(k, body); err == nil {
		_, _ = g.conn.WriteToUDP(g.envelope.seal(msg), to) // an error is like a lost packet, which gossip tolerates
	}
}

// learn stores the servers and their gossip addresses from the answer to a registration.
func (g *gossip) learn(servers []transport.ServerInfo) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range servers {
		at, err := net.ResolveUDPAddr("udp", s.Gossip)
		if err != nil || g.at[string(s.ID)] != nil && g.at[string(s.ID)].String() == s.Gossip {
			continue
		}
		if g.at[string(s.ID)] == nil {
			g.servers = append(slices.Clone(g.servers),
				cluster.Member{Name: string(s.ID), Meta: cluster.Meta{Role: pki.RoleServer}})
		}
		g.at[string(s.ID)] = at
	}
}

func (g *gossip) known() []cluster.Member {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.servers
}

func (g *gossip) addressOf(server string) *net.UDPAddr {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.at[server]
}

// enter makes the socket answer and deliver packets for the agent until leave is called.
func (g *gossip) enter(n *node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes[string(n.id)] = n
}

func (g *gossip) leave(n *node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.nodes, string(n.id))
}
