package httpapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport/httpapi"
)

// A revocation reaches the row of the member, whether the node is registered or not, and names it by id too. Unknown
// names are refused.
func TestRevokeNode(t *testing.T) {
	r := newRig(t)
	r.world()
	r.manage()
	_, token := r.token(map[string]any{"role": "agent", "uses": 5})
	r.admit(token, model.SubjectAgent, "n1")
	r.admit(token, model.SubjectAgent, "absent")
	for _, ref := range []string{"01N1", "absent"} {
		name := map[string]string{"01N1": "n1", "absent": "absent"}[ref]
		raw, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/nodes/"+ref+"/revoke", values("request_id="+ref),
			map[string]string{"reason": "stolen"})
		if err != nil {
			t.Fatal(err)
		}
		reply := decode(t, raw)
		if _, also := reply["token"]; also != (ref == "01N1") { // the first revocation ends the token of both
			t.Errorf("revoking %s: the reply says of the token: %v", ref, reply["token"])
		}
		m := reply["member"].(map[string]any)
		if m["subject"] != "agent:"+name || !isTrue(m["revoked"]) || m["reason"] != "stolen" {
			t.Errorf("revoking %s answers %v", ref, m)
		}
		state := r.machine.State()
		row, _ := state.TrustMemberOf(model.Subject{Kind: model.SubjectAgent, Name: name})
		if row.RevokedIndex == 0 || r.lastEntry().Actor != "cert:alice" {
			t.Errorf("the row of %s is %+v, the actor %s", name, row, r.lastEntry().Actor)
		}
	}
	for ref, code := range map[string]model.Code{"n2": model.CodeNotFound, "nowhere": model.CodeNotFound,
		"s1": model.CodeNotFound} {
		_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/nodes/"+ref+"/revoke", nil, nil)
		wantCode(t, err, code)
	}
	_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/nodes/n1/revoke", nil,
		map[string]string{"reason": strings.Repeat("x", 300)})
	wantCode(t, err, model.CodeInvalid)
}

// A server that votes and is alive is not revoked. One that is dead or has left is, by name or id.
func TestRevokeServer(t *testing.T) {
	r := newRig(t, "s1", "s2", "s3")
	r.manage()
	_, token := r.token(map[string]any{"role": "server", "uses": 5})
	for _, name := range []string{"s1", "s2", "s3", "gone"} {
		r.admit(token, model.SubjectServer, name)
	}
	for _, st := range []string{"alive", "suspect"} {
		r.shapeServer("s2", st, true)
		_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/members/s2/revoke", nil, nil)
		wantCode(t, err, model.CodeConflict)
		if !strings.Contains(hintOf(err), "outspan server remove id-s2") {
			t.Errorf("%s: the hint is %q", st, hintOf(err))
		}
	}
	for _, tt := range []struct {
		ref, name, state string
		voter            bool
	}{{"s2", "s2", "failed", true}, {"id-s3", "s3", "alive", false}, {"gone", "gone", "", false}} {
		r.shapeServer(tt.name, tt.state, tt.voter)
		got := post(t, r.cli(), "/v1/members/"+tt.ref+"/revoke", nil)
		if m := got["member"].(map[string]any); m["subject"] != "server:"+tt.name || !isTrue(m["revoked"]) {
			t.Errorf("revoking %s answers %v", tt.ref, m)
		}
	}
	var revoked []string
	for _, item := range get(t, r.cli(), "/v1/trust/members?filter=revoked=true")["items"].([]any) {
		revoked = append(revoked, item.(map[string]any)["name"].(string))
	}
	if want := []string{"gone", "s2", "s3"}; !slices.Equal(revoked, want) {
		t.Errorf("revoked are %v, want %v", revoked, want)
	}
	_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/members/s/revoke", nil, nil)
	if wantCode(t, err, model.CodeNotFound); !strings.Contains(hintOf(err), "s1 or s2 or s3") ||
		!strings.Contains(hintOf(err), "outspan server revoke s --unknown") {
		t.Errorf("an unknown server: %q", hintOf(err))
	}
	unknown := url.Values{"unknown": {"true"}}
	raw, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/members/s/revoke", unknown, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m := decode(t, raw)["member"].(map[string]any); m["subject"] != "server:s" || !isTrue(m["revoked"]) {
		t.Errorf("revoking a server that nobody knows answers %v", m)
	}
	r.shapeServer("s1", "alive", true)
	_, _, err = r.cli().Do(t.Context(), http.MethodPost, "/v1/members/s1/revoke", unknown, nil)
	wantCode(t, err, model.CodeConflict)
}

// shapeServer changes one server in the list of servers.
func (r *rig) shapeServer(name, gossip string, voter bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shape = func(m *httpapi.ServerEntry) {
		if m.Name == name {
			m.State, m.Voter = gossip, voter
		}
	}
}
