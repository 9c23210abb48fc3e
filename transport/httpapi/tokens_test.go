package httpapi_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// manage gives the state a CA, as the first leader of a managed cluster does.
func (r *rig) manage() {
	r.t.Helper()
	r.apply(
		&fsm.KeyPut{Name: "data/1", Version: 1, Phase: model.KeyActive, Under: "kek", Sealed: []byte("sealed-data-key")},
		&fsm.KeyPut{Name: "ca/1", Version: 1, Phase: model.KeyActive, Under: "data/1", Sealed: []byte("sealed-ca-key"),
			Public: r.ca.Root().Raw})
}

// token makes a join token through the API.
func (r *rig) token(body map[string]any) (api.NewTokenReply, pki.JoinToken) {
	r.t.Helper()
	raw, _, err := r.cli().Do(r.t.Context(), http.MethodPost, "/v1/tokens", nil, body)
	if err != nil {
		r.t.Fatal(err)
	}
	var reply api.NewTokenReply
	if err := json.Unmarshal(raw, &reply); err != nil {
		r.t.Fatal(err)
	}
	return reply, must(pki.ParseJoinToken(reply.Text))(r.t)
}

// admit admits a member with this token, as the leader does.
func (r *rig) admit(token pki.JoinToken, kind model.SubjectKind, name string) {
	r.t.Helper()
	verifier := token.Verifier()
	r.apply(&fsm.MemberAdmit{Subject: model.Subject{Kind: kind, Name: name}, Key: bytes.Repeat([]byte(name[:1]), 32),
		NotAfter: r.born.UnixMilli() + 1000, Token: model.TokenID(token.ID()), Verifier: verifier[:]})
}

// secretsOf returns the parts of a token that nobody but its owner may see, in every form that an answer could have.
func secretsOf(token pki.JoinToken) []string {
	verifier := token.Verifier()
	text := token.Reveal()
	asJSON, _ := json.Marshal(verifier[:]) // base64
	return []string{text[strings.LastIndex(text, ".")+1:], strings.Trim(string(asJSON), `"`), fmt.Sprintf("%x", verifier)}
}

// A token is of the state's CA, and the state stores what it admits and only its hash. The text is in the answer that
// made it, and nowhere else: not in the list, the events, the log, the stored outcome, or a description of the state.
func TestTokenTextIsShownOnce(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.manage()
	body := map[string]any{"role": "agent", "ttl": "2h", "uses": 3, "node_name": "web-*",
		"labels": map[string]string{"rack": "r1"}}
	follower := r.cli("s2")
	raw, _, err := follower.Do(t.Context(), http.MethodPost, "/v1/tokens", values("request_id=once"), body)
	if err != nil {
		t.Fatal(err)
	}
	var reply api.NewTokenReply
	if err := json.Unmarshal(raw, &reply); err != nil {
		t.Fatal(err)
	}
	token := must(pki.ParseJoinToken(reply.Text))(t)
	root := r.ca.Root()
	if want := must(pki.NewJoinToken(pki.RoleAgent, root))(t).Reveal(); !sharesRoot(reply.Text, want) {
		t.Error("the token names another root than the state's CA")
	}
	row, ok := r.machine.State().JoinTokens.Get(model.TokenID(token.ID()))
	if !ok || !token.Verify(row.Verifier) || row.Role != "agent" || row.Uses != 3 || row.NodeName != "web-*" ||
		row.Labels["rack"] != "r1" || row.Creator != "cert:alice" ||
		row.Expires.Sub(r.now()) > 2*model.Hour || row.Expires.Sub(r.now()) < 2*model.Hour-model.Minute {
		t.Errorf("the row is %+v", row)
	}
	if v := reply.Token; v == nil || v.ID != row.ID || v.State != api.TokenActive || v.CreatedIndex != reply.Index {
		t.Errorf("the answer shows %+v", v)
	}

	for _, again := range []*transport.Client{follower, r.cli("s1")} {
		_, _, err = again.Do(t.Context(), http.MethodPost, "/v1/tokens", values("request_id=once"), body)
		wantCode(t, err, model.CodeConflict)
		for _, says := range []string{"outspan token revoke " + token.ID(), "another request id"} {
			if !strings.Contains(err.Error()+fmt.Sprint(hintOf(err)), says) {
				t.Errorf("the same request again: %v %s, which does not say %q", err, hintOf(err), says)
			}
		}
	}
	if r.machine.State().JoinTokens.Len() != 1 {
		t.Error("the same request made another token")
	}
	var everywhere strings.Builder
	for _, path := range []string{"/v1/tokens", "/v1/trust/members", "/v1/status"} {
		everywhere.Write(must2(r.cli().Do(t.Context(), http.MethodGet, path, nil, nil))(t))
	}
	fmt.Fprint(&everywhere, err, hintOf(err))
	entry := r.lastEntry()
	fmt.Fprintf(&everywhere, "%+v %v", entry.Request, entry.Body)
	state := r.machine.State()
	for _, e := range state.Events.All() {
		fmt.Fprintf(&everywhere, "%+v", e)
	}
	for _, described := range []any{row, entry.Groups[0][0]} {
		everywhere.Write(must(json.Marshal(fsm.Describe(described)))(t))
	}
	if !strings.Contains(everywhere.String(), token.ID()) {
		t.Error("the token is not even named: this test sees nothing")
	}
	for _, secret := range secretsOf(token) {
		if strings.Contains(everywhere.String(), secret) {
			t.Errorf("%q can be seen", secret)
		}
	}
	log, secret := must(fsm.EncodeEntry(entry))(t), secretsOf(token)[0]
	if bytes.Contains(log, []byte(secret)) || bytes.Contains(log, must(base64.RawURLEncoding.DecodeString(secret))(t)) {
		t.Error("the log has the secret")
	}
}

