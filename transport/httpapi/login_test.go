package httpapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport/httpapi"
)

const issuer = "https://id.example.org/realms/a"

// fakeSignIn accepts id tokens of the form "SUB GROUP...". checked counts them.
func fakeSignIn(checked *atomic.Int64) *httpapi.SignIn {
	return &httpapi.SignIn{
		Provider: api.Provider{Kind: "oidc", Issuer: issuer, ClientID: "outspan", Scopes: []string{"openid"}},
		Session:  model.Hour,
		Verify: func(_ context.Context, text string) (httpapi.SignedIn, error) {
			checked.Add(1)
			words := strings.Fields(text)
			if len(words) == 0 || words[0] == "forged" {
				return httpapi.SignedIn{}, model.Refuse(model.CodeForbidden, "the id token is not accepted")
			}
			proof := strings.Map(func(r rune) rune {
				if r < 'a' || r > 'z' {
					return -1
				}
				return r
			}, text)
			return httpapi.SignedIn{Subject: model.Subject{Kind: model.SubjectOIDC, Name: issuer + "#" + words[0]},
				Person: words[0] + "@example.org", Groups: words[1:], Proof: proof}, nil
		},
	}
}

// bare calls a server without a certificate.
type bare struct {
	t    *testing.T
	http *http.Client
	base string
}

func newBare(t *testing.T, s *server) *bare {
	via := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(via.CloseIdleConnections)
	return &bare{t, &http.Client{Transport: via, Timeout: 30 * time.Second}, "https://" + s.address}
}

// call returns the problem of an answer that is none, and otherwise decodes the answer.
func (b *bare) call(method, path, token string, body, into any) *api.Problem {
	b.t.Helper()
	resp := b.open(method, path, token, body)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var p *api.Problem
		if err := api.ProblemOf(resp); !errors.As(err, &p) {
			b.t.Fatal(err)
		}
		return p
	}
	if into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			b.t.Fatal(err)
		}
	}
	return nil
}

func (b *bare) open(method, path, token string, body any) *http.Response {
	b.t.Helper()
	var text io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		text = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, text)
	if err != nil {
		b.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp
}

func (b *bare) login(idToken string) (reply api.LoginReply, p *api.Problem) {
	b.t.Helper()
	p = b.call("POST", "/v1/auth/login", "", api.LoginBody{IDToken: idToken}, &reply)
	return reply, p
}

func wantRefused(t *testing.T, p *api.Problem, code model.Code, text string) {
	t.Helper()
	if p == nil || p.Code != code || !strings.Contains(p.Message, text) {
		t.Errorf("got %+v, want %s and %q", p, code, text)
	}
}

// signInRig is a rig of two servers with a provider. s1 leads.
func signInRig(t *testing.T) (r *rig, checked *atomic.Int64) {
	checked = new(atomic.Int64)
	r = newRig(t)
	for _, name := range []string{"s1", "s2"} {
		r.startWith(name, func(c *httpapi.Config) { c.Tokens, c.SignIn = true, fakeSignIn(checked) })
	}
	r.world()
	return r, checked
}

