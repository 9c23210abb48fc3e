package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/outspan/outspan/model"
)

const (
	tokenFormat = "osj1" // the first part of a token; another layout gets another number
	secretSize  = 20     // bytes: 160 random bits can't be guessed
	idLength    = 12     // characters of a token's id, 5 bits each
	maxToken    = 256    // bytes; a token has 82 or 83
)

// spki is the SHA-256 of a certificate's SubjectPublicKeyInfo: of its public key and the key's type.
type spki [sha256.Size]byte

func spkiOf(cert *x509.Certificate) spki { return sha256.Sum256(cert.RawSubjectPublicKeyInfo) }

// String returns the first 12 characters of the hash in a token, which are enough to tell two roots apart.
func (h spki) String() string { return base64.RawURLEncoding.EncodeToString(h[:])[:12] }

// JoinToken admits a new server or agent to a cluster. It also names the cluster's root, so that the newcomer
// recognises a server before it has a certificate. Its text is "osj1.<role>.<hash of the root's public key>.<secret>".
//
// Whoever has the text can join. Only Reveal returns it. Formatting, logging and marshalling a token print its role and
// id. The zero value is no token, and is never accepted.
type JoinToken struct {
	role Role
	root spki
	// secret returns the secret; nil for the zero value. It is a function because fmt prints the fields of an embedded
	// struct without calling String, and for some verbs even what a pointer points to.
	secret func() [secretSize]byte
}

// NewJoinToken makes a token with a random secret. The role of the newcomer is server or agent. The certificate root
// must be a CA that signed itself. Code: invalid.
func NewJoinToken(role Role, root *x509.Certificate) (JoinToken, error) {
	if err := checkJoinRole(role); err != nil {
		return JoinToken{}, err
	}
	if !root.IsCA || root.CheckSignatureFrom(root) != nil {
		return JoinToken{}, model.Refuse(model.CodeInvalid,
			"a join token needs a root, and %q is not a CA that signed itself", model.Clip(root.Subject.CommonName)).
			WithHint("use the root of the cluster's CA")
	}
	var secret [secretSize]byte
	rand.Read(secret[:]) // never fails: without randomness, the runtime ends the process
	return JoinToken{role: role, root: spkiOf(root), secret: func() [secretSize]byte { return secret }}, nil
}

// ParseJoinToken reads what Reveal returns. It accepts one line break at the end. No error repeats a part of the text
// that could be secret. Code: invalid.
func ParseJoinToken(text string) (JoinToken, error) {
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	switch {
	case text == "":
		return JoinToken{}, model.Refuse(model.CodeInvalid, "the join token is empty").WithHint(newTokenHint)
	case len(text) > maxToken:
		return JoinToken{}, model.Refuse(model.CodeInvalid, "the join token has %d bytes, more than any token", len(text)).
			WithHint("give a file that contains only the token")
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return JoinToken{}, model.Refuse(model.CodeInvalid,
			"the join token contains a space, a line break or another character that no token has").
			WithHint("give the token alone, in one line and without quotes")
	}
	parts := strings.Split(text, ".")
	if err := checkTokenFormat(parts[0]); err != nil {
		return JoinToken{}, err
	}
	if len(parts) != 4 {
		return JoinToken{}, model.Refuse(model.CodeInvalid, "the join token has %d parts with dots between them, not 4",
			len(parts)).WithHint(newTokenHint)
	}
	return parseTokenParts(Role(parts[1]), parts[2], parts[3])
}

const newTokenHint = "copy the whole token again, or make a new one on a server with: outspan token create"

// checkTokenFormat repeats its input only if that is the name of a format. Anything else could be a lone secret.
func checkTokenFormat(format string) error {
	if format == tokenFormat {
		return nil
	}
	number, known := strings.CutPrefix(format, "osj")
	if known && len(number) <= 3 && strings.Trim(number, "0123456789") == "" && number != "" {
		return model.Refuse(model.CodeInvalid, "the join token has the format %s, this program reads %s",
			format, tokenFormat).
			WithHint("install the version of outspan that the servers run, or make a new token with: outspan token create")
	}
	return model.Refuse(model.CodeInvalid, "the join token does not begin with %q", tokenFormat+".").
		WithHint(newTokenHint)
}

