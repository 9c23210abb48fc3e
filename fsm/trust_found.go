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

func (c *MemberFound) apply(s *State) error {
	if refusal := checkMember(c.Subject, c.NotAfter, c.Key); refusal != nil {
		return refusal
	}
	first, ok := s.TrustKeys.Get(model.NewKeyName(model.KeyCA, 1))
	switch {
	case !ok || first.CreatedIndex != s.Index:
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
