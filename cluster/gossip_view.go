package cluster

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// poolView caches answers that are asked for often and change only with a member. With 5,000 agents, copying all
// members for each question takes a millisecond and a megabyte. Its contents are never written; nil means that they
// must be built.
type poolView struct {
	servers  []Member // in order of name
	liveness map[model.NodeID]fsm.Gossip
}

// changed drops the cached answers that a change of a member makes invalid. before and after are its roles, which may
// be equal. A change of an agent keeps the list of servers, because each registration asks for it. p.mu is held.
func (v *poolView) changed(before, after transport.Role) {
	v.liveness = nil
	if before != transport.RoleAgent || after != transport.RoleAgent {
		v.servers = nil
	}
}

// viewedServers returns the servers; p.mu is held.
func (p *Pool) viewedServers() []Member {
	if p.view.servers == nil {
		p.view.servers = []Member{}
		for _, m := range p.members {
			if m.Meta.Role == transport.RoleServer {
				p.view.servers = append(p.view.servers, m)
			}
		}
		slices.SortFunc(p.view.servers, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	}
	return p.view.servers
}

// Members returns all known members, the dead included, in order of name.
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

// Servers returns the members with the role server, the dead included, in order of name.
func (p *Pool) Servers() []Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.viewedServers())
}

// Member returns one member; ok is false if it was never seen.
func (p *Pool) Member(name string) (m Member, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok = p.members[name]
	return m, ok
}

// Liveness returns the gossip state of every known agent. An agent that is missing is fsm.GossipUnknown. The map is
// shared and must not be written.
func (p *Pool) Liveness() map[model.NodeID]fsm.Gossip {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view.liveness == nil {
		p.view.liveness = make(map[model.NodeID]fsm.Gossip, len(p.members))
		for name, m := range p.members {
			if m.Meta.Role == transport.RoleAgent {
				p.view.liveness[model.NodeID(name)] = m.State
			}
		}
	}
	return p.view.liveness
}
