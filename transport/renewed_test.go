package transport_test

import (
	"encoding/hex"
	"net/http"
	"testing"

	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// After a renewal the next request shows the new certificate, and a request that is under way continues.
func TestRequestsShowTheNewCertificate(t *testing.T) {
	ca := authority(t, "c1")
	entered, release := make(chan struct{}), make(chan struct{})
	s := start(t, credentials(t, ca, pki.RoleServer, "s1"),
		stationConfig{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				close(entered)
				<-release
			}
			_, _ = w.Write([]byte(hex.EncodeToString(transport.ShownFrom(r.Context()).Key)))
		})})
	creds := credentials(t, ca, pki.RoleServer, "s2")
	c := client(t, transport.Dialer{Credentials: creds})
	key := func() string { return hex.EncodeToString(pki.KeyHash(creds.Leaf())) }
	before := key()
	running := getLater(t.Context(), c, "https://"+s.addr+"/wait")
	<-entered
	if err := creds.Use(managedPair(t, ca, pki.RoleServer, "s2"), nil); err != nil {
		t.Fatal(err)
	}
	if got := must(get(t.Context(), c, "https://"+s.addr))(t); got != key() || got == before {
		t.Errorf("the server saw the key %s, want %s", got, key())
	}
	close(release)
	if a := <-running; a.err != nil || a.body != before {
		t.Errorf("the request that was under way got %q, %v", a.body, a.err)
	}
}
