package fsm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/outspan/outspan/model"
)

// At the limit of members, a newcomer replaces the agent whose certificate ended first and at least 90 days ago, and
// otherwise the agent that was revoked first. It never replaces a server. Without such an agent it is refused.
func TestMembersAreBounded(t *testing.T) {
	s := *trustState(t).fork()
	s.Wall = 1_700_000_000_000
	s.putMember(&TrustMember{Subject: serverNamed("gone"), Key: hashOf(9), NotAfter: 1, Token: agentToken, RevokedIndex: 1,
		VoidBefore: 1})
	end := s.Wall - memberKept + 1
	for n := range maxMembers - s.TrustMembers.Len() {
		s.putMember(&TrustMember{Subject: agentNamed(fmt.Sprint("m", n)), Key: hashOf(9), NotAfter: end, Token: agentToken})
	}
	edit(&s.TrustMembers, "agent:n1", func(m *TrustMember) { m.NotAfter = end })
	s = *s.fork()
	checked(t, s, s.Now, model.CodeConflict, "", admit(agentNamed("n2"), 2))
	s = run(t, s, s.Now, &TokenCreate{ID: "cccccccccccc", Role: "agent", Verifier: hashOf('a'), TTL: model.Hour, Uses: 5},
		&MemberRevoke{agentNamed("m7"), ""}, &MemberRevoke{agentNamed("m3"), ""})
	newcomer := byte(20)
	joins := func(drops string) {
		t.Helper()
		name := fmt.Sprint("x", newcomer)
		s = checked(t, s, s.Now, "", "member.joined member/agent:"+name+" joined", with(admit(agentNamed(name), newcomer),
			func(c *MemberAdmit) { c.Token, c.NotAfter = "cccccccccccc", s.Wall }))
		newcomer++
		if _, there := s.TrustMemberOf(agentNamed(drops)); there || s.TrustMembers.Len() != maxMembers {
			t.Errorf("%s is there: %v, %d members", drops, there, s.TrustMembers.Len())
		}
	}
	joins("m7")
	f := s.fork()
	edit(&f.TrustMembers, "agent:m100", func(m *TrustMember) { m.NotAfter = end - 2 })
	edit(&f.TrustMembers, "agent:m200", func(m *TrustMember) { m.NotAfter = end - 1 })
	s = f.publish()
	joins("m100")
	joins("m200")
	joins("m3")
	if _, known := s.TrustMemberOf(serverNamed("gone")); !known {
		t.Error("the row of a revoked server was dropped, so the server would be admitted")
	}
}

// The numbers of certificates tell which ones a revocation made void, also after the member is back.
func TestRevocationsAreRemembered(t *testing.T) {
	s := trustState(t)
	n1 := agentNamed("n1")
	before := s.MomentNumber()
	s = run(t, s, 1000, &MemberRevoke{n1, ""})
	void := func() uint64 {
		m, _ := s.TrustMemberOf(n1)
		return m.VoidBefore
	}
	revoked := void()
	if revoked <= before || revoked > s.MomentNumber() {
		t.Errorf("certificates before %d are void; the revocation came after %d and not after %d", revoked, before,
			s.MomentNumber())
	}
	s = run(t, s, 1000, &TokenCreate{ID: "cccccccccccc", Role: "agent", Verifier: hashOf('a'), TTL: model.Hour, Uses: 1},
		with(admit(n1, 6), func(c *MemberAdmit) { c.Token = "cccccccccccc" }), &MemberRenew{n1, hashOf(6), hashOf(7), 9, ""})
	if got := void(); got != revoked {
		t.Errorf("after the return, certificates before %d are void, not those before %d", got, revoked)
	}
	again := s.MomentNumber()
	if s = run(t, s, 1000, &MemberRevoke{n1, ""}); void() <= again {
		t.Errorf("a second revocation makes certificates before %d void", void())
	}
}

