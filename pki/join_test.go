package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A newcomer connects to a server over TLS on loopback. It accepts only a server whose chain ends in the root that its
// token names, and it gets that root and the cluster's name.
func TestJoin(t *testing.T) {
	root, other := newRoot(t, nil), newRoot(t, nil)
	deep := newRoot(t, func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 1, false })
	between := deep.between(t)
	server, issuer := root.issue(t, "outspan://c1/server/s1", nil), deep.issue(t, "outspan://c1/server/s1", nil)
	const hour = time.Hour
	lasting := func(from, until time.Duration) tls.Certificate {
		return root.issue(t, "outspan://c1/server/s1", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = base.Add(from), base.Add(until)
		})
	}
	young := newRoot(t, func(c *x509.Certificate) { c.NotBefore = base.Add(hour) })
	for name, tt := range map[string]struct {
		shown tls.Certificate
		root  authority // of the token
		clock time.Duration
		want  []string // parts of the refusal, or nil
	}{
		"right root": {shown: chained(server, root), root: root},
		"a CA in between": {root: deep,
			shown: chained(between.issue(t, "outspan://c1/server/s1", nil), between, deep)},
		"clock an hour late":              {shown: chained(server, root), root: root, clock: -hour},
		"clock an hour early":             {shown: chained(lasting(0, 2*hour), root), root: root, clock: 3 * hour},
		"a root that expired an hour ago": {shown: chained(lasting(0, 300*hour), root), root: root, clock: 101 * hour},
		"expired an hour ago":             {shown: chained(lasting(-3*hour, -hour), root), root: root},
		"a root of the last hour, a clock an hour late": {root: young,
			shown: chained(young.issue(t, "outspan://c1/server/s1", nil), young), clock: -hour},

		"other root": {chained(other.issue(t, "outspan://c1/server/s1", nil), other), root, 0,
			[]string{"the root of the peer has the key", "new token", "in between"}},
		"other leaf under the right root": {chained(other.issue(t, "outspan://c1/server/s1", nil), root), root, 0,
			[]string{"not good under the root"}},
		"an agent": {chained(root.issue(t, "outspan://c1/agent/n1", nil), root), root, 0,
			[]string{"the peer is agent/n1", "stolen"}},
		"an agent with the name of servers": {chained(root.issue(t, "outspan://c1/agent/n1", func(c *x509.Certificate) {
			c.DNSNames = []string{"server.outspan"}
		}), root), root, 0, []string{"the peer is agent/n1"}},
		"a person": {chained(root.issue(t, "outspan://c1/cli/alice", nil), root), root, 0, []string{"the peer is cli/alice"}},
		"no identity": {chained(root.issue(t, "https://c1/server/s1", nil), root), root, 0,
			[]string{"carries no outspan role"}},
		"two identities": {chained(root.issue(t, "outspan://c1/server/s1", func(c *x509.Certificate) {
			c.URIs = append(c.URIs, &url.URL{Scheme: "outspan", Host: "c1", Path: "/agent/n1"})
		}), root), root, 0, []string{"two identities"}},
		"no name of servers": {chained(root.issue(t, "outspan://c1/server/s1", func(c *x509.Certificate) {
			c.DNSNames = []string{"localhost"}
		}), root), root, 0, []string{"server/s1 lacks the DNS name server.outspan"}},
		"not for servers": {chained(root.issue(t, "outspan://c1/server/s1", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), root), root, 0, []string{"not good under the root", "key usage"}},
		"no root": {server, root, 0, []string{"did not show its root", `only "server/s1"`, "append"}},
		"no root, but a CA": {chained(between.issue(t, "outspan://c1/server/s1", nil), between), deep, 0,
			[]string{"did not show its root"}},
		"the root alone": {root.pair(), root, 0, []string{"did not show its root"}},
		"the root first": {chained(root.pair(), root), root, 0, []string{`identity "outspan://c1" is not`}},
		"too many": {chained(server, root, root, root, root), root, 0,
			[]string{"showed 5 certificates, not 2 to 4"}},
		"a server that issues": {chained(asCA(issuer).issue(t, "outspan://c1/server/s2", nil), asCA(issuer), deep), deep, 0,
			[]string{"not good under the root"}},
		"forged root": {chained(server, root.forge(t)), root, 0, []string{"is forged"}},
		"expired": {chained(lasting(-5*hour, -3*hour), root), root, 0,
			[]string{`"server/s1" of the peer expired at ` + at(-3*hour), "the clock of this machine says " + at(0),
				"differs by 3h", "date -u"}},
		"not yet valid": {chained(server, root), root, -3 * hour,
			[]string{"of the peer is not valid before " + at(0), "the clock of this machine says " + at(-3*hour),
				"differs by 3h", "date -u"}},
		"expired root": {chained(lasting(0, 300*hour), root), root, 200 * hour,
			[]string{`"root of c1" of the peer expired at ` + at(100*hour)}},
		"never valid at once": {chained(young.issue(t, "outspan://c1/server/s1", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = base.Add(-hour), base.Add(30*time.Minute)
		}), young), young, 0, []string{"not good under the root"}},
	} {
		t.Run(name, func(t *testing.T) {
			token, err := pki.NewJoinToken(pki.RoleAgent, tt.root.cert)
			if err != nil {
				t.Fatal(err)
			}
			now := func() time.Time { return base.Add(tt.clock) }
			address, _ := serve(t, joinServer(tt.shown))
			state, err := shake(t, address, pki.JoinConfig(token, now))
			if tt.want != nil {
				wantCode(t, err, model.CodeCertificateRefused, tt.want...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := pki.JoinPeer(state, token, now())
			want := pki.Identity{Cluster: "c1", Role: pki.RoleServer, Name: "s1"}
			if err != nil || got.ID != want || !got.Root.Equal(tt.root.cert) {
				t.Errorf("got %+v, %v; want %+v", got.ID, err, want)
			}
		})
	}
}

// The newcomer shows no certificate, keeps no session, and speaks nothing but the join protocol over TLS 1.3.
func TestJoinConnection(t *testing.T) {
	root := newRoot(t, nil)
	shown := chained(root.issue(t, "outspan://c1/server/s1", nil), root)
	token, err := pki.NewJoinToken(pki.RoleServer, root.cert)
	if err != nil {
		t.Fatal(err)
	}
	config := pki.JoinConfig(token, func() time.Time { return base })
	asking := joinServer(shown)
	asking.ClientAuth = tls.RequestClientCert
	address, states := serve(t, asking)
	for range 2 {
		if _, err := shake(t, address, config); err != nil {
			t.Fatal(err)
		}
		state := <-states
		if state.Version != tls.VersionTLS13 || state.DidResume || len(state.PeerCertificates) != 0 ||
			state.NegotiatedProtocol != "outspan-join/1" || state.ServerName != "server.outspan" {
			t.Errorf("the server sees version %x, resumed %v, %d certificates, protocol %q, name %q", state.Version,
				state.DidResume, len(state.PeerCertificates), state.NegotiatedProtocol, state.ServerName)
		}
	}
	if !config.SessionTicketsDisabled || config.ClientSessionCache != nil {
		t.Error("the newcomer keeps sessions")
	}
	silent := joinServer(shown)
	silent.NextProtos = nil
	address, _ = serve(t, silent)
	_, err = shake(t, address, config)
	wantCode(t, err, model.CodeNotTLS, "does not speak outspan-join/1", "address of a server")
	for name, edit := range map[string]func(*tls.Config){
		"another protocol": func(c *tls.Config) { c.NextProtos = []string{"h2", "outspan-agent/1"} },
		"TLS 1.2":          func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
	} {
		refusing := joinServer(shown)
		edit(refusing)
		address, _ = serve(t, refusing)
		if state, err := shake(t, address, config); err == nil {
			t.Errorf("%s: connected with version %x and protocol %q", name, state.Version, state.NegotiatedProtocol)
		}
	}
}

// RootOf accepts a clock that is wrong by exactly the tolerance. Beyond it, the error has the time of the certificate
// and the time of the clock.
func TestRootOfTolerance(t *testing.T) {
	root := newRoot(t, nil)
	shown := chained(root.issue(t, "outspan://c1/server/s1", nil), root)
	token, err := pki.NewJoinToken(pki.RoleAgent, root.cert)
	if err != nil {
		t.Fatal(err)
	}
	var chain []*x509.Certificate
	for _, der := range shown.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		chain = append(chain, cert)
	}
	const hour, end = time.Hour, 100 * time.Hour
	for _, tt := range []struct {
		clock, tolerance time.Duration
		want             []string
	}{
		{0, 0, nil}, {end, 0, nil}, {-hour, hour, nil}, {end + hour, hour, nil},
		{-time.Second, 0, []string{"not valid before " + at(0), "says " + at(-time.Second)}},
		{end + time.Second, 0, []string{"expired at " + at(end), "says " + at(end+time.Second)}},
		{-hour, hour - 1, []string{"not valid before " + at(0), "says " + at(-hour)}},
		{end + hour, hour - 1, []string{"expired at " + at(end), "says " + at(end+hour)}},
	} {
		_, err := pki.RootOf(chain, token, base.Add(tt.clock), tt.tolerance)
		if tt.want != nil {
			wantCode(t, err, model.CodeCertificateRefused, tt.want...)
		} else if err != nil {
			t.Errorf("clock off by %s, tolerance %s: %v", tt.clock, tt.tolerance, err)
		}
	}
	_, err = pki.RootOf(nil, token, base, 0)
	wantCode(t, err, model.CodeCertificateRefused, "showed 0 certificates")
	_, err = pki.RootOf(chain, pki.JoinToken{}, base, 0)
	wantCode(t, err, model.CodeInvalid, "no join token")
}

// What the cluster's CA issues today is accepted once the chain has the root too.
func TestJoinOwnAuthority(t *testing.T) {
	ca, err := transport.NewAuthority("prod", 0)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(ca.PEM())
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	token, err := pki.NewJoinToken(pki.RoleServer, root)
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[pki.Role]string{pki.RoleServer: "", pki.RoleAgent: "the peer is agent/a"} {
		certPEM, keyPEM, err := ca.Issue(transport.CertRequest{Role: role, Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(append(certPEM, ca.PEM()...), keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		address, _ := serve(t, joinServer(pair))
		state, err := shake(t, address, pki.JoinConfig(token, nil))
		if want != "" {
			wantCode(t, err, model.CodeCertificateRefused, want)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := pki.JoinPeer(state, token, time.Now())
		if err != nil || got.ID.Cluster != "prod" || !got.Root.Equal(root) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}
