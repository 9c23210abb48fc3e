package transport_test

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Each handshake that fails is told, with the address of the peer, why it failed, and whom the certificate names. Those
// that succeed are not.
func TestFailedHandshakesAreTold(t *testing.T) {
	failed := make(chan transport.FailedHandshake, 10)
	creds := credentials(t, authority(t, "c1"), pki.RoleServer, "s1")
	s := start(t, creds, stationConfig{listener: transport.ListenerConfig{
		Failed: func(f transport.FailedHandshake) { failed <- f }}})
	if _, err := get(t.Context(), client(t, transport.Dialer{Credentials: creds}), "https://"+s.addr); err != nil {
		t.Fatal(err)
	}
	other := must(authority(t, "c1").Credentials(pki.RoleCLI, "mallory"))(t).ClientConfig(pki.RoleServer).Certificates
	for _, tt := range []struct {
		name    string
		certs   []tls.Certificate
		plain   string
		code    model.Code
		claimed string
	}{
		{"another CA's", other, "", model.CodeCertificateInvalid, "cert:mallory"},
		{"no certificate", nil, "", model.CodeInvalid, ""},
		{"no TLS", nil, "GET / HTTP/1.1\r\n\r\n", model.CodeNotTLS, ""},
	} {
		conn := must(net.Dial("tcp", s.addr))(t)
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if tt.plain != "" {
			_, _ = io.WriteString(conn, tt.plain)
		} else {
			_ = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: tt.certs,
				NextProtos: []string{"h2"}}).Handshake() // it may succeed: the refusal comes later
		}
		_, _ = io.Copy(io.Discard, conn)
		got := <-failed
		claimed := ""
		if got.Claimed != (model.Subject{}) {
			claimed = got.Claimed.String()
		}
		if got.Code != tt.code || claimed != tt.claimed || got.Remote.String() != conn.LocalAddr().String() {
			t.Errorf("%s: %+v", tt.name, got)
		}
		_ = conn.Close()
	}
	if len(failed) > 0 {
		t.Errorf("%d others failed", len(failed))
	}
}
