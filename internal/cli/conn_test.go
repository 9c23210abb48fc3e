package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A person whose certificate ends soon, or has ended, is warned on stderr. One with a fresh certificate is not.
func TestOwnCertificateEnds(t *testing.T) {
	dir := t.TempDir()
	const life = 30 * 24 * time.Hour
	if _, err := transport.CreateCA(dir, transport.CAOptions{}); err != nil {
		t.Fatal(err)
	}
	files, err := transport.IssueCert(dir, transport.CertRequest{Role: pki.RoleCLI, Name: "alice", TTL: life}, false)
	if err != nil {
		t.Fatal(err)
	}
	secure, err := client.LoadTLS(client.Files{CA: dir + "/ca.pem", Cert: files.Cert, Key: files.Key})
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]string{
		life / 2:              "",
		life - 9*24*time.Hour: "warning: your certificate ends at 2",
		life + time.Hour:      "warning: your certificate ended at 2",
	} {
		var notes bytes.Buffer
		now := func() time.Time { return time.Now().Add(after) }
		noteEnd(&term.Console{Err: &notes, Now: now}, client.Config{TLS: secure})
		got := notes.String()
		if want == "" && got != "" || !strings.HasPrefix(got, want) ||
			want != "" && !strings.Contains(got, "outspan tls cert create --cli alice --force") {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
}