// sharesRoot reports whether two tokens have the same text up to their secret.
func sharesRoot(a, b string) bool {
	return a[:strings.LastIndex(a, ".")] == b[:strings.LastIndex(b, ".")]
}

func hintOf(err error) string { return api.NewProblem(err).Hint }

// A dry run checks a token, and makes none.
func TestTokenDryRun(t *testing.T) {
	r := newRig(t)
	r.manage()
	raw, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/tokens", values("dry_run=true"),
		map[string]any{"role": "agent"})
	if err != nil {
		t.Fatal(err)
	}
	got := decode(t, raw)
	if _, has := got["text"]; has || !isTrue(got["dry_run"]) || r.machine.State().JoinTokens.Len() != 0 {
		t.Errorf("a dry run answers %s", raw)
	}
	_, _, err = r.cli().Do(t.Context(), http.MethodPost, "/v1/tokens", values("dry_run=true"),
		map[string]any{"role": "agent", "uses": 0})
	wantCode(t, err, model.CodeInvalid)
}

// Without a CA in the state, every operation on tokens and members is refused with the next step.
func TestTokensNeedACA(t *testing.T) {
	r := newRig(t)
	r.world()
	before := r.entries()
	for _, op := range trustCalls {
		_, _, err := r.cli().Do(t.Context(), op.method, op.path, nil, op.body)
		want := model.CodeNotSupported
		if op.path == "/v1/tokens" && op.method == http.MethodPost {
			want = model.CodeCertificateNeeded
		}
		wantCode(t, err, want)
		if !strings.Contains(hintOf(err), "outspan tls cert create") {
			t.Errorf("%s %s: the hint is %q", op.method, op.path, hintOf(err))
		}
	}
	if r.entries() != before {
		t.Error("a refusal was written to the log")
	}
}

// Right after outspan up, the server that leads issues certificates and has no CA yet. A caller repeats its call.
func TestTokensOfANewCluster(t *testing.T) {
	r := newRig(t)
	r.startWith("s2", func(c *httpapi.Config) {
		c.Renew = func(context.Context, model.Subject, transport.RenewRequest) (transport.RenewReply, error) {
			return transport.RenewReply{}, nil
		}
	})
	r.setLeader("s2")
	ask := func() error {
		_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/tokens", nil, map[string]any{"role": "agent"})
		return err
	}
	wantCode(t, ask(), model.CodeBusy)
	r.manage()
	if err := ask(); err != nil {
		t.Error(err)
	}
}

var trustCalls = []struct {
	method, path string
	body         any
}{
	{"GET", "/v1/tokens", nil},
	{"POST", "/v1/tokens", map[string]any{"role": "agent"}},
	{"POST", "/v1/tokens/2fbzq3k7ay5d/revoke", nil},
	{"GET", "/v1/trust/members", nil},
	{"POST", "/v1/nodes/n1/revoke", nil},
	{"POST", "/v1/members/s1/revoke", nil},
	{"GET", "/v1/newcomers", nil},
	{"POST", "/v1/newcomers/agent:n1/approve", nil},
	{"POST", "/v1/newcomers/agent:n1/reject", nil},
}

// Only people may make tokens and revoke members: an agent or a server gets forbidden.
func TestOnlyPeopleHandleTrust(t *testing.T) {
	r := newRig(t)
	r.world()
	r.manage()
	before := r.entries()
	for _, op := range trustCalls {
		for _, role := range []pki.Role{pki.RoleAgent, pki.RoleServer} {
			_, _, err := r.client(role, "n1").Do(t.Context(), op.method, op.path, nil, op.body)
			wantCode(t, err, model.CodeForbidden)
		}
	}
	if r.entries() != before {
		t.Error("one of them wrote something")
	}
}

