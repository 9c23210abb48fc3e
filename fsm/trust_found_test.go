package fsm

import (
	"bytes"
	"testing"

	"github.com/outspan/outspan/model"
)

// The first server and its agent become members without a token in the entry with the first CA, and in no other entry.
func TestMemberFound(t *testing.T) {
	hash := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	who := func(kind model.SubjectKind, name string) model.Subject { return model.Subject{Kind: kind, Name: name} }
	data := &KeyPut{Name: "data/1", Version: 1, Phase: model.KeyActive, Under: "kek", Sealed: []byte{1}}
	ca := func(name model.KeyName, phase model.KeyPhase, version uint64) *KeyPut {
		return &KeyPut{Name: name, Version: version, Phase: phase, Under: "data/1", Sealed: []byte{1}, Public: []byte{2}}
	}
	first := ca("ca/1", model.KeyActive, 1)
	found := func(kind model.SubjectKind, name string) *MemberFound {
		return &MemberFound{Subject: who(kind, name), Key: hash(1), NotAfter: 5}
	}
	server, agent := found(model.SubjectServer, "s1"), found(model.SubjectAgent, "s1")
	for name, test := range map[string]struct {
		before [][]Command // each in an entry of its own
		group  []Command
		want   model.Code
	}{
		"with the first CA": {nil, []Command{data, first, server, agent}, ""},
		"before the CA":     {nil, []Command{data, server, first}, model.CodeConflict},
		"without a CA":      {nil, []Command{server}, model.CodeConflict},
		"after the CA":      {[][]Command{{data, first}}, []Command{server}, model.CodeConflict},
		"with a later CA": {[][]Command{{data, first}},
			[]Command{ca("ca/2", model.KeyIncoming, 1), server}, model.CodeConflict},
		"with the same CA": {[][]Command{{data, first}},
			[]Command{ca("ca/1", model.KeyActive, 2), server}, model.CodeConflict},
		"the same name":      {nil, []Command{data, first, server, server}, model.CodeNameTaken},
		"a name of no agent": {nil, []Command{data, first, found(model.SubjectCert, "x")}, model.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewState()
			for i, group := range append(test.before, test.group) {
				next, results := s.Apply(uint64(i)+1, 1, Entry{Format: s.Format, At: 1, Groups: [][]Command{group}})
				var got model.Code
				if refusal := results[0].Refusal; refusal != nil {
					got = refusal.Code
				}
				if want := test.want; i == len(test.before) && got != want || i < len(test.before) && got != "" {
					t.Fatalf("group %d: got %q, want %q", i, got, want)
				}
				s = next
			}
			if err := Check(s); err != nil {
				t.Error(err)
			}
			m, ok := s.TrustMemberOf(server.Subject)
			if ok != (test.want == "") || ok && (!m.Counts(hash(1)) || m.NotAfter != 5) {
				t.Errorf("the row of the server is %+v", m)
			}
		})
	}
}

// A cluster that had nodes before it had a CA: each agent without a row becomes a member with the key that it shows.
func TestAgentsFound(t *testing.T) {
	data := keyPut("data/1", 1, model.KeyActive)
	ca, found := keyPut("ca/1", 1, model.KeyActive), &AgentsFound{NotAfter: 9000}
	own := &MemberFound{Subject: agentNamed("n1"), Key: hashOf(1), NotAfter: 5000}
	var nodes []Command
	for _, name := range []string{"n1", "n2", "n3"} {
		nodes = append(nodes, register(model.NodeID(name)))
	}
	start := run(t, NewState(), 1000, nodes...)
	checked(t, start, 2000, model.CodeConflict, "", found)
	checked(t, start, 2000, model.CodeInvalid, "", data, ca, &AgentsFound{})
	s := checked(t, start, 2000, "", "key.changed key/data/1 active; key.changed key/ca/1 active; "+
		"member.joined member/agent:n1 joined; member.joined member/agent:n2 joined; member.joined member/agent:n3 joined",
		data, ca, own, found)
	checked(t, s, 2000, model.CodeConflict, "", found)

	if m, _ := s.TrustMemberOf(agentNamed("n1")); m.AnyKey || !m.Counts(hashOf(1)) || m.Counts(hashOf(2)) {
		t.Errorf("the row of the first agent is %+v", m)
	}
	if m, _ := s.TrustMemberOf(agentNamed("n2")); !m.Counts(hashOf(2)) || m.NotAfter != 9000 {
		t.Errorf("the row of an agent that has shown nothing is %+v", m)
	}
	token := &TokenCreate{ID: agentToken, Role: "agent", Verifier: hashOf('a'), TTL: model.Hour, Uses: 1}
	joined := run(t, start, 1500, token, &MemberAdmit{Subject: agentNamed("n2"), Key: hashOf(4), NotAfter: 4000,
		Token: agentToken, Verifier: hashOf('a')})
	joined, _ = joined.Apply(joined.Index+1, 1, Entry{Format: model.CurrentFormat, At: 2000, Groups: [][]Command{
		{data, ca, own, found}}})
	if m, _ := joined.TrustMemberOf(agentNamed("n2")); !m.Counts(hashOf(4)) || !m.Counts(hashOf(5)) || m.NotAfter != 9000 {
		t.Errorf("the row of an agent that joined by a token, and may have another certificate since, is %+v", m)
	}
	shown := checked(t, s, 2000, "", "",
		&MemberRenew{Subject: agentNamed("n2"), Old: hashOf(2), Key: hashOf(2), NotAfter: 6000})
	if m, _ := shown.TrustMemberOf(agentNamed("n2")); !m.Counts(hashOf(2)) || m.Counts(hashOf(3)) || m.NotAfter != 6000 {
		t.Errorf("the row of an agent that has shown its key is %+v", m)
	}
	gone := checked(t, s, 2000, "", "member.revoked member/agent:n3 revoked",
		&MemberRevoke{Subject: agentNamed("n3"), Reason: "lost"})
	if m, _ := gone.TrustMemberOf(agentNamed("n3")); m.Counts(hashOf(3)) || m.VoidBefore == 0 {
		t.Errorf("the row of an agent that was revoked before it has shown its key is %+v", m)
	}
}
