package cluster

import (
	"errors"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/outspan/outspan/fsm"
)

// Bounds on the members that a pool knows, including dead ones. Anyone with the gossip key can make up any number of
// members, and all known members must fit into one exchange of at most maxStreamBytes.
const (
	maxMembers    = 10_000
	sweepEvery    = time.Second      // shortest time between sweeps, while a pool is full
	fullSaidEvery = 10 * time.Minute // shortest time between warnings that a pool is full
)

var (
	errPoolFull   = errors.New("there are too many members")
	errMemberSize = errors.New("its name or what it says of itself is too long")
)

// poolBounds contains when a full pool last swept out dead members, and when it last logged that it is full.
type poolBounds struct{ swept, said time.Time }

// gossipBounds is a memberlist.AliveDelegate. memberlist ignores a member that NotifyAlive refuses.
type gossipBounds struct{ p *Pool }

// NotifyAlive implements memberlist.AliveDelegate.
func (b gossipBounds) NotifyAlive(n *memberlist.Node) error {
	if len(n.Name) > maxMetaID || len(n.Meta) > metaLimit {
		return errMemberSize
	}
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	if b.p.hasRoom(n.Name) {
		return nil
	}
	if now := time.Now(); now.Sub(b.p.bounds.said) >= fullSaidEvery {
		b.p.bounds.said = now
		b.p.log.Warn("gossip knows too many members and takes no new ones; somebody with the gossip key may make them up",
			"members", len(b.p.members), "refused", n.Name, "address", n.Address())
	}
	return errPoolFull
}

// hasRoom reports whether the pool may take in a member. It always takes in known members, this member itself and the
// voters. A full pool drops dead members to make room, at most once every sweepEvery. p.mu is held.
func (p *Pool) hasRoom(name string) bool {
	if _, known := p.members[name]; known || len(p.members) < maxMembers || p.wants(name) {
		return true
	}
	if now := time.Now(); now.Sub(p.bounds.swept) >= sweepEvery {
		p.bounds.swept = now
		for other, m := range p.members {
			if m.State == fsm.GossipDead && !p.wants(other) {
				p.drop(other, m)
			}
		}
	}
	return len(p.members) < maxMembers
}
