package transport_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// An agent that answers at another agent's address gets no request that is meant for the other agent.
func TestPeerIsTheOneThatWasMeant(t *testing.T) {
	ca := authority(t, "c1")
	var asked atomic.Int32
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked.Add(1) })
	s := start(t, credentials(t, ca, pki.RoleAgent, "n2"), stationConfig{handler: handler})
	c := client(t,
		transport.Dialer{Credentials: credentials(t, ca, pki.RoleServer, "s1"), Peer: pki.RoleAgent})
	ask := func(name string) error {
		ctx := t.Context()
		if name != "" {
			ctx = reach.ExpectPeer(ctx, name)
		}
		_, err := get(ctx, c, "https://"+s.addr+"/")
		return err
	}
	refused := &model.Error{Code: model.CodeCertificateRefused}
	if err := ask("n1"); !errors.Is(err, refused) || asked.Load() != 0 {
		t.Errorf("n2 answers for n1: %v, it got %d requests", err, asked.Load())
	}
	if err := errors.Join(ask("n2"), ask("")); err != nil || asked.Load() != 2 {
		t.Errorf("n2 answers for itself: %v, it got %d requests of 2", err, asked.Load())
	}
	if err := ask("n1"); !errors.Is(err, refused) || asked.Load() != 2 {
		t.Errorf("n2 answers for n1 over a connection that is there: %v, it got %d requests of 2", err, asked.Load())
	}
}
