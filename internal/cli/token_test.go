package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

const secretText = "osj1.agent.roothash.verysecret"

// trustServer answers what a managed cluster of two servers would. It stores the body of the last write in *body.
func trustServer(t *testing.T, body *string) string {
	t.Helper()
	members := `{"items":[{"name":"s2","address":"10.0.0.2:7640","state":"alive"},` +
		`{"name":"s1","address":"10.0.0.1:7640","state":"alive"},{"name":"s0","address":"10.0.0.9:7640","state":"left"}],"index":7}`
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			raw, _ := io.ReadAll(r.Body)
			*body = string(raw)
		}
		switch r.Method + " " + r.URL.Path {
		case "POST /v1/tokens":
			var asked api.TokenBody
			_ = json.Unmarshal([]byte(*body), &asked)
			token := fmt.Sprintf(`{"id":"2fbzq3k7ay5d","role":%q,"uses":%d,"node_name":%q,"state":"active",`+
				`"expires":"2026-01-02T03:04:05Z"}`, asked.Role, *asked.Uses, asked.NodeName)
			if r.URL.Query().Has("dry_run") {
				fmt.Fprintf(w, `{"index":7,"dry_run":true,"token":%s}`, token)
				return
			}
			fmt.Fprintf(w, `{"index":8,"token":%s,"text":%q}`, token, secretText)
		case "GET /v1/tokens":
			fmt.Fprintf(w, `{"items":[`+
				`{"id":"bbbbbbbbbbbb","role":"agent","state":"active","expires":%q,"uses":20,"used":3,"node_name":"web-*",`+
				`"labels":{"rack":"r1"},"created_by":"cert:alice","created_index":9},`+
				`{"id":"aaaaaaaaaaaa","role":"server","state":"used","expires":"2020-01-02T03:04:05Z","uses":1,"used":1,`+
				`"created_index":4}],"index":9}`, time.Now().Add(90*time.Minute+30*time.Second).Format(time.RFC3339))
		case "POST /v1/tokens/aaaaaaaaaaaa/revoke":
			fmt.Fprint(w, `{"index":10,"token":{"id":"aaaaaaaaaaaa","state":"revoked"}}`)
		case "POST /v1/nodes/01N1/revoke":
			fmt.Fprint(w, `{"index":11,"member":{"subject":"agent:n1","kind":"agent","name":"n1","revoked":true},`+
				`"token":"aaaaaaaaaaaa"}`)
		case "POST /v1/members/s3/revoke":
			if r.URL.Query().Get("force") == "true" {
				fmt.Fprint(w, `{"index":14,"removed":true,"member":{"subject":"server:s3","kind":"server","name":"s3","revoked":true}}`)
				return
			}
			fmt.Fprint(w, `{"index":12,"member":{"subject":"server:s3","kind":"server","name":"s3","revoked":true}}`)
		case "POST /v1/members/s4/revoke":
			if r.URL.Query().Get("unknown") != "true" {
				problem(w, model.Refuse(model.CodeNotFound, "no such server"))
				return
			}
			fmt.Fprint(w, `{"index":13,"member":{"subject":"server:s4","kind":"server","name":"s4","revoked":true}}`)
		case "GET /v1/trust/members":
			name := map[string]string{"kind=agent,revoked=false": "n1", "kind=server,revoked=false": "s3"}[r.URL.Query().
				Get("filter")]
			fmt.Fprintf(w, `{"items":[{"name":%q}],"index":9}`, name)
		case "GET /v1/members":
			fmt.Fprint(w, members)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
}

