package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/outspan/outspan/model"
)

// JoinProtocol is the ALPN name of the protocol for newcomers, which have a join token and no certificate yet.
const JoinProtocol = "outspan-join/1"

// ClockTolerance limits how far the clock of a newcomer may be wrong. It also is how long a newcomer still accepts an
// expired certificate of a server.
const ClockTolerance = 2 * time.Hour

// maxChain is the most certificates that a server may show: its own, the root, and two between them. outspan's own CA
// issues without certificates in between.
const maxChain = 4

// JoinServer is a server that proved to a newcomer that it belongs to the newcomer's cluster.
type JoinServer struct {
	ID   Identity          // ID.Cluster is the name of the cluster
	Root *x509.Certificate // the root that the token names, or that a member trusted before; it may be trusted from now on
}

// JoinConfig returns the configuration with which a newcomer connects to a server. The handshake fails unless JoinPeer
// accepts the server. The newcomer shows no certificate, so the server only knows it after it has sent its token. The
// parameter now returns the time; nil means time.Now. The configuration may be used for several connections at once.
//
// The handshake fails with the error of JoinPeer, or with that of crypto/tls.
func JoinConfig(t JoinToken, now func() time.Time) *tls.Config {
	return joinConfig(now, func(state tls.ConnectionState, at time.Time) error {
		_, err := JoinPeer(state, t, at)
		return err
	})
}

// joinConfig returns a configuration for JoinProtocol. accept decides about the server.
func joinConfig(now func() time.Time, accept func(tls.ConnectionState, time.Time) error) *tls.Config {
	if now == nil {
		now = time.Now
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{JoinProtocol},
		ServerName: RoleServer.ServerName(),
		// A newcomer trusts no root yet, and its clock may be wrong, so crypto/tls can't verify the chain. accept does.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection:       func(state tls.ConnectionState) error { return accept(state, now()) },
	}
}

// JoinPeer returns the server at the other end of a newcomer's connection. The connection must speak JoinProtocol, and
// RootOf must accept the server's chain with ClockTolerance. Codes: those of RootOf, not_tls (another protocol).
func JoinPeer(state tls.ConnectionState, t JoinToken, now time.Time) (JoinServer, error) {
	if err := speaksJoin(state); err != nil {
		return JoinServer{}, err
	}
	return RootOf(state.PeerCertificates, t, now, ClockTolerance)
}

func speaksJoin(state tls.ConnectionState) error {
	if state.NegotiatedProtocol == JoinProtocol {
		return nil
	}
	return model.Refuse(model.CodeNotTLS, "the peer does not speak %s", JoinProtocol).
		WithHint("give the address of a server of this cluster, and check that its version of outspan admits newcomers")
}

// RootOf returns the server that showed chain, and the root at the end of the chain. The chain is the server's own
// certificate, at most two CAs between, and the root. The root's key must be the one that the token names. The server's
// certificate must be good under this root alone, be made for TLS servers, and have the role server: an agent's
// certificate is refused, even if everything else is right.
//
// The certificates may become valid after now, or have expired before now, by at most tolerance. Codes: invalid (t is
// no token), certificate_refused.
func RootOf(chain []*x509.Certificate, t JoinToken, now time.Time, tolerance time.Duration) (JoinServer, error) {
	root, err := t.rootIn(chain)
	if err != nil {
		return JoinServer{}, err
	}
	return serverUnder(root, chain, now, tolerance)
}

// serverUnder is RootOf for a chain that ends with a root that is known to be right.
func serverUnder(root *x509.Certificate, chain []*x509.Certificate, now time.Time,
	tolerance time.Duration) (JoinServer, error) {
	at, err := verifyAt(chain, now, tolerance)
	if err != nil {
		return JoinServer{}, err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(root)
	for _, cert := range chain[1 : len(chain)-1] {
		between.AddCert(cert)
	}
	leaf := chain[0]
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return JoinServer{}, refusePeer("the peer's certificate is not good under the root that it shows: %s",
			model.Clip(err.Error())).
			WithHint("give the address of a server of this cluster")
	}
	id, err := Holder(leaf)
	if err != nil {
		return JoinServer{}, err
	}
	if id.Role != RoleServer {
		return JoinServer{}, refusePeer("the peer is %s, and only a server admits newcomers", id).
			WithHint("give the address of a server; if this is one, the certificate of %s was stolen", id)
	}
	if err := leaf.VerifyHostname(RoleServer.ServerName()); err != nil {
		return JoinServer{}, refusePeer("the certificate of %s lacks the DNS name %s", id,
			RoleServer.ServerName()).
			WithHint("issue a new one with: outspan tls cert create --server %s", id.Name)
	}
	return JoinServer{ID: id, Root: root}, nil
}

