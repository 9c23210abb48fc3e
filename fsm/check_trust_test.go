package fsm

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// TestCheckFindsBrokenTrust breaks one row of keys, tokens or members at a time. Check must find each.
func TestCheckFindsBrokenTrust(t *testing.T) {
	ca := func(change func(*TrustKey)) func(*State) {
		return func(s *State) { edit(&s.TrustKeys, "ca/1", change) }
	}
	token := func(change func(*JoinToken)) func(*State) {
		return func(s *State) { edit(&s.JoinTokens, agentToken, change) }
	}
	member := func(change func(*TrustMember)) func(*State) {
		return func(s *State) { edit(&s.TrustMembers, "agent:n1", change) }
	}
	tests := []struct {
		name  string
		says  string
		spoil func(*State)
	}{
		{"name of a key", "its row names ca/2", ca(func(k *TrustKey) { k.Name = "ca/2" })},
		{"phase", `phase "young"`, ca(func(k *TrustKey) { k.Phase = "young" })},
		{"version", "version 0", ca(func(k *TrustKey) { k.Version = 0 })},
		{"nothing sealed", "0 encrypted bytes", ca(func(k *TrustKey) { k.Sealed = nil })},
		{"no certificate", "certificate of 0 bytes", ca(func(k *TrustKey) { k.Public = nil })},
		{"key of the future", "created at index", ca(func(k *TrustKey) { k.CreatedIndex = 1 << 40 })},
		{"no data key", `the data key "data/7" is missing`, ca(func(k *TrustKey) { k.Under = "data/7" })},
		{"data key under nothing", "under nothing", func(s *State) {
			edit(&s.TrustKeys, "data/1", func(k *TrustKey) { k.Under = "" })
		}},
		{"two active keys", "are both active", func(s *State) {
			k, _ := s.TrustKeys.Get("ca/1")
			other := *k
			other.Name = "ca/2"
			s.putTrustKey(&other)
		}},
		{"id of a token", "its row names", token(func(t *JoinToken) { t.ID = "bbbbbbbbbbbb" })},
		{"role of a token", `role "cli"`, token(func(t *JoinToken) { t.Role = "cli" })},
		{"verifier", "verifier has 3 bytes", token(func(t *JoinToken) { t.Verifier = []byte("abc") })},
		{"too many uses", "admitted 2 members, it has 1 uses", token(func(t *JoinToken) { t.Used = 2 })},
		{"fewer than no uses", "-1 of 1 uses", token(func(t *JoinToken) { t.Used = -1 })},
		{"ended for nothing", "ended at 5", token(func(t *JoinToken) { t.Ended = 5 })},
		{"spent and not ended", "ended at 0", token(func(t *JoinToken) { t.Used = 1 })},
		{"token of the future", "created at index", token(func(t *JoinToken) { t.CreatedIndex = 1 << 40 })},
		{"pattern", `names "["`, token(func(t *JoinToken) { t.NodeName = "[" })},
		{"name of a member", "its row names agent:n9", member(func(m *TrustMember) { m.Subject.Name = "n9" })},
		{"key of a member", "has 3 bytes, not 32", member(func(m *TrustMember) { m.Key = []byte("abc") })},
		{"an agent without a key", "has the end 0", member(func(m *TrustMember) {
			m.Key, m.NotAfter, m.IssuedIndex, m.RevokedIndex = nil, 0, 0, 1
		})},
		{"previous key", "or is its newest one", member(func(m *TrustMember) { m.PreviousKey = m.Key })},
		{"token of a member", `was admitted by "x"`, member(func(m *TrustMember) { m.Token = "x" })},
		{"earlier token of a member", "was admitted before by [x]", member(func(m *TrustMember) {
			m.Earlier = []model.TokenID{"x"}
		})},
		{"the token of a member twice", "was admitted before by", member(func(m *TrustMember) {
			m.Earlier = []model.TokenID{m.Token}
		})},
		{"too many earlier tokens", "was admitted before by", member(func(m *TrustMember) {
			m.Earlier = slices.Repeat([]model.TokenID{agentToken}, maxEarlier+1)
		})},
		{"member of the future", "issued at index", member(func(m *TrustMember) { m.IssuedIndex = 1 << 40 })},
		{"revoked before", "was revoked at index 1", member(func(m *TrustMember) { m.RevokedIndex = 1 })},
		{"revoked and valid", "its certificates before 0 are void", member(func(m *TrustMember) {
			m.RevokedIndex = m.IssuedIndex
		})},
		{"void in the future", "are void", member(func(m *TrustMember) { m.VoidBefore = 1 << 60 })},
		{"index of revoked agents", "the index of revoked agents has 1 entries, the rows 0", func(s *State) {
			s.revokedAgents.put("n1", present{})
		}},
		{"reason", "is not revoked, for", member(func(m *TrustMember) { m.Reason = "stolen" })},
		{"no pinned key", "no pinned key", member(func(m *TrustMember) { m.RevokedIndex, m.AnyKey = m.IssuedIndex, true })},
		{"labels", "has the labels", member(func(m *TrustMember) { m.Labels = map[string]string{"a b": ""} })},
		{"long reason", "its reason has", member(func(m *TrustMember) {
			m.RevokedIndex, m.Reason = m.IssuedIndex, strings.Repeat("x", maxRevokeReason+1)
		})},
	}
	rules := map[string]Invariant{"too many uses": S19} // the other cases break no numbered rule
	good := trustState(t)
	if err := Check(good); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := good.fork()
			tt.spoil(s)
			wantFinding(t, Check(*s), rules[tt.name], tt.says)
		})
	}
}

