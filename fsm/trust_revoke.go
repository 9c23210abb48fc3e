package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// row returns the row of the member to revoke. A server that has none gets an empty one, for which this makes room.
// Codes: not_found, conflict.
func (c *MemberRevoke) row(s *State) (*TrustMember, *model.Error) {
	if m, ok := s.TrustMemberOf(c.Subject); ok {
		return m, nil
	}
	if c.Subject.Kind != model.SubjectServer || !model.ValidName(c.Subject.Name) || !s.Managed() {
		return nil, model.Refuse(model.CodeNotFound, "%q is no member of the cluster",
			model.ClipText(c.Subject.String(), 100)).
			WithHint("nothing is to be revoked; check the name")
	}
	drop, refusal := s.roomForMember(false)
	if refusal != nil {
		return nil, refusal
	}
	if drop != nil {
		s.delMember(drop.Subject)
	}
	return &TrustMember{Subject: c.Subject}, nil
}

// openTokens returns the join tokens that admitted a member and would admit others now, the latest one last.
func (s *State) openTokens(m *TrustMember) (open []*JoinToken) {
	for _, id := range append(slices.Clone(m.Earlier), m.Token) {
		t, ok := s.JoinTokens.Get(id)
		if ok && t.RevokedIndex == 0 && t.Used < t.Uses && s.Now < t.Expires && !slices.Contains(open, t) {
			open = append(open, t)
		}
	}
	return open
}

// earlierTokens returns TrustMember.Earlier of a member that the token next admits.
func (s *State) earlierTokens(m *TrustMember, next model.TokenID) (earlier []model.TokenID) {
	for _, t := range s.openTokens(m) {
		if t.ID != next {
			earlier = append(earlier, t.ID)
		}
	}
	return earlier[max(len(earlier)-maxEarlier, 0):]
}

// voidHeartbeats removes the heartbeat key of the node of a revoked agent. The node gets another one when the agent has
// joined again and registers.
func voidHeartbeats(s *State, name string) {
	id, _ := s.nodeNames.Get(name)
	n, ok := s.Nodes.Get(id)
	if !ok || len(n.Agent.Key) == 0 {
		return
	}
	next := *n
	next.Agent.Key = nil
	s.setNode(n, next)
}
