package door

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/model"
)

// provider plays an OpenID Connect provider.
type provider struct{ err error }

// Name implements Provider.
func (provider) Name() string { return "id.example.org" }

// Begin implements Provider.
func (p provider) Begin(_ context.Context, redirect string) (string, Trip, error) {
	return "https://id.example.org/?state=s1", Trip{Redirect: redirect, State: "s1", Nonce: "n", Verifier: "v"}, p.err
}

// IDToken implements Provider.
func (p provider) IDToken(_ context.Context, t Trip, code string) (string, error) {
	if code != "good" || t.Verifier != "v" {
		return "", model.Refuse(model.CodeForbidden, "the code is not good")
	}
	return "id-token", p.err
}

// The way to the provider and back works in the browser that began it, once, in time, and with the state.
func TestProvider(t *testing.T) {
	withProvider := func(c *Config) { c.Provider = provider{} }
	finish := `{"code":"good","state":"s1"}`
	t.Run("works", func(t *testing.T) {
		r := newRig(t, withProvider)
		resp := r.want(200, "https://id.example.org/?state=s1", "POST", "/ui/sign-in", "{}")
		if c := resp.Cookies()[0]; !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode ||
			strings.Contains(decoded(c.Value), "State") {
			t.Errorf("the cookie is %v", c)
		}
		r.want(200, "sign-in", "GET", callbackPath+"?code=good&state=s1", "", "Sec-Fetch-Site: cross-site")
		r.want(200, "oidc:x#alice", "POST", "/ui/sign-in/finish", finish)
		r.want(200, "oidc:x#alice", "GET", "/v1/nodes", "")
		r.want(403, "not begun in this browser", "POST", "/ui/sign-in/finish", finish)
		r.want(200, "", "DELETE", "/ui/session", "")
		if r.api.tokens["osa1.login.secret"] != "" {
			t.Error("the access token of the login lives on")
		}
	})
	t.Run("refused", func(t *testing.T) {
		for name, try := range map[string]struct {
			change func(*rig)
			body   string
			text   string
		}{
			"another state":   {nil, `{"code":"good","state":"s2"}`, "not begun in this browser"},
			"another browser": {func(r *rig) { r.me = r.browser() }, finish, "not begun in this browser"},
			"late":            {func(r *rig) { r.later(11 * time.Minute) }, finish, "not begun in this browser"},
			"wrong code":      {nil, `{"code":"bad","state":"s1"}`, "the code is not good"},
			"denied":          {nil, `{"state":"s1","error":"access_denied"}`, "was denied at id.example.org"},
			"strange error":   {nil, `{"state":"s1","error":"Call 555-1234 now"}`, "not signed you in: an error"},
		} {
			r := newRig(t, withProvider)
			r.want(200, "", "POST", "/ui/sign-in", "{}")
			if try.change != nil {
				try.change(r)
			}
			if resp := r.want(403, try.text, "POST", "/ui/sign-in/finish", try.body); resp.Header.Get("Set-Cookie") != "" &&
				strings.Contains(resp.Header.Get("Set-Cookie"), forSession) {
				t.Errorf("%s: %v", name, resp.Header)
			}
		}
	})
}

// Another site that makes a browser load the way back from the provider uses up no attempts.
func TestCallbacksOfOthersAreNoAttempts(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Provider = provider{} })
	for range 2 * attemptsAtOnce {
		r.want(403, "not begun in this browser", "POST", "/ui/sign-in/finish", `{"code":"x","state":"y"}`)
	}
	r.signIn()
}

// decoded returns what is in a cookie if it is not sealed.
func decoded(text string) string {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return text
	}
	return string(raw)
}

// sink keeps the lines of an audit log.
type sink struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements audit.Sink.
func (s *sink) Write(lines []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.text.Write(lines)
	return err
}

// Sync implements audit.Sink.
func (s *sink) Sync() error { return nil }

// Reopen implements audit.Sink.
func (s *sink) Reopen() error { return nil }

// Close implements audit.Sink.
func (s *sink) Close() error { return nil }

func TestAudit(t *testing.T) {
	for _, required := range []bool{false, true} {
		kept := &sink{}
		log := audit.New(audit.Config{Server: "s1", Sinks: []audit.Sink{kept}, Required: required})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- log.Run(ctx) }()
		r := newRig(t, func(c *Config) { c.Audit = log })
		r.signIn()
		r.want(401, "", "POST", "/ui/session", `{"token":"osa1.aaaaaaaaaaaaaaaa.wrongwrongwrong"}`)
		r.want(200, "", "DELETE", "/ui/session", "")
		if r.signIn(); !required { // a session that ends with its token, and one that is over
			r.api.set(good, "")
			r.want(401, "", "GET", "/v1/nodes", "")
		} else {
			r.later(sessionTime)
			r.want(401, "", "GET", "/v1/nodes", "")
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"subject":"token:ci","token":"id1"`, `"operation":"page-sign-in","outcome":"done"`,
			`"operation":"page-sign-in","outcome":"refused","code":"unauthenticated"`,
			`"operation":"page-sign-out","outcome":"done"`,
			`"subject":"token:ci","token":"id1","operation":"page-session-end","outcome":"done"`} {
			if !strings.Contains(kept.text.String(), want) {
				t.Errorf("required %v: there is no %s in:\n%s", required, want, kept.text.String())
			}
		}
		if strings.Contains(kept.text.String(), "bbbbbbbb") || strings.Contains(kept.text.String(), "wrongwrong") {
			t.Errorf("a secret is in the log:\n%s", kept.text.String())
		}
	}
}