// A revocation ends all tokens that admitted the member and have uses left, not only the last one. Other tokens stay,
// and at most 16 earlier ones are remembered.
func TestRevocationEndsAllTokensOfAMember(t *testing.T) {
	n2 := agentNamed("n2")
	token := func(n int, uses int) *TokenCreate {
		return &TokenCreate{ID: model.TokenID(fmt.Sprintf("t%011d", n)), Role: "agent", Verifier: hashOf('t'),
			TTL: model.Hour, Uses: uses}
	}
	by := func(n int) *MemberAdmit {
		return &MemberAdmit{Subject: n2, Key: hashOf(2), NotAfter: 9, Token: token(n, 0).ID, Verifier: hashOf('t')}
	}
	s := run(t, trustState(t), 1000, token(1, 20), token(2, 1), token(3, 5), token(4, 5), by(1), by(2), by(3), by(1),
		by(3))
	s = checked(t, s, 1000, "", "token.revoked token/t00000000001 revoked; token.revoked token/t00000000003 revoked; "+
		"member.revoked member/agent:n2 revoked", &MemberRevoke{Subject: n2})
	if other, _ := s.JoinTokens.Get(token(4, 0).ID); other.RevokedIndex != 0 {
		t.Error("a token that did not admit it is revoked")
	}
	s = trustState(t)
	for n := range maxEarlier + 3 {
		s = run(t, s, 1000, token(n, 5), by(n))
	}
	m, _ := s.TrustMemberOf(n2)
	if len(m.Earlier) != maxEarlier || m.Earlier[0] != token(2, 0).ID {
		t.Errorf("remembered are %v", m.Earlier)
	}
	if err := Check(s); err != nil {
		t.Error(err)
	}
}

// A server that the state does not know is revoked too, so that a recovery does not protect a stolen one. When it has
// joined again, its earlier certificates stay void. Without a CA there is nothing to revoke.
func TestRevokeUnknownServer(t *testing.T) {
	checked(t, run(t, NewState(), 1000), 1000, model.CodeNotFound, "", &MemberRevoke{Subject: serverNamed("s9")})
	s := trustState(t)
	stolen := s.MomentNumber()
	s = run(t, s, 1000, &MemberRevoke{serverNamed("s9"), "stolen"})
	row := func() *TrustMember { m, _ := s.TrustMemberOf(serverNamed("s9")); return m }
	if m := row(); m.Counts(hashOf(1)) || m.Counts(nil) || m.VoidBefore <= stolen || m.Reason != "stolen" {
		t.Errorf("the row is %+v", m)
	}
	void := row().VoidBefore
	s = checked(t, run(t, s, 1000, &TokenCreate{ID: "cccccccccccc", Role: "server", Verifier: hashOf('c'), TTL: model.Hour,
		Uses: 1}), 1000, "", "member.joined member/server:s9 joined", &MemberAdmit{Subject: serverNamed("s9"), Key: hashOf(2),
		NotAfter: 9, Token: "cccccccccccc", Verifier: hashOf('c')})
	if m := row(); !m.Counts(hashOf(2)) || m.VoidBefore != void {
		t.Errorf("after its return the row is %+v", m)
	}
}

