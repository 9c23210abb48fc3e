package client

import (
	"crypto/tls"
	"crypto/x509"
	"strings"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

// Files are the paths of PEM files: the CA of the cluster, and a certificate with its key, made with "outspan tls cert
// create --cli NAME".
type Files struct{ CA, Cert, Key string }

// serverName is the DNS name in the certificate of every server.
const serverName = "server.outspan"

// LoadTLS reads the files once and returns a function for Config.TLS. The client then connects only to servers of the
// cluster that its certificate names. Code: certificate_invalid.
func LoadTLS(f Files) (func() *tls.Config, error) {
	pair, roots, err := reach.LoadFiles(reach.Files(f))
	if err != nil {
		return nil, err
	}
	if err := reach.CheckChain(reach.Files(f), pair, roots); err != nil {
		return nil, err
	}
	cluster, _ := holder(pair.Leaf)
	return func() *tls.Config {
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: serverName,
			VerifyConnection: func(state tls.ConnectionState) error { return checkServer(state.PeerCertificates[0], cluster) },
		}
	}, nil
}

// checkServer refuses a peer whose certificate is not that of a server of the cluster. The chain of the certificate is
// already verified.
func checkServer(cert *x509.Certificate, cluster string) error {
	theirs, role := holder(cert)
	if role != "server" {
		return model.Refuse(model.CodeCertificateRefused, "the peer is %q, not a server", role).
			WithHint("check the address: it belongs to another process")
	}
	if theirs != cluster {
		return model.Refuse(model.CodeCertificateRefused, "the server is of cluster %q, the certificate of cluster %q",
			theirs, cluster).
			WithHint("use a certificate of cluster %q", theirs)
	}
	return nil
}

// holder returns the cluster and the role in the URI of a certificate, outspan://CLUSTER/ROLE/NAME. It returns empty
// strings if there is no such URI.
func holder(cert *x509.Certificate) (cluster, role string) {
	for _, u := range cert.URIs {
		if u.Scheme == "outspan" {
			role, _, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
			return u.Host, role
		}
	}
	return "", ""
}
