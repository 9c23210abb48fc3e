package transport_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

func TestRoles(t *testing.T) {
	ca := authority(t, "c1")
	s := start(t, credentials(t, ca, pki.RoleServer, "s1"), stationConfig{})
	echoRaft(t, s)
	subjects := map[pki.Role]string{pki.RoleServer: "server:me", pki.RoleAgent: "agent:me", pki.RoleCLI: "cert:me"}
	for role, who := range subjects {
		t.Run(role.String(), func(t *testing.T) {
			d := transport.Dialer{Credentials: credentials(t, ca, role, "me")}
			got, err := get(t.Context(), client(t, d), "https://"+s.addr)
			if want := "HTTP/2.0 " + who; err != nil || got != want {
				t.Errorf("API: got %q, %v; want %q", got, err, want)
			}
			c, err := d.DialRaft(t.Context(), s.addr)
			if role != pki.RoleServer {
				wantCode(t, err, model.CodeCertificateRefused, "raft is for servers only", role.String()+"/me")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := ping(c); err != nil {
				t.Error(err)
			}
		})
	}
}

// rawDial connects with cfg, as a hostile program would, and reads one byte. The read is needed because with TLS 1.3 a
// refusal of the client's certificate arrives only after the client's handshake.
func rawDial(t *testing.T, addr string, cfg *tls.Config) error {
	t.Helper()
	raw := must(net.DialTimeout("tcp", addr, 5*time.Second))(t)
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(10 * time.Second))
	c := tls.Client(raw, cfg)
	if err := c.Handshake(); err != nil {
		return reach.Explain(addr, err)
	}
	_, err := c.Read(make([]byte, 1))
	return reach.Explain(addr, err)
}

// TestServerRefuses: the server refuses each of these clients, even though they accept any server.
func TestServerRefuses(t *testing.T) {
	ca := authority(t, "c1")
	s := start(t, credentials(t, ca, pki.RoleServer, "s1"), stationConfig{})
	echoRaft(t, s)
	pair := func(ca *transport.Authority, r transport.CertRequest) tls.Certificate {
		cert, key, err := ca.Issue(r)
		if err != nil {
			t.Fatal(err)
		}
		return must(tls.X509KeyPair(cert, key))(t)
	}
	cli := transport.CertRequest{Role: pki.RoleCLI, Name: "me"}
	tests := map[string]struct {
		cert  []tls.Certificate
		proto string
		max   uint16
		code  string
		says  string
	}{
		"no certificate": {proto: "h2", says: "wants a client certificate"},
		"raft as agent": {cert: []tls.Certificate{pair(ca, transport.CertRequest{Role: pki.RoleAgent, Name: "n1"})},
			proto: "outspan-raft/1", says: "refused this certificate"},
		"raft as cli": {cert: []tls.Certificate{pair(ca, cli)}, proto: "outspan-raft/1",
			says: "refused this certificate"},
		"other CA": {cert: []tls.Certificate{pair(authority(t, "c1"), cli)}, proto: "h2",
			says: "signed by another CA"},
		"expired": {
			cert:  []tls.Certificate{pair(ca, transport.CertRequest{Role: pki.RoleCLI, Name: "me", TTL: time.Nanosecond})},
			proto: "h2", says: "expired"},
		"TLS 1.2": {cert: []tls.Certificate{pair(ca, cli)}, proto: "h2",
			max: tls.VersionTLS12, says: "TLS 1.3 only"},
		"unknown protocol": {cert: []tls.Certificate{pair(ca, cli)}, proto: "smtp", says: "does not speak the protocol"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := s.Stats()
			// The client does not check the server's certificate, because the test is about the server.
			err := rawDial(t, s.addr,
				&tls.Config{InsecureSkipVerify: true, Certificates: tt.cert, NextProtos: []string{tt.proto}, MaxVersion: tt.max})
			code := model.CodeCertificateRefused
			if tt.max != 0 || tt.proto == "smtp" {
				code = model.CodeNotTLS
			}
			wantCode(t, err, code, tt.says, s.addr)
			eventually(t, "the failure is counted", func() bool { return s.Stats().HandshakeFailed == before.HandshakeFailed+1 })
			if now := s.Stats(); now.Raft != 0 || now.API != before.API {
				t.Errorf("it got in: %+v", now)
			}
		})
	}
}

