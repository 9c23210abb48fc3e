package cluster

import (
	"slices"
	"time"

	"github.com/outspan/outspan/model"
)

// Membership is what the leader knows of the servers, as a value. The next change of the voters depends on it alone.
type Membership struct {
	Self      model.ServerID
	Index     uint64 // of the configuration; a change fails if another one was made since
	Format    uint16 // of the state
	LastIndex uint64 // of the leader's log
	SettleFor time.Duration
	Servers   []ServerView // in the configuration, in gossip, or both
	First     int          // index in Servers at which NextChange begins to look; at least 0
}

// ServerView is what the leader knows of one server.
type ServerView struct {
	ID      model.ServerID
	Name    string // in gossip; empty if gossip doesn't know the server
	Address string // host:port in gossip; empty if gossip doesn't know the server

	Configured string // host:port in the configuration; empty if the server is not in it
	Voter      bool

	Alive      bool   // gossip sees it as alive; always true of the server that asks
	Fresh      bool   // it says in gossip that it has no state at all
	Foreign    bool   // its directory belongs to another cluster or lineage
	Format     uint16 // the newest that it can read; 0 = not known
	Answered   bool   // it answered one of the leader's last ticks
	LastIndex  uint64 // of its log, from its last answer
	Room       Room
	HealthyFor time.Duration // how long it has answered every tick and lagged little
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
	ChangePromote ChangeKind = "promote" // a non-voter gets a vote
	ChangeMove    ChangeKind = "move"    // its address changed
	ChangeRemove  ChangeKind = "remove"
)

// Change is one step of membership. There is never more than one under way.
type Change struct {
	Kind    ChangeKind
	ID      model.ServerID
	Address string
	Voter   bool   // of a move: the server has a vote
	Reason  string // for people

	// Of a removal: the server that takes its place. It must prove over TLS that it is at Address, and, unless Name is
	// empty, that its certificate has that name.
	Successor model.ServerID
	Name      string
}

// NextChange returns the one step to take now. ok is false when nothing needs to change. The steps, in order: write
// down a new address; remove a dead server whose address a new one has taken; add a new server without a vote; give a
// vote to a server that has kept up for long enough; remove a dead server whose name a living voter has. Steps for
// which skip is true are left out. Each kind of step looks at the server at m.First first.
func (m Membership) NextChange(skip func(Change) bool) (c Change, ok bool) {
	r := m.index()
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

// CheckPromote returns why a server can't get a vote now. Codes: not_found; conflict (it has one, does not answer, or
// is too far behind).
func (m Membership) CheckPromote(id model.ServerID) *model.Error { return m.index().checkPromote(id) }

// CheckRemove returns why a server can't be removed now. Codes: not_found; conflict if the rest would have no working
// majority.
func (m Membership) CheckRemove(id model.ServerID) *model.Error { return m.index().checkRemove(id) }

// CheckForcedRemove is CheckRemove for an operator who insists: only the last vote is protected.
func (m Membership) CheckForcedRemove(id model.ServerID) *model.Error {
	return m.index().checkForcedRemove(id)
}

func noServer(id model.ServerID) *model.Error {
	return model.Refuse(model.CodeNotFound, "there is no server %s in the cluster", id).
		WithHint("list them with: outspan server members")
}

// NextFormat returns the newest format that every server of the configuration can read; 0 while one of them is not
// known.
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
