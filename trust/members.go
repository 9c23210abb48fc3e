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
	Answers bool          // it answers the leader; only the leader knows that of other servers
	Silent  time.Duration // since its last answer, or since the leader began to lead; only on the leader
}

// absentFor is how long a rotation of keys waits for a member that is off.
const absentFor = 10 * model.Minute

// counted is a member that a rotation of keys waits for.
type counted struct {
	who    model.Subject
	row    *fsm.TrustMember // nil if the member is a server without a row
	absent bool             // it is off, or the servers don't reach it
	since  model.Time       // when it became absent, at the latest; 0 if it is not absent
}

// startsWithin is how long a rotation of the CA waits for a machine that got a certificate and has not registered yet.
const startsWithin = time.Hour

// countedMembers returns the members that a rotation of keys waits for: the servers in the configuration of the log,
// and the agents with a node and a certificate that has not expired. The clock of the state decides, because that of
// one server may be wrong. Revoked members don't count. Servers come first. Only the leader knows who is absent.
func (e *Engine) countedMembers(state *fsm.State) (all []counted) {
	now := e.cfg.Servers.Now()
	for _, s := range e.cfg.Servers.Servers() {
		c := counted{who: model.Subject{Kind: model.SubjectServer, Name: s.Name}}
		c.row, _ = state.TrustMemberOf(c.who)
		if c.row != nil && c.row.RevokedIndex != 0 {
			continue
		}
		if !s.Answers && c.who != e.self {
			c.absent, c.since = true, max(now-model.Time(s.Silent.Milliseconds()), 0)
		}
		all = append(all, c)
	}
	for _, m := range state.TrustMembers.All() {
		if !mayConnect(state, m) {
			continue
		}
		n, known := state.NodeOf(m.Subject.Name)
		if !known {
			continue
		}
		c := counted{who: m.Subject, row: m}
		switch n.Health {
		case model.HealthOffline:
			c.absent, c.since = true, n.Return.OfflineSince
		case model.HealthUnreachable: // the state does not say since when
			c.absent, c.since = true, now
		}
		all = append(all, c)
	}
	return all
}

// mayConnect reports whether a member is an agent whose newest certificate counts.
func mayConnect(state *fsm.State, m *fsm.TrustMember) bool {
	return m.Subject.Kind == model.SubjectAgent && m.RevokedIndex == 0 && m.NotAfter > state.Wall
}

// caMembers returns the counted members and, as absent ones, the agents without a node whose certificate was made less
// than startsWithin ago: a machine that has just joined and starts after the CA was dropped would have to join again.
// Older agents without a node were never started, or their node was removed.
func (e *Engine) caMembers(state *fsm.State) []counted {
	all := e.countedMembers(state)
	for _, m := range state.TrustMembers.All() {
		made := m.NotAfter - e.cfg.Lifetime.Milliseconds()
		if !mayConnect(state, m) || made+startsWithin.Milliseconds() <= state.Wall {
			continue
		}
		if _, known := state.NodeOf(m.Subject.Name); !known {
			all = append(all, counted{who: m.Subject, row: m, absent: true, since: e.cfg.Servers.Now()})
		}
	}
	slices.SortStableFunc(all, func(a, b counted) int {
		if a.who.Kind != b.who.Kind {
			return strings.Compare(string(b.who.Kind), string(a.who.Kind)) // servers first
		}
		return strings.Compare(a.who.Name, b.who.Name)
	})
	return all
}

// passed reports whether a rotation no longer waits for the member, because it is absent: for absentFor, or since the
// step of the rotation began absentFor ago. forced passes over each absent member at once. A member that returns gets
// the keys without gossip: a server from its state, an agent over its connection to a server.
func (c *counted) passed(now, step model.Time, forced bool) bool {
	return c.absent && (forced || now-min(c.since, step) >= model.Time(absentFor))
}
