package fsm

import (
	"strings"
	"unicode"

	"github.com/outspan/outspan/model"
)

// Bounds of logins.
const (
	loginPrefix = "login-" // begins the name of the access token of a login
	maxLogins   = 8000     // that count
	maxOfPerson = 20       // that count, of one person
	maxLoginSub = 256      // bytes of the name of the subject
)

// AccessLogin makes the access token of somebody who has signed in with OpenID Connect. The name of the token stands
// for the id token that proved it, so that each id token is good for one login, also after a logout. AccessLogin drops
// rows as AccessTokenCreate does. Codes: invalid; conflict if the id token was used before, or if there are too many
// tokens.
type AccessLogin struct {
	ID      model.TokenID  `cbor:"1,keyasint"`
	Name    string         `cbor:"2,keyasint"` // LoginName of the id token
	Subject model.Subject  `cbor:"3,keyasint"` // oidc:ISSUER#SUB
	Hash    []byte         `cbor:"4,keyasint" debug:"secret"`
	TTL     model.Duration `cbor:"5,keyasint"` // from the wall clock of the entry; 1 s to 366 days
	Groups  []string       `cbor:"6,keyasint,omitempty"`
	Person  string         `cbor:"7,keyasint,omitempty"`
}

// LoginName returns the name of the access token of a login. proof is a hash of the id token, in letters and digits.
func LoginName(proof string) string { return loginPrefix + proof }

// IsLogin reports whether the token is of somebody who signed in with OpenID Connect.
func (t *AccessToken) IsLogin() bool { return t.Subject.Kind == model.SubjectOIDC }

// fitsSubject reports whether a token of this name may be of this subject.
func (t *AccessToken) fitsSubject() bool {
	if !t.IsLogin() {
		return t.Subject == model.Subject{Kind: model.SubjectToken, Name: t.Name}
	}
	issuer, sub, _ := strings.Cut(t.Subject.Name, "#")
	return strings.HasPrefix(t.Name, loginPrefix) && issuer != "" && sub != "" && len(t.Subject.Name) <= maxLoginSub &&
		!strings.ContainsFunc(t.Subject.Name, unicode.IsControl) && len(t.Roles) == 0
}

func (c *AccessLogin) apply(s *State) error {
	row := &AccessToken{ID: c.ID, Name: c.Name, Subject: c.Subject, Hash: c.Hash, Groups: c.Groups, Person: c.Person,
		Ends: (s.Wall + int64(c.TTL)) * unixMs, Creator: s.entry.actor, Index: s.Index}
	switch refusal := row.check(); {
	case refusal != nil:
		return refusal
	case !row.IsLogin() || c.TTL < model.Second || c.TTL > maxAccessTTL:
		return model.Refuse(model.CodeInvalid, "a login of %s for %s is not possible",
			model.ClipText(c.Subject.String(), 100), c.TTL)
	}
	own := 0
	for _, t := range s.AccessTokens.All() {
		switch {
		case t.Name == c.Name: // also of a login that has ended
			return model.Refuse(model.CodeConflict, "the id token was used for a login before").
				WithHint("sign in again: outspan login")
		case t.Subject == c.Subject && t.counts(s):
			own++
		}
	}
	if own >= maxOfPerson {
		return model.Refuse(model.CodeConflict, "you are signed in %d times already", own).
			WithHint("sign out where you no longer need it: outspan logout; or wait until some end")
	}
	return s.addAccessToken(row, "signed in")
}
