package daemon

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

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
