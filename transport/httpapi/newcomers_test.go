package httpapi_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// needApproval turns the setting join_approval on.
func (r *rig) needApproval() {
	r.t.Helper()
	settings := r.machine.State().Settings
	settings.JoinApproval = true
	r.apply(&fsm.SettingsSet{Settings: settings})
}

// newcomers makes a cluster where s4 (a server and its agent, keys 4 and 5), n5 (key 6) and two machines as n6 (keys 7
// and 8) wait.
func (r *rig) newcomers() {
	r.t.Helper()
	r.manage()
	r.needApproval()
	hash := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	r.apply(&fsm.TokenCreate{ID: "2fbzq3k7ay5d", Role: "server", Verifier: hash(1), TTL: model.Hour, Uses: 9})
	for _, n := range []fsm.NewcomerWait{{Name: "s4", Server: hash(4), Agent: hash(5)}, {Name: "n5", Agent: hash(6)},
		{Name: "n6", Agent: hash(7)}, {Name: "n6", Agent: hash(8)}} {
		n.Token, n.Verifier, n.Address, n.Version = "2fbzq3k7ay5d", hash(1), "10.0.0.9", "1.2"
		r.apply(&n)
	}
}

func TestNewcomerShapes(t *testing.T) {
	r := newRig(t)
	r.newcomers()
	for _, tt := range []struct{ name, method, path string }{
		{"newcomers", "GET", "/v1/newcomers"},
		{"newcomer_approve", "POST", "/v1/newcomers/server:s4/approve"},
		{"newcomer_reject", "POST", "/v1/newcomers/agent:n5/reject"},
	} {
		raw, _, err := r.cli().Do(t.Context(), tt.method, tt.path, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantGolden(t, tt.name, raw)
	}
}

// A person approves or rejects one newcomer. Of two machines with one name, the key says which.
func TestDecideAboutNewcomers(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.newcomers()
	decide := func(c *transport.Client, path, key string) error {
		_, _, err := c.Do(t.Context(), http.MethodPost, "/v1/newcomers/"+path, nil, map[string]string{"key": key})
		return err
	}
	for _, tt := range []struct {
		path, key string
		code      model.Code
		says      string
	}{
		{"agent:n6/approve", "", model.CodeAmbiguous, "outspan node approve n6 --key KEY"},
		{"agent:n6/reject", "0707-0707-0707-0707", "", ""},
		{"agent:n6/approve", "0707-0707-0707-0707", model.CodeConflict, "was rejected already by cert:alice"},
		{"agent:n6/approve", "0909-0909-0909-0909", model.CodeNotFound, "outspan token waiting"},
		{"agent:n6/approve", "", "", ""},
		{"agent:s4/approve", "", model.CodeNotFound, "outspan server approve s4"},
		{"server:n5/reject", "", model.CodeNotFound, "outspan node reject n5"},
		{"server:s4/approve", "", "", ""},
		{"server:s4/approve", "", model.CodeConflict, "was approved already by cert:alice"},
		{"server:s4/reject", "", model.CodeConflict, "outspan token revoke 2fbzq3k7ay5d"},
		{"agent:n9/approve", "", model.CodeNotFound, "outspan token waiting"},
		{"n5/approve", "", model.CodeInvalid, "agent:NAME"},
	} {
		err := decide(r.cli("s2"), tt.path, tt.key)
		if tt.code == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.path, err)
			}
			continue
		}
		wantCode(t, err, tt.code)
		if text := err.Error() + hintOf(err); !strings.Contains(text, tt.says) {
			t.Errorf("%s: %s, want %q", tt.path, text, tt.says)
		}
	}
	verifier := bytes.Repeat([]byte{1}, 32)
	r.apply(&fsm.MemberAdmit{Subject: model.Subject{Kind: model.SubjectServer, Name: "s4"},
		Key: bytes.Repeat([]byte{4}, 32), NotAfter: 1, Token: "2fbzq3k7ay5d", Verifier: verifier},
		&fsm.MemberAdmit{Subject: model.Subject{Kind: model.SubjectAgent, Name: "s4"}, Key: bytes.Repeat([]byte{5}, 32),
			NotAfter: 1, Token: "2fbzq3k7ay5d", Verifier: verifier})
	err := decide(r.cli(), "server:s4/approve", "")
	wantCode(t, err, model.CodeConflict)
	if !strings.Contains(err.Error(), "is a member already") {
		t.Error(err)
	}
	r.apply(&fsm.TokenRevoke{ID: "2fbzq3k7ay5d"})
	wantCode(t, decide(r.cli(), "agent:n5/approve", ""), model.CodeNotFound)
	if items := get(t, r.cli(), "/v1/newcomers")["items"].([]any); len(items) != 0 {
		t.Errorf("newcomers of a revoked token: %v", items)
	}
}

// A dry run decides nothing, and a repeated request gets the first answer.
func TestNewcomerDryRun(t *testing.T) {
	r := newRig(t)
	r.newcomers()
	const path = "/v1/newcomers/agent:n5/approve"
	for _, query := range []string{"dry_run=true", "request_id=once", "request_id=once"} {
		raw, _, err := r.cli().Do(t.Context(), http.MethodPost, path, values(query), nil)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		got := decode(t, raw)["newcomer"].(map[string]any)
		if got["state"] != "approved" || got["key"] != "0606-0606-0606-0606" {
			t.Errorf("%s: %s", query, raw)
		}
		state := r.machine.State()
		if approved := state.NewcomersNamed("n5")[0].ApprovedIndex != 0; approved == (query == "dry_run=true") {
			t.Errorf("%s: approved is %v", query, approved)
		}
	}
}

// Status shows each newcomer that waits, and what to do, until there is a decision or its token ends.
func TestNewcomerProblems(t *testing.T) {
	r := newRig(t)
	r.newcomers()
	waiting := func() (lines []string) {
		for _, line := range problemsNow(t, r, "") {
			if strings.HasPrefix(line, "newcomer_waiting ") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	const first = "newcomer_waiting node/n5: it waits until a person approves it, with the key 0606-0606-0606-0606 -> " +
		"compare the key on that machine, then: outspan node approve n5"
	if got := waiting(); len(got) != 4 || got[0] != first {
		t.Errorf("status shows %q", got)
	}
	post(t, r.cli(), "/v1/newcomers/agent:n5/approve", nil)
	post(t, r.cli(), "/v1/newcomers/server:s4/reject", nil)
	if got := waiting(); len(got) != 2 {
		t.Errorf("after two decisions status shows %q", got)
	}
	r.apply(&fsm.TokenRevoke{ID: "2fbzq3k7ay5d"})
	if got := waiting(); len(got) != 0 {
		t.Errorf("once the token is revoked status shows %q", got)
	}
}
