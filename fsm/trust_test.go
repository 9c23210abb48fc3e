package fsm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

func hashOf(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func agentNamed(name string) model.Subject {
	return model.Subject{Kind: model.SubjectAgent, Name: name}
}

func serverNamed(name string) model.Subject {
	return model.Subject{Kind: model.SubjectServer, Name: name}
}

const agentToken, serverToken model.TokenID = "aaaaaaaaaaaa", "ssssssssssss"

func keyPut(name model.KeyName, version uint64, phase model.KeyPhase) *KeyPut {
	c := &KeyPut{Name: name, Version: version, Phase: phase, Under: "data/1", Sealed: []byte("sealed bytes")}
	switch name.Kind() {
	case model.KeyData:
		c.Under = "kek"
	case model.KeyCA:
		c.Public = []byte("certificate")
	}
	return c
}

func admit(who model.Subject, key byte) *MemberAdmit {
	c := &MemberAdmit{Subject: who, Key: hashOf(key), NotAfter: 1000, Token: agentToken, Verifier: hashOf('a')}
	if who.Kind == model.SubjectServer {
		c.Token, c.Verifier = serverToken, hashOf('s')
	}
	return c
}

// trustState has the active keys data/1, ca/1 and gossip/1, a token of one use for each role, which lasts an hour, and
// the member agent:n1 with the key 1.
func trustState(t *testing.T) State {
	t.Helper()
	return run(t, NewState(), 1000, keyPut("data/1", 1, model.KeyActive), keyPut("ca/1", 1, model.KeyActive),
		keyPut("gossip/1", 1, model.KeyActive),
		&TokenCreate{ID: "first0000000", Role: "agent", Verifier: hashOf('f'), TTL: model.Minute, Uses: 1},
		&MemberAdmit{Subject: agentNamed("n1"), Key: hashOf(1), NotAfter: 1000, Token: "first0000000", Verifier: hashOf('f')},
		&TokenCreate{ID: agentToken, Role: "agent", Verifier: hashOf('a'), TTL: model.Hour, Uses: 1, NodeName: "n*"},
		&TokenCreate{ID: serverToken, Role: "server", Verifier: hashOf('s'), TTL: model.Hour, Uses: 1})
}

// with returns a copy of a command after a change.
func with[C any](c *C, change func(*C)) *C {
	next := *c
	change(&next)
	return &next
}

// eventsSince lists the events after an index, each as its type, subject and new value.
func eventsSince(s State, index uint64) []string {
	var all []string
	for _, e := range s.Events.From(NewEventKey(index+1, 0)) {
		all = append(all, fmt.Sprintf("%s %s %s", e.Type, e.Subject, e.After))
	}
	return all
}

// checked applies one group of commands at a time, and checks the step. An accepted command leaves the wanted events.
func checked(t *testing.T, s State, at model.Time, code model.Code, events string, group ...Command) State {
	t.Helper()
	after, results := s.Apply(s.Index+1, 1,
		Entry{Format: model.CurrentFormat, At: at, Actor: "cli:alice", Groups: [][]Command{group}})
	wantCode(t, fmt.Sprintf("%T", group[0]), results[0].Refusal, code)
	if refusal := results[0].Refusal; refusal != nil && refusal.Code != model.CodeInvalid && refusal.Hint == "" {
		t.Errorf("%v has no hint", refusal)
	}
	if got := strings.Join(eventsSince(after, s.Index), "; "); got != events {
		t.Errorf("%T: the events are %q, want %q", group[0], got, events)
	}
	if err := Check(after); err != nil {
		t.Error(err)
	}
	if err := CheckStep(s, after); err != nil {
		t.Error(err)
	}
	return after
}

func TestTrustCommands(t *testing.T) {
	start := trustState(t)
	const in, joined = model.Time(2000), "member.joined member/agent:n2 joined"
	n1, n2 := agentNamed("n1"), agentNamed("n2")
	renew := &MemberRenew{Subject: n1, Old: hashOf(1), Key: hashOf(2), NotAfter: 2000}
	token := &TokenCreate{ID: "bbbbbbbbbbbb", Role: "agent", Verifier: hashOf('b'), TTL: model.Second, Uses: 1}
	later := &TokenCreate{ID: "cccccccccccc", Role: "agent", Verifier: hashOf('c'), TTL: model.Hour, Uses: 2}
	byLater := func(who model.Subject, key byte) *MemberAdmit {
		return with(admit(who, key), func(c *MemberAdmit) { c.Token, c.Verifier = later.ID, later.Verifier })
	}
	tests := []struct {
		name   string
		given  []Command // accepted first, one after the other
		at     model.Time
		code   model.Code
		events string
		group  []Command
	}{
		{"a first key", nil, in, "", "key.changed key/data/2 incoming", []Command{keyPut("data/2", 1, model.KeyIncoming)}},
		{"sealed again", nil, in, "", "", []Command{keyPut("ca/1", 2, model.KeyActive)}},
		{"rotated", nil, in, "", "key.changed key/ca/1 retired; key.changed key/ca/2 active",
			[]Command{keyPut("ca/1", 2, model.KeyRetired), keyPut("ca/2", 1, model.KeyActive)}},
		{"two active keys", nil, in, model.CodeConflict, "", []Command{keyPut("ca/2", 1, model.KeyActive)}},
		{"an old version", nil, in, model.CodeStale, "", []Command{keyPut("ca/1", 1, model.KeyActive)}},
		{"a version ahead", nil, in, model.CodeStale, "", []Command{keyPut("ca/2", 2, model.KeyIncoming)}},
		{"a phase back", nil, in, model.CodeConflict, "", []Command{keyPut("ca/1", 2, model.KeyIncoming)}},
		{"an old number", []Command{keyPut("ca/3", 1, model.KeyIncoming)}, in, model.CodeConflict, "",
			[]Command{keyPut("ca/2", 1, model.KeyIncoming)}},
		{"a key under none", nil, in, model.CodeConflict, "",
			[]Command{with(keyPut("ca/1", 2, model.KeyActive), func(c *KeyPut) { c.Under = "data/7" })}},
		{"a key under a retired one", []Command{keyPut("data/1", 2, model.KeyRetired)}, in, model.CodeConflict, "",
			[]Command{keyPut("ca/1", 2, model.KeyActive)}},
		{"an unknown kind", nil, in, model.CodeInvalid, "", []Command{keyPut("ssh/1", 1, model.KeyActive)}},
		{"an unknown phase", nil, in, model.CodeInvalid, "", []Command{keyPut("ca/2", 1, "young")}},
		{"nothing sealed", nil, in, model.CodeInvalid, "",
			[]Command{with(keyPut("ca/2", 1, model.KeyIncoming), func(c *KeyPut) { c.Sealed = nil })}},
		{"too much sealed", nil, in, model.CodeInvalid, "",
			[]Command{with(keyPut("ca/2", 1, model.KeyIncoming), func(c *KeyPut) { c.Sealed = make([]byte, maxSealed+1) })}},
		{"a CA without a certificate", nil, in, model.CodeInvalid, "",
			[]Command{with(keyPut("ca/2", 1, model.KeyIncoming), func(c *KeyPut) { c.Public = nil })}},
		{"a certificate too large", nil, in, model.CodeInvalid, "",
			[]Command{with(keyPut("ca/2", 1, model.KeyIncoming), func(c *KeyPut) { c.Public = make([]byte, maxSealed+1) })}},
		{"a data key under nothing", nil, in, model.CodeInvalid, "",
			[]Command{with(keyPut("data/2", 1, model.KeyIncoming), func(c *KeyPut) { c.Under = "" })}},
		{"a key under no data key", nil, in, model.CodeInvalid, "",
			[]Command{with(keyPut("ca/2", 1, model.KeyIncoming), func(c *KeyPut) { c.Under = "ca/1" })}},
		{"dropped", []Command{keyPut("gossip/2", 1, model.KeyRetired)}, in, "", "key.changed key/gossip/2 dropped",
			[]Command{&KeyDrop{"gossip/2"}}},
		{"drop none", nil, in, model.CodeNotFound, "", []Command{&KeyDrop{"ca/9"}}},
		{"drop an active key", nil, in, model.CodeConflict, "", []Command{&KeyDrop{"ca/1"}}},
		{"drop the last CA", []Command{keyPut("ca/1", 2, model.KeyRetired)}, in, model.CodeInUse, "",
			[]Command{&KeyDrop{"ca/1"}}},
		{"drop a key in use", []Command{keyPut("data/1", 2, model.KeyRetired), keyPut("data/2", 1, model.KeyActive)}, in,
			model.CodeInUse, "", []Command{&KeyDrop{"data/1"}}},

		{"exported", nil, in, "", "key.changed key/data/1 exported", []Command{&KeyringExported{"data/1", "kek"}}},
		{"an export of nothing", nil, in, model.CodeNotFound, "", []Command{&KeyringExported{"data/9", "kek"}}},
		{"an export of a CA", nil, in, model.CodeNotFound, "", []Command{&KeyringExported{"ca/1", "data/1"}}},
		{"an old export", nil, in, model.CodeStale, "", []Command{&KeyringExported{"data/1", "kek0"}}},

		{"a token", nil, in, "", "token.created token/bbbbbbbbbbbb agent", []Command{token}},
		{"a token twice", []Command{token}, in, model.CodeConflict, "", []Command{token}},
		{"a token of no id", nil, in, model.CodeInvalid, "", []Command{with(token, func(c *TokenCreate) { c.ID = "B" })}},
		{"a token for people", nil, in, model.CodeInvalid, "",
			[]Command{with(token, func(c *TokenCreate) { c.Role = "cli" })}},
		{"a short verifier", nil, in, model.CodeInvalid, "",
			[]Command{with(token, func(c *TokenCreate) { c.Verifier = hashOf(1)[1:] })}},
		{"no time", nil, in, model.CodeInvalid, "", []Command{with(token, func(c *TokenCreate) { c.TTL-- })}},
		{"for ever", nil, in, model.CodeInvalid, "", []Command{with(token, func(c *TokenCreate) { c.TTL = model.Forever })}},
		{"no uses", nil, in, model.CodeInvalid, "", []Command{with(token, func(c *TokenCreate) { c.Uses = 0 })}},
		{"too many uses", nil, in, model.CodeInvalid, "",
			[]Command{with(token, func(c *TokenCreate) { c.Uses = maxTokenUses + 1 })}},
		{"a bad pattern", nil, in, model.CodeInvalid, "", []Command{with(token, func(c *TokenCreate) { c.NodeName = "[" })}},
		{"a bad label", nil, in, model.CodeInvalid, "",
			[]Command{with(token, func(c *TokenCreate) { c.Labels = map[string]string{"a b": ""} })}},
		{"revoke a token", nil, in, "", "token.revoked token/aaaaaaaaaaaa revoked", []Command{&TokenRevoke{agentToken}}},
		{"revoke a token twice", []Command{&TokenRevoke{agentToken}}, in, "", "", []Command{&TokenRevoke{agentToken}}},
		{"revoke no token", nil, in, model.CodeNotFound, "", []Command{&TokenRevoke{"bbbbbbbbbbbb"}}},

		{"join", nil, in, "", joined, []Command{admit(n2, 2)}},
		{"join again", []Command{admit(n2, 2)}, in, "", "", []Command{admit(n2, 2)}},
		{"join again after the end", []Command{admit(n2, 2)}, 2 * model.Time(model.Hour), "", "", []Command{admit(n2, 2)}},
		{"join again once revoked", []Command{admit(n2, 2), &MemberRevoke{Subject: n2}}, in, model.CodeTokenUsed, "",
			[]Command{admit(n2, 2)}},
		{"no such token", nil, in, model.CodeTokenInvalid, "",
			[]Command{with(admit(n2, 2), func(c *MemberAdmit) { c.Token = "bbbbbbbbbbbb" })}},
		{"another secret", nil, in, model.CodeTokenInvalid, "",
			[]Command{with(admit(n2, 2), func(c *MemberAdmit) { c.Verifier = hashOf(9) })}},
		{"a revoked token", []Command{&TokenRevoke{agentToken}}, in, model.CodeTokenRevoked, "", []Command{admit(n2, 2)}},
		{"join again by a revoked token", []Command{admit(n2, 2), &TokenRevoke{agentToken}}, in, model.CodeTokenRevoked, "",
			[]Command{admit(n2, 2)}},
		{"another role", nil, in, model.CodeTokenRole, "",
			[]Command{with(admit(n2, 2), func(c *MemberAdmit) { c.Subject.Kind = model.SubjectServer })}},
		{"another name", nil, in, model.CodeTokenName, "", []Command{admit(agentNamed("x1"), 2)}},
		{"the last moment", nil, 1000 + model.Time(model.Hour) - 1, "", joined, []Command{admit(n2, 2)}},
		{"too late", nil, 1000 + model.Time(model.Hour), model.CodeTokenExpired, "", []Command{admit(n2, 2)}},
		{"a spent token", []Command{admit(n2, 2)}, in, model.CodeTokenUsed, "", []Command{admit(agentNamed("n3"), 3)}},
		{"a name in use", nil, in, model.CodeNameTaken, "", []Command{admit(n1, 2)}},
		{"the same key by another token", nil, in, "", "member.joined member/agent:n1 joined", []Command{admit(n1, 1)}},
		{"a renewed key joins", []Command{renew}, in, model.CodeNameTaken, "", []Command{admit(n1, 1)}},
		{"a revoked name", []Command{&MemberRevoke{Subject: n1}, later}, in, "", "member.joined member/agent:n1 joined",
			[]Command{byLater(n1, 2)}},
		{"a revoked name by an older token", []Command{&MemberRevoke{Subject: n1}}, in, model.CodeTokenRevoked, "",
			[]Command{admit(n1, 2)}},
		{"a name that was revoked and came back", []Command{&MemberRevoke{Subject: n1}, later, byLater(n1, 2)}, in, "", "",
			[]Command{byLater(n1, 2)}},
		{"a revoked key", []Command{&MemberRevoke{Subject: n1}, later}, in, model.CodeMemberRevoked, "",
			[]Command{byLater(n1, 1)}},
		{"a revoked previous key", []Command{renew, &MemberRevoke{Subject: n1}, later}, in, model.CodeMemberRevoked, "",
			[]Command{byLater(n1, 1)}},
		{"another name by the token of a revoked member", []Command{later, byLater(n2, 2), &MemberRevoke{Subject: n2}}, in,
			model.CodeTokenRevoked, "", []Command{byLater(agentNamed("n3"), 3)}},
		{"a server and its agent", nil, in, "",
			"member.joined member/server:s1 joined; member.joined member/agent:s1 joined",
			[]Command{admit(serverNamed("s1"), 2), with(admit(serverNamed("s1"), 3),
				func(c *MemberAdmit) { c.Subject.Kind = model.SubjectAgent })}},
		{"a server and another agent", nil, in, model.CodeTokenUsed, "",
			[]Command{admit(serverNamed("s1"), 2), with(admit(serverNamed("s1"), 3),
				func(c *MemberAdmit) { c.Subject = agentNamed("s2") })}},
		{"a new agent with its old server by a spent token", []Command{admit(serverNamed("s1"), 2)}, in, model.CodeTokenUsed,
			"", []Command{admit(serverNamed("s1"), 2), with(admit(serverNamed("s1"), 3),
				func(c *MemberAdmit) { c.Subject.Kind = model.SubjectAgent })}},
		{"a server and its agent by a spent token", []Command{admit(n2, 2)}, in, model.CodeTokenUsed, "",
			[]Command{admit(serverNamed("n3"), 3), admit(agentNamed("n3"), 4)}},
		{"an agent alone by a spent token", []Command{admit(serverNamed("s1"), 2)}, in, model.CodeTokenUsed, "",
			[]Command{with(admit(serverNamed("s1"), 3), func(c *MemberAdmit) { c.Subject.Kind = model.SubjectAgent })}},
		{"a person", nil, in, model.CodeInvalid, "",
			[]Command{with(admit(n2, 2), func(c *MemberAdmit) { c.Subject.Kind = model.SubjectCert })}},
		{"a bad name", nil, in, model.CodeInvalid, "", []Command{admit(agentNamed("a/b"), 2)}},
		{"a short key", nil, in, model.CodeInvalid, "",
			[]Command{with(admit(n2, 2), func(c *MemberAdmit) { c.Key = c.Key[1:] })}},
		{"no end", nil, in, model.CodeInvalid, "",
			[]Command{with(admit(n2, 2), func(c *MemberAdmit) { c.NotAfter = 0 })}},

		{"renew", nil, in, "", "", []Command{renew}},
		{"renew again", []Command{renew}, in, "", "", []Command{renew}},
		{"renew no member", nil, in, model.CodeNotFound, "",
			[]Command{with(renew, func(c *MemberRenew) { c.Subject = n2 })}},
		{"renew a server without a row", nil, in, "", "member.joined member/server:s9 joined",
			[]Command{&MemberRenew{serverNamed("s9"), hashOf(1), hashOf(2), 2000, ""}}},
		{"renew twice with one key", []Command{renew}, in, "", "member.renewed_twice member/agent:n1 joined",
			[]Command{&MemberRenew{n1, hashOf(1), hashOf(3), 2000, ""}}},
		{"renew a revoked member", []Command{&MemberRevoke{Subject: n1}}, in, model.CodeMemberRevoked, "", []Command{renew}},
		{"renew from another key", nil, in, model.CodeStale, "",
			[]Command{with(renew, func(c *MemberRenew) { c.Old = hashOf(9) })}},
		{"renew from a key before the previous one",
			[]Command{renew, &MemberRenew{n1, hashOf(2), hashOf(3), 2000, ""}}, in, model.CodeStale, "",
			[]Command{with(renew, func(c *MemberRenew) { c.Key = hashOf(4) })}},
		{"renew to the previous key", []Command{renew}, in, model.CodeStale, "",
			[]Command{&MemberRenew{n1, hashOf(2), hashOf(1), 2000, ""}}},
		{"renew to a short key", nil, in, model.CodeInvalid, "",
			[]Command{with(renew, func(c *MemberRenew) { c.Key = nil })}},
		{"revoke", nil, in, "", "member.revoked member/agent:n1 revoked", []Command{&MemberRevoke{n1, "stolen"}}},
		{"revoke with a token that has uses left", []Command{later, byLater(n2, 2)}, in, "",
			"token.revoked token/cccccccccccc revoked; member.revoked member/agent:n2 revoked",
			[]Command{&MemberRevoke{Subject: n2}}},
		{"revoke with an expired token", []Command{later, byLater(n2, 2)}, 1000 + model.Time(model.Hour), "",
			"member.revoked member/agent:n2 revoked", []Command{&MemberRevoke{Subject: n2}}},
		{"revoke twice", []Command{&MemberRevoke{n1, "stolen"}}, in, "", "", []Command{&MemberRevoke{n1, "lost"}}},
		{"revoke no member", nil, in, model.CodeNotFound, "", []Command{&MemberRevoke{Subject: n2}}},
		{"revoke a server without a row", nil, in, "", "member.revoked member/server:s9 revoked",
			[]Command{&MemberRevoke{serverNamed("s9"), "stolen"}}},
		{"revoke a server of no name", nil, in, model.CodeNotFound, "",
			[]Command{&MemberRevoke{Subject: serverNamed("a/b")}}},
		{"a server that was revoked without a row renews", []Command{&MemberRevoke{Subject: serverNamed("s9")}}, in,
			model.CodeMemberRevoked, "", []Command{&MemberRenew{serverNamed("s9"), hashOf(1), hashOf(2), 2000, ""}}},
		{"a server that was revoked without a row joins by an older token",
			[]Command{&MemberRevoke{Subject: serverNamed("s9")}}, in, model.CodeTokenRevoked, "",
			[]Command{admit(serverNamed("s9"), 2)}},
		{"a long reason", nil, in, model.CodeInvalid, "",
			[]Command{&MemberRevoke{n1, strings.Repeat("x", maxRevokeReason+1)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checked(t, run(t, start, 1000, tt.given...), tt.at, tt.code, tt.events, tt.group...)
		})
	}
}

// Only the newest key and the one before count, until the member has used the newest one. None counts once the member
// is revoked.
func TestKeysOfMembersThatCount(t *testing.T) {
	s := trustState(t)
	n1 := agentNamed("n1")
	for i, step := range []struct {
		c      Command
		counts string
	}{
		{&MemberRenew{n1, hashOf(1), hashOf(2), 2000, ""}, "1 2"},
		{&MemberRenew{n1, hashOf(1), hashOf(3), 3000, ""}, "1 3"}, // the certificate of key 2 got lost
		{&MemberRenew{n1, hashOf(1), hashOf(3), 4000, ""}, "1 3"},
		{&MemberRenew{n1, hashOf(3), hashOf(3), 4000, ""}, "3"},
		{&MemberRenew{n1, hashOf(3), hashOf(4), 5000, ""}, "3 4"},
		{&MemberRenew{n1, hashOf(4), hashOf(5), 6000, ""}, "4 5"},
		{&MemberRevoke{n1, ""}, ""},
		{&TokenCreate{ID: "cccccccccccc", Role: "agent", Verifier: hashOf('a'), TTL: model.Hour, Uses: 1}, ""},
		{with(admit(n1, 6), func(c *MemberAdmit) { c.Token = "cccccccccccc" }), "6"},
	} {
		s = run(t, s, 2000, step.c)
		m, _ := s.TrustMemberOf(n1)
		var counts []string
		for b := range byte(8) {
			if m.Counts(hashOf(b)) {
				counts = append(counts, fmt.Sprint(b))
			}
		}
		if got := strings.Join(counts, " "); got != step.counts || m.Counts(nil) {
			t.Errorf("after step %d the keys %q count, want %q; none: %v", i, got, step.counts, m.Counts(nil))
		}
	}
}

// A token's row is dropped a day after the token's end, when the next token is made: not earlier, and not with its uses
// back.
func TestOldTokensAreDropped(t *testing.T) {
	day := model.Time(tokenKept)
	create := &TokenCreate{ID: "bbbbbbbbbbbb", Role: "agent", Verifier: hashOf('b'), TTL: model.Second, Uses: 1}
	s := run(t, trustState(t), 1000, &TokenRevoke{serverToken}) // first0000000 was spent at 1000 too
	for at, want := range map[model.Time]int{999 + day: 4, 1000 + day: 2, 999 + day + model.Time(model.Hour): 2,
		1000 + day + model.Time(model.Hour): 1} {
		if got := run(t, s, at, create).JoinTokens.Len(); got != want {
			t.Errorf("at %d there are %d tokens, want %d", at, got, want)
		}
	}
}

func TestTrustIsBounded(t *testing.T) {
	create := func(n int) *TokenCreate {
		return &TokenCreate{ID: model.TokenID(fmt.Sprintf("t%011d", n)), Role: "agent", Verifier: hashOf('b'),
			TTL: model.Second, Uses: 1}
	}
	s := *trustState(t).fork()
	for n := range maxJoinTokens - s.JoinTokens.Len() {
		s.putJoinToken(&JoinToken{ID: create(n).ID, Role: "agent", Verifier: hashOf('b'), Expires: 2000, Uses: 1})
	}
	checked(t, s, 3000, model.CodeConflict, "", create(5000))
	if got := run(t, s, 2000+model.Time(tokenKept), create(5000)).JoinTokens.Len(); got > 4 {
		t.Errorf("%d tokens are left, most of them overdue", got)
	}
	for n := range maxTrustKeys - s.TrustKeys.Len() {
		s = run(t, s, 1000, keyPut(model.NewKeyName(model.KeyGossip, uint64(n+2)), 1, model.KeyIncoming))
	}
	checked(t, s, 1000, model.CodeConflict, "", keyPut("gossip/1000", 1, model.KeyIncoming))
}

func TestKeysOfAKind(t *testing.T) {
	s := trustState(t)
	if none := NewState(); none.Managed() || !s.Managed() {
		t.Errorf("managed without a CA: %v, with one: %v", none.Managed(), s.Managed())
	}
	s = run(t, s, 1000, keyPut("ca/2", 1, model.KeyIncoming), keyPut("ca/10", 1, model.KeyIncoming))
	var names []string
	for _, k := range s.KeysOf(model.KeyCA) {
		names = append(names, string(k.Name))
	}
	if got := strings.Join(names, " "); got != "ca/1 ca/2 ca/10" {
		t.Errorf("the CAs are %s", got)
	}
	if k, ok := s.ActiveKey(model.KeyCA); !ok || k.Name != "ca/1" {
		t.Errorf("active is %+v, %v", k, ok)
	}
	s = run(t, s, 1000, keyPut("ca/1", 2, model.KeyRetired))
	if k, ok := s.ActiveKey(model.KeyCA); ok {
		t.Errorf("active is %+v", k)
	}
}

// A description of a row or command shows neither what is encrypted nor a verifier. Nor does a difference or an event.
func TestTrustIsNeverShown(t *testing.T) {
	s := trustState(t)
	s = run(t, s, 1000,
		with(keyPut("ca/1", 2, model.KeyActive), func(c *KeyPut) { c.Sealed = []byte("sealed otherwise") }))
	shown := []any{Describe(keyPut("data/2", 1, model.KeyActive)), Describe(admit(agentNamed("n2"), 2)),
		Describe(&TokenCreate{ID: agentToken, Verifier: hashOf('a')}), Diff(NewState(), s), Diff(trustState(t), s)}
	for _, table := range []string{"trustkeys", "jointokens", "trustmembers"} {
		rows, ok := s.Rows(table)
		if !ok {
			t.Fatalf("no table %s", table)
		}
		for _, row := range rows {
			shown = append(shown, Describe(row))
		}
	}
	for _, v := range shown {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"sealed bytes", "sealed otherwise", "7365616c6564", "6161616161", "6666666666"} {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s is in %s", secret, text)
			}
		}
		if !bytes.Contains(text, []byte(Hidden)) && !bytes.Contains(text, []byte("agent:n1")) {
			t.Errorf("nothing is hidden in %s", text)
		}
	}
	want := "[member/agent:n2 token/aaaaaaaaaaaa]"
	if got := fmt.Sprint(Objects(admit(agentNamed("n2"), 2))); got != want {
		t.Errorf("the objects are %s, want %s", got, want)
	}
}

// A data key is exported until another key of the keyring encrypts it.
func TestExportedUntilRotated(t *testing.T) {
	exported := func(s State) bool {
		k, _ := s.ActiveKey(model.KeyData)
		return k.Exported != 0
	}
	s := run(t, trustState(t), 2000, &KeyringExported{"data/1", "kek"})
	if k, _ := s.ActiveKey(model.KeyData); k.Exported != 2000 || k.Version != 2 {
		t.Errorf("after the export: %+v", k)
	}
	s = run(t, s, 3000, keyPut("data/1", 3, model.KeyActive))
	if !exported(s) {
		t.Error("sealed again under the same key, it is not exported any more")
	}
	s = run(t, s, 4000, with(keyPut("data/1", 4, model.KeyActive), func(c *KeyPut) { c.Under = "kek2" }))
	if exported(s) {
		t.Error("under another key, it is exported")
	}
}