// The node of a revoked agent gets no instances and has no heartbeat key, also after a restore. It may register again
// once the agent has joined again.
func TestNodeOfARevokedAgent(t *testing.T) {
	s := run(t, trustState(t), 1000, register("n1"), register("n2"))
	for _, id := range []model.NodeID{"n1", "n2"} {
		n, _ := s.Nodes.Get(id)
		s = run(t, s, 1000, &NodeReport{ID: id, Epoch: n.Agent.Epoch, Full: true})
	}
	before := s
	s = run(t, s, 1000, &MemberRevoke{agentNamed("n1"), "stolen"})
	read := func(s State) State {
		t.Helper()
		var saved bytes.Buffer
		if err := WriteSnapshot(&saved, s); err != nil {
			t.Fatal(err)
		}
		got, err := ReadSnapshot(&saved)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for name, now := range map[string]State{"revoked": s, "read from a snapshot": read(s),
		"restored": before.WithTrustOf(s)} {
		n, _ := now.Nodes.Get("n1")
		if refusal := now.Eligible(n); refusal == nil || !now.AgentRevoked("n1") {
			t.Errorf("%s: its node gets instances: %v", name, refusal)
		}
		other, _ := now.Nodes.Get("n2")
		if refusal := now.Eligible(other); refusal != nil || len(other.Agent.Key) == 0 {
			t.Errorf("%s: another node, with the key %q: %v", name, other.Agent.Key, refusal)
		}
		_, refusal := attempt(now, 1000, register("n1"))
		wantCode(t, name, refusal, model.CodeMemberRevoked)
	}
	if n, _ := s.Nodes.Get("n1"); n.Agent.Key != nil {
		t.Errorf("the heartbeat key is %q", n.Agent.Key)
	}
	s = run(t, s, 1000, &TokenCreate{ID: "cccccccccccc", Role: "agent", Verifier: hashOf('a'), TTL: model.Hour, Uses: 1},
		with(admit(agentNamed("n1"), 6), func(c *MemberAdmit) { c.Token = "cccccccccccc" }), register("n1"))
	if n, _ := s.Nodes.Get("n1"); n.Health != model.HealthOnline || len(n.Agent.Key) == 0 || s.AgentRevoked("n1") {
		t.Errorf("after its return the node is %s, its key %q", n.Health, n.Agent.Key)
	}
}

// An agent shares the use of its server's admission only in one group, not in one entry.
func TestUsesAreSharedInAGroup(t *testing.T) {
	s := trustState(t)
	agent := with(admit(serverNamed("s1"), 3), func(c *MemberAdmit) { c.Subject.Kind = model.SubjectAgent })
	_, results := s.Apply(s.Index+1, 1, Entry{Format: model.CurrentFormat, At: 1000,
		Groups: [][]Command{{admit(serverNamed("s1"), 2)}, {agent}}})
	if results[0].Refusal != nil {
		t.Fatal(results[0].Refusal)
	}
	wantCode(t, "the agent", results[1].Refusal, model.CodeTokenUsed)
}

// A spent token admits nobody, and its uses stay as they are.
func TestSpentTokenAdmitsNobody(t *testing.T) {
	s := run(t, trustState(t), 1000, admit(agentNamed("n2"), 2))
	after, refusal := attempt(s, 1000, admit(agentNamed("n3"), 3))
	if refusal == nil || refusal.Code != model.CodeTokenUsed {
		t.Errorf("S19: a spent token: refused with %v, want %s", refusal, model.CodeTokenUsed)
	}
	if err := Check(after); err != nil {
		t.Error(err)
	}
	if m, known := after.TrustMemberOf(agentNamed("n3")); known {
		t.Errorf("S19: a spent token admitted %+v", m)
	}
}

// A key that was replaced twice renews nothing: only the newest key and the one before may ask for another certificate.
func TestReplacedKeyRenewsNothing(t *testing.T) {
	n1 := agentNamed("n1")
	s := run(t, trustState(t), 1000, &MemberRenew{n1, hashOf(1), hashOf(2), 2000, ""},
		&MemberRenew{n1, hashOf(2), hashOf(3), 3000, ""})
	after, refusal := attempt(s, 1000, &MemberRenew{n1, hashOf(1), hashOf(4), 4000, ""})
	if refusal == nil || refusal.Code != model.CodeStale {
		t.Errorf("S19: a replaced key renews: refused with %v, want %s", refusal, model.CodeStale)
	}
	if m, _ := after.TrustMemberOf(n1); m.Counts(hashOf(4)) || !m.Counts(hashOf(3)) {
		t.Errorf("S19: after a renewal by a replaced key, the row is %+v", m)
	}
}
