package fsm

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

const accessID model.TokenID = "access000000"

func accessCreate(id model.TokenID, name string) *AccessTokenCreate {
	return &AccessTokenCreate{ID: id, Name: name, Subject: model.Subject{Kind: model.SubjectToken, Name: name},
		Hash: hashOf(1), TTL: model.Hour, Roles: []rights.RoleName{rights.Viewer}}
}

// counts reports whether the access token has a row and counts at the state's wall clock.
func accessCounts(s State, id model.TokenID) bool {
	t, ok := s.AccessTokens.Get(id)
	return ok && t.counts(&s)
}

func TestAccessToken(t *testing.T) {
	begin := NewState()
	begin.Wall = 1 // otherwise it has no wall clock
	s := checked(t, begin, 1000, "", "rights.changed access/ci created", accessCreate(accessID, "ci"))
	if s.RightsIndex != 0 || !accessCounts(s, accessID) {
		t.Errorf("a new token counts: %v, rights of index %d", accessCounts(s, accessID), s.RightsIndex)
	}
	checked(t, s, 2000, model.CodeNameTaken, "", accessCreate("other0000000", "ci"))
	checked(t, s, 2000, model.CodeConflict, "", accessCreate(accessID, "other"))
	later := run(t, s, 1000+model.Time(model.Hour), accessCreate("other0000000", "ci"))
	if later.AccessTokens.Len() != 1 || !accessCounts(later, "other0000000") {
		t.Error("a token of the same name has not replaced one that ended")
	}

	revoked := checked(t, s, 2000, "", "rights.changed access/ci revoked", &AccessTokenRevoke{accessID})
	if accessCounts(revoked, accessID) || revoked.RightsIndex != revoked.Index || !mayDrain(revoked) {
		t.Errorf("after the end: rights of index %d at %d", revoked.RightsIndex, revoked.Index)
	}
	same := run(t, revoked, 2500, &AccessTokenRevoke{accessID})
	if same.RightsIndex != revoked.RightsIndex {
		t.Error("the second revocation changed something")
	}
	checked(t, s, 2000, model.CodeNotFound, "", &AccessTokenRevoke{"none00000000"})
	kept := run(t, revoked, 3000, accessCreate("other0000000", "other"))
	if !kept.AccessTokens.Has(accessID) {
		t.Error("the row of the revoked token is gone at once")
	}
	day := run(t, kept, 3000+model.Time(accessTokenKept), accessCreate("third0000000", "third"))
	if day.AccessTokens.Has(accessID) || !day.AccessTokens.Has("other0000000") {
		t.Error("a day later, the revoked token has a row, or the one that ended an hour after has none")
	}
}

