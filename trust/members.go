package trust

import (
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Server is what a server knows of a server in the configuration of the log.
type Server struct {
	Name    string        // its id while the name is unknown
	ID      string        // in the configuration of the log
	Answers bool          // it answers the leader; only the leader knows that of other servers
	Silent  time.Duration // since its last answer, or since the leader began to lead; only on the leader
}

// absentFor is how long a rotation of the gossip key waits for a member that is off.
const absentFor = 10 * model.Minute

// startsWithin is how long a rotation of the CA waits for a machine that got a certificate and has not registered yet.
const startsWithin = time.Hour

// counted is a member that a rotation of keys waits for.
type counted struct {
	who    model.Subject
	row    *fsm.TrustMember // nil if the member is a server without a row
	absent bool             // it is off, or the servers don't reach it
	since  model.Time       // when it became absent, at the latest; 0 if it is not absent
	id     string           // of a server; empty for an agent

	expired  bool // an agent whose certificate has expired, and that may still return by itself
	starting bool // an agent that has just got its certificate, and has no node yet
}

// memberList finds the members that the rotations wait for. It has no state of its own, and is safe for concurrent use.
type memberList struct {
	servers  Cluster
	self     model.Subject
	lifetime time.Duration // of new certificates
}

// counted returns the members that a rotation of keys waits for: the servers in the configuration of the log,
// and the agents that may connect now or return by themselves. Revoked members don't count. An agent without a node
// counts only while it may be about to start: older ones were never started, or their node was removed. The clock of
// the state decides, because that of one server may be wrong. Servers come first, each kind in the order of its names.
// Only the leader knows which other servers are absent.
func (l memberList) counted(state *fsm.State) (all []counted) {
	now := l.servers.Now()
	for _, s := range l.servers.Servers() {
		c := counted{who: model.Subject{Kind: model.SubjectServer, Name: s.Name}, id: s.ID}
		c.row, _ = state.TrustMemberOf(c.who)
		if c.row != nil && c.row.RevokedIndex != 0 {
			continue
		}
		if !s.Answers && c.who != l.self {
			c.absent, c.since = true, max(now-model.Time(s.Silent.Milliseconds()), 0)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b counted) int { return strings.Compare(a.who.Name, b.who.Name) })
	for _, m := range state.TrustMembers.All() { // in the order of the subjects
		if c, counts := l.agent(state, m, now); counts {
			all = append(all, c)
		}
	}
	return all
}

// agent reports whether a member is an agent that counted returns.
func (l memberList) agent(state *fsm.State, m *fsm.TrustMember, now model.Time) (c counted, counts bool) {
	if m.Subject.Kind != model.SubjectAgent || m.RevokedIndex != 0 ||
		m.NotAfter+int64(state.Settings.RejoinGrace) <= state.Wall {
		return counted{}, false
	}
	c = counted{who: m.Subject, row: m, expired: m.NotAfter <= state.Wall}
	n, known := state.NodeOf(m.Subject.Name)
	switch {
	case !known:
		made := m.NotAfter - l.lifetime.Milliseconds()
		c.absent, c.since, c.starting = true, now, true
		return c, !c.expired && made+startsWithin.Milliseconds() > state.Wall
	case n.Health == model.HealthOffline:
		c.absent, c.since = true, n.Return.OfflineSince
	case n.Health == model.HealthUnreachable: // the state does not say since when
		c.absent, c.since = true, now
	}
	return c, true
}

// named reports whether an operator means the member by a name. A server that gossip has forgotten is shown by its id.
func (c *counted) named(name string) bool {
	return name == c.who.Name || name == c.who.String() || c.id != "" && name == c.id
}

// in reports whether a sorted list of members has this one. A server may be there by its id, because the leader that
// wrote the list did not know its name.
func (c *counted) in(sorted []string) bool {
	_, found := slices.BinarySearch(sorted, c.who.String())
	if !found && c.id != "" {
		_, found = slices.BinarySearch(sorted, model.Subject{Kind: model.SubjectServer, Name: c.id}.String())
	}
	return found
}

// gossips reports whether a rotation of the gossip key waits for the member. An agent that returns or starts gets the
// gossip keys from a server, but it needs the CA to believe that server.
func (c *counted) gossips() bool { return !c.expired && !c.starting }

// passed reports whether a rotation of the gossip key no longer waits for the member, because it is absent: for
// absentFor, or since the step of the rotation began absentFor ago. forced passes over each absent member at once. A
// member that returns gets the keys without gossip: a server from its state, an agent over its connection to a server.
func (c *counted) passed(now, step model.Time, forced bool) bool {
	return c.absent && (forced || now-min(c.since, step) >= model.Time(absentFor))
}
