package model

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// KeyKind says what a key of the cluster is for.
type KeyKind string

// The kinds of keys.
const (
	KeyData   KeyKind = "data"   // encrypts rows of the state; itself encrypted by a key of the servers' keyrings
	KeyCA     KeyKind = "ca"     // signs certificates
	KeyGossip KeyKind = "gossip" // encrypts gossip
)

// KeyKinds lists all kinds of keys.
func KeyKinds() []KeyKind { return []KeyKind{KeyData, KeyCA, KeyGossip} }

// Valid reports whether k is one of KeyKinds.
func (k KeyKind) Valid() bool { return slices.Contains(KeyKinds(), k) }

// String implements fmt.Stringer.
func (k KeyKind) String() string { return string(k) }

// KeyName names a key of the cluster: its kind, "/" and a number from 1, such as "ca/2". A newer key has a higher
// number.
type KeyName string

// NewKeyName returns the name of key number n of a kind.
func NewKeyName(kind KeyKind, n uint64) KeyName {
	return KeyName(string(kind) + "/" + strconv.FormatUint(n, 10))
}

// Split returns the kind and the number of the key. ok is false if the name is not one that NewKeyName returns.
func (k KeyName) Split() (kind KeyKind, n uint64, ok bool) {
	left, right, _ := strings.Cut(string(k), "/")
	kind = KeyKind(left)
	n, err := strconv.ParseUint(right, 10, 64)
	return kind, n, err == nil && n > 0 && kind.Valid() && NewKeyName(kind, n) == k
}

// Kind returns the kind in the name, or "" if the name is invalid.
func (k KeyName) Kind() KeyKind {
	kind, _, ok := k.Split()
	if !ok {
		return ""
	}
	return kind
}

// KeyPhase says how far a key has come. A key never returns to an earlier phase.
type KeyPhase string

// The phases of keys, in their order.
const (
	KeyIncoming KeyPhase = "incoming" // handed out, so that everyone has the key before it is used
	KeyActive   KeyPhase = "active"   // used for everything new; each kind has at most one active key
	KeyRetired  KeyPhase = "retired"  // used only for what it encrypted or signed earlier
)

// KeyPhases lists all phases, in their order.
func KeyPhases() []KeyPhase { return []KeyPhase{KeyIncoming, KeyActive, KeyRetired} }

// Valid reports whether p is one of KeyPhases.
func (p KeyPhase) Valid() bool { return slices.Contains(KeyPhases(), p) }

// String implements fmt.Stringer.
func (p KeyPhase) String() string { return string(p) }

// Before reports whether p is an earlier phase than q. Both must be valid.
func (p KeyPhase) Before(q KeyPhase) bool {
	return slices.Index(KeyPhases(), p) < slices.Index(KeyPhases(), q)
}

// TokenID names a join token or an access token: 12 lower case letters and digits. It is not secret.
type TokenID string

// tokenIDLength is the number of characters of a TokenID.
const tokenIDLength = 12

// Valid reports whether id has the form of a TokenID.
func (id TokenID) Valid() bool {
	return len(id) == tokenIDLength && strings.IndexFunc(string(id), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}) < 0
}

// maxGlob is the largest number of bytes of a pattern for names.
const maxGlob = 128

// CheckGlob refuses a pattern for names that is too long or malformed. The syntax is that of path.Match. Code: invalid.
func CheckGlob(pattern string) *Error {
	if _, err := path.Match(pattern, ""); err != nil || len(pattern) > maxGlob {
		return Refuse(CodeInvalid, "%q is no pattern for names", ClipText(pattern, 100)).
			WithHint("write at most %d bytes, such as web-*, web-?? or web-[0-9]", maxGlob)
	}
	return nil
}

// MatchGlob reports whether a name matches a pattern that CheckGlob accepts. An empty pattern matches every name.
func MatchGlob(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return pattern == "" || ok && err == nil
}