func parseTokenParts(role Role, root, secret string) (JoinToken, error) {
	if !role.Valid() {
		return JoinToken{}, model.Refuse(model.CodeInvalid, "the role in the join token is neither server nor agent").
			WithHint(newTokenHint)
	}
	if err := checkJoinRole(role); err != nil {
		return JoinToken{}, err
	}
	var hash spki
	if err := decodePart("hash of the root", root, hash[:]); err != nil {
		return JoinToken{}, err
	}
	var own [secretSize]byte
	if err := decodePart("secret", secret, own[:]); err != nil {
		return JoinToken{}, err
	}
	return JoinToken{role: role, root: hash, secret: func() [secretSize]byte { return own }}, nil
}

// decodePart fills to with a part in base64url. It accepts exactly one text for each value.
func decodePart(what, part string, to []byte) error {
	if want := base64.RawURLEncoding.EncodedLen(len(to)); len(part) != want {
		return model.Refuse(model.CodeInvalid, "the %s in the join token has %d characters, not %d", what, len(part), want).
			WithHint(newTokenHint)
	}
	if _, err := base64.RawURLEncoding.Strict().Decode(to, []byte(part)); err != nil {
		return model.Refuse(model.CodeInvalid, "the %s in the join token has a wrong character: it is not base64url", what).
			WithHint(newTokenHint)
	}
	return nil
}

func checkJoinRole(role Role) error {
	switch role {
	case RoleServer, RoleAgent:
		return nil
	case RoleCLI:
		return model.Refuse(model.CodeInvalid, "the role cli can't join a cluster: only servers and agents do").
			WithHint("make a certificate for a person with: outspan cert create NAME; without tls { managed = true }: " +
				"outspan tls cert create --cli NAME")
	}
	return model.Refuse(model.CodeInvalid, "role %q is unknown", model.Clip(string(role))).
		WithHint("use server or agent")
}

// HoldsJoinToken reports whether text contains what could be a join token, or a part of one with its secret.
func HoldsJoinToken(text string) bool { return strings.Contains(text, tokenFormat+".") }

// Role returns what the newcomer becomes.
func (t JoinToken) Role() Role { return t.role }

// ID returns the name of the token: 12 lower case letters and digits, derived from the secret. It is not secret.
func (t JoinToken) ID() string {
	if t.secret == nil {
		return ""
	}
	secret := t.secret()
	sum := sha256.Sum256(secret[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:idLength]
}

// Verifier returns what a cluster stores of the token: a hash of role and secret. The token can't be found from it.
func (t JoinToken) Verifier() [sha256.Size]byte {
	if t.secret == nil {
		return [sha256.Size]byte{}
	}
	h := sha256.New()
	// The prefix keeps this hash different from the one that ID shows. The role prevents an agent's token from becoming a
	// server's by an edit.
	fmt.Fprintf(h, "outspan join token\x00%s\x00%s", t.role, t.secret())
	return [sha256.Size]byte(h.Sum(nil))
}

// Verify reports whether verifier is the Verifier of this token. Its duration does not depend on where they differ.
func (t JoinToken) Verify(verifier []byte) bool {
	own := t.Verifier()
	return t.secret != nil && subtle.ConstantTimeCompare(own[:], verifier) == 1
}

// Names reports whether root has the public key that the token names as its cluster's root.
func (t JoinToken) Names(root *x509.Certificate) bool {
	return t.secret != nil && spkiOf(root) == t.root
}

// Reveal returns the secret text of the token, without a line break. It returns "" for no token.
func (t JoinToken) Reveal() string {
	if t.secret == nil {
		return ""
	}
	secret, encode := t.secret(), base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{tokenFormat, string(t.role), encode(t.root[:]), encode(secret[:])}, ".")
}

// String returns the role and the id, without the secret: "join token 2fbzq3k7ay5d (agent)".
func (t JoinToken) String() string {
	if t.secret == nil {
		return "no join token"
	}
	return "join token " + t.ID() + " (" + string(t.role) + ")"
}

// MarshalText returns String, so that JSON and structured logs do not contain the secret. ParseJoinToken does not read
// it: to send a token, send what Reveal returns.
func (t JoinToken) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