// CheckTrust accepts the state of a restore that kept the rows of the live state. It finds each row that came back.
func TestCheckTrustAcrossARestore(t *testing.T) {
	old := trustState(t)
	create := func(id model.TokenID) *TokenCreate {
		return &TokenCreate{ID: id, Role: "agent", Verifier: hashOf('a'), TTL: model.Hour, Uses: 2}
	}
	live := run(t, old, 1000, &MemberRevoke{agentNamed("n1"), "stolen"}, create("cccccccccccc"),
		with(admit(agentNamed("n1"), 6), func(c *MemberAdmit) { c.Token = "cccccccccccc" }), admit(agentNamed("n2"), 2),
		&TokenRevoke{serverToken}, &MemberRevoke{agentNamed("n2"), ""})
	restored := func(s State) State {
		s.Index = live.Index
		after, results := s.Apply(live.Index+1, 1, Entry{Format: s.Format, At: live.Now,
			Groups: [][]Command{{&RestoreMark{}}}})
		if results[0].Refusal != nil {
			t.Fatal(results[0].Refusal)
		}
		return after
	}
	good := restored(old.WithTrustOf(live))
	var saved bytes.Buffer
	if err := WriteSnapshot(&saved, good); err != nil {
		t.Fatal(err)
	}
	read, err := ReadSnapshot(&saved)
	if err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]State{"in memory": good, "read from a snapshot": read} {
		if err := CheckTrust(live, s); err != nil {
			t.Errorf("a restore that keeps the rows, %s: %v", what, err)
		}
	}
	if err := CheckTrust(live, run(t, good, 2000, create("dddddddddddd"),
		with(admit(agentNamed("n2"), 7), func(c *MemberAdmit) { c.Token = "dddddddddddd" }))); err != nil {
		t.Errorf("a member that returned by a younger token: %v", err)
	}
	older := CheckTrust(live, restored(old))
	for _, says := range []string{"join token " + string(agentToken) + ": 1 of its uses were spent, and now 0",
		"join token " + string(serverToken) + " was revoked at index", "member agent:n1: certificates before",
		"member agent:n2 was dropped", "join token cccccccccccc was dropped"} {
		wantFinding(t, older, S19, says)
	}
	for name, test := range map[string]struct {
		says  string
		spoil func(*State)
	}{
		"another token": {"no token admitted it since", func(s *State) {
			edit(&s.TrustMembers, "agent:n2", func(m *TrustMember) {
				m.RevokedIndex, m.Key, m.IssuedIndex, m.Token = 0, hashOf(7), s.Index, serverToken
			})
		}},
		"the token of before": {"no token admitted it since", func(s *State) {
			edit(&s.TrustMembers, "agent:n2", func(m *TrustMember) {
				m.RevokedIndex, m.Key, m.IssuedIndex = 0, hashOf(7), s.Index
			})
		}},
		"no mark of the revocation": {"were void, now those before 0", func(s *State) {
			edit(&s.TrustMembers, "agent:n1", func(m *TrustMember) { m.VoidBefore = 0 })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := good.fork()
			test.spoil(s)
			wantFinding(t, CheckTrust(live, *s), S19, test.says)
		})
	}
}

// A key that was dropped stays so when an older snapshot is restored.
func TestDroppedKeyStaysDropped(t *testing.T) {
	saved := trustState(t)
	live := run(t, saved, 1000, keyPut("ca/2", 1, model.KeyIncoming))
	live = checked(t, live, 1000, "", "key.changed key/ca/1 retired; key.changed key/ca/2 active",
		keyPut("ca/1", 2, model.KeyRetired), keyPut("ca/2", 2, model.KeyActive))
	live = run(t, live, 1000, &KeyDrop{"ca/1"})
	restored := saved.WithTrustOf(live)
	restored.Index = live.Index
	restored = run(t, restored, 2000, &RestoreMark{})
	if err := CheckTrust(live, restored); err != nil {
		t.Errorf("after a restore:\n%v", err)
	}
	older := saved
	older.Index = live.Index
	wantFinding(t, CheckTrust(live, older), S19, "key ca/1 came back")
}
