package fsm

import (
	"bytes"

	"github.com/outspan/outspan/model"
)

// recoverTrust makes the rows of tokens and members safe to use after a recovery. The state may be older than what
// was acknowledged: a token may have been spent or revoked since, and agents may have newer keys. So it revokes all
// tokens, and sets AnyKey in the row of each agent that is not revoked. It can't know which members were revoked
// since. The rows of servers stay: keys of servers are not compared. It returns how many tokens it revoked.
func (c *RestoreMark) recoverTrust(s *State) (tokens int) {
	var revoked []*JoinToken
	for _, t := range s.JoinTokens.All() {
		if t.RevokedIndex == 0 {
			next := *t
			next.RevokedIndex = s.Index
			if next.Ended == 0 {
				next.Ended = max(s.Now, 1)
			}
			revoked = append(revoked, &next)
		}
	}
	for _, t := range revoked {
		s.putJoinToken(t)
	}
	var agents []*TrustMember
	for _, m := range s.TrustMembers.All() {
		if m.Subject.Kind == model.SubjectAgent && m.RevokedIndex == 0 {
			next := *m
			next.AnyKey = true
			agents = append(agents, &next)
		}
	}
	for _, m := range agents {
		s.putMember(m)
	}
	s.dropNewcomers(func(*Newcomer) bool { return true }) // their tokens are revoked
	if len(revoked) > 0 {
		s.touch("tokens")
	}
	if len(agents) > 0 {
		s.touch("members")
	}
	return len(revoked)
}

// pin ends AnyKey: from now on, only the keys of the renewal count.
func (c *MemberRenew) pin(s *State, m *TrustMember) {
	next := *m
	next.AnyKey, next.Key, next.PreviousKey = false, c.Key, nil
	if !bytes.Equal(c.Old, c.Key) {
		next.PreviousKey = c.Old
	}
	next.NotAfter, next.IssuedIndex, next.CA = c.NotAfter, s.Index, c.CA
	s.putMember(&next)
	s.touchMember(m.Subject)
}
