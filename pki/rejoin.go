package pki

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"time"

	"github.com/outspan/outspan/model"
)

// RejoinConfig is JoinConfig for a member whose certificate has expired. In place of a token it has roots, the CAs that
// it trusted before. The handshake fails unless RejoinPeer accepts the server.
func RejoinConfig(roots []*x509.Certificate, now func() time.Time) *tls.Config {
	return joinConfig(now, func(state tls.ConnectionState, at time.Time) error {
		_, err := RejoinPeer(state, roots, at)
		return err
	})
}

// RejoinPeer is JoinPeer for a member whose certificate has expired: the server's chain must end with one of the roots.
// Codes: not_tls (another protocol), certificate_refused.
func RejoinPeer(state tls.ConnectionState, roots []*x509.Certificate, now time.Time) (JoinServer, error) {
	if err := speaksJoin(state); err != nil {
		return JoinServer{}, err
	}
	root, err := shownRoot(state.PeerCertificates)
	if err != nil {
		return JoinServer{}, err
	}
	if !slices.ContainsFunc(roots, root.Equal) {
		return JoinServer{}, refusePeer("the peer's root %q, with the key %s, is none of the CAs of this machine",
			model.Clip(root.Subject.CommonName), spkiOf(root)).
			WithHint("check the addresses of the servers; if the cluster has a new CA, let this machine join with a token: " +
				"outspan join")
	}
	return serverUnder(root, state.PeerCertificates, now, ClockTolerance)
}

// Former reads a certificate (DER) that may have expired, and returns its holder. One of the roots must have issued the
// certificate itself, without CAs in between. Codes: invalid (it is damaged), certificate_refused.
func Former(der []byte, roots []*x509.Certificate) (*x509.Certificate, Identity, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, Identity{}, model.Refuse(model.CodeInvalid, "the certificate is damaged: %s", model.Clip(err.Error())).
			WithHint("let that machine join with a token: outspan join")
	}
	pool := x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	for _, at := range []time.Time{cert.NotBefore, cert.NotAfter} {
		_, err = cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err == nil {
			id, err := Holder(cert)
			return cert, id, err
		}
	}
	return nil, Identity{}, model.Refuse(model.CodeCertificateRefused,
		"no CA of this cluster issued the certificate %q: %s", model.Clip(cert.Subject.CommonName),
		model.Clip(err.Error())).
		WithHint("let that machine join with a token: outspan join")
}