func TestTokenRefusals(t *testing.T) {
	r := newRig(t)
	r.manage()
	for _, tt := range []struct {
		body map[string]any
		says string
	}{
		{map[string]any{}, "neither server nor agent"},
		{map[string]any{"role": "cli"}, "neither server nor agent"},
		{map[string]any{"role": "hunter2"}, "neither server nor agent"},
		{map[string]any{"role": "agent", "ttl": "0s"}, "lasts 1s"},
		{map[string]any{"role": "agent", "ttl": "1000d"}, "lasts 1s"},
		{map[string]any{"role": "agent", "uses": 0}, "1 to 1000 uses"},
		{map[string]any{"role": "agent", "node_name": "web-["}, "no pattern"},
		{map[string]any{"role": "agent", "labels": map[string]string{"": "x"}}, "label"},
		{map[string]any{"role": "agent", "use": 1}, "did you mean"},
	} {
		_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/tokens", nil, tt.body)
		wantCode(t, err, model.CodeInvalid)
		if text := err.Error() + hintOf(err); !strings.Contains(text, tt.says) || strings.Contains(text, "hunter2") {
			t.Errorf("%v: %s, want %q", tt.body, text, tt.says)
		}
	}
	_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/tokens/2fbzq3k7ay5d/revoke", nil, nil)
	wantCode(t, err, model.CodeNotFound)
}

// The list shows how far each token is used, and which have ended, and why.
func TestTokenStates(t *testing.T) {
	r := newRig(t)
	r.manage()
	want := map[string]api.TokenState{}
	kept, _ := r.token(map[string]any{"role": "server", "uses": 2})
	want[string(kept.Token.ID)] = api.TokenActive
	spent, token := r.token(map[string]any{"role": "agent"})
	r.admit(token, model.SubjectAgent, "n1")
	want[string(spent.Token.ID)] = api.TokenUsed
	revoked, _ := r.token(map[string]any{"role": "agent"})
	got := post(t, r.cli(), "/v1/tokens/"+string(revoked.Token.ID)+"/revoke", nil)
	if state := got["token"].(map[string]any)["state"]; state != "revoked" {
		t.Errorf("the answer to a revocation has the state %v", state)
	}
	want[string(revoked.Token.ID)] = api.TokenRevoked
	short, _ := r.token(map[string]any{"role": "agent", "ttl": "1s"})
	want[string(short.Token.ID)] = api.TokenExpired
	states := func() map[string]api.TokenState {
		all := map[string]api.TokenState{}
		for _, item := range get(t, r.cli(), "/v1/tokens")["items"].([]any) {
			row := item.(map[string]any)
			all[row["id"].(string)] = api.TokenState(row["state"].(string))
		}
		return all
	}
	eventually(t, "the states of tokens", func() bool { return fmt.Sprint(states()) == fmt.Sprint(want) })
}

// The JSON of tokens and members stays as scripts know it.
func TestTrustShapes(t *testing.T) {
	r := newRig(t)
	r.world()
	r.manage()
	verifier := bytes.Repeat([]byte{7}, 32)
	r.apply(&fsm.TokenCreate{ID: "2fbzq3k7ay5d", Role: "server", Verifier: verifier, TTL: model.Hour, Uses: 3,
		NodeName: "n*", Labels: map[string]string{"rack": "r1"}})
	r.apply(&fsm.MemberAdmit{Subject: model.Subject{Kind: model.SubjectAgent, Name: "n1"}, Key: verifier,
		NotAfter: r.born.UnixMilli(), Token: "2fbzq3k7ay5d", Verifier: verifier})
	for _, tt := range []struct {
		name, method, path string
		body               any
	}{
		{"tokens", "GET", "/v1/tokens", nil},
		{"trust_members", "GET", "/v1/trust/members", nil},
		{"token_revoke", "POST", "/v1/tokens/2fbzq3k7ay5d/revoke", nil},
		{"node_revoke", "POST", "/v1/nodes/n1/revoke", map[string]string{"reason": "stolen"}},
	} {
		raw, _, err := r.cli().Do(t.Context(), tt.method, tt.path, nil, tt.body)
		if err != nil {
			t.Fatal(err)
		}
		wantGolden(t, tt.name, raw)
	}
	reply, token := r.token(map[string]any{"role": "agent"})
	raw := must(json.Marshal(reply))(t)
	raw = bytes.ReplaceAll(raw, []byte(token.ID()), []byte("ID"))
	wantGolden(t, "token_create", bytes.ReplaceAll(raw, []byte(token.Reveal()), []byte("TEXT")))
}

// A state with a damaged certificate of its CA is no reason for a panic.
func TestDamagedCA(t *testing.T) {
	r := newRig(t)
	r.apply(&fsm.KeyPut{Name: "data/1", Version: 1, Phase: model.KeyActive, Under: "kek", Sealed: []byte("s")},
		&fsm.KeyPut{Name: "ca/1", Version: 1, Phase: model.KeyActive, Under: "data/1", Sealed: []byte("s"),
			Public: []byte("damaged")})
	_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/tokens", nil, map[string]any{"role": "agent"})
	wantCode(t, err, model.CodeInternal)
}