// The commands of tokens and revocations print what is to be done next, and send what the flags say.
func TestTokenCommands(t *testing.T) {
	var body string
	address := trustServer(t, &body)
	for _, tt := range []struct {
		command string
		code    int
		sends   string   // the body
		says    []string // on stdout, or on stderr if the command fails
	}{
		{"token create --role agent", 0, `{"role":"agent","uses":1}`, []string{
			"join token 2fbzq3k7ay5d admits 1 agent until 2026-01-02", "(index 8)", "\n" + secretText + "\n",
			"\n  sudo outspan join --token-file - 10.0.0.1:7640 10.0.0.2:7640\n"}},
		{"token create --role server --uses 2 --ttl 2h", 0, `{"role":"server","ttl":"2h","uses":2}`, []string{
			"admits 2 servers until", "\n  sudo outspan join --server --token-file - 10.0.0.1:7640 10.0.0.2:7640\n"}},
		{"token create --role agent --node-name web-* --label rack=r1 --label a=b=c", 0,
			`{"role":"agent","uses":1,"node_name":"web-*","labels":{"a":"b=c","rack":"r1"}}`,
			[]string{"admits 1 agent named web-* until"}},
		{"token create --role agent --format {{.text}}", 0, `{"role":"agent","uses":1}`, []string{secretText + "\n"}},
		{"token create --role agent -o json", 0, `{"role":"agent","uses":1}`, []string{`"text": "` + secretText + `"`}},
		{"token create --role agent -o name", 0, `{"role":"agent","uses":1}`, []string{"2fbzq3k7ay5d\n"}},
		{"token create --role agent --dry-run", 0, `{"role":"agent","uses":1}`,
			[]string{"a join token for 1 agent would be made (dry run: nothing was changed)"}},
		{"token create", 2, "", []string{`--role is ""`, "outspan token create --role agent"}},
		{"token create --role cli", 2, "", []string{`--role is "cli"`}},
		{"token create --role agent --label rack", 2, "", []string{`"rack" is not k=v`}},
		{"token create --role agent --ttl 5", 2, "", []string{"unit"}},
		{"token ls", 0, "", []string{"aaaaaaaaaaaa   server   used     1 of 1    -",
			"bbbbbbbbbbbb   agent    active   3 of 20   1h30m", "web-*", "rack=r1"}},
		{"token ls -o wide", 0, "", []string{"cert:alice"}},
		{"token revoke aaaaaaaaaaaa", 0, "", []string{"join token aaaaaaaaaaaa is revoked (index 10)"}},
		{"token revoke", 2, "", []string{"TOKEN"}},
		{"node revoke 01N1", 2, "", []string{"revoking 01N1 ends the certificates", "say so with --yes"}},
		{"node revoke 01N1 --yes -m stolen", 0, `{"reason":"stolen"}`, []string{"node n1 is revoked (index 11)",
			"join token aaaaaaaaaaaa is revoked too", "outspan node confirm-dead n1"}},
		{"node revoke 01N1 --dry-run", 0, `{}`, []string{"node n1 would be revoked"}},
		{"server revoke s3", 2, "", []string{"revoking s3 ends the certificates", "say so with --yes"}},
		{"server revoke s3 --yes", 0, `{}`, []string{"server s3 is revoked (index 12)", "outspan node revoke s3"}},
		{"server revoke s3 --yes --force", 0, `{}`, []string{"server s3 is removed from the cluster\nserver s3 is revoked (index 14)"}},
		{"node revoke n1 --yes --force", 2, "", []string{"--force"}},
		{"server revoke s4 --yes", 4, `{}`, nil},
		{"server revoke s4 --yes --unknown", 0, `{}`, []string{"server s4 is revoked (index 13)"}},
		{"node revoke n1 --yes --unknown", 2, "", []string{"--unknown"}},
		{"__complete token create --role ", 0, "", []string{"agent\nserver\n"}},
		{"__complete token revoke ", 0, "", []string{"bbbbbbbbbbbb\naaaaaaaaaaaa\n"}},
		{"__complete node revoke ", 0, "", []string{"n1\n"}},
		{"__complete server revoke ", 0, "", []string{"s3\n"}},
	} {
		body = ""
		out, errs, code := runHere(t, address, strings.Split(tt.command, " ")...)
		shown := out
		if tt.code != 0 {
			shown = errs
		}
		if code != tt.code {
			t.Errorf("outspan %s: exit code %d, want %d\n%s%s", tt.command, code, tt.code, out, errs)
		}
		if diff := cmp.Diff(tt.sends, body); diff != "" {
			t.Errorf("outspan %s sends (-want +got):\n%s", tt.command, diff)
		}
		for _, want := range tt.says {
			if !strings.Contains(shown, want) {
				t.Errorf("outspan %s does not say %q:\n%s", tt.command, want, shown)
			}
		}
		if strings.Contains(errs, secretText) {
			t.Errorf("outspan %s: the token is on stderr:\n%s", tt.command, errs)
		}
	}
}

// If the servers don't tell their addresses, the new token is shown nevertheless.
func TestTokenWithoutAddresses(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/tokens" {
			fmt.Fprintf(w, `{"index":8,"token":{"id":"2fbzq3k7ay5d","role":"agent","uses":1},"text":%q}`, secretText)
			return
		}
		p := api.NewProblem(model.Refuse(model.CodeForbidden, "not you"))
		w.Header().Set("Content-Type", api.ContentTypeProblem)
		w.WriteHeader(p.Status)
		fmt.Fprintf(w, `{"code":%q,"message":%q}`, p.Code, p.Message)
	})
	out, errs, code := runHere(t, address, "token", "create", "--role", "agent")
	if code != 0 || !strings.Contains(out, "\n"+secretText+"\n") ||
		!strings.Contains(out, "sudo outspan join --token-file - ADDRESS_OF_A_SERVER:7640") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

// A repeated request for a token fails with the next step, because the text can't be shown again.
func TestTokenTextIsGone(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		p := api.NewProblem(model.Refuse(model.CodeConflict, "an earlier request with this id made join token 2fbzq3k7ay5d").
			WithHint("outspan token revoke 2fbzq3k7ay5d")).At(8)
		w.Header().Set("Content-Type", api.ContentTypeProblem)
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p)
	})
	out, errs, code := runHere(t, address, "token", "create", "--role", "agent", "--request-id", "r1")
	if code != 5 || out != "" || !strings.Contains(errs, "next: outspan token revoke 2fbzq3k7ay5d") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}
