package fsm

import "github.com/outspan/outspan/model"

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
