package cluster

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// poolView is what is asked of the members again and again, and changes only with one of them: with 5,000 agents a copy of all for each question is
// a millisecond and a megabyte. It is never written.
type poolView struct {
	servers  []Member // in order of name
	liveness map[fsm.NodeID]fsm.Gossip
}

// viewed returns the view of the present members; p.mu is held.
func (p *Pool) viewed() *poolView {
	if p.view != nil {
		return p.view
	}
	v := &poolView{liveness: make(map[fsm.NodeID]fsm.Gossip, len(p.members))}
	for name, m := range p.members {
		switch m.Meta.Role {
		case transport.RoleServer:
			v.servers = append(v.servers, m)
		case transport.RoleAgent:
			v.liveness[fsm.NodeID(name)] = m.State
		}
	}
	slices.SortFunc(v.servers, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	p.view = v
	return v
}

// Members lists everyone known, the dead included, in order of name.
func (p *Pool) Members() []Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Member, 0, len(p.members))
	for _, m := range p.members {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Servers is Members with the role server only.
func (p *Pool) Servers() []Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.viewed().servers)
}

// Member returns one member; ok is false if it was never seen.
func (p *Pool) Member(name string) (m Member, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok = p.members[name]
	return m, ok
}

// Liveness is the gossip state of every agent known here. Who is missing is fsm.GossipUnknown. The map is shared: it must not be written.
func (p *Pool) Liveness() map[fsm.NodeID]fsm.Gossip {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.viewed().liveness
}
