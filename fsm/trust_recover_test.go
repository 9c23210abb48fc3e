package fsm

import (
	"maps"
	"testing"

	"github.com/outspan/outspan/model"
)

// After a recovery no token admits anybody, and an agent may show any key of its name. The first one that it uses
// counts alone from then on. A mark without Recovered changes no row of trust.
func TestRecoveredTrust(t *testing.T) {
	n1, n2, s1 := agentNamed("n1"), agentNamed("n2"), serverNamed("s1")
	start := run(t, trustState(t), 1000, admit(n2, 2), admit(s1, 3), &MemberRevoke{Subject: n2, Reason: "stolen"},
		&TokenCreate{ID: "bbbbbbbbbbbb", Role: "agent", Verifier: hashOf('b'), TTL: model.Hour, Uses: 3})
	restored := checked(t, start, 2000, "", "settings.changed cluster 1", &RestoreMark{})
	if token, _ := restored.JoinTokens.Get("bbbbbbbbbbbb"); token.RevokedIndex != 0 {
		t.Error("a restore revoked a token")
	}
	if m, _ := restored.TrustMemberOf(n1); m.AnyKey {
		t.Error("a restore takes any key")
	}
	s := checked(t, start, 2000, "", "settings.changed cluster 1", &RestoreMark{Recovered: true})
	join := &MemberAdmit{Subject: agentNamed("n5"), Key: hashOf(5), NotAfter: 9, Token: "bbbbbbbbbbbb",
		Verifier: hashOf('b')}
	checked(t, s, 2000, model.CodeTokenRevoked, "", join)
	for _, one := range []struct {
		who  model.Subject
		key  byte
		want bool
	}{{n1, 1, true}, {n1, 9, true}, {n2, 2, false}, {n2, 9, false}, {s1, 3, true}, {s1, 9, false}} {
		if m, _ := s.TrustMemberOf(one.who); m.Counts(hashOf(one.key)) != one.want {
			t.Errorf("%s, key %d: counts is not %v", one.who, one.key, one.want)
		}
	}
	renew := func(old, key byte) *MemberRenew {
		return &MemberRenew{Subject: n1, Old: hashOf(old), Key: hashOf(key), NotAfter: 5000}
	}
	for name, test := range map[string]struct {
		first  *MemberRenew
		counts []byte
		not    []byte
	}{
		"the newer key is shown": {renew(7, 7), []byte{7}, []byte{1, 8}},
		"the key of the row":     {renew(1, 1), []byte{1}, []byte{7, 8}},
		"it renews":              {renew(7, 8), []byte{7, 8}, []byte{1}},
	} {
		pinned := checked(t, s, 2000, "", "", test.first)
		m, _ := pinned.TrustMemberOf(n1)
		for _, key := range test.counts {
			if !m.Counts(hashOf(key)) {
				t.Errorf("%s: key %d does not count", name, key)
			}
		}
		for _, key := range test.not {
			if m.Counts(hashOf(key)) {
				t.Errorf("%s: key %d counts", name, key)
			}
		}
		checked(t, pinned, 2000, model.CodeStale, "", renew(20, 21))
	}
	revoked := checked(t, s, 2000, "", "member.revoked member/agent:n1 revoked", &MemberRevoke{Subject: n1})
	if m, _ := revoked.TrustMemberOf(n1); m.Counts(hashOf(1)) || m.AnyKey {
		t.Errorf("revoked: %+v", m)
	}
}

// The labels of a join token win over those of the agent's configuration, and those of operators win over both.
func TestLabelsOfTokens(t *testing.T) {
	registers := func(labels ...string) *NodeRegister {
		r := register("n1")
		r.Shape.Labels = kv(labels...)
		return r
	}
	label := func(labels ...string) *NodeLabel { return &NodeLabel{ID: "n1", Labels: kv(labels...)} }
	s := run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()},
		&TokenCreate{ID: agentToken, Role: "agent", Verifier: hashOf('a'), TTL: model.Hour, Uses: 2,
			Labels: kv("rack", "r1", "operator.zone", "test")},
		admit(agentNamed("n1"), 1))
	for _, step := range []struct {
		name    string
		command Command
		want    map[string]string
	}{
		{"the agent says something else", registers("rack", "r9", "disk", "ssd"),
			kv("rack", "r1", "operator.zone", "test", "disk", "ssd")},
		{"it says nothing", register("n1"), kv("rack", "r1", "operator.zone", "test", "disk", "ssd")},
		{"it renews its certificate", &MemberRenew{Subject: agentNamed("n1"), Old: hashOf(1), Key: hashOf(2), NotAfter: 9},
			kv("rack", "r1", "operator.zone", "test", "disk", "ssd")},
		{"it registers again", registers("rack", "r9"), kv("rack", "r1", "operator.zone", "test")},
		{"an operator removes one", label("rack", ""), kv("operator.zone", "test")},
		{"it registers again", registers("rack", "r9"), kv("operator.zone", "test")},
		{"an operator sets one", label("rack", "r2"), kv("rack", "r2", "operator.zone", "test")},
		{"it registers again", registers(), kv("rack", "r2", "operator.zone", "test")},
	} {
		s = run(t, s, 1000, step.command)
		if n, _ := s.Nodes.Get("n1"); !maps.Equal(n.Shape.Labels, step.want) {
			t.Errorf("%s: the labels are %v, want %v", step.name, n.Shape.Labels, step.want)
		}
	}
}
