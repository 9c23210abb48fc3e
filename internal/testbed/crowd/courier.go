package crowd

import (
	"fmt"
	"net"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// inboxSize is the maximum number of answers to heartbeats that are queued for one agent. Further answers are lost.
const inboxSize = 16

// introduceAfter is the number of unanswered heartbeats in a row after which an agent introduces itself to the server
// again.
const introduceAfter = 2

// Servers implements cluster.Courier.
func (n *node) Servers() []cluster.Member { return n.crowd.gossip.known() }

// Address implements cluster.Courier. It returns "", because the agent has no address of its own: a server answers to
// the address from which the agent introduced itself.
func (n *node) Address() string { return "" }

// Receive implements cluster.Courier.
func (n *node) Receive() <-chan []byte { return n.inbox }

// Send implements cluster.Courier. A server answers only members of its gossip pool. So an agent introduces itself to
// the server before its first message, and again after every introduceAfter messages in a row without an answer.
func (n *node) Send(server string, msg []byte) error {
	g := n.crowd.gossip
	to := g.addressOf(server)
	if to == nil {
		return fmt.Errorf("no server %s", server)
	}
	n.mu.Lock()
	silent := n.unanswered[server]
	n.unanswered[server] = silent + 1
	n.mu.Unlock()
	if silent%introduceAfter == 0 && (silent > 0 || n.fresh(server)) {
		n.introduce(to)
	}
	_, err := g.conn.WriteToUDP(g.envelope.seal(append([]byte{byte(kindUser)}, msg...)), to)
	return err
}

// fresh reports whether this is the agent's first contact with the server, and records the contact.
func (n *node) fresh(server string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.introduced[server]
	n.introduced[server] = true
	return !known
}

func (n *node) answered(server string, msg []byte) {
	n.mu.Lock()
	n.unanswered[server] = 0
	n.mu.Unlock()
	select {
	case n.inbox <- msg:
	default:
	}
}

// outbid refutes a rumour that this agent is suspected or dead. It announces the agent to all servers with an
// incarnation above the rumour's. It does nothing if the agent's incarnation is already above the rumour's.
func (n *node) outbid(incarnation uint32) {
	n.mu.Lock()
	news := incarnation >= n.life
	if news {
		n.life = incarnation + 1
	}
	n.mu.Unlock()
	if !news {
		return
	}
	for _, s := range n.Servers() {
		if to := n.crowd.gossip.addressOf(s.Name); to != nil {
			n.introduce(to)
		}
	}
}

// introduce announces this agent to a server as a member of the pool.
func (n *node) introduce(to *net.UDPAddr) {
	g := n.crowd.gossip
	own, ok := g.conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return
	}
	n.mu.Lock()
	life, boot, process := n.life, n.boot, n.process
	n.mu.Unlock()
	meta, err := transport.EncodeCBOR(cluster.Meta{Role: pki.RoleAgent, BootID: boot, Incarnation: process,
		Name: n.name})
	if err != nil {
		return
	}
	g.send(to, kindAlive, alive{
		Incarnation: life, Node: string(n.id), Addr: own.IP.To4(), Port: uint16(own.Port), Meta: meta,
		Vsn: versions(), //nolint:gosec // a port
	})
}
