package ui

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Another name for 127.0.0.1, another page, a wrong secret and a wrong code are refused, and nothing is passed on.
func TestRefused(t *testing.T) {
	p := start(t)
	right := p.code(t)
	secret := map[string]string{secretHeader: p.entry.secret}
	_, port, _ := strings.Cut(p.host, ":")
	body := `{"code":"` + right + `"}`
	const elsewhere, unknown, foreign = http.StatusMisdirectedRequest, http.StatusUnauthorized, http.StatusForbidden
	cookie := map[string]string{"Cookie": secretHeader + "=" + p.entry.secret}
	plain := map[string]string{"Content-Type": "text/plain"}
	for name, tt := range map[string]struct {
		method, path, body string
		header             map[string]string
		want               int
	}{
		"rebound name":      {"GET", "/v1/nodes", "", with(secret, "Host", "evil.example:"+port), elsewhere},
		"localhost":         {"GET", "/v1/nodes", "", with(secret, "Host", "localhost:"+port), elsewhere},
		"no port":           {"GET", "/v1/nodes", "", with(secret, "Host", "127.0.0.1"), elsewhere},
		"page by its name":  {"GET", "/", "", with(nil, "Host", "evil.example:"+port), elsewhere},
		"code by its name":  {"POST", "/ui/session", body, with(asJSON, "Host", "evil.example:"+port), elsewhere},
		"no secret":         {"GET", "/v1/nodes", "", nil, unknown},
		"wrong secret":      {"GET", "/v1/nodes", "", map[string]string{secretHeader: right}, unknown},
		"secret as cookie":  {"GET", "/v1/nodes", "", cookie, unknown},
		"other origin":      {"GET", "/v1/nodes", "", with(secret, "Origin", "http://evil.example"), foreign},
		"other port":        {"GET", "/v1/nodes", "", with(secret, "Origin", "http://127.0.0.1:1"), foreign},
		"origin null":       {"GET", "/v1/nodes", "", with(secret, "Origin", "null"), foreign},
		"other site":        {"GET", "/v1/nodes", "", with(secret, "Sec-Fetch-Site", "cross-site"), foreign},
		"same site":         {"GET", "/v1/nodes", "", with(secret, "Sec-Fetch-Site", "same-site"), foreign},
		"typed address":     {"GET", "/v1/nodes", "", with(secret, "Sec-Fetch-Site", "none"), foreign},
		"code, other site":  {"POST", "/ui/session", body, with(asJSON, "Origin", "http://evil.example"), foreign},
		"code, as a form":   {"POST", "/ui/session", body, plain, http.StatusBadRequest},
		"wrong code":        {"POST", "/ui/session", `{"code":"` + p.entry.secret + `"}`, asJSON, unknown},
		"no code":           {"POST", "/ui/session", `{}`, asJSON, unknown},
		"code in the query": {"GET", "/ui/session?code=" + right, "", nil, http.StatusNotFound},
	} {
		resp, text := p.ask(t, tt.method, tt.path, tt.body, tt.header)
		if resp.StatusCode != tt.want || strings.Contains(text, p.entry.secret) && name != "wrong code" {
			t.Errorf("%s: %s %s, want %d", name, resp.Status, text, tt.want)
		}
		if resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: another page may read the answer", name)
		}
	}
	// A person who opens the page by another name reads what to do.
	resp, text := p.ask(t, "GET", "/", "", map[string]string{"Host": "localhost:" + port, "Accept": "text/html,*/*;q=0.8"})
	if resp.StatusCode != elsewhere || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		!strings.Contains(text, p.host) || !strings.Contains(text, "What to do: open it there") {
		t.Errorf("localhost in a browser: %s %v %s", resp.Status, resp.Header, text)
	}
	// A browser asks before it sends another page's request with our header. The answer allows nothing.
	resp, _ = p.ask(t, "OPTIONS", "/v1/nodes", "", map[string]string{"Origin": "http://evil.example",
		"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": secretHeader})
	if resp.StatusCode < 400 || resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("OPTIONS: %s %v", resp.Status, resp.Header)
	}
	if len(p.forwarded) > 0 {
		t.Errorf("passed on: %+v", p.forwarded)
	}
	p.enter(t) // none of these attempts has used the code
}

// asUser is the variable with which TestOtherUser runs itself: what the child asks.
const asUser = "OUTSPAN_UI_ASK"

// Another user of the machine is refused, even with the code and the secret.
func TestOtherUser(t *testing.T) {
	if address := os.Getenv(asUser); address != "" {
		askAsOther(t, address)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	p := start(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self) // the directory of the test binary is closed to others
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "outspan-ui-test-") //nolint:usetesting // others may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "ask")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), program, "-test.run=^TestOtherUser$", "-test.v")
	child.Dir = dir
	child.Env = []string{asUser + "=" + p.Address(), "SECRET=" + p.entry.secret, "CODE=" + p.code(t)}
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := child.CombinedOutput()
	if err != nil || strings.Count(string(out), "403 Forbidden") != 3 {
		t.Errorf("another user got: %v\n%s", err, out)
	}
	if len(p.forwarded) > 0 {
		t.Errorf("passed on: %+v", p.forwarded)
	}
	p.enter(t) // the right user still gets in
}

func askAsOther(t *testing.T, address string) {
	p := &page{Server: &Server{host: strings.TrimPrefix(address, "http://")}}
	secret := map[string]string{secretHeader: os.Getenv("SECRET")}
	for _, one := range []struct {
		method, path, body string
		header             map[string]string
	}{
		{"GET", "/v1/nodes", "", secret},
		{"GET", "/", "", nil},
		{"POST", "/ui/session", `{"code":"` + os.Getenv("CODE") + `"}`, asJSON},
	} {
		resp, text := p.ask(t, one.method, one.path, one.body, one.header)
		t.Logf("%s %s: %s %s", one.method, one.path, resp.Status, text)
	}
}
