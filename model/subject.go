package model

import "strings"

// SubjectKind is how the caller of an API proved who it is.
type SubjectKind string

// The kinds. A server, an agent and a person each show a certificate of the cluster's CA. The kernel identifies a local
// user on the unix socket of a server or agent. A script sends the secret of its access token.
const (
	SubjectServer SubjectKind = "server"
	SubjectAgent  SubjectKind = "agent"
	SubjectCert   SubjectKind = "cert"
	SubjectUID    SubjectKind = "uid"
	SubjectToken  SubjectKind = "token"
	SubjectOIDC   SubjectKind = "oidc" // a person who signed in with OpenID Connect; the name is "ISSUER#SUB"
)

// Valid reports whether k is one of the kinds above.
func (k SubjectKind) Valid() bool {
	switch k {
	case SubjectServer, SubjectAgent, SubjectCert, SubjectUID, SubjectToken, SubjectOIDC:
		return true
	}
	return false
}

// Subject identifies a caller of an API. It is the same on every server to which a request is forwarded.
type Subject struct {
	Kind SubjectKind `cbor:"1,keyasint"`
	// Name is the name in the certificate: of the server, the node or the person. For a local user it is the user id and
	// the server or node whose socket it used: "0@s1". For an access token it is the name of the token.
	Name string `cbor:"2,keyasint"`
}

// String returns the subject as "kind:name": "server:s1", "agent:n1", "cert:alice", "uid:0@s1" or "token:ci".
func (s Subject) String() string { return string(s.Kind) + ":" + s.Name }

// Actor returns the origin of the subject's writes, which is its String.
func (s Subject) Actor() Actor { return Actor(s.String()) }

// ParseSubject reads what String returns. ok is false if the kind is unknown or the name is empty.
func ParseSubject(text string) (s Subject, ok bool) {
	kind, name, _ := strings.Cut(text, ":")
	s = Subject{Kind: SubjectKind(kind), Name: name}
	return s, s.Kind.Valid() && name != ""
}
