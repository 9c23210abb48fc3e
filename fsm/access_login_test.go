package fsm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/outspan/outspan/model"
)

func loginAs(id model.TokenID, proof, sub string) *AccessLogin {
	return &AccessLogin{ID: id, Name: LoginName(proof), Hash: bytes.Repeat([]byte{1}, 32), TTL: model.Hour,
		Subject: model.Subject{Kind: model.SubjectOIDC, Name: "https://id.example.org#" + sub}, Groups: []string{"shop"},
		Person: sub + "@example.org"}
}

// An id token is good for one login, also after the login has ended.
func TestAccessLogin(t *testing.T) {
	s := run(t, wallState(), 1000, loginAs("aaaaaaaaaaaa", "p1", "alice"))
	row, ok := s.AccessTokens.Get("aaaaaaaaaaaa")
	if !ok || !row.IsLogin() || !row.CountsAt(s.Wall*unixMs) || row.Person != "alice@example.org" {
		t.Fatalf("got %+v", row)
	}
	s = run(t, s, 2000, &AccessTokenRevoke{"aaaaaaaaaaaa"})
	checked(t, s, 3000, model.CodeConflict, "", loginAs("bbbbbbbbbbbb", "p1", "alice"))
	run(t, s, 3000, loginAs("bbbbbbbbbbbb", "p2", "alice"))
}

func TestAccessLoginRefused(t *testing.T) {
	s := wallState()
	for name, c := range map[string]Command{
		"a script": with(loginAs("aaaaaaaaaaaa", "p", "al"), func(c *AccessLogin) {
			c.Subject = model.Subject{Kind: model.SubjectToken, Name: c.Name}
		}),
		"no sub":         loginAs("aaaaaaaaaaaa", "p", ""),
		"control":        loginAs("aaaaaaaaaaaa", "p", "a\nb"),
		"name":           with(loginAs("aaaaaaaaaaaa", "p", "al"), func(c *AccessLogin) { c.Name = "p" }),
		"for ever":       with(loginAs("aaaaaaaaaaaa", "p", "al"), func(c *AccessLogin) { c.TTL = model.Forever }),
		"without a hash": with(loginAs("aaaaaaaaaaaa", "p", "al"), func(c *AccessLogin) { c.Hash = nil }),
		"no login": &AccessTokenCreate{ID: "aaaaaaaaaaaa", Name: LoginName("p"), Hash: bytes.Repeat([]byte{1}, 32),
			TTL: model.Hour, Subject: loginAs("", "", "al").Subject},
	} {
		t.Run(name, func(t *testing.T) { checked(t, s, 1000, model.CodeInvalid, "", c) })
	}
	for i := range maxOfPerson {
		number := fmt.Sprintf("%03d", i)
		s = run(t, s, 1000, loginAs(model.TokenID("aaaaaaaaa"+number), "p"+number, "alice"))
	}
	checked(t, s, 1000, model.CodeConflict, "", loginAs("bbbbbbbbbbbb", "q", "alice"))
	run(t, s, 1000, loginAs("bbbbbbbbbbbb", "q", "bob"))
}

// Many logins leave room for access tokens, and the other way round.
func TestLoginsAndTokensHaveBoundsOfTheirOwn(t *testing.T) {
	s := *wallState().fork()
	row, _ := run(t, s, 1000, loginAs("aaaaaaaaaaaa", "p", "alice")).AccessTokens.Get("aaaaaaaaaaaa")
	for i := range maxLogins {
		next := *row
		next.ID, next.Name = model.TokenID(fmt.Sprintf("aaaaaaa%05d", i)), LoginName(fmt.Sprint(i))
		next.Subject.Name += fmt.Sprint(i)
		s.putAccessToken(&next)
	}
	checked(t, s, 1000, model.CodeConflict, "", loginAs("bbbbbbbbbbbb", "q", "bob"))
	run(t, s, 1000, &AccessTokenCreate{ID: "bbbbbbbbbbbb", Name: "ci", Hash: row.Hash, TTL: model.Hour,
		Subject: model.Subject{Kind: model.SubjectToken, Name: "ci"}})
}

// wallState returns a new state that has a wall clock.
func wallState() State {
	s := NewState()
	s.Wall = 1
	return s
}
