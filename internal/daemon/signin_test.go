package daemon

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// A provider that can't be reached is in the log once the server starts. Who signs in learns which server asked it.
func TestProviderIsAway(t *testing.T) {
	var log strings.Builder
	part, api, err := signIn("s2", &config.OIDC{Issuer: "http://127.0.0.1:1", ClientID: "outspan"}, nil,
		hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn}))
	if err != nil {
		t.Fatal(err)
	}
	if err := part.check(t.Context()); err != nil {
		t.Error(err)
	}
	const away = "the provider http://127.0.0.1:1 does not answer"
	if !strings.Contains(log.String(), away) {
		t.Errorf("the log has: %s", &log)
	}
	_, err = api.Verify(t.Context(), "e30.e30.eA")
	if refusal, ok := errors.AsType[*model.Error](err); !ok || refusal.Code != model.CodeProviderUnreachable ||
		!strings.HasPrefix(refusal.Message, "server s2: "+away) {
		t.Errorf("the error is %v", err)
	}
	if strings.Count(log.String(), away) != 1 {
		t.Errorf("the log has: %s", &log)
	}
}
