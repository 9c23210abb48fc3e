package transport_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// admitting starts a server with the given credentials that answers newcomers, until the test ends.
func admitting(t testing.TB, creds *transport.Credentials, answer transport.AnswerJoin) *station {
	t.Helper()
	return start(t, creds, stationConfig{listener: transport.ListenerConfig{Join: answer}})
}

func welcome(context.Context, net.Addr, transport.JoinRequest) (transport.JoinReply, error) {
	return transport.JoinReply{Cluster: "c1"}, nil
}

func tokenFor(t testing.TB, role pki.Role, ca *transport.Authority) pki.JoinToken {
	t.Helper()
	return must(pki.NewJoinToken(role, ca.Root()))(t)
}

func requestFor(t testing.TB, role pki.Role, name string) (der []byte, key *ecdsa.PrivateKey) {
	t.Helper()
	der, key, err := pki.NewRequest(role, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

func agentRequest(t testing.TB) transport.JoinRequest {
	t.Helper()
	der, _ := requestFor(t, pki.RoleAgent, "n1")
	return transport.JoinRequest{Agent: der}
}

// A newcomer joins with a token alone, whether the server's certificate was loaded with or without the root. The
// newcomer's clock may be an hour off in either direction. With its new certificate the newcomer then calls the API.
func TestJoin(t *testing.T) {
	ca := authority(t, "c1")
	token := tokenFor(t, pki.RoleServer, ca)
	answer := func(_ context.Context, source net.Addr, r transport.JoinRequest) (transport.JoinReply, error) {
		if host, _, err := net.SplitHostPort(source.String()); err != nil || host != "127.0.0.1" {
			t.Errorf("the newcomer came from %s", source)
		}
		if r.Token != token.Reveal() || r.Address != "10.0.0.4:7640" || r.Version != "1.2.3" || r.Labels["rack"] != "r1" {
			t.Errorf("asked for %+v", r)
		}
		var issued [2][]byte
		for i, part := range []struct {
			der  []byte
			role pki.Role
		}{{r.Server, pki.RoleServer}, {r.Agent, pki.RoleAgent}} {
			request, err := pki.ParseRequest(part.der, part.role)
			if err != nil {
				return transport.JoinReply{}, err
			}
			cert, err := ca.Sign(request, 30*24*time.Hour)
			if err != nil {
				return transport.JoinReply{}, err
			}
			issued[i] = cert.Raw
		}
		return transport.JoinReply{Cluster: "c1", Roots: [][]byte{ca.Root().Raw}, Server: [][]byte{issued[0]},
			Agent: [][]byte{issued[1]}, Keyring: [][]byte{{1}}, GossipKeys: [][]byte{{2}}, Servers: []string{"10.0.0.1:7640"},
			Gossip: []string{"10.0.0.1:7642"}, Labels: map[string]string{"rack": "r1"}}, nil
	}
	for name, creds := range map[string]*transport.Credentials{
		"without the root": credentials(t, ca, pki.RoleServer, "s1"),
		"with the root":    chainedCredentials(t, ca, "s1"),
	} {
		s := admitting(t, creds, answer)
		for _, off := range []time.Duration{0, -time.Hour, time.Hour} {
			t.Run(name+", clock "+off.String(), func(t *testing.T) {
				server, _ := requestFor(t, pki.RoleServer, "s4")
				agent, key := requestFor(t, pki.RoleAgent, "n4")
				reply, peer, err := transport.JoinAt(t.Context(), off, 0, []string{s.addr}, token,
					transport.JoinRequest{Server: server, Agent: agent, Address: "10.0.0.4:7640", Version: "1.2.3",
						Labels: map[string]string{"rack": "r1"}})
				if err != nil {
					t.Fatal(err)
				}
				if peer.ID != (pki.Identity{Cluster: "c1", Role: pki.RoleServer, Name: "s1"}) || !peer.Root.Equal(ca.Root()) {
					t.Errorf("admitted by %s with the root %v", peer.ID, peer.Root.Subject)
				}
				if len(reply.Server) != 1 || len(reply.Keyring) != 1 || len(reply.GossipKeys) != 1 ||
					reply.Cluster != "c1" || reply.Servers[0] != "10.0.0.1:7640" || reply.Gossip[0] != "10.0.0.1:7642" ||
					reply.Labels["rack"] != "r1" || len(reply.Roots) != 1 {
					t.Errorf("got %+v", reply)
				}
				callAPI(t, s.addr, off, reply, key)
			})
		}
	}
}

// callAPI connects as an agent that has just joined and whose clock is wrong by the duration off.
func callAPI(t *testing.T, addr string, off time.Duration, reply transport.JoinReply, key *ecdsa.PrivateKey) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(must(x509.ParseCertificate(reply.Roots[0]))(t))
	own := &pki.Certificate{Roots: roots, ID: pki.Identity{Cluster: "c1", Role: pki.RoleAgent, Name: "n4"},
		Pair: tls.Certificate{Certificate: reply.Agent, PrivateKey: key}}
	cfg := own.ClientConfig(pki.RoleServer, "h2")
	cfg.Time = func() time.Time { return time.Now().Add(off) }
	conn := must(tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", addr, cfg))(t)
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != nil { // the settings that a server of HTTP/2 sends first
		t.Errorf("the API refused the new certificate: %v", err)
	}
	leaf := must(x509.ParseCertificate(reply.Agent[0]))(t)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: cfg.Time(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		t.Errorf("the newcomer would not load its own certificate: %v", err)
	}
}

// chainedCredentials returns credentials from files in which the root follows the server's certificate.
func chainedCredentials(t testing.TB, ca *transport.Authority, name string) *transport.Credentials {
	t.Helper()
	dir := t.TempDir()
	cert, key, err := ca.Issue(transport.CertRequest{Role: pki.RoleServer, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	files := transport.CredentialsConfig{CAFile: dir + "/ca", CertFile: dir + "/cert", KeyFile: dir + "/key"}
	writeAll(t, map[string][]byte{files.CAFile: ca.PEM(), files.CertFile: append(cert, ca.PEM()...), files.KeyFile: key})
	return must(transport.LoadCredentials(files))(t)
}

// A newcomer sends its token to no peer but a server of the token's cluster, and says why it joined nowhere.
func TestJoinRefusesPeers(t *testing.T) {
	ca, other := authority(t, "c1"), authority(t, "c1")
	asked := func(context.Context, net.Addr, transport.JoinRequest) (transport.JoinReply, error) {
		t.Error("the newcomer sent its token to the wrong peer")
		return transport.JoinReply{}, nil
	}
	silent := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	nobody := silent.Addr().String()
	silent.Close()
	token := tokenFor(t, pki.RoleAgent, ca)
	for name, tt := range map[string]struct {
		addresses []string
		token     pki.JoinToken
		edit      func(*transport.JoinRequest)
		code      model.Code
		says      []string
	}{
		"another root": {addresses: []string{admitting(t, credentials(t, other, pki.RoleServer, "s1"), asked).addr},
			code: model.CodeCertificateRefused, says: []string{"127.0.0.1:", "the root of the peer has the key"}},
		"an agent": {addresses: []string{admitting(t, credentials(t, ca, pki.RoleAgent, "n9"), asked).addr},
			code: model.CodeCertificateRefused, says: []string{"the peer is agent/n9", "stolen"}},
		"a server that admits nobody": {addresses: []string{
			start(t, credentials(t, ca, pki.RoleServer, "s1"), stationConfig{}).addr},
			code: model.CodeNotTLS, says: []string{"can't admit", "managed = true"}},
		"no TLS": {addresses: []string{rawServer(t, func(c net.Conn) { c.Write([]byte("220 mail.example.com\r\n")) })},
			code: model.CodeNotTLS, says: []string{"does not speak TLS", "managed = true"}},
		"nobody there": {addresses: []string{nobody, nobody}, code: model.CodeUnreachable,
			says: []string{nobody + ": connect: connection refused; " + nobody}},
		"nobody there, and another root": {
			addresses: []string{nobody, admitting(t, credentials(t, other, pki.RoleServer, "s1"), asked).addr, nobody},
			code:      model.CodeCertificateRefused},
		"no address": {code: model.CodeInvalid, says: []string{"no server is given"}},
		"no certificate wanted": {addresses: []string{nobody}, code: model.CodeInvalid, says: []string{"no certificate"},
			edit: func(r *transport.JoinRequest) { r.Agent = nil }},
		"no address of its own": {addresses: []string{nobody}, code: model.CodeInvalid, says: []string{"host:port"},
			edit: func(r *transport.JoinRequest) { r.Server = r.Agent }},
		"large": {addresses: []string{nobody}, code: model.CodeInvalid, says: []string{"version", "at most 100"},
			edit: func(r *transport.JoinRequest) { r.Version = strings.Repeat("1", 101) }},
		"labels": {addresses: []string{nobody}, code: model.CodeInvalid, says: []string{"label"},
			edit: func(r *transport.JoinRequest) { r.Labels = map[string]string{"a b": ""} }},
	} {
		t.Run(name, func(t *testing.T) {
			r := agentRequest(t)
			if tt.edit != nil {
				tt.edit(&r)
			}
			_, _, err := transport.JoinAt(t.Context(), 0, 0, tt.addresses, token, r)
			wantCode(t, err, tt.code, tt.says...)
		})
	}
	_, _, err := transport.Join(t.Context(), []string{nobody}, pki.JoinToken{}, agentRequest(t))
	wantCode(t, err, model.CodeInvalid, "no join token")
}

// A newcomer asks the next server if one can't admit it now or is a stranger. A refusal of a server is final. While all
// servers say that they can't admit it yet, the newcomer asks again.
func TestJoinServersInTurn(t *testing.T) {
	ca := authority(t, "c1")
	creds := credentials(t, ca, pki.RoleServer, "s1")
	token := tokenFor(t, pki.RoleAgent, ca)
	var asked atomic.Int32
	refusing := func(code model.Code) string {
		return admitting(t, creds, func(context.Context, net.Addr, transport.JoinRequest) (transport.JoinReply, error) {
			asked.Add(1)
			return transport.JoinReply{}, model.Refuse(code, "no")
		}).addr
	}
	leaderless, final := refusing(model.CodeNoLeader), refusing(model.CodeForbidden)
	broken := admitting(t, creds, func(context.Context, net.Addr, transport.JoinRequest) (transport.JoinReply, error) {
		panic("planted")
	}).addr
	failing := admitting(t, creds, func(context.Context, net.Addr, transport.JoinRequest) (transport.JoinReply, error) {
		return transport.JoinReply{}, errors.New("a secret of the server")
	}).addr
	huge := admitting(t, creds, func(context.Context, net.Addr, transport.JoinRequest) (transport.JoinReply, error) {
		return transport.JoinReply{Keyring: [][]byte{make([]byte, 64<<10)}}, nil
	}).addr
	good := admitting(t, creds, welcome).addr
	stranger := admitting(t, credentials(t, authority(t, "c1"), pki.RoleServer, "s1"), welcome).addr
	for name, tt := range map[string]struct {
		addresses []string
		code      model.Code
	}{
		"no leader, then good": {[]string{leaderless, good}, ""},
		"stranger, then good":  {[]string{stranger, good}, ""},
		"refused":              {[]string{final, good}, model.CodeForbidden},
		"no leader":            {[]string{leaderless, stranger}, model.CodeNoLeader},
		"panic":                {[]string{broken, good}, model.CodeInternal},
		"another error":        {[]string{failing, good}, model.CodeInternal},
		"too large a reply":    {[]string{huge, good}, model.CodeTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			reply, _, err := transport.JoinAt(t.Context(), 0, 0, tt.addresses, token, agentRequest(t))
			if tt.code != "" {
				wantCode(t, err, tt.code)
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("the error tells too much: %v", err)
				}
				return
			}
			if err != nil || reply.Cluster != "c1" {
				t.Errorf("got %+v, %v", reply, err)
			}
		})
	}
	later := admitting(t, creds, func(context.Context, net.Addr, transport.JoinRequest) (transport.JoinReply, error) {
		if asked.Add(1) < 3 {
			return transport.JoinReply{}, model.Refuse(model.CodeNoLeader, "no leader yet")
		}
		return transport.JoinReply{Cluster: "c1"}, nil
	}).addr
	asked.Store(0)
	if _, _, err := transport.Join(t.Context(), []string{later}, token, agentRequest(t)); err != nil {
		t.Errorf("after an election: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, _, err := transport.Join(ctx, []string{leaderless}, token, agentRequest(t))
	wantCode(t, err, model.CodeTimeout, "did not admit this machine in time")
}

// The protocol for newcomers is the only one without a certificate. A hello can't reach another protocol through it.
func TestNewcomersReachNothingElse(t *testing.T) {
	ca := authority(t, "c1")
	s := admitting(t, credentials(t, ca, pki.RoleServer, "s1"), welcome)
	echoRaft(t, s)
	cert, key, err := ca.Issue(transport.CertRequest{Role: pki.RoleServer, Name: "s2"})
	if err != nil {
		t.Fatal(err)
	}
	server := []tls.Certificate{must(tls.X509KeyPair(cert, key))(t)}
	const join = pki.JoinProtocol
	for name, tt := range map[string]struct {
		protos []string
		certs  []tls.Certificate
		code   model.Code
	}{
		"join and raft":                  {protos: []string{join, "outspan-raft/1"}},
		"raft and join":                  {protos: []string{"outspan-raft/1", join}},
		"join and agent":                 {protos: []string{join, "outspan-agent/1"}},
		"join and http/2":                {protos: []string{join, "h2"}},
		"http/1.1 and join":              {protos: []string{"http/1.1", join}},
		"join twice":                     {protos: []string{join, join}},
		"join and raft, as a server":     {protos: []string{join, "outspan-raft/1"}, certs: server},
		"raft without a certificate":     {protos: []string{"outspan-raft/1"}, code: model.CodeCertificateRefused},
		"agent without a certificate":    {protos: []string{"outspan-agent/1"}, code: model.CodeCertificateRefused},
		"http/2 without a certificate":   {protos: []string{"h2"}, code: model.CodeCertificateRefused},
		"http/1.1 without a certificate": {protos: []string{"http/1.1"}, code: model.CodeCertificateRefused},
		"nothing without a certificate":  {code: model.CodeCertificateRefused},
		"something like join":            {protos: []string{join + "0"}, code: model.CodeNotTLS},
		"upper case, and http/1.1": {protos: []string{"OUTSPAN-JOIN/1", "http/1.1"},
			code: model.CodeCertificateRefused},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.Stats()
			err := rawDial(t, s.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: tt.protos, Certificates: tt.certs})
			if tt.code != "" {
				wantCode(t, err, tt.code)
			} else if err == nil || !strings.Contains(err.Error(), "remote error") {
				t.Errorf("got %v, want a refusal by the server", err)
			}
			eventually(t, "the failure is counted", func() bool { return s.Stats().HandshakeFailed == before.HandshakeFailed+1 })
			if now := s.Stats(); now.Raft != 0 || now.API != 0 || now.Join != 0 {
				t.Errorf("it got in: %+v", now)
			}
		})
	}
	// With a certificate or without, an answer to HTTP over the protocol for newcomers is at most a problem.
	conn := must(tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{join},
		Certificates: server}))(t)
	defer conn.Close()
	if got := exchange(t, conn, []byte("GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")); got.Problem == nil ||
		got.Problem.Code != model.CodeTooLarge {
		t.Errorf("an answer to HTTP: %+v", got)
	}
	if now := s.Stats(); now.API != 0 || now.Raft != 0 {
		t.Errorf("it got in: %+v", now)
	}
}
