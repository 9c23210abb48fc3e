package cluster

import (
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

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

// drop forgets a member. p.mu is held.
func (p *Pool) drop(name string, m Member) {
	delete(p.members, name)
	p.view.changed(m.Meta.Role, m.Meta.Role)
}

// suspected marks a living member as suspect. It is called when a failed probe is found in memberlist's log, because
// memberlist has no event for that.
func (p *Pool) suspected(name string) {
	p.update(name, func(m *Member) bool {
		if m.State != fsm.GossipAlive {
			return false
		}
		m.State = fsm.GossipSuspect
		return true
	})
}

// update calls edit for a known member, with p.mu held. If edit returns true, update stores the changed member.
func (p *Pool) update(name string, edit func(*Member) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.members[name]
	if !ok || !edit(&m) {
		return
	}
	p.put(m)
}

// put stores a new or changed member, and closes the channel of Changed. p.mu is held.
func (p *Pool) put(m Member) {
	m.since = time.Now()
	before := m.Meta.Role // for a new member, the roles before and after are equal
	if old, known := p.members[m.Name]; known {
		before = old.Meta.Role
	}
	p.view.changed(before, m.Meta.Role)
	p.members[m.Name] = m
	close(p.change)
	p.change = make(chan struct{})
}

// seen stores what memberlist reports of a member. It runs in a callback of memberlist.
func (p *Pool) seen(n *memberlist.Node, state fsm.Gossip) {
	node := *n
	node.Addr, node.Meta = slices.Clone(n.Addr), nil
	meta, err := p.codec.decodeMeta(n.Meta)
	if err != nil {
		p.log.Warn("member with unreadable gossip meta", "member", n.Name, "address", n.Address(), "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if state == fsm.GossipDead && err != nil {
		meta = p.members[n.Name].Meta
	}
	p.put(Member{Name: n.Name, Address: n.Address(), State: state, Meta: meta, node: node})
}
