package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every answer has the policy, and the page needs nothing that it forbids. Its files never change under their address.
func TestAssets(t *testing.T) {
	p := start(t)
	resp, index := p.ask(t, "GET", "/", "", nil)
	if got := resp.Header.Get("Content-Security-Policy"); got != policy || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the page comes with %v", resp.Header)
	}
	var files []string
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"]+)"`).FindAllStringSubmatch(index, -1) {
		files = append(files, m[1])
	}
	if len(files) < 10 || !strings.Contains(index, `rel="modulepreload"`) || strings.Contains(index, "{base}") {
		t.Errorf("the page names %v", files)
	}
	for _, file := range files {
		resp, text := p.ask(t, "GET", file, "", nil)
		kept := strings.Contains(resp.Header.Get("Cache-Control"), "immutable")
		if resp.StatusCode != http.StatusOK || !kept || text == "" {
			t.Errorf("%s: %s %v", file, resp.Status, resp.Header)
		}
	}
	inline := regexp.MustCompile(`(?i)<script(?: type="module")?>|<style|style="|javascript:|\bon[a-z]+="`)
	if found := inline.FindString(index); found != "" {
		t.Errorf("the page has %q inline", found)
	}
}

// What the page loads is small, comes from this tree alone, and makes elements by templates only.
func TestSources(t *testing.T) {
	a, err := loadAssets()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(a.index)
	for address, text := range a.files {
		one := gzip.NewWriter(&b)
		_, _ = one.Write(text)
		_ = one.Close()
		if strings.Contains(address, "/vendor/") {
			continue
		}
		for _, markup := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "dangerouslySetInnerHTML",
			"document.write", "eval(", "new Function", "setAttribute('style", "cssText"} {
			if bytes.Contains(text, []byte(markup)) {
				t.Errorf("%s uses %s: make elements by html templates", address, markup)
			}
		}
		own := bytes.ReplaceAll(text, []byte("http://www.w3.org/2000/svg"), nil)
		if m := regexp.MustCompile(`https?://[a-z]`).Find(own); m != nil {
			t.Errorf("%s names another site", address)
		}
	}
	_ = z.Close()
	if b.Len() > 150_000 {
		t.Errorf("the page has %d bytes compressed, at most 150000", b.Len())
	}
	t.Logf("%d bytes compressed", b.Len())
}

// The page is served without its comments, and its lines keep their numbers.
func TestComments(t *testing.T) {
	const text = "/* a\n * b */\nx = /* c */ 1 // d\n  /** @type {T} */ (y).z() // e */\n  // f\n  /** **/\nn()\n/* g */"
	const want = "\n\nx = /* c */ 1 // d\n  /** @type {T} */ (y).z() // e */\n\n\nn()\n"
	if got := string(withoutComments([]byte(text))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The page is served without its indentation. The example of a job file keeps its own.
func TestIndent(t *testing.T) {
	if got := string(withoutIndent([]byte("  a {\n\tb: 'x  y'\n\n  }\n"))); got != "a {\nb: 'x  y'\n\n}\n" {
		t.Errorf("got %q", got)
	}
	a, err := loadAssets()
	if err != nil {
		t.Fatal(err)
	}
	for address, text := range a.files {
		if strings.HasSuffix(address, "/edit.js") && !bytes.Contains(text, []byte("'    count = 2',\n")) {
			t.Error("the example of a job file has lost its indentation")
		}
		if strings.HasSuffix(address, "/app.js") && bytes.Contains(text, []byte("\n  ")) {
			t.Error("app.js is served with its indentation")
		}
	}
}

// vendor.txt lists each library once, with an exact version, a licence and the checksum of the file.
func TestVendor(t *testing.T) {
	text, err := os.ReadFile("page/vendor.txt")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 7 || !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(f[2]) || len(f[5]) != 128 {
			t.Errorf("vendor.txt: %s", line)
			continue
		}
		listed = append(listed, f[0])
		if sum := checksum(t, "page/vendor/"+f[0]); sum != f[6] {
			t.Errorf("page/vendor/%s has the checksum %s, and vendor.txt %s: run vendor.sh", f[0], sum, f[6])
		}
		if _, err := os.Stat("page/vendor/LICENSE." + strings.TrimSuffix(f[0], filepath.Ext(f[0]))); err != nil {
			t.Error(err)
		}
	}
	var there []string
	for _, pattern := range []string{"page/vendor/*.js", "page/vendor/*.css"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		there = append(there, files...)
	}
	for _, file := range there {
		if !slices.Contains(listed, filepath.Base(file)) {
			t.Errorf("%s is not in vendor.txt", file)
		}
	}
	if len(there) != len(listed) {
		t.Errorf("vendor.txt lists %d files, and there are %d", len(listed), len(there))
	}
}

func checksum(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
