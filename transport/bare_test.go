package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// With Tokens, HTTP needs no certificate: the handler learns of no subject. Raft and the protocol of agents need one,
// and a wrong certificate is refused.
func TestWithoutCertificate(t *testing.T) {
	ca := authority(t, "c1")
	creds := credentials(t, ca, pki.RoleServer, "s1")
	raw := must(transport.ListenTCP(t.Context(), "127.0.0.1:0"))(t)
	l := must(transport.NewListener(raw, transport.ListenerConfig{Credentials: creds, Tokens: true}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.Run(ctx) })
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who, ok := transport.SubjectFrom(r.Context()); ok {
			_, _ = io.WriteString(w, who.String())
		}
	})
	wg.Go(func() {
		_ = transport.NewHTTPServer(handler, transport.HTTPConfig{
			Agents: func(context.Context, model.Subject, transport.AgentCall, []byte) ([]byte, error) { return nil, nil }}).
			Run(ctx, l.API())
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	addr := l.Addr().String()

	call := func(role pki.Role) string {
		cfg := credentials(t, ca, pki.RoleCLI, "me").ClientConfig(pki.RoleServer)
		if role == "" {
			cfg.Certificates = nil
		}
		via := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
		defer via.CloseIdleConnections()
		resp, err := (&http.Client{Transport: via}).Get("https://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.Proto + " " + string(must(io.ReadAll(resp.Body))(t))
	}
	if got := call(""); got != "HTTP/2.0 " {
		t.Errorf("without a certificate: %q", got)
	}
	if got := call(pki.RoleCLI); got != "HTTP/2.0 cert:me" {
		t.Errorf("with a certificate: %q", got)
	}
	other := must(authority(t, "c1").Credentials(pki.RoleCLI, "me"))(t).ClientConfig(pki.RoleServer).Certificates
	for name, tt := range map[string]struct {
		certs  []tls.Certificate
		protos []string
	}{
		"raft":                           {nil, []string{"outspan-raft/1"}},
		"agents":                         {nil, []string{"outspan-agent/1"}},
		"agents after HTTP":              {nil, []string{"h2", "outspan-agent/1"}},
		"raft after HTTP":                {nil, []string{"h2", "http/1.1", "outspan-raft/1"}},
		"HTTP with another CA's":         {other, []string{"h2"}},
		"no protocol with another CA's":  {other, nil},
		"a protocol that does not exist": {nil, []string{"smtp"}},
	} {
		err := rawDial(t, addr, &tls.Config{InsecureSkipVerify: true, Certificates: tt.certs, NextProtos: tt.protos})
		if refusal, ok := errors.AsType[*model.Error](err); !ok ||
			refusal.Code != model.CodeCertificateRefused && refusal.Code != model.CodeNotTLS {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A connection without a certificate that shows no good token ends after 10 s, whatever it asks. One that does stays,
// and a login gets the time that it takes.
func TestStrangersEndSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/good":
				_ = transport.Proved(r.Context(), model.Subject{Kind: model.SubjectToken, Name: "ci"}) // there is room
			case "/login":
				transport.Proving(r.Context(), time.Minute)
			}
		})
		start(t, credentials(t, authority(t, "c1"), pki.RoleServer, "s1"), stationConfig{raw: network.Listen("s1:443"),
			dial: network.Dialer("s1"), handler: handler, listener: transport.ListenerConfig{Tokens: true}})
		for path, want := range map[string]time.Duration{"/bad": 10 * time.Second, "/login": time.Minute,
			"/good": 3 * time.Minute} { // 3 min is IdleTimeout
			raw := must(network.Dial(t.Context(), "n1", "s1:443"))(t)
			conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
			began := time.Now()
			_ = must(io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"))(t)
			_, _ = io.Copy(io.Discard, conn)
			if took := time.Since(began); took < want || took > want+time.Second {
				t.Errorf("%s: the connection ended after %s, want %s", path, took, want)
			}
			_ = conn.Close()
		}
	})
}
