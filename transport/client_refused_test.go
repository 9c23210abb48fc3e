package transport_test

import (
	"context"
	"crypto/x509"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A caller asks another server if one refuses its certificate, and if it takes the server itself for revoked. It does
// so at the first call, and when the server that answered before begins to refuse.
func TestClientPassesOverARefusal(t *testing.T) {
	ca := authority(t, "test")
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }
	refuse := func(id pki.Identity, _ *x509.Certificate) error {
		return model.Refuse(model.CodeMemberRevoked, "%s was revoked", id)
	}
	for name, who := range map[string]string{"the server refuses": "server", "the client refuses": "client"} {
		t.Run(name, func(t *testing.T) {
			serving := credentials(t, ca, pki.RoleServer, "s2")
			calling := credentials(t, ca, pki.RoleAgent, "n1")
			deny := func() {
				if who == "server" {
					serving.SetAdmission(refuse)
					return
				}
				calling.SetAdmission(func(id pki.Identity, leaf *x509.Certificate) error {
					if id.Name == "s2" {
						return refuse(id, leaf)
					}
					return nil
				})
			}
			odd, good := serverWith(t, serving, ok), apiServer(t, ca, ok)
			for _, answeredBefore := range []bool{true, false} {
				client := must(transport.NewClient(transport.ClientConfig{Addresses: []string{odd, good},
					Credentials: calling, RetryFor: -1}))(t)
				if answeredBefore {
					if _, _, err := client.Do(t.Context(), http.MethodGet, "/v1/status", nil, nil); err != nil {
						t.Fatal(err)
					}
				}
				deny()
				client.Close() // the connections that are open are not asked again
				for _, method := range []string{http.MethodGet, http.MethodPost} {
					if _, _, err := client.Do(t.Context(), method, "/v1/status", nil, nil); err != nil {
						t.Errorf("answered before: %v: %s: %v", answeredBefore, method, err)
					}
				}
			}
		})
	}
}

// serverWith starts a server of the API with these credentials.
func serverWith(t testing.TB, creds *transport.Credentials, h http.HandlerFunc) (address string) {
	t.Helper()
	raw := must(transport.ListenTCP(t.Context(), "127.0.0.1:0"))(t)
	l := must(transport.NewListener(raw, transport.ListenerConfig{Credentials: creds}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.Run(ctx) })
	wg.Go(func() {
		_ = transport.NewHTTPServer(h, transport.HTTPConfig{ShutdownTimeout: time.Second}).Run(ctx, l.API())
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return "https://" + l.Addr().String()
}
