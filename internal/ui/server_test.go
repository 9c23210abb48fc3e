package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
)

// page is a Server that runs, with what was forwarded.
type page struct {
	*Server
	forwarded []client.ForwardedRequest
	clock     time.Time
	stop      func() error
}

func (p *page) forward(_ context.Context, r client.ForwardedRequest) (*http.Response, error) {
	p.forwarded = append(p.forwarded, r)
	if r.Path == "/v1/nodes/x" {
		return nil, model.Refuse(model.CodeNotFound, "there is no node x")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"items":[]}`)),
		Header: http.Header{api.HeaderIndex: {"7"}, "Set-Cookie": {"a=b"}, "Content-Type": {"application/json"}}}, nil
}

func start(t *testing.T) *page {
	t.Helper()
	p := &page{clock: time.Now()}
	var err error
	p.Server, err = Open(Config{Forward: p.forward, Dir: t.TempDir(), Now: func() time.Time { return p.clock }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	p.stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = p.stop() })
	return p
}

// code returns the code in the file that opens the page.
func (p *page) code(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.File())
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`url=` + p.Address() + `/#([0-9a-f]{64})"`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("the file has no code: %s", text)
	}
	return string(found[1])
}

// ask sends a request. A header "Host" is the host that the request names.
func (p *page) ask(t *testing.T, method, path, body string, header map[string]string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.Address()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	if host := header["Host"]; host != "" {
		r.Host = host
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

var asJSON = map[string]string{"Content-Type": "application/json"}

func with(header map[string]string, more ...string) map[string]string {
	all := map[string]string{}
	for k, v := range header {
		all[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// enter exchanges the code, and returns the header with the secret.
func (p *page) enter(t *testing.T) map[string]string {
	t.Helper()
	resp, text := p.ask(t, "POST", "/ui/session", `{"code":"`+p.code(t)+`"}`,
		with(asJSON, "Origin", p.Address(), "Sec-Fetch-Site", "same-origin"))
	var got struct{ Secret string }
	if err := json.Unmarshal([]byte(text), &got); err != nil || resp.StatusCode != http.StatusOK || len(got.Secret) != 64 {
		t.Fatalf("%s %s", resp.Status, text)
	}
	return map[string]string{secretHeader: got.Secret}
}

// Only the page with the secret reaches the servers, and only below /v1/. Nothing but the method, path, query and body
// of its requests is passed on.
func TestPass(t *testing.T) {
	p := start(t)
	secret := p.enter(t)
	resp, text := p.ask(t, "GET", "/v1/nodes?index=3&wait=1s", "",
		with(secret, "Authorization", "Bearer x", "Cookie", "a=b"))
	if resp.StatusCode != http.StatusOK || text != `{"items":[]}` || resp.Header.Get(api.HeaderIndex) != "7" ||
		resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("%s %s %v", resp.Status, text, resp.Header)
	}
	p.ask(t, "POST", "/v1/drains?dry_run=true", `{"nodes":["n%1"]}`, with(secret, "Origin", p.Address()))
	if resp, text = p.ask(t, "GET", "/v1/nodes/x", "", secret); resp.StatusCode != http.StatusNotFound ||
		!strings.Contains(text, "there is no node x") {
		t.Errorf("a refusal arrives as %s %s", resp.Status, text)
	}
	for _, path := range []string{"/v1/../metrics", "/v1/%2e%2e/metrics", "/v1/nodes/..%2f..%2fmetrics", "/v1/./status"} {
		if resp, _ := p.ask(t, "GET", path, "", secret); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	for _, path := range []string{"/metrics", "/healthz", "/v1", "/v2/x", "/openapi.json"} {
		if resp, _ := p.ask(t, "GET", path, "", secret); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	resp, _ = p.ask(t, "POST", "/v1/jobs", strings.Repeat("x", maxBody+1), secret)
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %s", resp.Status)
	}
	if len(p.forwarded) != 3 {
		t.Fatalf("passed on: %+v", p.forwarded)
	}
	one, two := p.forwarded[0], p.forwarded[1]
	if one.Method != "GET" || one.Path != "/v1/nodes" || one.Query.Encode() != "index=3&wait=1s" || one.Body != nil ||
		len(one.Header) != 0 {
		t.Errorf("passed on %+v", one)
	}
	if two.Method != "POST" || string(two.Body) != `{"nodes":["n%1"]}` || len(two.Header) != 0 {
		t.Errorf("passed on %+v", two)
	}
}

// An answer that breaks off does not end as if it were complete.
func TestCutOff(t *testing.T) {
	p := start(t)
	secret := p.enter(t)
	p.cfg.Forward = func(context.Context, client.ForwardedRequest) (*http.Response, error) {
		body := io.MultiReader(strings.NewReader(`{"items":[]}`), iotest.ErrReader(io.ErrUnexpectedEOF))
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
	}
	r, _ := http.NewRequestWithContext(t.Context(), "GET", p.Address()+"/v1/nodes", nil)
	r.Header.Set(secretHeader, secret[secretHeader])
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer ends with %s", text)
	}
}

// The code is good once, and for 60 s. The file that has it is only readable by its owner, and goes once it was used.
func TestCode(t *testing.T) {
	p := start(t)
	body := `{"code":"` + p.code(t) + `"}`
	for path, want := range map[string]fs.FileMode{p.File(): 0o600, filepath.Dir(p.File()): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, want %v (%v)", path, info.Mode(), want, err)
		}
	}
	p.enter(t)
	if resp, text := p.ask(t, "POST", "/ui/session", body, asJSON); resp.StatusCode != http.StatusUnauthorized ||
		!strings.Contains(text, "was used before") {
		t.Errorf("a second time: %s %s", resp.Status, text)
	}
	for range 100 {
		if _, err := os.Stat(filepath.Dir(p.File())); errors.Is(err, fs.ErrNotExist) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := os.Stat(filepath.Dir(p.File())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there after its use: %v", err)
	}
	late := start(t)
	body = `{"code":"` + late.code(t) + `"}`
	late.clock = late.clock.Add(codeLife + time.Second)
	if resp, text := late.ask(t, "POST", "/ui/session", body, asJSON); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("late: %s %s", resp.Status, text)
	}
}

// Ctrl-C ends the page at once, also while a request waits, and removes the file.
func TestStop(t *testing.T) {
	p := start(t)
	secret := p.enter(t)
	var once sync.Once
	waiting := make(chan struct{}) // the transport may send the request a second time
	p.cfg.Forward = func(ctx context.Context, _ client.ForwardedRequest) (*http.Response, error) {
		once.Do(func() { close(waiting) })
		<-ctx.Done()
		return nil, ctx.Err()
	}
	asked := make(chan error, 1)
	go func() {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", p.Address()+"/v1/nodes?index=1&wait=60s", nil)
		r.Header.Set(secretHeader, secret[secretHeader])
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
			err = fmt.Errorf("it was answered with %s", resp.Status) // the answer may still get out
		}
		asked <- err
	}()
	<-waiting
	if err := p.stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
	if err := <-asked; strings.Contains(err.Error(), "200") {
		t.Errorf("a request that waits, after the end: %v", err)
	}
	q := start(t)
	if err := q.stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
	if _, err := os.Stat(filepath.Dir(q.File())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there after the end: %v", err)
	}
}

// Without a visitor the page ends by itself. With one, it ends some time after its last use.
func TestUnused(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.late = 10 * time.Millisecond
	var known *model.Error
	if err := s.Run(t.Context()); !errors.As(err, &known) || known.Code != codeNotEntered {
		t.Errorf("without a visitor: %v", err)
	}
	const idle = 300 * time.Millisecond
	if s, err = Open(Config{Dir: t.TempDir(), Idle: idle}); err != nil {
		t.Fatal(err)
	}
	s.late = 10 * time.Millisecond
	s.entered <- struct{}{}
	used := make(chan time.Time, 1)
	go func() {
		time.Sleep(idle / 2)
		s.touch()
		used <- time.Now()
	}()
	if err := s.Run(t.Context()); err != nil {
		t.Errorf("with a visitor: %v", err)
	}
	if rest := time.Since(<-used); rest < idle-time.Millisecond {
		t.Errorf("it ended %v after its last use, want %v", rest, idle)
	}
}
