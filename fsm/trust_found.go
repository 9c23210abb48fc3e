package fsm

import "github.com/outspan/outspan/model"

// MemberFound makes a server or agent a member without a token, because there are no tokens before there is a CA. It
// is allowed only in the entry that puts the first CA, after that command. Codes: invalid; conflict in any other entry;
// name_taken if the name has a row.
type MemberFound struct {
	Subject  model.Subject `cbor:"1,keyasint"`
	Key      []byte        `cbor:"2,keyasint"`
	NotAfter int64         `cbor:"3,keyasint"`
}

// AgentsFound makes the agent of each node a member. It is for a cluster that worked before it made its certificates
// itself: its agents have certificates of files, which no row knows. The rows have AnyKey set, and no key until the
// agent shows one. A row that an agent has already, because it joined by a token, gets AnyKey too: its certificate may
// have been replaced by hand since. NotAfter is when such a certificate ends at the latest, in Unix ms. The command
// is allowed only in the entry that puts the first CA, after that command. Codes: invalid; conflict in any other entry,
// or if there are too many nodes.
type AgentsFound struct {
	NotAfter int64 `cbor:"1,keyasint"`
}

func (c *AgentsFound) apply(s *State) error {
	if c.NotAfter <= 0 {
		return model.Refuse(model.CodeInvalid, "the certificates of the agents have the end %d", c.NotAfter)
	}
	if !getsFirstCA(s) {
		return model.Refuse(model.CodeConflict, "agents can be members without a token only while the cluster gets its "+
			"first CA").WithHint("make a token on a server with: outspan token create")
	}
	var agents []model.Subject
	var joined []*TrustMember
	for _, n := range s.Nodes.All() {
		who := model.Subject{Kind: model.SubjectAgent, Name: n.Name}
		switch row, known := s.TrustMemberOf(who); {
		case !known:
			agents = append(agents, who)
		case row.RevokedIndex == 0 && row.IssuedIndex != s.Index:
			joined = append(joined, row)
		}
	}
	if s.TrustMembers.Len()+len(agents) > maxMembers {
		return model.Refuse(model.CodeConflict, "the cluster has %d nodes, and at most %d members are allowed", s.Nodes.Len(),
			maxMembers).WithHint("forget nodes that are gone: outspan node forget NAME")
	}
	for _, row := range joined {
		next := *row
		next.AnyKey, next.NotAfter = true, max(row.NotAfter, c.NotAfter)
		s.putMember(&next)
		s.touchMember(row.Subject)
	}
	for _, who := range agents {
		s.putMember(&TrustMember{Subject: who, NotAfter: c.NotAfter, IssuedIndex: s.Index, AnyKey: true})
		s.touchMember(who)
		s.emit(Event{Type: model.EventMemberJoined, Subject: "member/" + who.String(), After: "joined"})
	}
	return nil
}

// getsFirstCA reports whether an earlier command of the entry that is applied has put the first CA.
func getsFirstCA(s *State) bool {
	first, ok := s.TrustKeys.Get(model.NewKeyName(model.KeyCA, 1))
	return ok && first.CreatedIndex == s.Index
}

func (c *MemberFound) apply(s *State) error {
	if refusal := checkMember(c.Subject, c.NotAfter, c.Key); refusal != nil {
		return refusal
	}
	switch {
	case !getsFirstCA(s):
		return model.Refuse(model.CodeConflict, "%s can be a member without a token only while the cluster gets its first CA",
			c.Subject).
			WithHint("make a token on a server with: outspan token create")
	case s.TrustMembers.Has(c.Subject.String()):
		return model.Refuse(model.CodeNameTaken, "%s is a member already", c.Subject).
			WithHint("give each machine a name of its own")
	}
	s.putMember(&TrustMember{Subject: c.Subject, Key: c.Key, NotAfter: c.NotAfter, IssuedIndex: s.Index})
	s.touchMember(c.Subject)
	s.emit(Event{Type: model.EventMemberJoined, Subject: "member/" + c.Subject.String(), After: "joined"})
	return nil
}
