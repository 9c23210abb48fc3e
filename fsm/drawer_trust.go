package fsm

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// trust is the drawer of who may belong to the cluster: encrypted keys, join tokens, the members that the tokens
// admitted, people, newcomers that need an approval, access tokens, and who may do what. It only stores rows. Each
// table is written only by its put and del methods. A restore keeps the rows of this drawer; see WithTrustOf.
type trust struct {
	TrustKeys    Table[model.KeyName, *TrustKey]
	JoinTokens   Table[model.TokenID, *JoinToken]
	TrustMembers Table[string, *TrustMember] // by Subject.String()
	People       Table[string, *Person]      // by Subject.Name
	Newcomers    Table[string, *Newcomer]    // by rowKey
	Roles        Table[rights.RoleName, *RightsRole]
	Bindings     Table[string, *RightsBinding] // by rowKey
	RightsIndex  uint64                        // of the last change of rights; 0 if there was none
	AccessTokens Table[model.TokenID, *AccessToken]

	revokedAgents Table[string, present] // by name
}

func (s *trust) fork(undo *undoLog) {
	s.TrustKeys, s.JoinTokens = s.TrustKeys.fork(undo), s.JoinTokens.fork(undo)
	s.People = s.People.fork(undo)
	s.TrustMembers, s.revokedAgents = s.TrustMembers.fork(undo), s.revokedAgents.fork(undo)
	s.Newcomers = s.Newcomers.fork(undo)
	s.Roles, s.Bindings = s.Roles.fork(undo), s.Bindings.fork(undo)
	s.AccessTokens = s.AccessTokens.fork(undo)
}

func (s *trust) putTrustKey(k *TrustKey) { s.TrustKeys.put(k.Name, k) }

func (s *trust) delTrustKey(name model.KeyName) { s.TrustKeys.del(name) }

func (s *trust) putJoinToken(t *JoinToken) { s.JoinTokens.put(t.ID, t) }

func (s *trust) delJoinToken(id model.TokenID) { s.JoinTokens.del(id) }

func (s *trust) putMember(m *TrustMember) {
	before, _ := s.TrustMembers.put(m.Subject.String(), m)
	mark(&s.revokedAgents, m.Subject.Name, before.revokedAgent(), m.revokedAgent())
}

func (s *trust) delMember(who model.Subject) {
	before, _ := s.TrustMembers.del(who.String())
	mark(&s.revokedAgents, who.Name, before.revokedAgent(), false)
}

func (s *trust) putPerson(p *Person) { s.People.put(p.Subject.Name, p) }

func (s *trust) delPerson(name string) { s.People.del(name) }

func (s *trust) putNewcomer(n *Newcomer) { s.Newcomers.put(n.rowKey(), n) }

func (s *trust) delNewcomer(n *Newcomer) { s.Newcomers.del(n.rowKey()) }

func (s *trust) putRole(r *RightsRole) { s.Roles.put(r.Name, r) }

func (s *trust) delRole(name rights.RoleName) { s.Roles.del(name) }

func (s *trust) putBinding(b *RightsBinding) { s.Bindings.put(b.rowKey(), b) }

func (s *trust) delBinding(role rights.RoleName, to string) { s.Bindings.del(bindingKey(role, to)) }

func (s *trust) putAccessToken(t *AccessToken) { s.AccessTokens.put(t.ID, t) }

func (s *trust) delAccessToken(id model.TokenID) { s.AccessTokens.del(id) }

// index builds the index after the rows were read from a snapshot.
func (s *trust) index() {
	for _, m := range s.TrustMembers.All() {
		mark(&s.revokedAgents, m.Subject.Name, false, m.revokedAgent())
	}
}

func (m *TrustMember) revokedAgent() bool {
	return m != nil && m.RevokedIndex != 0 && m.Subject.Kind == model.SubjectAgent
}

// AgentRevoked reports whether the agent of this name is revoked. Its node gets no instances, and its heartbeats don't
// count.
func (s *trust) AgentRevoked(name string) bool { return s.revokedAgents.Has(name) }

// Managed reports whether the cluster makes certificates itself. If so, only members may connect.
func (s *trust) Managed() bool { return len(s.KeysOf(model.KeyCA)) > 0 }

// KeysOf returns the keys of a kind, the oldest first. The rows are read-only.
func (s *trust) KeysOf(kind model.KeyKind) []*TrustKey {
	var keys []*TrustKey
	for name, k := range s.TrustKeys.From(model.KeyName(kind)) {
		if name.Kind() != kind {
			break
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b *TrustKey) int { return cmp.Compare(a.number(), b.number()) }) // ca/10 is after ca/9
	return keys
}

// ActiveKey returns the active key of a kind. ok is false if there is none.
func (s *trust) ActiveKey(kind model.KeyKind) (key *TrustKey, ok bool) {
	for _, k := range s.KeysOf(kind) {
		if k.Phase == model.KeyActive {
			return k, true
		}
	}
	return nil, false
}

// CAAt returns the CA that was the active one at an index. ok is false if it was dropped since, or if there was none.
func (s *trust) CAAt(index uint64) (ca *TrustKey, ok bool) {
	for _, k := range s.KeysOf(model.KeyCA) {
		if k.Phase != model.KeyIncoming && k.ActiveIndex <= index {
			ca, ok = k, true
		}
	}
	return ca, ok
}

// TrustMemberOf returns the row of a server or agent, which may be revoked. ok is false if no token ever admitted it.
func (s *trust) TrustMemberOf(who model.Subject) (m *TrustMember, ok bool) {
	return s.TrustMembers.Get(who.String())
}

// WithTrustOf returns s with the keys, join tokens, members, people, newcomers, rights and access tokens of the state
// live. After a restore of an older snapshot, a spent token is therefore still spent, a revoked member still revoked, a
// rejected newcomer still rejected, and a role that was taken away is still away. A restore must not open the cluster:
// the setting join_approval stays on if it is on in live, and rejoin_grace is the smaller of both. The index of the
// entry that is applied next must be above the index of live.
func (s State) WithTrustOf(live State) State {
	saved := s.TrustKeys
	s.trust = live.trust
	s.Settings.JoinApproval = s.Settings.JoinApproval || live.Settings.JoinApproval
	s.Settings.RejoinGrace = min(s.Settings.RejoinGrace, live.Settings.RejoinGrace)
	next := s.fork() // keeps later writes away from the tables of live
	if plant.Is(plant.DroppedKey) {
		for name, row := range saved.All() {
			if !next.TrustKeys.Has(name) {
				next.putTrustKey(row)
			}
		}
	}
	return next.publish()
}

// tokenLabels returns the labels that an agent has from its join token.
func (s *trust) tokenLabels(name string) map[string]string {
	if m, ok := s.TrustMemberOf(model.Subject{Kind: model.SubjectAgent, Name: name}); ok {
		return m.Labels
	}
	return nil
}
