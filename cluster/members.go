package cluster

import (
	"slices"
	"time"

	"github.com/outspan/outspan/model"
)

// Membership is what the leader knows of all servers. NextChange depends on nothing else.
type Membership struct {
	Self      model.ServerID
	Index     uint64        // of the committed configuration; a change fails if a newer configuration exists
	Format    uint16        // of the replicated state
	LastIndex uint64        // of the leader's log
	SettleFor time.Duration // how long a server must have kept up before it gets a vote
	Servers   []ServerView  // in the configuration, in gossip, or both
	First     int           // index in Servers at which NextChange begins to look; at least 0
}

// ServerView is what the leader knows of one server.
type ServerView struct {
	ID      model.ServerID
	Name    string // in gossip; empty if gossip doesn't know the server
	Address string // host:port in gossip; empty if gossip doesn't know the server

	Configured string // host:port in the configuration; empty if the server is not in it
	Voter      bool

	Alive      bool   // gossip sees the server as alive or suspect; always true of Membership.Self
	Fresh      bool   // the server claims in gossip that it has no state at all
	Foreign    bool   // the server claims in gossip that it belongs to another cluster or lineage
	Format     uint16 // the newest format that the server can read; 0 if not known
	Answered   bool   // the server answered a tick of the leader within the last 3 s
	LastIndex  uint64 // of the server's log, from its last answer to a tick
	Room       Room
	HealthyFor time.Duration // for how long the server has answered every tick, never with a lag above maxLogLag
}

// member reports whether the server is in the configuration.
func (s ServerView) member() bool { return s.Configured != "" }

// works reports whether the server can take part in a majority now.
func (s ServerView) works() bool { return s.Alive && s.Answered }

// ChangeKind is the kind of a Change.
type ChangeKind string

// The kinds of change.
const (
	ChangeAdd     ChangeKind = "add"     // a server becomes a non-voter
	ChangePromote ChangeKind = "promote" // a non-voter becomes a voter
	ChangeMove    ChangeKind = "move"    // a member gets a new address
	ChangeRemove  ChangeKind = "remove"
)

// Change is a change of one server in the configuration. At most one change is made at a time.
type Change struct {
	Kind    ChangeKind
	ID      model.ServerID
	Address string
	Voter   bool   // set only for ChangeMove: whether the server has a vote
	Reason  string // for people

	// Successor is set only for ChangeRemove. It is the server that took the place of ID, or empty if an operator removes
	// ID. Successor must prove over TLS that it is at Address. If Name is not empty, Successor's certificate must also
	// have this name.
	Successor model.ServerID
	Name      string
}

// NextChange returns the change to make now. ok is false if there is none. NextChange never returns a change for which
// skip returns true. It tries each step on all servers before the next step, and begins with the server at index
// m.First.
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

// Find returns the view of a server; ok is false if the server is not known.
func (m Membership) Find(id model.ServerID) (s ServerView, ok bool) {
	i := slices.IndexFunc(m.Servers, func(s ServerView) bool { return s.ID == id })
	if i < 0 {
		return ServerView{}, false
	}
	return m.Servers[i], true
}

// CheckPromote returns why a server can't get a vote now, or nil if it can. Codes: not_found if it is no member;
// conflict if it has a vote already, does not answer, or is too far behind.
func (m Membership) CheckPromote(id model.ServerID) *model.Error { return m.index().checkPromote(id) }

// CheckRemove returns why a server can't be removed now, or nil if it can. Codes: not_found if it is no member;
// conflict if the remaining voters would have no working majority.
func (m Membership) CheckRemove(id model.ServerID) *model.Error { return m.index().checkRemove(id) }

// CheckForcedRemove returns why a server can't be removed even by force, or nil if it can. Codes: not_found if it is no
// member; conflict if it is the last voter.
func (m Membership) CheckForcedRemove(id model.ServerID) *model.Error {
	return m.index().checkForcedRemove(id)
}

func noServer(id model.ServerID) *model.Error {
	return model.Refuse(model.CodeNotFound, "there is no server %s in the cluster", id).
		WithHint("list them with: outspan server members")
}

// NextFormat returns the newest format that every member can read. It returns 0 if the newest format of some member is
// not known.
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
