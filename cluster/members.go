package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/outspan/outspan/model"
)

// Membership is what the leader knows of the servers, as a value. What should change about who votes is a function
// of it alone.
type Membership struct {
	Self      model.ServerID
	Index     uint64 // of the configuration: a change names it, and is refused if another came between
	Format    uint16 // of the state
	LastIndex uint64 // of the leader's log
	SettleFor time.Duration
	Servers   []ServerView // in the configuration, in gossip, or both
}

// ServerView is what the leader knows of one server.
type ServerView struct {
	ID      model.ServerID
	Name    string // as it says of itself in gossip; empty if it is not there
	Address string // host:port as it says of itself in gossip; empty if it is not there

	Configured string // host:port in the configuration; empty if it is not in it
	Voter      bool

	Alive      bool   // gossip sees it; the leader always does
	Fresh      bool   // it has no state at all, and says so
	Foreign    bool   // its directory belongs to another cluster
	Format     uint16 // the newest that it can read; 0 = not known
	Answered   bool   // it answered the leader's last tick
	LastIndex  uint64 // of its log, as it answered
	Room       Room
	HealthyFor time.Duration // it has answered every tick, close behind, for so long
}

// member reports whether the server is in the configuration.
func (s ServerView) member() bool { return s.Configured != "" }

// works reports whether the server can take part in a majority now.
func (s ServerView) works() bool { return s.Alive && s.Answered }

// ChangeKind is what happens to one server of the configuration.
type ChangeKind string

// The kinds of change.
const (
	ChangeAdd     ChangeKind = "add"     // as a non-voter
	ChangePromote ChangeKind = "promote" // give it a vote
	ChangeMove    ChangeKind = "move"    // its address changed
	ChangeRemove  ChangeKind = "remove"
)

// Change is one step of membership. There is never more than one under way.
type Change struct {
	Kind    ChangeKind
	ID      model.ServerID
	Address string
	Voter   bool   // of a move: it has a vote
	Reason  string // for people

	// Of a removal: the server that takes its place, which must prove over TLS that it is at Address, and that its certificate has Name
	// unless that is empty.
	Successor model.ServerID
	Name      string
}

// NextChange is the one step to take now; ok is false when nothing needs to change. In order: write down a new
// address; take out a dead server whose place a new one has taken; add a new server, without a vote; give a vote to
// one that has kept up for long enough; take out a dead server whose name a new one has. Steps that skip reports are left out.
func (m Membership) NextChange(skip func(Change) bool) (c Change, ok bool) {
	for _, step := range [...]func(ServerView) (Change, bool){m.move, m.replace, m.add, m.promote, m.succeed} {
		for _, s := range m.Servers {
			if c, ok := step(s); ok && !skip(c) {
				return c, true
			}
		}
	}
	return Change{}, false
}

func (m Membership) move(s ServerView) (Change, bool) {
	if !s.member() || !s.Alive || s.Address == "" || s.Address == s.Configured || m.at(s.Address) != nil {
		return Change{}, false
	}
	return Change{Kind: ChangeMove, ID: s.ID, Address: s.Address, Voter: s.Voter, Reason: "it has a new address"}, true
}

// replace removes a member whose address a fresh server has: its directory was wiped, so it will not come back.
func (m Membership) replace(s ServerView) (Change, bool) {
	if s.member() || !s.Alive || !s.Fresh || s.Foreign {
		return Change{}, false
	}
	old := m.at(s.Address)
	if old == nil || old.Alive || m.CheckRemove(old.ID) != nil {
		return Change{}, false
	}
	return Change{Kind: ChangeRemove, ID: old.ID, Successor: s.ID, Address: s.Address, Reason: fmt.Sprintf("the new server %s has its address", s.ID)}, true
}

// add takes in a server that has no state. One that has some was removed, or is of another cluster: an operator
// has to decide about it.
func (m Membership) add(s ServerView) (Change, bool) {
	if s.member() || !s.Alive || !s.Fresh || s.Foreign || s.Format < m.Format || s.Address == "" || m.at(s.Address) != nil || m.namesake(s) != nil {
		return Change{}, false
	}
	return Change{Kind: ChangeAdd, ID: s.ID, Address: s.Address, Reason: "a new server"}, true
}

func (m Membership) promote(s ServerView) (Change, bool) {
	if s.HealthyFor < m.SettleFor || m.CheckPromote(s.ID) != nil {
		return Change{}, false
	}
	return Change{Kind: ChangePromote, ID: s.ID, Address: s.Configured, Reason: "it has caught up"}, true
}

