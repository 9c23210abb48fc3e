package fsm

import (
	"bytes"
	"testing"

	"github.com/outspan/outspan/model"
)

// A member's row has the digests that the member reported last. Renewals keep them; a new admission begins without.
func TestMemberHolds(t *testing.T) {
	n1 := agentNamed("n1")
	holds := func(who model.Subject, roots, gossip []byte) *MemberHolds {
		return &MemberHolds{Subject: who, Roots: roots, Gossip: gossip}
	}
	s := run(t, trustState(t), 1000, &MemberRevoke{agentNamed("n1"), ""},
		&TokenCreate{ID: "cccccccccccc", Role: "agent", Verifier: hashOf('a'), TTL: model.Hour, Uses: 5})
	again := with(admit(n1, 2), func(c *MemberAdmit) { c.Token = "cccccccccccc" })
	s = checked(t, s, 1000, model.CodeMemberRevoked, "", holds(n1, hashOf(7), nil))
	s = run(t, s, 1000, again, holds(n1, hashOf(7), hashOf(8)),
		&MemberRenew{Subject: n1, Old: hashOf(2), Key: hashOf(3), NotAfter: 2000})
	m, _ := s.TrustMemberOf(n1)
	if !bytes.Equal(m.Roots, hashOf(7)) || !bytes.Equal(m.Gossip, hashOf(8)) {
		t.Errorf("n1 has %x and %x", m.Roots, m.Gossip)
	}
	checked(t, s, 1000, model.CodeInvalid, "", holds(n1, hashOf(7), []byte{1}))
	checked(t, s, 1000, model.CodeNotFound, "", holds(agentNamed("n2"), hashOf(7), nil))

	s = run(t, s, 1000, &MemberRevoke{n1, ""},
		&TokenCreate{ID: "dddddddddddd", Role: "agent", Verifier: hashOf('a'), TTL: model.Hour, Uses: 5},
		with(admit(n1, 4), func(c *MemberAdmit) { c.Token = "dddddddddddd" }))
	if m, _ := s.TrustMemberOf(n1); m.Roots != nil || m.Gossip != nil {
		t.Errorf("after another admission n1 has %x and %x", m.Roots, m.Gossip)
	}
}