// Somebody signs in at a server that does not lead, has the rights of the groups of that moment, and signs out.
func TestLogin(t *testing.T) {
	r, checked := signInRig(t)
	b := newBare(t, r.servers["s2"])
	r.apply(&fsm.BindingAdd{Role: "viewer", To: "group:shop"})

	var providers api.Providers
	if p := b.call("GET", "/v1/auth/providers", "", nil, &providers); p != nil || len(providers.Items) != 1 ||
		providers.Items[0].Issuer != issuer {
		t.Fatalf("got %+v, %v", providers, p)
	}
	reply, p := b.login("alice shop ops")
	if p != nil {
		t.Fatal(p)
	}
	who := reply.Identity
	if who.Subject != "oidc:"+issuer+"#alice" || who.Token == nil || who.Token.Person != "alice@example.org" ||
		!slices.Equal(who.Token.Groups, []string{"shop", "ops"}) || len(who.Roles) != 1 || who.Roles[0] != "viewer" {
		t.Errorf("got %+v", who)
	}
	if checked.Load() != 1 {
		t.Errorf("the id token was checked %d times", checked.Load())
	}
	var again api.Identity
	if p := b.call("GET", "/v1/auth/whoami", reply.Text, nil, &again); p != nil || again.Subject != who.Subject {
		t.Errorf("got %+v, %v", again, p)
	}
	if p := b.call("GET", "/v1/nodes", reply.Text, nil, nil); p != nil {
		t.Error(p)
	}
	wantRefused(t, b.call("POST", "/v1/nodes/n1/cordon", reply.Text, nil, nil), model.CodeForbidden, "node.cordon")

	can := get(t, r.client(pki.RoleCLI, "root"), "/v1/auth/can-i?verb=node.read&as="+url.QueryEscape(who.Subject))
	if allowed, _ := can["allowed"].(bool); !allowed {
		t.Errorf("others are told that she may not: %v", can)
	}
	_, p = b.login("alice shop ops")
	wantRefused(t, p, model.CodeConflict, "used for a login before")
	if p := b.call("POST", "/v1/auth/logout", reply.Text, nil, nil); p != nil {
		t.Fatal(p)
	}
	wantRefused(t, b.call("GET", "/v1/auth/whoami", reply.Text, nil, nil), model.CodeUnauthenticated, "revoked")
	_, p = b.login("alice shop ops")
	wantRefused(t, p, model.CodeConflict, "used for a login before")

	other, p := b.login("alice ops") // the groups have changed
	if p != nil || len(other.Identity.Roles) != 0 {
		t.Errorf("got %+v, %v", other, p)
	}
	wantRefused(t, b.call("GET", "/v1/nodes", other.Text, nil, nil), model.CodeForbidden, "node.read")
}

func TestLoginRefuses(t *testing.T) {
	r, checked := signInRig(t)
	b := newBare(t, r.servers["s2"])
	entries := r.entries()
	_, p := b.login("forged")
	wantRefused(t, p, model.CodeForbidden, "not accepted")
	if r.entries() != entries {
		t.Error("a refused login reached the log")
	}
	wantRefused(t, b.call("GET", "/v1/nodes", "", nil, nil), model.CodeUnauthenticated, "identity")
	wantRefused(t, b.call("POST", "/v1/auth/logout", "", nil, nil), model.CodeUnauthenticated, "identity")

	before := checked.Load()
	for range 30 {
		_, p = b.login("forged")
	}
	wantRefused(t, p, model.CodeRateLimited, "too often")
	if n := checked.Load() - before; n > 20 {
		t.Errorf("the provider was asked about %d id tokens of one source", n)
	}

	none := newRig(t)
	none.startWith("s1", func(c *httpapi.Config) { c.Tokens = true })
	_, p = newBare(t, none.servers["s1"]).login("alice")
	wantRefused(t, p, model.CodeNotSupported, "nobody can sign in")
}

// People behind one address don't keep each other from signing in: only logins that fail count.
func TestManyLoginsOfOneSource(t *testing.T) {
	r, _ := signInRig(t)
	for name, server := range map[string]string{"a": "s1", "b": "s2"} { // s1 leads
		b := newBare(t, r.servers[server])
		for i := range 30 {
			if p := b.call("GET", "/v1/auth/providers", "", nil, nil); p != nil {
				t.Fatal(p)
			}
			if _, p := b.login(strings.Repeat(name, i+1)); p != nil {
				t.Fatalf("login %d at %s: %v", i, server, p)
			}
		}
	}
}

// A stream ends when the login that reads it is revoked.
func TestLogoutEndsStreams(t *testing.T) {
	r, _ := signInRig(t)
	r.apply(&fsm.BindingAdd{Role: "viewer", To: "oidc:" + issuer + "#*"})
	b := newBare(t, r.servers["s1"])
	reply, p := b.login("alice")
	if p != nil {
		t.Fatal(p)
	}
	resp := b.open("GET", "/v1/events", reply.Text, nil)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, resp.Body)
	}()
	if p := b.call("POST", "/v1/auth/logout", reply.Text, nil, nil); p != nil {
		t.Fatal(p)
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the stream goes on after the logout")
	}
}
