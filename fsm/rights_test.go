package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

func allow(verbs ...rights.VerbPattern) []rights.Grant { return []rights.Grant{{Verbs: verbs}} }

// mayDrain reports whether alice may drain nodes.
func mayDrain(s State) bool {
	alice := rights.Caller{Subject: model.Subject{Kind: model.SubjectCert, Name: "alice"}}
	_, ok := s.RightsBook().May(alice, "node.drain", rights.Object{Node: "n1"})
	return ok
}

func TestRights(t *testing.T) {
	s := NewState()
	if !mayDrain(s) || s.RightsIndex != 0 {
		t.Fatal("nobody is an administrator of a new cluster")
	}
	s = checked(t, s, 2000, "", "rights.changed role/drainer set",
		&RoleSet{rights.Role{Name: "drainer", Allow: allow("node.drain")}})
	if !mayDrain(s) || s.Bindings.Len() != 1 || s.RightsIndex != s.Index {
		t.Error("the first role took rights away")
	}
	same := run(t, s, 2500, &RoleSet{rights.Role{Name: "drainer", Allow: allow("node.drain")}})
	if same.RightsIndex != s.RightsIndex {
		t.Error("an equal role changed the rights")
	}
	s = checked(t, s, 3000, "", "rights.changed binding/drainer cert:al* granted; "+
		"rights.changed binding/admin cert:* revoked",
		&BindingAdd{"drainer", "cert:al*"}, &BindingRemove{rights.Admin, "cert:*"})
	if !mayDrain(s) {
		t.Error("the role is not given")
	}
	s = checked(t, s, 4000, "", "rights.changed role/drainer set",
		&RoleSet{rights.Role{Name: "drainer", Allow: allow("node.read")}})
	if mayDrain(s) {
		t.Error("the role has not changed")
	}
	if taken := run(t, NewState(), 1000, &BindingRemove{rights.Admin, "cert:*"}); mayDrain(taken) {
		t.Error("the first binding can't be taken away")
	}

	for _, tt := range []struct {
		c    Command
		code model.Code
	}{
		{&RoleSet{rights.Role{Name: "x"}}, model.CodeInvalid},
		{&RoleSet{rights.Role{Name: "x", Allow: allow("node.fly")}}, ""}, // a verb of a later version
		{&RoleRemove{"viewer"}, model.CodeNotFound},
		{&RoleRemove{"gone"}, model.CodeNotFound},
		{&RoleRemove{"drainer"}, model.CodeInUse},
		{&BindingAdd{"later", "cert:bob"}, ""},
		{&BindingAdd{"viewer", "bob"}, model.CodeInvalid},
		{&BindingAdd{"viewer", "token:x"}, ""}, // a kind of a later version
		{&BindingAdd{"viewer", "group:"}, model.CodeInvalid},
		{&BindingRemove{"viewer", "cert:bob"}, model.CodeNotFound},
		{&BindingRemove{"admin", "cert:*"}, model.CodeNotFound},
		{&BindingAdd{"viewer", "group:shop"}, ""},
	} {
		got := s.NewDraft(s.Now).Try(tt.c)
		if got == nil && tt.code != "" || got != nil && got.Code != tt.code {
			t.Errorf("%T %+v: %v, want %q", tt.c, tt.c, got, tt.code)
		}
	}
}

// An entry is refused if the rights have changed since its caller was judged, and its request id stays free.
func TestRightsChangedMeanwhile(t *testing.T) {
	s := NewState()
	entry := func(judged uint64) Entry {
		return Entry{Format: s.Format, At: 2000, Actor: "cert:alice", Request: "r1", Body: "b", Rights: judged + 1,
			Groups: [][]Command{{&ClassSet{Name: "gold", Below: "batch"}}}}
	}
	old := s.RightsIndex
	s = run(t, s, 1500, &BindingRemove{rights.Admin, "cert:*"})
	s, results := s.Apply(s.Index+1, s.LogTerm, entry(old))
	if got := results[0].Refusal; got == nil || got.Code != model.CodeStale ||
		len(s.Classes) != len(BuiltinClasses()) || s.Requests.Len() != 0 {
		t.Fatalf("judged before: %v", got)
	}
	s, results = s.Apply(s.Index+1, s.LogTerm, entry(s.RightsIndex))
	if got := results[0].Refusal; got != nil {
		t.Errorf("judged by the present rights: %v", got)
	}
}

// A restore of an older state brings no rights back (S19).
func TestRestoreKeepsRights(t *testing.T) {
	old := NewState()
	live := run(t, old, 2000, &BindingAdd{rights.Viewer, "cert:alice"}, &BindingRemove{rights.Admin, "cert:*"})
	if restored := old.WithTrustOf(live); mayDrain(restored) || restored.RightsIndex != live.RightsIndex {
		t.Error("the old rights are back")
	}
	if err := CheckTrust(live, old); err == nil {
		t.Error("the judge accepts old rights")
	}
}
