package httpapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport/httpapi"
)

// grantToken makes an access token with roles.
func (r *rig) grantToken(name string, ttl model.Duration, roles ...rights.RoleName) pki.AccessToken {
	r.t.Helper()
	token := pki.NewAccessToken()
	hash := token.Hash()
	r.apply(&fsm.AccessTokenCreate{ID: token.ID(), Name: name,
		Subject: model.Subject{Kind: model.SubjectToken, Name: name}, Hash: hash[:], TTL: ttl, Roles: roles})
	return token
}

// bearer sends a request with headers over a connection, which has a certificate only if role is not empty. It returns
// the status, and the code of a refusal.
func (r *rig) bearer(role pki.Role, method, server, path string, headers ...string) (int, model.Code, string) {
	r.t.Helper()
	resp, err := r.bearerOpen(r.t.Context(), role, method, server, path, headers...)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw := must(io.ReadAll(resp.Body))(r.t)
	var problem struct{ Code model.Code }
	_ = json.Unmarshal(raw, &problem) // an answer that is no problem has no code
	return resp.StatusCode, problem.Code, string(raw)
}

func (r *rig) bearerOpen(ctx context.Context, role pki.Role, method, server, path string, headers ...string) (
	*http.Response, error) {
	cfg := must(r.ca.Credentials(pki.RoleCLI, "roots"))(r.t).ClientConfig(pki.RoleServer)
	cfg.Certificates = nil
	if role != "" {
		cfg = must(r.ca.Credentials(role, "alice"))(r.t).ClientConfig(pki.RoleServer)
	}
	via := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	r.t.Cleanup(via.CloseIdleConnections)
	req := must(http.NewRequestWithContext(ctx, method, "https://"+r.servers[server].address+path, nil))(r.t)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	return via.RoundTrip(req)
}

func bearerOf(t pki.AccessToken) string { return "Authorization: Bearer " + t.Reveal() }

func TestAccessTokens(t *testing.T) {
	r := newRig(t)
	r.startWith("without", func(c *httpapi.Config) { c.Tokens = false })
	good := r.grantToken("ci", model.Hour, rights.Viewer)
	revoked := r.grantToken("old", model.Hour, rights.Admin)
	r.apply(&fsm.AccessTokenRevoke{ID: revoked.ID()})
	short := r.grantToken("short", model.Second, rights.Admin)
	time.Sleep(1100 * time.Millisecond) // the server's clock is the real one
	other := pki.NewAccessToken()
	mixed := strings.Split(good.Reveal(), ".")
	mixed[2] = strings.Split(other.Reveal(), ".")[2]

	for name, tt := range map[string]struct {
		role         pki.Role
		server, path string
		headers      []string
		status       int
		code         model.Code
		says         string
	}{
		"good":          {"", "s1", "/v1/auth/whoami", []string{bearerOf(good)}, 200, "", `"token:ci"`},
		"its role":      {"", "s1", "/v1/nodes", []string{bearerOf(good)}, 200, "", ""},
		"no right":      {"", "s1", "/v1/tokens", []string{bearerOf(good)}, 403, model.CodeForbidden, "token:ci may not"},
		"a certificate": {pki.RoleCLI, "s1", "/v1/auth/whoami", []string{bearerOf(good)}, 200, "", `"token:ci"`},
		"a certificate and a wrong token": {pki.RoleCLI, "s1", "/v1/nodes", []string{bearerOf(other)}, 401,
			model.CodeUnauthenticated, "there is no access token"},
		"nothing":          {"", "s1", "/v1/nodes", nil, 401, model.CodeUnauthenticated, "OUTSPAN_TOKEN_FILE"},
		"nothing, healthz": {"", "s1", "/healthz", nil, 401, model.CodeUnauthenticated, ""},
		"empty": {"", "s1", "/v1/nodes", []string{"Authorization: "}, 401, model.CodeUnauthenticated,
			"no access token"},
		"a password": {"", "s1", "/v1/nodes", []string{"Authorization: Basic YTpi"}, 401, model.CodeUnauthenticated, ""},
		"two": {"", "s1", "/v1/nodes", []string{bearerOf(good), bearerOf(good)}, 401, model.CodeUnauthenticated,
			"send it once"},
		"another secret": {"", "s1", "/v1/nodes", []string{"Authorization: Bearer " + strings.Join(mixed, ".")}, 401,
			model.CodeUnauthenticated, "damaged"},
		"a join token": {"", "s1", "/v1/nodes", []string{"Authorization: Bearer osj1.agent.a.b"}, 401,
			model.CodeUnauthenticated, "join token"},
		"revoked": {"", "s1", "/v1/nodes", []string{bearerOf(revoked)}, 401, model.CodeUnauthenticated, "was revoked"},
		"ended":   {"", "s1", "/v1/nodes", []string{bearerOf(short)}, 401, model.CodeUnauthenticated, "ended at"},
		"a server that takes none": {"", "without", "/v1/nodes", []string{bearerOf(good)}, 401, model.CodeUnauthenticated,
			"auth { tokens = true }"},
		"a server with a token": {pki.RoleServer, "s1", "/v1/nodes", []string{bearerOf(good)}, 403, model.CodeForbidden,
			"may send no access token"},
		"an agent with a token": {pki.RoleAgent, "s1", "/v1/nodes", []string{bearerOf(good)}, 403, model.CodeForbidden,
			"may send no access token"},
		"forwarding without a certificate": {"", "s1", "/v1/nodes", []string{"Outspan-Forwarded-For: cert:alice"}, 401,
			model.CodeUnauthenticated, ""},
		"forwarding with a token": {"", "s1", "/v1/auth/whoami", []string{bearerOf(good),
			"Outspan-Forwarded-For: cert:alice", "Outspan-Forwarded-Token: " + string(revoked.ID())}, 200, "", `"token:ci"`},
		"forwarded": {pki.RoleServer, "s1", "/v1/auth/whoami", []string{"Outspan-Forwarded-For: token:ci",
			"Outspan-Forwarded-Token: " + string(good.ID())}, 200, "", `"token:ci"`},
		"forwarded without its id": {pki.RoleServer, "s1", "/v1/nodes", []string{"Outspan-Forwarded-For: token:ci"}, 401,
			model.CodeUnauthenticated, ""},
		"forwarded as another": {pki.RoleServer, "s1", "/v1/nodes", []string{"Outspan-Forwarded-For: cert:alice",
			"Outspan-Forwarded-Token: " + string(good.ID())}, 401, model.CodeUnauthenticated, ""},
		"forwarded and revoked": {pki.RoleServer, "s1", "/v1/nodes", []string{"Outspan-Forwarded-For: token:old",
			"Outspan-Forwarded-Token: " + string(revoked.ID())}, 401, model.CodeUnauthenticated, "was revoked"},
	} {
		status, code, text := r.bearer(tt.role, http.MethodGet, tt.server, tt.path, tt.headers...)
		if status != tt.status || code != tt.code || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %d %s %s, want %d %s %q", name, status, code, text, tt.status, tt.code, tt.says)
		}
		for _, token := range []pki.AccessToken{good, revoked, short, other} {
			if secret := strings.Split(token.Reveal(), ".")[2]; strings.Contains(text, secret) {
				t.Errorf("%s: the answer has the secret: %s", name, text)
			}
		}
	}
}

