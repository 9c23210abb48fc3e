package fsm

import (
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// TestCheckFindsBrokenTrust breaks one row of keys, tokens or members at a time. Check must find each.
func TestCheckFindsBrokenTrust(t *testing.T) {
	ca := func(change func(*TrustKey)) func(*State) {
		return func(s *State) { edit(s.TrustKeys, "ca/1", change) }
	}
	token := func(change func(*JoinToken)) func(*State) {
		return func(s *State) { edit(s.JoinTokens, agentToken, change) }
	}
	member := func(change func(*TrustMember)) func(*State) {
		return func(s *State) { edit(s.TrustMembers, "agent:n1", change) }
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
			edit(s.TrustKeys, "data/1", func(k *TrustKey) { k.Under = "" })
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
		{"too many uses", "2 of 1 uses", token(func(t *JoinToken) { t.Used = 2 })},
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
	good := trustState(t)
	if err := Check(good); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := good.fork()
			tt.spoil(s)
			wantFinding(t, Check(*s), "", tt.says)
		})
	}
}
