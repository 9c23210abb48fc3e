package pki

import (
	"crypto/tls"
	"crypto/x509"
	"strings"

	"github.com/outspan/outspan/model"
)

// Role is what a certificate allows its holder to be.
type Role string

// The roles. Only RoleServer speaks raft. An agent acts for the node with its name. A cli is a person or a script.
const (
	RoleServer Role = "server"
	RoleAgent  Role = "agent"
	RoleCLI    Role = "cli"
)

// Valid reports whether r is one of the roles above.
func (r Role) Valid() bool {
	switch r {
	case RoleServer, RoleAgent, RoleCLI:
		return true
	}
	return false
}

// String returns the role as written in a certificate.
func (r Role) String() string { return string(r) }

// ServerName returns the DNS name in the certificate of every listening process with this role. Peers are dialled by IP
// address, so a dialling process checks this name instead of a host name.
func (r Role) ServerName() string { return string(r) + ".outspan" }

// Listens reports whether processes of this role accept TLS connections.
func (r Role) Listens() bool { return r == RoleServer || r == RoleAgent }

// Identity is what a certificate of the cluster's CA says of its holder.
type Identity struct {
	Cluster string
	Role    Role
	Name    string // of the server, the node or the person
}

// Scheme is the beginning of every identity's URI.
const Scheme = "outspan://"

// URI returns the identity as written in the certificate: outspan://<cluster>/<role>/<name>.
func (i Identity) URI() string {
	return Scheme + i.Cluster + "/" + string(i.Role) + "/" + i.Name
}

// String returns the short form: role/name.
func (i Identity) String() string { return string(i.Role) + "/" + i.Name }

// ParseIdentity reads an identity as URI writes it, and accepts no other form. Code: certificate_refused.
func ParseIdentity(uri string) (Identity, error) {
	rest, ok := strings.CutPrefix(uri, Scheme)
	if !ok {
		return Identity{}, model.Refuse(model.CodeCertificateRefused, "%q is not an outspan identity", model.Clip(uri))
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 {
		return Identity{},
			model.Refuse(model.CodeCertificateRefused, "identity %q is not %scluster/role/name", model.Clip(uri), Scheme)
	}
	id := Identity{Cluster: parts[0], Role: Role(parts[1]), Name: parts[2]}
	switch {
	case !ValidCluster(id.Cluster):
		return Identity{},
			model.Refuse(model.CodeCertificateRefused, "identity %q has an invalid cluster name", model.Clip(uri))
	case !id.Role.Valid():
		return Identity{}, model.Refuse(model.CodeCertificateRefused, "identity %q has an unknown role", model.Clip(uri))
	case !ValidName(id.Name):
		return Identity{}, model.Refuse(model.CodeCertificateRefused, "identity %q has an invalid name", model.Clip(uri))
	}
	return id, nil
}

// Peer reads the identity of a verified peer. It refuses a peer without a verified certificate, and a certificate that
// does not have exactly one valid identity. Code: certificate_refused.
func Peer(state tls.ConnectionState) (Identity, error) {
	if len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return Identity{}, model.Refuse(model.CodeCertificateRefused, "the peer showed no certificate that could be verified")
	}
	return Holder(state.PeerCertificates[0])
}

// Holder returns the identity in a certificate, which it does not verify. It refuses a certificate with two identities,
// because either could be meant. Code: certificate_refused.
func Holder(cert *x509.Certificate) (Identity, error) {
	found := ""
	for _, u := range cert.URIs {
		s := u.String()
		if !strings.HasPrefix(s, Scheme) {
			continue
		}
		if found != "" {
			return Identity{},
				model.Refuse(model.CodeCertificateRefused, "the certificate carries two identities, %q and %q",
					model.Clip(found), model.Clip(s))
		}
		found = s
	}
	if found == "" {
		return Identity{}, model.Refuse(model.CodeCertificateRefused, "the certificate %q carries no outspan role",
			model.Clip(cert.Subject.CommonName)).
			WithHint("issue one with: outspan tls cert create --server|--agent|--cli NAME")
	}
	return ParseIdentity(found)
}

// ValidCluster reports whether s can be the name of a cluster: at most 63 letters, digits, '-' and '_', beginning with
// a letter or digit. Such a name is safe as the host of a URI and as a gossip label.
func ValidCluster(s string) bool { return wellFormed(s, 63, "-_") }

// ValidName reports whether s can be the name of a server, node or person: at most 128 letters, digits and "-_.@",
// beginning with a letter or digit. Such a name is safe in a path, a file name and a log line.
func ValidName(s string) bool { return wellFormed(s, 128, "-_.@") }

func wellFormed(s string, most int, also string) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || strings.IndexByte(also, c) < 0) {
			return false
		}
	}
	return true
}