// A server that does not lead forwards the subject and the id of the token, never its secret.
func TestAccessTokenIsForwarded(t *testing.T) {
	r := newRig(t, "s1", "s2")
	token := r.grantToken("ci", model.Hour, rights.Admin)
	var mu sync.Mutex
	var sent []http.Header
	plain := r.servers["s2"].passing.RoundTripper
	r.servers["s2"].passing.RoundTripper = roundTrip(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, req.Header.Clone())
		return plain.RoundTrip(req)
	})
	status, _, text := r.bearer("", http.MethodPost, "s2", "/v1/settings/pause?request_id=r1", bearerOf(token))
	mu.Lock()
	defer mu.Unlock()
	if status != http.StatusOK || r.lastEntry().Actor != "token:ci" || r.lastEntry().Rights == 0 {
		t.Errorf("%d %s: entry of %s, rights %d", status, text, r.lastEntry().Actor, r.lastEntry().Rights)
	}
	if len(sent) != 1 || sent[0].Get("Outspan-Forwarded-Token") != string(token.ID()) ||
		sent[0].Get("Authorization") != "" {
		t.Errorf("forwarded: %v", sent)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// late starts the server s2, which applies each entry 200 ms after the leader.
func (r *rig) late() {
	behind := fsm.NewMachine()
	r.startWith("s2", func(c *httpapi.Config) { c.Store = store{behind, r} })
	var wg sync.WaitGroup
	r.t.Cleanup(wg.Wait)
	wg.Go(func() {
		for n := 0; r.t.Context().Err() == nil; {
			r.mu.Lock()
			all := r.log
			r.mu.Unlock()
			if n == len(all) {
				time.Sleep(time.Millisecond)
				continue
			}
			time.Sleep(200 * time.Millisecond)
			data, err := fsm.EncodeEntry(all[n])
			if err == nil {
				n++
				_, err = behind.Apply(uint64(n), 1, data)
			}
			if err != nil {
				r.t.Error(err)
				return
			}
		}
	})
}

// An access token counts at once at the server that was asked to make it, though that lags, and at another that lags.
// A server that lags does not wait for long for a token that nobody made.
func TestNewTokenCountsAtOnce(t *testing.T) {
	r := newRig(t)
	r.late()
	made := post(t, r.cli("s2"), "/v1/access-tokens", map[string]any{"name": "ci", "roles": []string{"viewer"}})
	text, _ := made["text"].(string)
	if taken, _ := made["taken"].(bool); !taken {
		t.Errorf("the answer does not say that the server takes the token: %v", made)
	}
	if status, _, says := r.bearer("", http.MethodGet, "s2", "/v1/auth/whoami?consistency=stale",
		"Authorization: Bearer "+text); status != http.StatusOK {
		t.Errorf("where it was made: %d %s", status, says)
	}
	other := r.grantToken("other", model.Hour, rights.Viewer)
	if status, _, says := r.bearer("", http.MethodGet, "s2", "/v1/auth/whoami", bearerOf(other)); status != http.StatusOK {
		t.Errorf("elsewhere: %d %s", status, says)
	}
	begun := time.Now()
	if status, _, says := r.bearer("", http.MethodGet, "s2", "/v1/auth/whoami",
		bearerOf(pki.NewAccessToken())); status != http.StatusUnauthorized || time.Since(begun) > 10*time.Second {
		t.Errorf("a wrong token: %d %s after %s", status, says, time.Since(begun))
	}
}

// Access tokens end by the wall clock of the cluster, and not by that of the machine of a server.
func TestTokensEndByTheClockOfTheCluster(t *testing.T) {
	r := newRig(t)
	for name, ahead := range map[string]time.Duration{"early": -2 * time.Hour, "late": 2 * time.Hour} {
		r.startWith(name, func(c *httpapi.Config) { c.Wall = func() time.Time { return time.Now().Add(ahead) } })
	}
	long, ended := r.grantToken("long", model.Hour, rights.Viewer), r.grantToken("short", model.Minute, rights.Viewer)
	for _, tt := range []struct {
		server string
		token  pki.AccessToken
		want   int
	}{
		{"s1", long, http.StatusOK},
		{"early", ended, http.StatusOK},
		{"late", ended, http.StatusUnauthorized},
		{"late", long, http.StatusUnauthorized},
	} {
		r.setLeader(tt.server)
		if status, _, says := r.bearer("", http.MethodGet, tt.server, "/v1/auth/whoami",
			bearerOf(tt.token)); status != tt.want {
			t.Errorf("%s: %d %s, want %d", tt.server, status, says, tt.want)
		}
	}
}

// beforeWrite calls a function before each entry is committed.
type beforeWrite struct {
	httpapi.Consensus
	do func()
}

func (b beforeWrite) Propose(ctx context.Context, e fsm.Entry) ([]fsm.Result, error) {
	b.do()
	return b.Consensus.Propose(ctx, e)
}

// A write that was judged before its token is revoked is refused as stale, and changes nothing.
func TestWriteOfARevokedToken(t *testing.T) {
	r := newRig(t)
	var token pki.AccessToken
	r.startWith("s1", func(c *httpapi.Config) {
		c.Consensus = beforeWrite{c.Consensus, func() { r.apply(&fsm.AccessTokenRevoke{ID: token.ID()}) }}
	})
	token = r.grantToken("ci", model.Hour, rights.Admin)
	status, code, text := r.bearer("", http.MethodPost, "s1", "/v1/settings/pause", bearerOf(token))
	if code != model.CodeStale {
		t.Errorf("%d %s: %s", status, code, text)
	}
	if r.machine.Current().Settings.Paused {
		t.Error("the cluster is paused")
	}
	if status, code, _ := r.bearer("", http.MethodPost, "s1", "/v1/settings/pause", bearerOf(token)); code !=
		model.CodeUnauthenticated {
		t.Errorf("again: %d %s", status, code)
	}
}

// A stream ends when its token is revoked, and when the token ends.
func TestStreamEndsWithTheToken(t *testing.T) {
	r := newRig(t)
	revoked, short := r.grantToken("a", model.Hour, rights.Viewer), r.grantToken("b", 2*model.Second, rights.Viewer)
	kept := r.grantToken("c", model.Hour, rights.Viewer)
	open := func(token pki.AccessToken) chan struct{} {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		resp := must(r.bearerOpen(ctx, "", http.MethodGet, "s1", "/v1/events", bearerOf(token)))(t)
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
		}()
		return ended
	}
	streams := map[string]chan struct{}{"revoked": open(revoked), "ended": open(short)}
	goes := open(kept)
	r.apply(&fsm.AccessTokenRevoke{ID: revoked.ID()})
	for name, ended := range streams {
		select {
		case <-ended:
		case <-time.After(15 * time.Second): // generous
			t.Errorf("%s: the stream goes on", name)
		}
	}
	select {
	case <-goes:
		t.Error("another stream ended too")
	default:
	}
}

// A source that sends wrong tokens is answered more slowly; a good token of the same source still counts.
func TestWrongTokensAreLimited(t *testing.T) {
	r := newRig(t)
	good := r.grantToken("ci", model.Hour, rights.Viewer)
	last := model.Code("")
	for range 30 {
		_, last, _ = r.bearer("", http.MethodGet, "s1", "/v1/nodes", bearerOf(pki.NewAccessToken()))
		if last != model.CodeUnauthenticated {
			break
		}
	}
	if last != model.CodeRateLimited {
		t.Errorf("after 30 wrong tokens: %s", last)
	}
	if status, code, _ := r.bearer("", http.MethodGet, "s1", "/v1/nodes", bearerOf(good)); status != http.StatusOK {
		t.Errorf("a good token: %d %s", status, code)
	}
}