func TestAccessTokenRefused(t *testing.T) {
	for name, c := range map[string]*AccessTokenCreate{
		"id":       accessCreate("short", "ci"),
		"no name":  accessCreate(accessID, ""),
		"name":     accessCreate(accessID, "a/b"),
		"umlaut":   accessCreate(accessID, "bär"),
		"hash":     with(accessCreate(accessID, "ci"), func(c *AccessTokenCreate) { c.Hash = nil }),
		"subject":  with(accessCreate(accessID, "ci"), func(c *AccessTokenCreate) { c.Subject.Name = "other" }),
		"a server": with(accessCreate(accessID, "ci"), func(c *AccessTokenCreate) { c.Subject.Kind = model.SubjectServer }),
		"for ever": with(accessCreate(accessID, "ci"), func(c *AccessTokenCreate) { c.TTL = model.Forever }),
		"no time":  with(accessCreate(accessID, "ci"), func(c *AccessTokenCreate) { c.TTL = 0 }),
		"role":     with(accessCreate(accessID, "ci"), func(c *AccessTokenCreate) { c.Roles = []rights.RoleName{"Bad"} }),
		"roles":    with(accessCreate(accessID, "ci"), func(c *AccessTokenCreate) { c.Roles = make([]rights.RoleName, 33) }),
		"group":    with(accessCreate(accessID, "ci"), func(c *AccessTokenCreate) { c.Groups = []string{"a\n"} }),
		"person":   with(accessCreate(accessID, "ci"), func(c *AccessTokenCreate) { c.Person = strings.Repeat("x", 257) }),
	} {
		if got := NewState().NewDraft(1000).Try(c); got == nil || got.Code != model.CodeInvalid {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A role stays as long as an access token has it.
func TestRoleOfAccessToken(t *testing.T) {
	s := run(t, NewState(), 1000, &RoleSet{rights.Role{Name: "shop", Allow: allow("job.*")}},
		with(accessCreate(accessID, "ci"), func(c *AccessTokenCreate) { c.Roles = []rights.RoleName{"shop"} }))
	checked(t, s, 2000, model.CodeInUse, "", &RoleRemove{"shop"})
	run(t, s, 2000, &AccessTokenRevoke{accessID}, &RoleRemove{"shop"})
}

func TestAccessTokenBounds(t *testing.T) {
	s := NewState()
	fork := s.fork()
	fork.Wall = 1
	fork.entry.actor = "cert:alice"
	put := func(n int, creator model.Actor, ends int64) {
		for i := range n {
			name := strings.Repeat("a", i%50+1) + "." + string(creator)[5:] // unique enough: the bound counts rows
			fork.putAccessToken(&AccessToken{ID: model.TokenID(idOf(fork.AccessTokens.Len())), Name: name, Creator: creator,
				Ends: ends})
		}
	}
	next := &AccessToken{ID: "zzzzzzzzzzzz", Name: "next", Creator: "cert:alice"}
	put(maxOfCreator-1, "cert:alice", unixMs*unixMs)
	if _, refusal := fork.roomForAccessToken(next); refusal != nil {
		t.Fatal(refusal)
	}
	put(1, "cert:alice", unixMs*unixMs)
	if _, refusal := fork.roomForAccessToken(next); refusal == nil || refusal.Code != model.CodeConflict {
		t.Fatalf("one more than a creator may have: %v", refusal)
	}
	next.Creator = "cert:bob"
	put(maxAccessRows-maxOfCreator, "cert:carol", 0) // ended a moment ago
	if drop, refusal := fork.roomForAccessToken(next); refusal != nil || len(drop) != maxAccessRows-maxOfCreator {
		t.Errorf("full of tokens that ended: %d are dropped, %v", len(drop), refusal)
	}
	put(maxScriptTokens-maxOfCreator, "cert:dave", unixMs*unixMs)
	if _, refusal := fork.roomForAccessToken(next); refusal == nil || refusal.Code != model.CodeConflict {
		t.Errorf("too many in all: %v", refusal)
	}
}

// idOf returns an id of an access token for a number.
func idOf(n int) string {
	id := []byte("aaaaaaaaaaaa")
	for i := len(id) - 1; n > 0; i-- {
		id[i], n = 'a'+byte(n%26), n/26
	}
	return string(id)
}

// A restore of an older state brings no token back and drops none (S19). A recovery revokes all of them.
func TestRestoreKeepsAccessTokens(t *testing.T) {
	saved := run(t, NewState(), 1000, accessCreate(accessID, "ci"), accessCreate("other0000000", "other"))
	live := run(t, saved, 2000, &AccessTokenRevoke{accessID}, accessCreate("third0000000", "third"))
	restored := saved.WithTrustOf(live)
	if accessCounts(restored, accessID) || !accessCounts(restored, "other0000000") ||
		!accessCounts(restored, "third0000000") {
		t.Error("the tokens are not those of the live state")
	}
	for name, wrong := range map[string]State{"a revoked token counts": saved, "a token is gone": run(t, NewState(), 3000,
		&ClassSet{Name: "gold", Below: "batch"})} {
		if CheckTrust(live, wrong) == nil {
			t.Errorf("the judge accepts that %s", name)
		}
	}

	recovered := run(t, live, 3000, &RestoreMark{Recovered: true})
	for _, id := range []model.TokenID{accessID, "other0000000", "third0000000"} {
		if accessCounts(recovered, id) {
			t.Errorf("after a recovery, %s counts", id)
		}
	}
	if recovered.RightsIndex != recovered.Index {
		t.Error("a recovery has not changed the rights")
	}
}
