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
