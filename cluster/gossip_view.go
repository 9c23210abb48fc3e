package cluster

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// poolView caches the results of Servers and Liveness. They are needed often, and change only when a member changes.
// With 5,000 agents, copying all members at each call would take a millisecond and a megabyte. A cached slice or map is
// never modified. A nil field means that the result must be computed.
type poolView struct {
	servers  []Member // sorted by name
	liveness map[model.NodeID]fsm.Gossip
}

// changed drops the cached results that a change of a member makes invalid. before and after are the member's roles
// before and after the change. If both roles are agent, servers is kept, because each registration of an agent needs
// it. The Pool's mu is held.
func (v *poolView) changed(before, after pki.Role) {
	v.liveness = nil
	if before != pki.RoleAgent || after != pki.RoleAgent {
		v.servers = nil
	}
}

// viewedServers returns the members with the role server, sorted by name. The caller must not modify the slice. p.mu is
// held.
func (p *Pool) viewedServers() []Member {
	if p.view.servers == nil {
		p.view.servers = []Member{}
		for _, m := range p.members {
			if m.Meta.Role == pki.RoleServer {
				p.view.servers = append(p.view.servers, m)
			}
		}
		slices.SortFunc(p.view.servers, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	}
	return p.view.servers
}

// Members returns all known members, including dead ones, sorted by name.
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

// Servers returns the members with the role server, including dead ones, sorted by name.
func (p *Pool) Servers() []Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.viewedServers())
}

// Member returns one member. ok is false if the pool does not know it.
func (p *Pool) Member(name string) (m Member, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok = p.members[name]
	return m, ok
}

// Liveness returns the gossip state of every known agent. An agent that is not in the map has the state
// fsm.GossipUnknown. The map is shared, so the caller must not modify it.
func (p *Pool) Liveness() map[model.NodeID]fsm.Gossip {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view.liveness == nil {
		p.view.liveness = make(map[model.NodeID]fsm.Gossip, len(p.members))
		for name, m := range p.members {
			if m.Meta.Role == pki.RoleAgent {
				p.view.liveness[model.NodeID(name)] = m.State
			}
		}
	}
	return p.view.liveness
}