// succeed removes a dead member whose name a living one with a vote has: that one was made in its place, at another address.
func (m Membership) succeed(s ServerView) (Change, bool) {
	if !s.Voter || s.Alive || s.Name == "" || m.CheckRemove(s.ID) != nil {
		return Change{}, false
	}
	next := m.namesake(s)
	if next == nil || !next.Voter || !next.works() {
		return Change{}, false
	}
	return Change{Kind: ChangeRemove, ID: s.ID, Successor: next.ID, Address: next.Address, Name: s.Name, Reason: fmt.Sprintf("server %s has its name", next.ID)}, true
}

// namesake is a living member with the name of another server. A second one of its name is not taken in: whoever names it could not say which one is meant.
func (m Membership) namesake(s ServerView) *ServerView {
	for i := range m.Servers {
		if one := &m.Servers[i]; s.Name != "" && one.Name == s.Name && one.ID != s.ID && one.member() && one.Alive {
			return one
		}
	}
	return nil
}

// at is the member that the configuration has at an address.
func (m Membership) at(address string) *ServerView {
	for i := range m.Servers {
		if address != "" && m.Servers[i].Configured == address {
			return &m.Servers[i]
		}
	}
	return nil
}

// Find returns the view of a server; ok is false for one that isn't known.
func (m Membership) Find(id model.ServerID) (s ServerView, ok bool) {
	i := slices.IndexFunc(m.Servers, func(s ServerView) bool { return s.ID == id })
	if i < 0 {
		return ServerView{}, false
	}
	return m.Servers[i], true
}

// CheckPromote says why a server can't get a vote now. Codes: not_found; conflict (it has one, or is too far
// behind).
func (m Membership) CheckPromote(id model.ServerID) *model.Error {
	s, ok := m.Find(id)
	switch {
	case !ok || !s.member():
		return noServer(id)
	case s.Voter:
		return model.Refuse(model.CodeConflict, "server %s has a vote already", id)
	case !s.works():
		return model.Refuse(model.CodeConflict, "server %s does not answer", id).WithHint("start it, then try again")
	case s.LastIndex+maxLogLag < m.LastIndex:
		return model.Refuse(model.CodeConflict, "server %s is %d entries behind", id, m.LastIndex-s.LastIndex).WithHint("wait until it has caught up")
	}
	return nil
}

// CheckRemove says why a server can't be taken out now. Codes: not_found; conflict where the rest would have no
// majority that works.
func (m Membership) CheckRemove(id model.ServerID) *model.Error {
	s, ok := m.Find(id)
	if !ok || !s.member() {
		return noServer(id)
	}
	if !s.Voter {
		return nil
	}
	voters, working := m.votersWithout(id)
	if voters == 0 {
		return model.Refuse(model.CodeConflict, "server %s is the last one with a vote", id)
	}
	if working < voters/2+1 {
		return model.Refuse(model.CodeConflict, "without server %s only %d of %d servers would work, which is no majority", id, working, voters).
			WithHint("bring another server back first, or use --force")
	}
	return nil
}

// CheckForcedRemove is CheckRemove for an operator who insists: only the last vote is protected.
func (m Membership) CheckForcedRemove(id model.ServerID) *model.Error {
	s, ok := m.Find(id)
	if !ok || !s.member() {
		return noServer(id)
	}
	if voters, _ := m.votersWithout(id); s.Voter && voters == 0 {
		return model.Refuse(model.CodeConflict, "server %s is the last one with a vote", id)
	}
	return nil
}

func noServer(id model.ServerID) *model.Error {
	return model.Refuse(model.CodeNotFound, "there is no server %s in the cluster", id).WithHint("list them with: outspan server members")
}

func (m Membership) votersWithout(id model.ServerID) (voters, working int) {
	for _, s := range m.Servers {
		if s.Voter && s.ID != id {
			voters++
			if s.works() {
				working++
			}
		}
	}
	return voters, working
}

// NextFormat is the newest format that every server of the configuration can read; 0 while one of them has not said.
func (m Membership) NextFormat() uint16 {
	lowest := uint16(0)
	for _, s := range m.Servers {
		switch {
		case !s.member():
		case s.Format == 0:
			return 0
		case lowest == 0 || s.Format < lowest:
			lowest = s.Format
		}
	}
	return lowest
}
