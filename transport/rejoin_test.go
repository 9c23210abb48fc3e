package transport_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// expired returns the certificate of an agent that has expired, with its key.
func expired(t testing.TB, ca *transport.Authority, name string) tls.Certificate {
	t.Helper()
	cert, key, err := ca.Issue(transport.CertRequest{Role: pki.RoleAgent, Name: name, TTL: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	return must(tls.X509KeyPair(cert, key))(t)
}

// claims starts a server that answers agents whose certificates have expired. It accepts each claim that is proved, and
// sends each request to seen, which must have room.
func claims(t testing.TB, creds *transport.Credentials, seen chan transport.JoinRequest) *station {
	return admitting(t, creds, func(_ context.Context, _ net.Addr, r transport.JoinRequest) (transport.JoinReply, error) {
		seen <- r
		if r.Rejoin == nil {
			return transport.JoinReply{}, model.Refuse(model.CodeInvalid, "no rejoin")
		}
		claim, err := r.Rejoin.Claim()
		return transport.JoinReply{Cluster: "c1", Roots: [][]byte{{1}}, Agent: [][]byte{claim.Certificate, claim.Request},
			GossipKeys: [][]byte{{2}}, Servers: []string{claim.Boot}}, err
	})
}

// An agent whose certificate has expired proves that it has the key, to a server of the CA that it knows.
func TestRejoin(t *testing.T) {
	ca := authority(t, "c1")
	seen := make(chan transport.JoinRequest, 10)
	s := claims(t, credentials(t, ca, pki.RoleServer, "s1"), seen)
	old, roots := expired(t, ca, "n1"), []*x509.Certificate{ca.Root()}
	r := transport.RejoinRequest{Request: []byte("request"), Boot: "boot"}
	reply, err := transport.Rejoin(t.Context(), []string{s.addr}, roots, old, r)
	if err != nil {
		t.Fatal(err)
	}
	if len(reply.Chain) != 2 || string(reply.Chain[0]) != string(old.Certificate[0]) ||
		string(reply.Chain[1]) != "request" || len(reply.Roots) != 1 || len(reply.GossipKeys) != 1 ||
		reply.Servers[0] != "boot" {
		t.Errorf("got %+v", reply)
	}
	other := expired(t, ca, "n2")
	other.Certificate = old.Certificate
	_, err = transport.Rejoin(t.Context(), []string{s.addr}, roots, other, r)
	wantCode(t, err, model.CodeForbidden, "has not proved")
	_, err = transport.Rejoin(t.Context(), nil, roots, old, r)
	wantCode(t, err, model.CodeInvalid, "no server")
	_, err = transport.Rejoin(t.Context(), []string{s.addr}, roots, tls.Certificate{}, r)
	wantCode(t, err, model.CodeCertificateInvalid)
	_, err = transport.Rejoin(t.Context(), []string{s.addr}, roots, old, transport.RejoinRequest{})
	wantCode(t, err, model.CodeInvalid, "certificate request has 0 bytes")
}

// The agent proves nothing to a peer that is no server of the CA that it knows.
func TestRejoinRefusesPeers(t *testing.T) {
	ca, other := authority(t, "c1"), authority(t, "c1")
	seen := make(chan transport.JoinRequest, 10)
	for name, tt := range map[string]struct {
		creds *transport.Credentials
		says  string
	}{
		"another root": {credentials(t, other, pki.RoleServer, "s1"), "is none of the CAs of this machine"},
		"an agent":     {credentials(t, ca, pki.RoleAgent, "n9"), "the peer is agent/n9"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := transport.Rejoin(t.Context(), []string{claims(t, tt.creds, seen).addr},
				[]*x509.Certificate{ca.Root()}, expired(t, ca, "n1"), transport.RejoinRequest{Request: []byte("r")})
			wantCode(t, err, model.CodeCertificateRefused, tt.says)
		})
	}
	if len(seen) > 0 {
		t.Errorf("the agent sent %d requests to wrong peers", len(seen))
	}
}

// A proof counts only on its connection and for what was signed. So a server that got a request can't use it at another
// server, and nobody can ask for another key with it.
func TestRejoinProofsAreBound(t *testing.T) {
	ca := authority(t, "c1")
	seen := make(chan transport.JoinRequest, 20)
	s1 := claims(t, credentials(t, ca, pki.RoleServer, "s1"), seen)
	s2 := claims(t, credentials(t, ca, pki.RoleServer, "s2"), seen)
	old := expired(t, ca, "n1")
	sent := transport.RejoinRequest{Request: []byte("request"), Boot: "boot"}
	if _, err := transport.Rejoin(t.Context(), []string{s1.addr}, []*x509.Certificate{ca.Root()}, old, sent); err != nil {
		t.Fatal(err)
	}
	replayed := *(<-seen).Rejoin
	for name, tt := range map[string]struct {
		to   *station
		edit func(*transport.RejoinRequest) // after the signature
		code model.Code                     // "" means that the server accepts it
	}{
		"as signed":          {s1, func(*transport.RejoinRequest) {}, ""},
		"replayed there":     {s1, func(r *transport.RejoinRequest) { *r = replayed }, model.CodeForbidden},
		"replayed elsewhere": {s2, func(r *transport.RejoinRequest) { *r = replayed }, model.CodeForbidden},
		"another request":    {s1, func(r *transport.RejoinRequest) { r.Request = []byte("another") }, model.CodeForbidden},
		"another boot":       {s1, func(r *transport.RejoinRequest) { r.Boot = "" }, model.CodeForbidden},
		"another certificate": {s1, func(r *transport.RejoinRequest) { r.Certificate = expired(t, ca, "n1").Certificate[0] },
			model.CodeForbidden},
		"moved bytes": {s1, func(r *transport.RejoinRequest) { r.Request, r.Boot = []byte("requestb"), "oot" },
			model.CodeForbidden},
		"damaged certificate": {s1, func(r *transport.RejoinRequest) { r.Certificate = []byte("x") }, model.CodeInvalid},
		"no signature":        {s1, func(r *transport.RejoinRequest) { r.Signature = nil }, model.CodeInvalid},
		"large certificate": {s1, func(r *transport.RejoinRequest) { r.Certificate = make([]byte, 8193) },
			model.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			conn := stranger(t, "127.0.0.1", tt.to.addr)
			r := sent
			r.Certificate = old.Certificate[0]
			if err := transport.SignRejoin(&r, conn.ConnectionState(), old.PrivateKey); err != nil {
				t.Fatal(err)
			}
			tt.edit(&r)
			got := exchange(t, conn, message(t, transport.JoinRequest{Rejoin: &r}))
			switch {
			case tt.code == "" && got.Problem != nil:
				t.Errorf("refused: %v", got.Problem)
			case tt.code != "" && (got.Problem == nil || got.Problem.Code != tt.code):
				t.Errorf("got %+v, want %s", got.Problem, tt.code)
			}
		})
	}
	both := exchange(t, stranger(t, "127.0.0.1", s1.addr),
		message(t, transport.JoinRequest{Token: "t", Rejoin: &replayed}))
	if both.Problem == nil || both.Problem.Code != model.CodeInvalid {
		t.Errorf("with a token too: %+v", both.Problem)
	}
	if _, err := replayed.Claim(); err != nil {
		t.Errorf("the first server lost its proof: %v", err)
	}
	replayed = transport.RejoinRequest{Certificate: replayed.Certificate, Request: replayed.Request, Boot: replayed.Boot,
		Signature: replayed.Signature}
	_, err := replayed.Claim()
	wantCode(t, err, model.CodeForbidden)
}