// TestOtherClusterSameCA: two clusters may trust the same CAs. Client and server each refuse a peer whose certificate
// names another cluster.
func TestOtherClusterSameCA(t *testing.T) {
	one, two := authority(t, "c1"), authority(t, "c2")
	both := append(one.PEM(), two.PEM()...)
	here := fileCredentials(t, both, one, pki.RoleServer, "s1")
	there := fileCredentials(t, both, two, pki.RoleServer, "s1")
	s := start(t, here, stationConfig{})
	echoRaft(t, s)

	d := transport.Dialer{Credentials: there}
	_, err := d.DialAPI(t.Context(), "tcp", s.addr)
	wantCode(t, err, model.CodeCertificateRefused, `cluster "c1"`, `"c2"`)
	_, err = d.DialRaft(t.Context(), s.addr)
	wantCode(t, err, model.CodeCertificateRefused, `cluster "c1"`, `"c2"`)

	cert, key, err := two.Issue(transport.CertRequest{Role: pki.RoleServer, Name: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	pair := must(tls.X509KeyPair(cert, key))(t)
	for _, proto := range []string{"h2", "outspan-raft/1"} {
		err := rawDial(t, s.addr,
			&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{proto}})
		wantCode(t, err, model.CodeCertificateRefused, "another cluster")
	}
}

// fileCredentials issues a certificate with ca, writes the certificate and the CA bundle to files, and loads them.
func fileCredentials(t *testing.T, bundle []byte, ca *transport.Authority, role pki.Role,
	name string) *transport.Credentials {
	t.Helper()
	dir := t.TempDir()
	cert, key, err := ca.Issue(transport.CertRequest{Role: role, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	cfg := transport.CredentialsConfig{CAFile: filepath.Join(dir, "ca"), CertFile: filepath.Join(dir, "cert"),
		KeyFile: filepath.Join(dir, "key")}
	writeAll(t, map[string][]byte{cfg.CAFile: bundle, cfg.CertFile: cert, cfg.KeyFile: key})
	return must(transport.LoadCredentials(cfg))(t)
}

// TestClientRefuses: the client refuses each wrong server with an error that says what is wrong.
func TestClientRefuses(t *testing.T) {
	ca := authority(t, "c1")
	me := transport.Dialer{Credentials: credentials(t, ca, pki.RoleServer, "s1")}
	t.Run("other CA", func(t *testing.T) {
		s := start(t, credentials(t, authority(t, "c1"), pki.RoleServer, "s9"), stationConfig{})
		_, err := get(t.Context(), client(t, me), "https://"+s.addr)
		wantCode(t, err, model.CodeCertificateRefused, s.addr, "another CA", "OUTSPAN_CACERT")
		_, err = me.DialRaft(t.Context(), s.addr)
		wantCode(t, err, model.CodeCertificateRefused, s.addr, "another CA")
	})
	t.Run("an agent where a server should be", func(t *testing.T) {
		s := start(t, credentials(t, ca, pki.RoleAgent, "n1"), stationConfig{})
		_, err := me.DialAPI(t.Context(), "tcp", s.addr)
		wantCode(t, err, model.CodeCertificateRefused, s.addr, "server.outspan", "wrong role")
		named := me
		named.ServerName = "localhost" // this name fits the certificate, but the role does not
		_, err = named.DialAPI(t.Context(), "tcp", s.addr)
		wantCode(t, err, model.CodeCertificateRefused, "agent/n1, not a server")
		agents := me
		agents.Peer = pki.RoleAgent
		if got, err := get(t.Context(), client(t, agents), "https://"+s.addr); err != nil {
			t.Errorf("got %q, %v from the agent", got, err)
		}
	})
	t.Run("expired", func(t *testing.T) {
		cert, key, err := ca.Issue(transport.CertRequest{Role: pki.RoleServer, Name: "s9", TTL: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		addr := rawServer(t, func(c net.Conn) {
			tls.Server(c, &tls.Config{Certificates: []tls.Certificate{must(tls.X509KeyPair(cert, key))(t)}}).Handshake()
		})
		_, err = me.DialAPI(t.Context(), "tcp", addr)
		wantCode(t, err, model.CodeCertificateRefused, addr, "expired at", "the clock here says", "date -u")
	})
	t.Run("no TLS", func(t *testing.T) {
		addr := rawServer(t, func(c net.Conn) { io.WriteString(c, "220 mail.example.com ESMTP\r\n") })
		_, err := me.DialAPI(t.Context(), "tcp", addr)
		wantCode(t, err, model.CodeNotTLS, addr)
	})
	t.Run("plain http", func(t *testing.T) {
		_, err := get(t.Context(), client(t, me), "http://127.0.0.1:1/")
		wantCode(t, err, model.CodeNotTLS, "https://127.0.0.1:1")
	})
	t.Run("nobody there", func(t *testing.T) {
		l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
		addr := l.Addr().String()
		l.Close()
		_, err := me.DialAPI(t.Context(), "tcp", addr)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %T %v, want the network's own error", err, err)
		}
	})
}

// TestRefusalReachesTheClient: the client gets the reason for a refusal, although it sends its request before the
// server has checked the client's certificate.
func TestRefusalReachesTheClient(t *testing.T) {
	one, two := authority(t, "c1"), authority(t, "c1")
	s := start(t, credentials(t, one, pki.RoleServer, "s1"), stationConfig{})
	d := transport.Dialer{Credentials: fileCredentials(t, append(one.PEM(), two.PEM()...), two, pki.RoleCLI, "me")}
	for range 30 {
		c := client(t, d)
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.addr,
			bytes.NewReader(make([]byte, 32<<10))))(t)
		resp, err := c.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		wantCode(t, err, model.CodeCertificateRefused, s.addr, "refused this certificate: it is signed by another CA")
	}
}

// TestNoResumption: no session is resumed, because a session ticket would let a peer back in without its certificate.
func TestNoResumption(t *testing.T) {
	ca := authority(t, "c1")
	s := start(t, credentials(t, ca, pki.RoleServer, "s1"), stationConfig{})
	cfg := credentials(t, ca, pki.RoleCLI, "me").ClientConfig(pki.RoleServer, "h2")
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 2 {
		c := must(tls.Dial("tcp", s.addr, cfg))(t)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		c.Read(make([]byte, 1)) // a ticket would arrive before the first byte of HTTP/2
		if c.ConnectionState().DidResume {
			t.Error("the session was resumed")
		}
		c.Close()
	}
}

// rawServer listens on a free port, passes the first connection to the function serve, and returns the port's address.
func rawServer(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		serve(c)
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String()
}

// TestReload: after a reload, new connections use the new certificate and CA. A reload that removes a CA closes the
// connections of peers with certificates of that CA. A failed reload changes nothing.
func TestReload(t *testing.T) {
	req := transport.CertRequest{Role: pki.RoleServer, Name: "s1"}
	dir, cfg := certFiles(t, "c1", req)
	creds := must(transport.LoadCredentials(cfg))(t)
	s := start(t, creds, stationConfig{})
	old := fileCredentials(t, readAll(t, cfg.CAFile), mustAuthority(t, dir), pki.RoleCLI, "me")
	oldClient := client(t, transport.Dialer{Credentials: old})
	if _, err := get(t.Context(), oldClient, "https://"+s.addr); err != nil {
		t.Fatal(err)
	}
	first := served(t, s.addr)

	must(transport.IssueCert(dir, req, true))(t)
	if got := served(t, s.addr); !got.Equal(first) {
		t.Error("the certificate changed without a reload")
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().API; n != 1 {
		t.Errorf("%d connections are open after a reload that took no CA away, want 1", n)
	}
	second := served(t, s.addr)
	if second.Equal(first) {
		t.Error("the reload changed nothing")
	}

	must(transport.IssueCert(dir, transport.CertRequest{Role: pki.RoleServer, Name: "s2"}, false))(t)
	copyFile(t, filepath.Join(dir, "server-s2.pem"), cfg.CertFile)
	copyFile(t, filepath.Join(dir, "server-s2-key.pem"), cfg.KeyFile)
	wantCode(t, creds.Reload(), model.CodeCertificateInvalid, "server/s2", "server/s1")
	writeAll(t, map[string][]byte{cfg.KeyFile: []byte("junk")})
	wantCode(t, creds.Reload(), model.CodeCertificateInvalid, cfg.KeyFile)
	if got := served(t, s.addr); !got.Equal(second) {
		t.Error("a failed reload changed the certificate")
	}

	must(transport.CreateCA(dir, transport.CAOptions{Cluster: "c1", Force: true}))(t)
	must(transport.IssueCert(dir, req, true))(t)
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the connection of a peer whose CA was removed", func() bool { return s.Stats().API == 0 })
	_, err := get(t.Context(), client(t, transport.Dialer{Credentials: old}), "https://"+s.addr)
	wantCode(t, err, model.CodeCertificateRefused, "another CA")
}

// served returns the certificate that the server shows on a new connection.
func served(t *testing.T, addr string) *x509.Certificate {
	t.Helper()
	var cert *x509.Certificate
	rawDial(t, addr,
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"},
			VerifyConnection: func(s tls.ConnectionState) error {
				cert = s.PeerCertificates[0]
				return nil
			}})
	if cert == nil {
		t.Fatal("no certificate was shown")
	}
	return cert
}

// Both ends judge the other's certificate by the clock that was set, and not by that of the machine.
func TestSetClock(t *testing.T) {
	ca := authority(t, "c1")
	server, me := credentials(t, ca, pki.RoleServer, "s1"), credentials(t, ca, pki.RoleCLI, "me")
	s := start(t, server, stationConfig{})
	late := func() time.Time { return time.Now().Add(20 * 365 * 24 * time.Hour) } // no certificate lasts that long
	call := func() error {
		_, err := get(t.Context(), client(t, transport.Dialer{Credentials: me}), "https://"+s.addr)
		return err
	}
	for _, end := range []*transport.Credentials{server, me} {
		end.SetClock(late)
		wantCode(t, call(), model.CodeCertificateRefused, "expired")
		end.SetClock(time.Now)
		if err := call(); err != nil {
			t.Error(err)
		}
	}
}
