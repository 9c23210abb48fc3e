package fsm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/outspan/outspan/model"
)

// A member's row says which CA signed its newest certificate. A certificate of a CA that was dropped is refused.
func TestCertificateNamesItsCA(t *testing.T) {
	n1 := agentNamed("n1")
	admitted := with(admit(agentNamed("n2"), 7), func(c *MemberAdmit) { c.CA = "ca/2" })
	s := run(t, trustState(t), 1000, keyPut("ca/2", 1, model.KeyIncoming), keyPut("ca/1", 2, model.KeyRetired),
		keyPut("ca/2", 2, model.KeyActive), admitted)
	renewed := func(old, key byte, ca model.KeyName) *MemberRenew {
		return &MemberRenew{Subject: n1, Old: hashOf(old), Key: hashOf(key), NotAfter: 2000, CA: ca}
	}
	for i, step := range []struct {
		renew *MemberRenew
		code  model.Code
		want  model.KeyName
	}{
		{renewed(1, 1, "ca/1"), "", "ca/1"},
		{renewed(1, 1, ""), "", "ca/1"}, // the same certificate, by a process that does not know its CA
		{renewed(1, 2, "ca/2"), "", "ca/2"},
		{renewed(1, 2, "ca/1"), "", "ca/1"},
		{renewed(2, 3, ""), "", ""}, // another certificate
		{renewed(3, 3, "ca/2"), "", "ca/2"},
		{renewed(3, 4, "data/1"), model.CodeInvalid, "ca/2"},
		{renewed(3, 4, "ca/9"), model.CodeStale, "ca/2"},
	} {
		s = checked(t, s, 1000, step.code, "", step.renew)
		if m, _ := s.TrustMemberOf(n1); m.CA != step.want {
			t.Errorf("step %d: the certificate is of %q, want %q", i, m.CA, step.want)
		}
	}
	if m, _ := s.TrustMemberOf(agentNamed("n2")); m.CA != "ca/2" {
		t.Errorf("the admitted agent has a certificate of %q", m.CA)
	}
	s = checked(t, s, 1000, "", "key.changed key/ca/1 dropped", &KeyDrop{"ca/1"})
	late := with(admit(agentNamed("n3"), 8), func(c *MemberAdmit) { c.CA = "ca/1" })
	s = checked(t, s, 1000, model.CodeStale, "", late)
	checked(t, s, 1000, model.CodeStale, "", renewed(3, 4, "ca/1"))
}

// The row of a CA keeps which members its rotation leaves behind, and how long the CA before stays trusted.
func TestKeyPutPassed(t *testing.T) {
	many := make([]string, maxPassed+1)
	for i := range many {
		many[i] = fmt.Sprintf("agent:n%05d", i)
	}
	s := trustState(t)
	for name, test := range map[string]struct {
		key    model.KeyName
		passed []string
		grace  model.Duration
		code   model.Code
	}{
		"two":              {"ca/2", []string{"agent:n1", "server:s1"}, model.Hour, ""},
		"as many as fit":   {"ca/2", many[1:], maxKeyGrace, ""},
		"too many":         {"ca/2", many, 0, model.CodeInvalid},
		"not sorted":       {"ca/2", []string{"server:s1", "agent:n1"}, 0, model.CodeInvalid},
		"twice":            {"ca/2", []string{"agent:n1", "agent:n1"}, 0, model.CodeInvalid},
		"a person":         {"ca/2", []string{"cert:alice"}, 0, model.CodeInvalid},
		"no name":          {"ca/2", []string{"agent:"}, 0, model.CodeInvalid},
		"a long grace":     {"ca/2", nil, maxKeyGrace + 1, model.CodeInvalid},
		"a negative grace": {"ca/2", nil, -1, model.CodeInvalid},
		"of a gossip key":  {"gossip/2", []string{"agent:n1"}, 0, model.CodeInvalid},
		"of a data key":    {"data/2", nil, 1, model.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			events := ""
			if test.code == "" {
				events = "key.changed key/ca/2 incoming"
			}
			after := checked(t, s, 1000, test.code, events, with(keyPut(test.key, 1, model.KeyIncoming), func(c *KeyPut) {
				c.Passed, c.Grace = test.passed, test.grace
			}))
			if row, ok := after.TrustKeys.Get(test.key); ok != (test.code == "") ||
				ok && (!slices.Equal(row.Passed, test.passed) || row.Grace != test.grace) {
				t.Errorf("the row is %+v", row)
			}
		})
	}
}
