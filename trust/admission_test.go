package trust_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// leaf issues a certificate with a new key, as the holder of the CA's key could.
func leaf(t testing.TB, ca *transport.Authority, role pki.Role, name string) tls.Certificate {
	t.Helper()
	cert, key, err := ca.Issue(transport.CertRequest{Role: role, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return must(tls.X509KeyPair(cert, key))(t)
}

func id(role pki.Role, name string) pki.Identity {
	return pki.Identity{Cluster: "c1", Role: role, Name: name}
}

// The row of a peer decides whether its certificate is admitted; see Engine.Admit. While the state has no CA, every
// peer is admitted.
func TestAdmit(t *testing.T) {
	r := newRig(t)
	s := r.found(time.Hour)
	ca, _, err := transport.ManagedDir(s.dir).Authority()
	if err != nil {
		t.Fatal(err)
	}
	stranger := leaf(t, ca, pki.RoleAgent, "n9").Leaf
	if err := s.engine.Admit(id(pki.RoleAgent, "n9"), stranger); err != nil {
		t.Errorf("without a CA: %v", err)
	}
	s.lead()
	member := func(name string) *x509.Certificate {
		der, leafOf := request(t, pki.RoleAgent, name)
		return leafOf(must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent)
	}
	n1, n2 := member("n1"), member("n2")
	n3 := member("n3")
	newer, newest := leaf(t, ca, pki.RoleAgent, "n3").Leaf, leaf(t, ca, pki.RoleAgent, "n3").Leaf
	s.joinServer("s2", time.Hour)
	s3 := s.joinServer("s3", time.Hour)
	s.do(&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "n2")})
	s.do(&fsm.MemberRevoke{Subject: who(model.SubjectServer, "s3")})
	alice := s.person("alice")
	s.do(&fsm.PersonRevoke{Subject: who(model.SubjectCert, "alice")}, &fsm.PersonRevoke{Subject: who(model.SubjectCert,
		"bob")})
	renew := func(old, next *x509.Certificate) {
		s.do(&fsm.MemberRenew{Subject: who(model.SubjectAgent, "n3"), Old: pki.KeyHash(old),
			Key: pki.KeyHash(next), NotAfter: 1})
	}
	renew(n3, newer)
	if err := s.engine.Admit(id(pki.RoleAgent, "n3"), n3); err != nil {
		t.Errorf("the previous key: %v", err)
	}
	renew(newer, newest)
	for name, test := range map[string]struct {
		id   pki.Identity
		leaf *x509.Certificate
		want model.Code
	}{
		"member":                     {id(pki.RoleAgent, "n1"), n1, ""},
		"newest key":                 {id(pki.RoleAgent, "n3"), newest, ""},
		"previous key":               {id(pki.RoleAgent, "n3"), newer, ""},
		"replaced key":               {id(pki.RoleAgent, "n3"), n3, model.CodeCertificateRefused},
		"key of another":             {id(pki.RoleAgent, "n1"), n2, model.CodeCertificateRefused},
		"no row":                     {id(pki.RoleAgent, "n9"), stranger, model.CodeCertificateRefused},
		"revoked":                    {id(pki.RoleAgent, "n2"), n2, model.CodeMemberRevoked},
		"server":                     {id(pki.RoleServer, "s2"), leaf(t, ca, pki.RoleServer, "s2").Leaf, ""},
		"server that is unknown yet": {id(pki.RoleServer, "s4"), leaf(t, ca, pki.RoleServer, "s4").Leaf, ""},
		"revoked server":             {id(pki.RoleServer, "s3"), must(tlsLeaf(s3))(t), model.CodeMemberRevoked},
		"revoked server with new keys": {id(pki.RoleServer, "s3"),
			leaf(t, ca, pki.RoleServer, "s3").Leaf, model.CodeMemberRevoked},
		"a server that was revoked before it joined": {id(pki.RoleServer, "s3"),
			admittedAt(t, ca, "s3", s.machine.Current().MomentNumber()), ""},
		"person":                     {id(pki.RoleCLI, "n2"), leaf(t, ca, pki.RoleCLI, "n2").Leaf, ""},
		"revoked person with files":  {id(pki.RoleCLI, "bob"), leaf(t, ca, pki.RoleCLI, "bob").Leaf, model.CodeMemberRevoked},
		"revoked person":             {id(pki.RoleCLI, "alice"), alice, model.CodeMemberRevoked},
		"revoked person who is back": {id(pki.RoleCLI, "alice"), s.person("alice"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.engine.Admit(test.id, test.leaf)
			if codeOf(err) != test.want || (err == nil) != (test.want == "") {
				t.Errorf("got %v, want code %q", err, test.want)
			}
		})
	}
}

