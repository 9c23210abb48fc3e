package api

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// A change of a group of n instances is told to up to n agents, n instances each. The pause before an answer grows likewise, so that the bytes for each second
// do not: 20 ms for 100 instances, 2 s for 1,000.
const (
	peersPauseEach = 2 * time.Microsecond
	peersPauseMost = 5 * time.Second
)

// maxPeerLists bounds the encoded lists that are kept.
const maxPeerLists = 4096

// agentPeers waits until one of the groups has changed, and tells those that have.
func (s *Server) agentPeers(ctx context.Context, who caller, q transport.PeersRequest) (transport.Peers, error) {
	if err := cmp.Or(s.caughtUp(), s.replaced(q.Cluster)); err != nil {
		return transport.Peers{}, err
	}
	s.awaitNode(ctx, q.Node, 0, fsm.Seen{})
	if _, err := s.ownNode(who, q.Node); err != nil {
		return transport.Peers{}, err
	}
	if now := s.cfg.Store.Current(); q.Incarnation != now.Incarnation || q.Index > now.Index {
		q.Index = 0
	}
	var topics []fsm.Topic
	for _, g := range q.Groups {
		topics = append(topics, "peers/"+fsm.Topic(g))
	}
	over, leave := s.agents.lookout.join()
	if s.watches.until(ctx, over, q.Index, parsePoll(q.Wait), topics...) && q.Index > 0 {
		s.agents.peers.wait(ctx)
		pause(ctx, nil, over, s.peersPause(q.Groups))
	}
	leave()
	if err := s.caughtUp(); err != nil {
		return transport.Peers{}, err
	}
	return s.agents.lists.answer(s.reading(), q)
}

func (s *Server) peersPause(groups []fsm.GroupID) time.Duration {
	state, largest := s.cfg.Store.Current(), 0
	for _, id := range groups {
		if g, ok := state.Groups.Get(id); ok {
			largest = max(largest, g.Alive)
		}
	}
	return min(time.Duration(largest*largest)*peersPauseEach, peersPauseMost)
}

// sharedPeers is the lists of groups as they are told to agents, encoded. Safe for many goroutines.
type sharedPeers struct {
	mu          sync.Mutex
	incarnation uint64
	lists       map[fsm.GroupID]peerList
}

type peerList struct {
	at      uint64 // fsm.Group.PeersAt
	encoded cbor.RawMessage
}

func newSharedPeers() *sharedPeers { return &sharedPeers{lists: map[fsm.GroupID]peerList{}} }

// answer tells the groups of a request that have an instance on its node and have changed since its index.
func (p *sharedPeers) answer(r *reading, q transport.PeersRequest) (transport.Peers, error) {
	here := map[fsm.GroupID]bool{}
	for i := range r.InstancesOn(q.Node) {
		here[i.Group] = true
	}
	a := transport.Peers{Incarnation: r.Incarnation, Index: r.Index}
	for _, id := range q.Groups {
		g, ok := r.Groups.Get(id)
		if !ok || !here[id] || g.PeersAt <= q.Index && q.Incarnation == r.Incarnation {
			continue
		}
		encoded, err := p.of(r, g)
		if err != nil {
			return transport.Peers{}, err
		}
		a.Groups = append(a.Groups, encoded)
	}
	return a, nil
}

// of returns the encoded list of a group. Who comes while another one encodes a list waits for that.
func (p *sharedPeers) of(r *reading, g *fsm.Group) (cbor.RawMessage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.incarnation != r.Incarnation || len(p.lists) >= maxPeerLists {
		p.incarnation = r.Incarnation
		clear(p.lists)
	}
	if known, ok := p.lists[g.ID]; ok && known.at == g.PeersAt {
		return known.encoded, nil
	}
	encoded, err := transport.EncodeCBOR(r.groupPeers(g.ID))
	if err == nil {
		p.lists[g.ID] = peerList{g.PeersAt, encoded}
	}
	return encoded, err
}

func (r *reading) groupPeers(id fsm.GroupID) transport.GroupPeers {
	list := transport.GroupPeers{Group: id, Members: []transport.Peer{}}
	for i := range r.PeersOf(id) {
		if len(list.Members) == transport.MaxPeers {
			break
		}
		if n, ok := r.Nodes.Get(i.Node); ok {
			list.Members = append(list.Members, transport.Peer{
				Slot: i.Slot, Instance: i.ID, Node: n.Name, Address: n.Agent.Address, Ports: i.Claims.Ports.Map(), State: i.PeerState(),
			})
		}
	}
	return list
}
