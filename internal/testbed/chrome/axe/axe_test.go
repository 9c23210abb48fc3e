package axe_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/internal/testbed/chrome"
	"github.com/outspan/outspan/internal/testbed/chrome/axe"
)

// The library is the one that vendor.txt names.
func TestVendor(t *testing.T) {
	text, err := os.ReadFile("vendor.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		code, err := os.ReadFile(f[0])
		if sum := sha256.Sum256(code); err != nil || hex.EncodeToString(sum[:]) != f[6] {
			t.Errorf("%s has another checksum than in vendor.txt: %x (%v)", f[0], sum, err)
		}
	}
}

// axe-core finds what is wrong with a page, in its light and in its dark colours, also under a policy that allows
// nothing.
func TestLook(t *testing.T) {
	if _, err := os.Stat(chrome.Program); err != nil {
		t.Skip("it needs Chromium: bash .ci/packages")
	}
	body := ""
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; img-src data:; style-src 'self'; "+
			"require-trusted-types-for 'script'")
		if strings.HasSuffix(r.URL.Path, ".css") {
			w.Header().Set("Content-Type", "text/css")
			_, _ = w.Write([]byte("@media (prefers-color-scheme: dark) { p { color: #333; background: #222 } }"))
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><html lang=en><title>t</title><link rel=icon href='data:,'>" +
			"<link rel=stylesheet href=a.css><main><h1>h</h1><p>text</p>" + body + "</main>"))
	}))
	defer site.Close()
	browser, err := chrome.Start(filepath.Join(t.TempDir(), "chromium"), &procs.Family{})
	if err != nil {
		t.Fatal(err)
	}
	defer browser.Close()
	for _, tt := range []struct {
		name, body, want string
		dark             bool
	}{
		{"good", "", "", false},
		{"no name", "<button></button>", "button-name: ", false},
		{"no contrast in dark", "", "color-contrast: ", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body = tt.body
			p, err := browser.NewPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{p.Look(t.Context(), 800, 600, tt.dark), p.Open(t.Context(), site.URL),
				p.Until(t.Context(), 10*time.Second, "document.readyState === 'complete' && document.querySelector('h1')")} {
				if err != nil {
					t.Fatal(err)
				}
			}
			found, err := axe.Look(t.Context(), p)
			got := strings.Join(found, "\n")
			if err != nil || (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("found %q, want %q (%v)", got, tt.want, err)
			}
			if troubles := p.Troubles(); len(troubles) > 0 {
				t.Errorf("axe-core violates the policy: %q", troubles)
			}
		})
	}
}