// rootIn returns the last certificate of a chain if it is the root that the token names.
func (t JoinToken) rootIn(chain []*x509.Certificate) (*x509.Certificate, error) {
	if t.secret == nil {
		return nil, model.Refuse(model.CodeInvalid, "there is no join token").WithHint(newTokenHint)
	}
	root, err := shownRoot(chain)
	if err != nil {
		return nil, err
	}
	if has := spkiOf(root); has != t.root {
		return nil, refusePeer("the root of the peer has the key %s, that of the token is %s",
			has, t.root).
			WithHint("check the address: it is of another cluster, or the cluster has a new CA and needs a new token; " +
				"if neither is the case, somebody stands in between")
	}
	// Anyone can put the root's public key into a certificate. Only the CA could sign it with that key.
	if err := root.CheckSignatureFrom(root); err != nil {
		return nil, refusePeer("the root that the peer showed is forged: %v", err).
			WithHint("check the address: somebody stands in between")
	}
	return root, nil
}

// shownRoot returns the last certificate of a chain if it may be a root. Nothing proves yet that it is the right one.
func shownRoot(chain []*x509.Certificate) (*x509.Certificate, error) {
	if n := len(chain); n == 0 || n > maxChain {
		return nil, refusePeer("the peer showed %d certificates, not 2 to %d", n, maxChain).
			WithHint("give the address of a server of this cluster")
	}
	root := chain[len(chain)-1]
	if len(chain) == 1 || !bytes.Equal(root.RawSubject, root.RawIssuer) {
		return nil, refusePeer("the peer did not show its root, only %q",
			model.Clip(root.Subject.CommonName)).
			WithHint("upgrade the server; if its certificate comes from a file, append the CA's certificate to that file")
	}
	return root, nil
}

// verifyAt returns the time nearest to now at which all certificates of a chain are valid. It refuses a certificate
// that is further away from now than tolerance. If the certificates are never valid together, the returned time is one
// at which not all of them are.
func verifyAt(chain []*x509.Certificate, now time.Time, tolerance time.Duration) (time.Time, error) {
	from, until := chain[0].NotBefore, chain[0].NotAfter
	for _, cert := range chain {
		if cert.NotBefore.Sub(now) > tolerance {
			return time.Time{}, clockError(cert, "is not valid before "+Stamp(cert.NotBefore), now, cert.NotBefore.Sub(now))
		}
		if now.Sub(cert.NotAfter) > tolerance {
			return time.Time{}, clockError(cert, "expired at "+Stamp(cert.NotAfter), now, now.Sub(cert.NotAfter))
		}
		if cert.NotBefore.After(from) {
			from = cert.NotBefore
		}
		if cert.NotAfter.Before(until) {
			until = cert.NotAfter
		}
	}
	switch {
	case now.Before(from):
		return from, nil
	case now.After(until):
		return until, nil
	}
	return now, nil
}

// clockError names the time of the certificate that is wrong, the time here, and the difference.
func clockError(cert *x509.Certificate, wrong string, now time.Time, apart time.Duration) error {
	return refusePeer("the certificate %q of the peer %s; the clock of this machine says %s, which differs by %s",
		model.Clip(cert.Subject.CommonName), wrong, Stamp(now), model.Duration(apart.Round(time.Second).Milliseconds())).
		WithHint("run date -u here and on the server, and set the clock that is wrong; " +
			"if both are right, renew the certificate")
}

func refusePeer(format string, args ...any) *model.Error {
	return model.Refuse(model.CodeCertificateRefused, format, args...)
}
