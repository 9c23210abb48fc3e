package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/testbed/idp"
	"github.com/outspan/outspan/model"
)

// Everybody may ask for the CA of the provider, so nothing but certificates comes out of its file.
func TestSignInShowsOnlyCertificates(t *testing.T) {
	ca := idp.Start(t, idp.Options{}).CAPEM()
	path := filepath.Join(t.TempDir(), "ca.pem")
	for text, good := range map[string]bool{
		"a note\n" + string(ca): true,
		string(ca) + "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n": false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := certificatesIn(path)
		if good && (err != nil || !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(ca))) {
			t.Errorf("got %s, %v", got, err)
		}
		if refusal, _ := errors.AsType[*model.Error](err); !good && (refusal == nil || refusal.Code != model.CodeInvalid) {
			t.Errorf("a file with a key: %s, %v", got, err)
		}
	}
}

// A provider that can't be reached is in the log once the server starts, and in what the server tells the others, until
// it answers again. Who signs in learns which server asked it.
func TestProviderIsAway(t *testing.T) {
	var log lockedText
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at, issuer := l.Addr().String(), "http://"+l.Addr().String()
	_ = l.Close()
	part, api, err := signIn("s2", &config.OIDC{Issuer: issuer, ClientID: "outspan"}, nil,
		hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info}))
	if err != nil {
		t.Fatal(err)
	}
	part.every = 10 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- part.run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	wait := func(what string, fails bool) {
		t.Helper()
		for end := time.Now().Add(15 * time.Second); (part.failing() != "") != fails; time.Sleep(time.Millisecond) {
			if time.Now().After(end) { // generous
				t.Fatalf("%s: it tells the others %q", what, part.failing())
			}
		}
	}
	away := "the provider " + issuer + " does not answer"
	wait("nobody listens", true)
	if !strings.HasPrefix(part.failing(), away) || strings.Count(log.String(), away) != 1 {
		t.Errorf("it tells the others %q; the log has: %s", part.failing(), log.String())
	}
	_, err = api.Verify(t.Context(), "e30.e30.eA")
	if refusal, ok := errors.AsType[*model.Error](err); !ok || refusal.Code != model.CodeProviderUnreachable ||
		!strings.HasPrefix(refusal.Message, "server s2: "+away) {
		t.Errorf("the error is %v", err)
	}
	if strings.Count(log.String(), away) != 1 {
		t.Errorf("the log has: %s", log.String())
	}
	for range 2 {
		if l, err = net.Listen("tcp", at); err != nil {
			t.Fatal(err)
		}
		provider := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, issuer, issuer+"/keys")
		})}
		go func() { _ = provider.Serve(l) }()
		wait("it answers", false)
		_ = provider.Close()
		wait("it is away again", true)
	}
	if strings.Count(log.String(), "answers again") != 2 {
		t.Errorf("the log has: %s", log.String())
	}
	if off := (*signingIn)(nil); off.failing() != "" {
		t.Error("a server without a provider fails")
	}
}

// lockedText is a text that may be written and read at the same time.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
