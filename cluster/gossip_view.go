package cluster

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// poolView is what is asked of the members again and again, and changes only with one of them: with 5,000 agents a copy
// of all for each question is a millisecond and a megabyte. What it holds is never written; nil has to be made again.
type poolView struct {
	servers  []Member // in order of name
	liveness map[model.NodeID]fsm.Gossip
}

// changed drops what no longer holds after a member changed from one role to another or the same; p.mu is held. That an
// agent came or went leaves the servers as they were: each registration asks for them.
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
	return slices.Clone(p.viewedServers())
}

// Member returns one member; ok is false if it was never seen.
func (p *Pool) Member(name string) (m Member, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok = p.members[name]
	return m, ok
}

// Liveness is the gossip state of every agent known here. Who is missing is fsm.GossipUnknown. The map is shared: it
// must not be written.
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