// admittedAt issues a certificate of a server with a number, as the leader does.
func admittedAt(t testing.TB, ca *transport.Authority, name string, number uint64) *x509.Certificate {
	t.Helper()
	der, _ := request(t, pki.RoleServer, name)
	request := must(pki.ParseRequest(der, pki.RoleServer))(t)
	request.AdmittedAt = number
	return must(ca.Sign(request, time.Hour))(t)
}

// person makes a certificate for a person, as the leader does.
func (s *site) person(name string) *x509.Certificate {
	t := s.r.t
	t.Helper()
	leaf, _ := s.personPair(name)
	return leaf
}

func (s *site) personPair(name string) (*x509.Certificate, tls.Certificate) {
	t := s.r.t
	t.Helper()
	der, key, err := pki.NewRequest(pki.RoleCLI, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	request := must(pki.ParseRequest(der, pki.RoleCLI))(t)
	state := s.machine.State()
	request.AdmittedAt = state.MomentNumber()
	leaf, roots, err := s.engine.SignPerson(&state, request, time.Hour)
	if err != nil || len(roots) != 1 {
		t.Fatal(err, len(roots))
	}
	s.do(&fsm.PersonAdmit{Subject: who(model.SubjectCert, name), Key: request.KeyHash(),
		NotAfter: leaf.NotAfter.UnixMilli(), Number: request.AdmittedAt})
	return leaf, tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// After a revocation, or a recovery, the open connections of a person end, and cannot be opened again. Those of another
// person stay after the revocation.
func TestPeopleLoseConnections(t *testing.T) {
	r := newRig(t)
	s := r.found(time.Hour)
	s.lead()
	served := newPort(t, s.creds)
	s.closed = served.CloseWhere
	s.run()
	roots := x509.NewCertPool()
	ca, _ := s.machine.Current().ActiveKey(model.KeyCA)
	roots.AddCert(must(x509.ParseCertificate(ca.Public))(t))
	dial := func(pair tls.Certificate) (*line, error) {
		conn, err := tls.Dial("tcp", served.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "server.outspan",
			Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
		if err != nil {
			return nil, err
		}
		l := &line{conn: conn, end: make(chan struct{})}
		t.Cleanup(func() { conn.Close() })
		admitted := make(chan error, 1)
		go func() {
			defer close(l.end)
			b := make([]byte, 512)
			_, err := conn.Read(b) // the server's first frame, or its refusal
			admitted <- err
			for err == nil {
				_, err = conn.Read(b)
			}
		}()
		select {
		case err := <-admitted:
			return l, err
		case <-time.After(20 * time.Second):
			return l, context.DeadlineExceeded
		}
	}
	_, alice := s.personPair("alice")
	_, bob := s.personPair("bob")
	lines := map[string]*line{}
	for name, pair := range map[string]tls.Certificate{"alice": alice, "bob": bob} {
		l, err := dial(pair)
		if err != nil {
			t.Fatal(name, err)
		}
		lines[name] = l
	}
	s.do(&fsm.PersonRevoke{Subject: who(model.SubjectCert, "alice")})
	eventually(t, "her connection ends", lines["alice"].over)
	if _, err := dial(alice); err == nil {
		t.Error("she connects again")
	}
	if _, err := dial(bob); err != nil || lines["bob"].over() {
		t.Errorf("another person: %v", err)
	}
	s.do(&fsm.RestoreMark{Recovered: true, VoidPeople: true})
	eventually(t, "his connection ends", lines["bob"].over)
	if _, err := dial(bob); err == nil {
		t.Error("he connects again after a recovery")
	}
	_, again := s.personPair("bob")
	if _, err := dial(again); err != nil {
		t.Errorf("a certificate from after the recovery: %v", err)
	}
}

func tlsLeaf(s *site) (*x509.Certificate, error) {
	pair, _, err := transport.ManagedDir(s.dir).Pair(pki.RoleServer)
	return pair.Leaf, err
}

// After the revocation of an agent, its open connection to the server ends, as does the server's to the agent, and
// neither can be opened again. Another agent keeps its connections.
func TestRevocationEndsConnections(t *testing.T) {
	r := newRig(t)
	s := r.found(time.Hour)
	s.lead()
	served := newPort(t, s.creds)
	s.closed = served.CloseWhere
	s.run()
	agents := map[string]*peer{}
	for _, name := range []string{"n1", "n2"} {
		agents[name] = s.agent(name)
		agents[name].check(t, served, s.creds, true)
	}
	s.do(&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "n1"), Reason: "stolen"})
	eventually(t, "both connections end", func() bool {
		return agents["n1"].in.over() && agents["n1"].out.over()
	})
	if agents["n2"].in.over() || agents["n2"].out.over() {
		t.Error("the connections of another agent ended too")
	}
	agents["n1"].check(t, served, s.creds, false)
	agents["n2"].check(t, served, s.creds, true)
}

// newPort runs a TLS port with an HTTP server until the test ends.
func newPort(t testing.TB, creds *transport.Credentials) *transport.Listener {
	t.Helper()
	raw := must(transport.ListenTCP(t.Context(), "127.0.0.1:0"))(t)
	l := must(transport.NewListener(raw, transport.ListenerConfig{Credentials: creds}))(t)
	web := transport.NewHTTPServer(http.NotFoundHandler(), transport.HTTPConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Run(ctx) }()
	served := make(chan struct{})
	go func() { defer close(served); _ = web.Run(ctx, l.API()) }()
	t.Cleanup(func() { cancel(); <-served; <-done })
	return l
}

// peer is an agent with a port of its own, and its newest connections with the server.
type peer struct {
	creds   *transport.Credentials
	port    *transport.Listener
	in, out *line // dialled by the agent, and by the server
}

// line is an open connection.
type line struct {
	conn io.Closer
	end  chan struct{} // closed when the connection ends
}

func (l *line) over() bool {
	select {
	case <-l.end:
		return true
	default:
		return false
	}
}

// agent lets an agent join, and opens its port.
func (s *site) agent(name string) *peer {
	t := s.r.t
	t.Helper()
	der, key, err := pki.NewRequest(pki.RoleAgent, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply := must(s.join(s.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t)
	dir := transport.ManagedDir(t.TempDir())
	err = dir.Write(transport.ManagedFiles{Roots: reply.Roots,
		Pairs: map[pki.Role]tls.Certificate{pki.RoleAgent: {Certificate: reply.Agent, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{creds: must(dir.Credentials("c1", pki.RoleAgent, name))(t)}
	p.port = newPort(t, p.creds)
	return p
}

// check opens a connection in both directions. If ok is false, both must be refused.
func (p *peer) check(t testing.TB, served *transport.Listener, creds *transport.Credentials, ok bool) {
	t.Helper()
	open := func(d transport.Dialer, to *transport.Listener) *line {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		conn, err := d.DialAPI(ctx, "tcp", to.Addr().String())
		if err != nil {
			if ok {
				t.Fatal(err)
			}
			return nil
		}
		l := &line{conn: conn, end: make(chan struct{})}
		_ = conn.SetReadDeadline(time.Now().Add(15 * time.Second))
		if !ok { // with TLS 1.3, the refusal of a client comes with its first read
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("a revoked agent is served")
			}
			_ = conn.Close()
			return nil
		}
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			close(l.end)
		}()
		t.Cleanup(func() { _ = conn.Close(); <-l.end })
		return l
	}
	p.in = open(transport.Dialer{Credentials: p.creds}, served)
	p.out = open(transport.Dialer{Credentials: creds, Peer: pki.RoleAgent}, p.port)
}

func who(kind model.SubjectKind, name string) model.Subject {
	return model.Subject{Kind: kind, Name: name}
}
