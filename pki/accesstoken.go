package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"strings"

	"github.com/outspan/outspan/model"
)

const (
	accessFormat = "osa1" // the first part of an access token; another layout gets another number
	accessSecret = 32     // bytes
	maxAccess    = 128    // bytes; an access token has 61
)

// AccessToken lets a script call the API. Its text is "osa1.<id>.<secret>". The id is not secret.
//
// Whoever has the text is its holder. Only Reveal returns it. Formatting, logging and marshalling a token print its id.
// The zero value is no token, and is never accepted.
type AccessToken struct {
	id string
	// secret is a function for the same reason as that of JoinToken.
	secret func() [accessSecret]byte
}

// NewAccessToken makes a token with a random secret.
func NewAccessToken() AccessToken {
	var secret [accessSecret]byte
	rand.Read(secret[:]) // never fails: without randomness, the runtime ends the process
	return accessTokenOf(secret)
}

func accessTokenOf(secret [accessSecret]byte) AccessToken {
	sum := sha256.Sum256(append([]byte("outspan access token id\x00"), secret[:]...))
	return AccessToken{id: strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:idLength],
		secret: func() [accessSecret]byte { return secret }}
}

// ParseAccessToken reads what Reveal returns. It accepts one line break at the end. No error repeats a part of the text
// that could be secret. Code: invalid.
func ParseAccessToken(text string) (AccessToken, error) {
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	parts := strings.Split(text, ".")
	switch {
	case text == "":
		return AccessToken{}, model.Refuse(model.CodeInvalid, "the access token is empty").WithHint(accessHint)
	case HoldsJoinToken(text):
		return AccessToken{}, model.Refuse(model.CodeInvalid, "this is a join token, by which machines join").
			WithHint("give an access token, which begins with %s.; %s", accessFormat, accessHint)
	case parts[0] != accessFormat:
		return AccessToken{}, model.Refuse(model.CodeInvalid, "the access token does not begin with %q", accessFormat+".").
			WithHint(accessHint)
	case len(text) > maxAccess || len(parts) != 3:
		return AccessToken{}, model.Refuse(model.CodeInvalid, "the access token has %d bytes in %d parts", len(text),
			len(parts)).WithHint("give the token alone, in one line and without quotes")
	}
	var secret [accessSecret]byte
	if n := base64.RawURLEncoding.EncodedLen(accessSecret); len(parts[2]) != n {
		return AccessToken{}, damagedAccess()
	}
	if _, err := base64.RawURLEncoding.Strict().Decode(secret[:], []byte(parts[2])); err != nil {
		return AccessToken{}, damagedAccess()
	}
	t := accessTokenOf(secret)
	if t.id != parts[1] {
		return AccessToken{}, damagedAccess()
	}
	return t, nil
}

const accessHint = "copy the whole token again, or ask an administrator for another one: outspan auth token create NAME"

func damagedAccess() *model.Error {
	return model.Refuse(model.CodeInvalid, "the access token is damaged: its parts don't fit together; copy it whole, "+
		"as osa1.ID.SECRET").
		WithHint(accessHint)
}

// HoldsAccessToken reports whether text contains what could be an access token, or a part of one with its secret.
func HoldsAccessToken(text string) bool { return strings.Contains(text, accessFormat+".") }

// ID returns the name of the token: 12 lower case letters and digits, derived from the secret. It is not secret.
func (t AccessToken) ID() model.TokenID { return model.TokenID(t.id) }

// Hash returns what a cluster stores of the token. The token can't be found from it.
func (t AccessToken) Hash() [sha256.Size]byte {
	if t.secret == nil {
		return [sha256.Size]byte{}
	}
	secret := t.secret()
	return sha256.Sum256(secret[:])
}

// Matches reports whether hash is the Hash of this token. Its duration does not depend on where they differ.
func (t AccessToken) Matches(hash []byte) bool {
	own := t.Hash()
	return t.secret != nil && subtle.ConstantTimeCompare(own[:], hash) == 1
}

// Reveal returns the secret text of the token, without a line break. It returns "" for no token.
func (t AccessToken) Reveal() string {
	if t.secret == nil {
		return ""
	}
	secret := t.secret()
	return strings.Join([]string{accessFormat, t.id, base64.RawURLEncoding.EncodeToString(secret[:])}, ".")
}

// String returns the id, without the secret: "access token 2fbzq3k7ay5d".
func (t AccessToken) String() string {
	if t.secret == nil {
		return "no access token"
	}
	return "access token " + t.id
}

// MarshalText returns String, so that JSON and structured logs do not contain the secret.
func (t AccessToken) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
