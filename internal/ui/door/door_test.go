package door

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// fakeAPI takes access tokens by their text, and answers what the door asks.
type fakeAPI struct {
	mu     sync.Mutex
	tokens map[string]string // subjects by token
	asked  []*http.Request
}

// ServeHTTP implements http.Handler.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	subject := f.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	f.asked = append(f.asked, r)
	f.mu.Unlock()
	if r.URL.Path == "/v1/auth/login" {
		var in api.LoginBody
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.IDToken != "id-token" {
			writeProblem(w, model.CodeForbidden)
			return
		}
		f.set("osa1.login.secret", "oidc:x#alice")
		_ = json.NewEncoder(w).Encode(api.LoginReply{Text: "osa1.login.secret"})
		return
	}
	if subject == "" {
		writeProblem(w, model.CodeUnauthenticated)
		return
	}
	switch r.URL.Path {
	case "/v1/auth/logout":
		f.set(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "")
		_ = json.NewEncoder(w).Encode(api.LogoutReply{})
	case "/v1/stream":
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		_ = json.NewEncoder(w).Encode(api.Identity{Subject: subject,
			Token: &api.AccessToken{ID: "id1", Ends: time.Now().Add(time.Hour)}})
	}
}

func (f *fakeAPI) set(token, subject string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens[token] = subject
}

func (f *fakeAPI) last() *http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[len(f.asked)-1]
}

func writeProblem(w http.ResponseWriter, code model.Code) {
	p := api.NewProblem(model.Refuse(code, "no"))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// rig is a door behind TLS, and a browser that knows its certificate.
type rig struct {
	*testing.T
	api  *fakeAPI
	door *Door
	at   *httptest.Server
	me   *http.Client
	now  time.Time
	mu   sync.Mutex
}

const good = "osa1.aaaaaaaaaaaaaaaa.bbbbbbbbbbbbbbbbbbbb"

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{T: t, api: &fakeAPI{tokens: map[string]string{good: "token:ci"}}, now: time.Now()}
	cfg := Config{API: r.api, Host: func(host string) bool { return host == "127.0.0.1" || host == "page.test" },
		Source: func(string) string { return "me" }, Now: r.time}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.door, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	r.at = httptest.NewUnstartedServer(r.door)
	r.at.EnableHTTP2 = true
	r.at.StartTLS()
	t.Cleanup(r.at.Close)
	r.me = r.browser()
	return r
}

func (r *rig) time() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *rig) later(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func (r *rig) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.Fatal(err)
	}
	return &http.Client{Transport: r.at.Client().Transport, Jar: jar, Timeout: 10 * time.Second}
}

