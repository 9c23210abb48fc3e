package httpapi_test

import (
	"crypto/x509"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
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

// In a cluster with certificate files whose newcomers join by token, a revocation frees a name, and the answer says
// that it ends no certificate. A name that no token admitted is unknown there.
func TestRevokeWithFiles(t *testing.T) {
	r := newRig(t)
	r.startWith("s2", func(c *httpapi.Config) {
		c.JoinRoot = func() (*x509.Certificate, error) { return r.ca.Root(), nil }
	})
	r.setLeader("s2")
	r.world()
	cli := r.cli("s2")
	raw, _, err := cli.Do(t.Context(), http.MethodPost, "/v1/tokens", nil, map[string]any{"role": "server", "uses": 5})
	if err != nil {
		t.Fatal(err)
	}
	token := must(pki.ParseJoinToken(decode(t, raw)["text"].(string)))(t)
	r.admit(token, model.SubjectAgent, "n1")
	r.admit(token, model.SubjectServer, "s9")
	for _, path := range []string{"/v1/nodes/n1/revoke", "/v1/members/s9/revoke"} {
		got := post(t, cli, path, nil)
		if m := got["member"].(map[string]any); !isTrue(m["revoked"]) || !isTrue(got["files"]) {
			t.Errorf("%s answers %v", path, got)
		}
	}
	if n := len(get(t, cli, "/v1/trust/members?filter=revoked=true")["items"].([]any)); n != 2 {
		t.Errorf("%d members are revoked", n)
	}
	_, _, err = cli.Do(t.Context(), http.MethodPost, "/v1/nodes/nowhere/revoke", nil, nil)
	wantCode(t, err, model.CodeNotFound)
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
		if !strings.Contains(hintOf(err), "outspan server revoke s2 --force") {
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

// A dead server that is revoked is removed from the cluster too. If that is refused, it is revoked all the same.
func TestRevokeDeadServer(t *testing.T) {
	r := newRig(t, "s1", "s2", "s3")
	r.manage()
	_, token := r.token(map[string]any{"role": "server", "uses": 5})
	for _, name := range []string{"s2", "s3"} {
		r.admit(token, model.SubjectServer, name)
	}
	r.mu.Lock()
	r.remove = func(id model.ServerID, _ bool) error {
		if id == "id-s3" {
			return model.Refuse(model.CodeConflict, "without server %s there is no quorum", id)
		}
		return nil
	}
	r.mu.Unlock()
	for name, removed := range map[string]bool{"s2": true, "s3": false} {
		r.shapeServer(name, "failed", true)
		got := post(t, r.cli(), "/v1/members/"+name+"/revoke", nil)
		if m := got["member"].(map[string]any); !isTrue(m["revoked"]) || isTrue(got["removed"]) != removed {
			t.Errorf("revoking %s answers %v", name, got)
		}
	}
}

// With force, a server is removed with the checks of a removal, and then revoked. The leader is refused. A server that
// was removed already is revoked. A dry run removes nothing.
func TestRevokeServerWithForce(t *testing.T) {
	r := newRig(t, "s1", "s2", "s3")
	r.manage()
	_, token := r.token(map[string]any{"role": "server", "uses": 5})
	for _, name := range []string{"s1", "s2", "s3"} {
		r.admit(token, model.SubjectServer, name)
	}
	isRevoked := func(name string) bool {
		state := r.machine.State()
		row, _ := state.TrustMemberOf(model.Subject{Kind: model.SubjectServer, Name: name})
		return row.RevokedIndex != 0
	}
	var mu sync.Mutex
	var removals []string
	members := map[model.ServerID]bool{"id-s1": true, "id-s2": true, "id-s3": true}
	refuse := error(nil)
	r.mu.Lock()
	r.remove = func(id model.ServerID, force bool) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case force:
			return model.Refuse(model.CodeInternal, "a revocation must not force the removal of %s", id)
		case refuse != nil:
			return refuse
		case !members[id]:
			return model.Refuse(model.CodeNotFound, "there is no server %s in the cluster", id)
		}
		if isRevoked(string(id)[len("id-"):]) {
			return model.Refuse(model.CodeInternal, "%s was revoked before it was removed", id)
		}
		delete(members, id)
		removals = append(removals, string(id))
		return nil
	}
	r.mu.Unlock()
	revoke := func(ref string, more ...string) (map[string]any, error) {
		query := url.Values{"force": {"true"}}
		for _, name := range more {
			query.Set(name, "true")
		}
		raw, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/members/"+ref+"/revoke", query, nil)
		if err != nil {
			return nil, err
		}
		return decode(t, raw), nil
	}

	_, err := revoke("s1")
	if wantCode(t, err, model.CodeConflict); !strings.Contains(hintOf(err), "outspan server transfer-leader") {
		t.Errorf("the leader: %q", hintOf(err))
	}
	if _, err := revoke("s2", "dry_run"); err != nil {
		t.Error(err)
	}
	mu.Lock()
	refuse = model.Refuse(model.CodeConflict, "without server s2 there is no quorum")
	mu.Unlock()
	_, err = revoke("s2")
	wantCode(t, err, model.CodeConflict)
	if len(removals) != 0 || isRevoked("s2") {
		t.Fatalf("after refusals and a dry run: removed are %v, s2 is revoked: %v", removals, isRevoked("s2"))
	}
	mu.Lock()
	refuse = nil
	delete(members, "id-s3") // as by a call that ended between its two steps
	mu.Unlock()
	for ref, removed := range map[string]bool{"id-s2": true, "s3": false} {
		got, err := revoke(ref)
		if err != nil {
			t.Fatal(err)
		}
		if m := got["member"].(map[string]any); !isTrue(m["revoked"]) || isTrue(got["removed"]) != removed {
			t.Errorf("revoking %s answers %v", ref, got)
		}
	}
	if !slices.Equal(removals, []string{"id-s2"}) {
		t.Errorf("removed are %v", removals)
	}
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
