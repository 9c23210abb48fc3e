package cluster

import (
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
	First     int          // of Servers: where NextChange begins to look; at least 0
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

	// Of a removal: the server that takes its place, which must prove over TLS that it is at Address, and that its
	// certificate has Name unless that is empty.
	Successor model.ServerID
	Name      string
}

// NextChange is the one step to take now; ok is false when nothing needs to change. In order: write down a new address;
// take out a dead server whose place a new one has taken; add a new server, without a vote; give a vote to one that has
// kept up for long enough; take out a dead server whose name a new one has. Steps that skip reports are left out. Each
// step looks at the server at m.First first.
func (m Membership) NextChange(skip func(Change) bool) (c Change, ok bool) {
	r := m.roster()
	for _, step := range [...]func(ServerView) (Change, bool){r.move, r.replace, r.add, r.promote, r.succeed} {
		for i := range m.Servers {
			s := m.Servers[(m.First+i)%len(m.Servers)]
			if c, ok := step(s); ok && !skip(c) {
				return c, true
			}
		}
	}
	return Change{}, false
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
func (m Membership) CheckPromote(id model.ServerID) *model.Error { return m.roster().checkPromote(id) }

// CheckRemove says why a server can't be taken out now. Codes: not_found; conflict where the rest would have no
// majority that works.
func (m Membership) CheckRemove(id model.ServerID) *model.Error { return m.roster().checkRemove(id) }

// CheckForcedRemove is CheckRemove for an operator who insists: only the last vote is protected.
func (m Membership) CheckForcedRemove(id model.ServerID) *model.Error {
	return m.roster().checkForcedRemove(id)
}

func noServer(id model.ServerID) *model.Error {
	return model.Refuse(model.CodeNotFound, "there is no server %s in the cluster", id).
		WithHint("list them with: outspan server members")
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