// do sends a request. Each of with is a header, as "Name: value".
func (r *rig) do(c *http.Client, method, path, body string, with ...string) (*http.Response, string) {
	r.Helper()
	req, err := http.NewRequest(method, r.at.URL+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	if body == "" {
		req.Body, req.ContentLength = http.NoBody, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, one := range with {
		name, value, _ := strings.Cut(one, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
	}
	resp, err := c.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp, string(text)
}

func (r *rig) want(status int, code, method, path, body string, with ...string) *http.Response {
	r.Helper()
	resp, text := r.do(r.me, method, path, body, with...)
	if resp.StatusCode != status || !strings.Contains(text, code) {
		r.Errorf("%s %s %v: %d %s, want %d with %q", method, path, with, resp.StatusCode, text, status, code)
	}
	return resp
}

func (r *rig) signIn() *http.Response {
	r.Helper()
	return r.want(200, "token:ci", "POST", "/ui/session", `{"token":"`+good+`"}`)
}

// The cookie is for this host and port alone, out of reach of scripts, and not sent with requests of other sites.
func TestCookie(t *testing.T) {
	r := newRig(t, nil)
	all := r.signIn().Cookies()
	at, _ := url.Parse(r.at.URL)
	if len(all) != 1 {
		t.Fatalf("cookies %v", all)
	}
	c := all[0]
	if c.Name != "__Host-outspan-session-"+at.Port() || !c.Secure || !c.HttpOnly ||
		c.SameSite != http.SameSiteStrictMode ||
		c.Path != "/" || c.Domain != "" || c.MaxAge != 0 || len(c.Value) != 43 {
		t.Errorf("the cookie is %v", c)
	}
	if strings.Contains(c.Raw, good) {
		t.Error("the cookie has the access token")
	}
}

// A server that does not know the session of a cookie says why that may be. After a sign-out there is no cookie.
func TestWhyASessionIsUnknown(t *testing.T) {
	r := newRig(t, nil)
	const unknown = "the server was restarted, or the sign-in ended there, as it does after 8 hours without use, " +
		"after 12 in all, when its access token ends or is revoked, and when you have more than 16 there"
	c := r.signIn().Cookies()[0]
	r.later(9 * time.Hour)
	r.want(401, unknown, "GET", "/v1/nodes", "")
	r.signIn()
	r.later(61 * time.Minute) // the token ends after an hour
	r.want(401, unknown, "GET", "/v1/nodes", "")
	r.signIn()
	mine := r.me
	for range 16 {
		r.me = r.browser()
		r.later(time.Second)
		r.signIn()
	}
	r.me = mine
	r.want(401, unknown, "GET", "/v1/nodes", "")
	r.signIn()
	r.want(200, "", "DELETE", "/ui/session", "")
	r.want(401, "nobody is signed in here", "GET", "/v1/nodes", "")
	other := newRig(t, nil) // as the server after a restart
	at, _ := url.Parse(other.at.URL)
	other.want(401, unknown, "GET", "/v1/nodes", "", "Cookie: __Host-outspan-session-"+at.Port()+"="+c.Value)
}

// The API gets the token of the session, and nothing of the browser's headers but a few.
func TestPass(t *testing.T) {
	r := newRig(t, nil)
	r.want(401, "page_not_entered", "GET", "/v1/nodes", "")
	r.want(401, "page_not_entered", "GET", "/v1/nodes", "", "Authorization: Bearer "+good)
	r.signIn()
	r.want(200, "token:ci", "GET", "/v1/nodes?node=a%2Fb", "", "Authorization: Bearer other",
		"Outspan-Forwarded-For: cert:admin",
		"Accept: application/x-ndjson")
	r.want(401, "page_not_entered", "GET", "/v1/nodes", "", "Outspan-Page-Session: 0123456789abcdef") // of another sign-in
	got := r.api.last()
	if got.Header.Get("Authorization") != "Bearer "+good || len(got.Header) != 2 || got.URL.RawQuery != "node=a%2Fb" ||
		got.Header.Get("Accept") != "application/x-ndjson" {
		t.Errorf("the API got %v %v", got.URL, got.Header)
	}
}

// Whatever another site may make a browser send is refused, also with the cookie.
func TestOtherSites(t *testing.T) {
	r := newRig(t, nil)
	r.signIn()
	for _, with := range []string{"Origin: https://evil.test", "Origin: null", "Sec-Fetch-Site: cross-site",
		"Sec-Fetch-Site: same-site", "Origin: http://" + strings.TrimPrefix(r.at.URL, "https://")} {
		for _, at := range []string{"GET /v1/nodes", "POST /v1/nodes/n1/drain", "POST /ui/session", "POST /ui/sign-in",
			"POST /ui/sign-in/finish", "DELETE /ui/session", "GET /ui/session"} {
			method, path, _ := strings.Cut(at, " ")
			r.want(403, "another page", method, path, "", with)
		}
	}
	r.want(200, "token:ci", "GET", "/v1/nodes", "", "Origin: "+r.at.URL, "Sec-Fetch-Site: same-origin")
	r.want(421, "not at", "GET", "/", "", "Host: evil.test")
	r.want(421, "not at", "GET", "/v1/nodes", "", "Host: evil.test:443")
	// A person reads what to do, and no name of this server.
	resp, text := r.do(r.me, "GET", "/", "", "Host: evil.test", "Accept: text/html,application/xhtml+xml,*/*;q=0.8")
	if resp.StatusCode != 421 || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		!strings.HasPrefix(text, `outspan: this page is not at "evil.test"`) || strings.Contains(text, "page.test") ||
		!strings.Contains(text, "What to do: ask those who run this cluster") {
		t.Errorf("a browser at another name: %s %v %s", resp.Status, resp.Header, text)
	}
	if got := r.want(421, `"code":"forbidden"`, "GET", "/", "", "Host: evil.test", "Accept: */*"); !strings.Contains(
		got.Header.Get("Content-Type"), "json") {
		t.Errorf("a script at another name: %v", got.Header)
	}
	r.want(200, "sign-in", "GET", "/", "", "Host: page.test:443", "Sec-Fetch-Site: cross-site") // a link to the page
	for _, path := range []string{"/", callbackPath, "/v1/nodes", "/ui/session"} {
		h := r.want(200, "", "GET", path, "").Header
		if !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
}

// Each sign-in has an id of its own, by which tabs tell one from the next, also with the same token.
func TestSignInIDs(t *testing.T) {
	r, seen := newRig(t, nil), map[string]bool{}
	for range 2 {
		cookie := r.signIn().Cookies()[0].Value
		var got told
		for range 2 {
			_, text := r.do(r.me, "GET", "/ui/session", "")
			if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.ID) != 16 || strings.Contains(cookie, got.ID) {
				t.Errorf("the answer is %s (%v)", text, err)
			}
		}
		seen[got.ID] = true
	}
	if len(seen) != 2 {
		t.Errorf("two sign-ins have the ids %v", seen)
	}
}

// A session ends when its token does, when its person signs out, and after a time; so does its stream.
func TestSessionEnds(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"token revoked": func(r *rig) {
			r.api.set(good, "")
			r.want(401, "unauthenticated", "GET", "/v1/nodes", "")
			r.api.set(good, "token:ci") // it does not come back
		},
		"signed out": func(r *rig) { r.want(200, "", "DELETE", "/ui/session", "") },
		"idle":       func(r *rig) { r.later(9 * time.Hour) },
		"token over": func(r *rig) { // it is used again and again
			r.later(40 * time.Minute)
			r.want(200, "", "GET", "/v1/nodes", "")
			r.later(21 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			cookie := r.signIn().Cookies()[0]
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go r.door.sessions.run(ctx, time.Millisecond)
			req, err := http.NewRequestWithContext(t.Context(), "GET", r.at.URL+"/v1/stream", nil)
			if err != nil {
				t.Fatal(err)
			}
			stream, err := r.me.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Body.Close()
			end(r)
			if _, err := io.Copy(io.Discard, stream.Body); errors.Is(err, context.DeadlineExceeded) {
				t.Error("the stream goes on")
			}
			thief := r.browser() // with the cookie from before
			resp, text := r.do(thief, "GET", "/v1/nodes", "", "Cookie: "+cookie.Name+"="+cookie.Value)
			if resp.StatusCode != 401 || !strings.Contains(text, "page_not_entered") {
				t.Errorf("the old cookie: %d %s", resp.StatusCode, text)
			}
		})
	}
}

// Sign-ins with a wrong token are limited, and those that succeed are not.
func TestAttempts(t *testing.T) {
	r := newRig(t, nil)
	for range 2 * attemptsAtOnce {
		r.signIn()
	}
	wrong := `{"token":"osa1.aaaaaaaaaaaaaaaa.wrongwrongwrong"}`
	for range attemptsAtOnce {
		r.want(401, "unauthenticated", "POST", "/ui/session", wrong)
	}
	r.want(429, "rate_limited", "POST", "/ui/session", wrong)
	r.want(429, "rate_limited", "POST", "/ui/session", `{"token":"`+good+`"}`)
	r.later(attemptEvery + time.Second)
	r.signIn()
}

func TestSignInRefuses(t *testing.T) {
	r := newRig(t, nil)
	for body, code := range map[string]string{
		`{"token":"` + strings.Repeat("a", 20000) + `"}`: "too_large", `{`: "invalid", `{"token":"abc"}`: "no access token",
		`{"token":"osa1.aaaaaaaaaaaaaaaa.b\r\nX-Evil: 1"}`: "no access token",
	} {
		resp, text := r.do(r.me, "POST", "/ui/session", body)
		if resp.StatusCode < 400 || !strings.Contains(text, code) || len(resp.Cookies()) > 0 {
			t.Errorf("%.60s: %d %s", body, resp.StatusCode, text)
		}
	}
	r.want(400, "JSON", "POST", "/ui/session", `{"token":"`+good+`"}`, "Content-Type: text/plain")
	r.want(405, "", "POST", "/", "{}")
	if resp, _ := r.do(r.me, "POST", "/ui/sign-in", "{}"); resp.StatusCode < 400 {
		t.Error("a cluster without a provider begins a sign-in with one")
	}
}

// A person has few sessions; the one that was not used for longest ends. Nobody else's does.
func TestSessionsAreBounded(t *testing.T) {
	now := time.Now()
	s := newSessions(func() time.Time { now = now.Add(time.Second); return now }, func(*session) {})
	other := s.begin(session{subject: "b"})
	first := s.begin(session{subject: "a"})
	second := s.begin(session{subject: "a"})
	s.with(first)
	for range maxPerSubject - 1 {
		s.begin(session{subject: "a"})
	}
	if s.with(other) == nil || s.with(first) == nil || s.with(second) != nil || s.of["a"] != maxPerSubject {
		t.Errorf("%d sessions of one person are left", s.of["a"])
	}
	for i := range maxSessions {
		s.begin(session{subject: "many" + string(rune('a'+i%300))})
	}
	if len(s.all) > maxSessions || s.with(other) == nil {
		t.Errorf("%d sessions; the only one of its person: %v", len(s.all), s.with(other) != nil)
	}
}

// Somebody who sends the body of a sign-in slowly is answered without it, and cut off.
func TestSlowSender(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	c, err := tls.Dial("tcp", r.at.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	if err := c.SetDeadline(began.Add(3 * readTime)); err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(c, "POST /ui/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"+
		"Content-Length: 100\r\n\r\n{")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(c)
	if took := time.Since(began); err != nil || took > 2*readTime || !strings.HasPrefix(string(text), "HTTP/1.1 400 ") {
		t.Errorf("after %v: %v, %.60q", took, err, text)
	}
}
