package httpapi

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// A change of a group's list of peers wakes many agents' polls. The pause before each answer is the product of
// peersPauseEach, the rows of all lists that the agent follows, and the number of nodes, at most peersPauseMost. So
// larger lists are sent less often, and don't cost more bytes per second. For 100 instances on 100 nodes the pause is
// 20 ms, for 1,000 on 1,000 it is 2 s.
const (
	peersPauseEach = 2 * time.Microsecond
	peersPauseMost = 5 * time.Second
)

// maxPeerLists limits how many encoded lists sharedPeers keeps.
const maxPeerLists = 4096

// agentPeers returns those of the requested lists that are newer than the agent's. If no list is newer, it first waits
// until one of them changes, at most q.Wait. If the agent has never had some of the lists, agentPeers returns only
// those, without the pause for large lists.
func (s *Server) agentPeers(ctx context.Context, who caller, q transport.PeersRequest) (transport.Peers, error) {
	if err := cmp.Or(s.caughtUp(), s.replaced(q.Cluster)); err != nil {
		return transport.Peers{}, err
	}
	s.awaitNode(ctx, q.Node, 0, model.Seen{})
	if _, err := s.ownNode(who, q.Node); err != nil {
		return transport.Peers{}, err
	}
	over, leave := s.agents.guard.join()
	r := s.reading()
	fresh := len(r.unknownPeers(q, true)) > 0
	changed := fresh || len(r.unknownPeers(q, false)) > 0
	if !changed {
		var topics []fsm.Topic
		for _, known := range q.Groups {
			topics = append(topics, "peers/"+fsm.Topic(known.Group))
		}
		changed = s.watches.until(ctx, over, r.Index, parsePoll(q.Wait), topics...)
	}
	if changed {
		s.agents.peers.wait(ctx)
	}
	if changed && !fresh {
		pause(ctx, nil, over, r.peersPause(q))
	}
	leave()
	if err := s.caughtUp(); err != nil {
		return transport.Peers{}, err
	}
	r = s.reading()
	return s.agents.lists.answer(r, r.unknownPeers(q, fresh))
}

// unknownPeers returns the groups of a request that have an instance on q.Node and a list newer than the agent's. If
// never is true, it returns only groups whose list the agent has never had. If the agent has seen a later incarnation
// than this server's, unknownPeers returns no groups.
func (r *reading) unknownPeers(q transport.PeersRequest, never bool) []*fsm.Group {
	if r.Incarnation < q.Incarnation {
		return nil
	}
	here := map[model.GroupID]bool{}
	for i := range r.InstancesOn(q.Node) {
		here[i.Group] = true
	}
	var groups []*fsm.Group
	for _, known := range q.Groups {
		if r.Incarnation != q.Incarnation {
			known.At = 0
		}
		g, ok := r.Groups.Get(known.Group)
		if ok && here[g.ID] && g.PeersAt > known.At && (known.At == 0 || !never) {
			groups = append(groups, g)
		}
	}
	return groups
}

func (r *reading) peersPause(q transport.PeersRequest) time.Duration {
	rows := 0
	for _, known := range q.Groups {
		if g, ok := r.Groups.Get(known.Group); ok {
			rows += min(g.Alive, r.mostPeers(g.ID))
		}
	}
	return min(time.Duration(rows*r.Nodes.Len())*peersPauseEach, peersPauseMost)
}

// sharedPeers caches the encoded lists of groups for all agents. Safe for concurrent use.
type sharedPeers struct {
	mu          sync.Mutex
	incarnation uint64
	lists       map[model.GroupID]peerList
}

type peerList struct {
	at      uint64 // fsm.Group.PeersAt of the encoded list
	encoded cbor.RawMessage
}

func newSharedPeers() *sharedPeers { return &sharedPeers{lists: map[model.GroupID]peerList{}} }

func (p *sharedPeers) answer(r *reading, groups []*fsm.Group) (transport.Peers, error) {
	a := transport.Peers{Incarnation: r.Incarnation}
	for _, g := range groups {
		encoded, err := p.of(r, g)
		if err != nil {
			return transport.Peers{}, err
		}
		a.Lists = append(a.Lists, encoded)
	}
	return a, nil
}

// of returns the encoded list of a group. Concurrent callers wait while one of them encodes.
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
	encoded, err := transport.EncodeCBOR(r.groupPeers(g))
	if err == nil {
		p.lists[g.ID] = peerList{g.PeersAt, encoded}
	}
	return encoded, err
}

// mostPeers returns how many instances the list of a group may contain.
func (r *reading) mostPeers(id model.GroupID) int {
	if spec, ok := r.Policy(id); ok && spec.Peers != nil {
		return transport.MaxPeersAsked
	}
	return transport.MaxPeers
}

func (r *reading) groupPeers(g *fsm.Group) transport.GroupPeers {
	most := r.mostPeers(g.ID)
	list := transport.GroupPeers{Group: g.ID, Members: []transport.Peer{}, At: g.PeersAt}
	for i := range r.PeersOf(g.ID) {
		if len(list.Members) == most {
			break
		}
		if n, ok := r.Nodes.Get(i.Node); ok {
			list.Members = append(list.Members, transport.Peer{
				Slot: i.Slot, Instance: i.ID, Node: n.Name, Address: n.Agent.Address,
				Ports: i.Claims.Ports.Map(), State: i.PeerState(),
			})
		}
	}
	return list
}
