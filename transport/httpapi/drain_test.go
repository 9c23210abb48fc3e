package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
)

// The reply to a drain names the nodes whose drain has started and those that were rejected. A repeated request gets
// the same reply.
// proves B1, B2, B3
func TestDrainReplay(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.cli()
	body := map[string]any{"nodes": []string{"n1", "01N2", "gone"}, "message": "kernel"}
	ask := func() map[string]any {
		return decode(t, must2(c.Do(t.Context(), http.MethodPost, "/v1/drains", values("request_id=d"), body))(t))
	}
	first := ask()
	if diff := cmp.Diff([]any{"n1", "n2"}, first["started"]); diff != "" {
		t.Errorf("started (-want +got):\n%s", diff)
	}
	if rejected := first["rejected"].([]any); len(rejected) != 1 || rejected[0].(map[string]any)["code"] != "not_found" {
		t.Errorf("rejected: %v", rejected)
	}
	if n := len(first["forecast"].([]any)); n != 2 {
		t.Errorf("forecast of %d instances, want 2", n)
	}
	for _, id := range []model.NodeID{"01N1", "01N2"} { // already draining when the reply arrives
		if n, _ := r.machine.State().Nodes.Get(id); n.Intent != model.IntentDraining {
			t.Errorf("node %s is %s", id, n.Intent)
		}
	}
	again := ask()
	delete(again, "replayed")
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("asked again (-first +again):\n%s", diff)
	}
	body["message"] = "another"
	_, _, err := c.Do(t.Context(), http.MethodPost, "/v1/drains", values("request_id=d"), body)
	wantCode(t, err, model.CodeRequestConflict)
	_, _, err = c.Do(t.Context(), http.MethodPost, "/v1/nodes/n1/drain", nil, nil)
	wantCode(t, err, model.CodeAlreadyDraining)
}

// A selector selects the nodes that have all labels of the selector.
func TestDrainSelector(t *testing.T) {
	r := newRig(t)
	r.world()
	got := post(t, r.cli(), "/v1/drains", map[string]any{"selector": map[string]string{"rack": "r-n2"}, "id": "by-rack"})
	if diff := cmp.Diff([]any{"n2"}, got["started"]); diff != "" || got["drain"] != "by-rack" {
		t.Errorf("got %v", got)
	}
}

// If no connection to the leader can be opened, the leader has certainly written nothing, so even a write gets
// no_leader instead of an unknown outcome.
func TestForwardToADeadLeader(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	r.mu.Lock()
	dead := &server{r: r, name: "s3", address: "127.0.0.1:1"}
	r.servers["s3"], r.lead = dead, "s3"
	r.mu.Unlock()
	_, err := r.cli("s2").Send(t.Context(), reach.Request{Method: http.MethodPost, Path: "/v1/nodes/n1/cordon"})
	wantCode(t, err, model.CodeNoLeader)
	_, err = r.cli("s2").Send(t.Context(), reach.Request{Path: "/v1/nodes"})
	wantCode(t, err, model.CodeNoLeader)
}

// A follower never presents an answer that was cut off at the leader as a complete answer, even if the follower has
// already passed on the beginning. The caller of a write gets an unknown outcome.
func TestForwardCutOff(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	for n := range 400 {
		r.node(model.NodeID(fmt.Sprintf("01M%03d", n)), fmt.Sprintf("m%03d", n))
	}
	c, p := r.cli("s2"), r.servers["s2"].passing
	for _, cut := range []int{1, 50, 40 << 10} {
		p.mu.Lock()
		p.cut = cut
		p.mu.Unlock()
		if cut < 1<<10 {
			_, err := c.Send(t.Context(), reach.Request{Path: "/v1/nodes/n1"})
			wantCode(t, err, model.CodeNoLeader)
			_, err = c.Send(t.Context(), reach.Request{Method: http.MethodPost, Path: "/v1/nodes/n1/cordon"})
			wantCode(t, err, model.CodeUnknownOutcome)
		}
		if got, err := c.Send(t.Context(), reach.Request{Path: "/v1/nodes"}); err == nil {
			t.Errorf("a list that was cut off after %d bytes is shown as one of %d", cut, len(got.Body))
		}
	}
}

// TestAutoEvicting: the field auto_evicting of a node is true while the drain policy evicts instances from the node. It
// is false after a person requests the same eviction. No request can set this field.
// proves L8
func TestAutoEvicting(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	settings := r.machine.State().Settings
	settings.NodeDrainPolicy = string(model.PolicyEvictAll)
	r.apply(&fsm.SettingsSet{Settings: settings})
	web := spec("web", 2)
	web.Groups[0].Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeReplicated, Path: "/data"}}
	web.Groups[0].RoleCheck = &model.RoleCheckSpec{Exec: []string{"/bin/facts"}}
	r.apply(&fsm.JobSubmit{Spec: web})
	r.place("inst-a", 0, "01N1", model.ObservedReady)
	c := r.cli()
	shows := func(when string, want bool) {
		t.Helper()
		n := get(t, c, "/v1/nodes/n1")
		if got, ok := n["auto_evicting"].(bool); !ok || got != want {
			t.Errorf("%s: auto_evicting is %v, want %v", when, n["auto_evicting"], want)
		}
	}
	shows("before the drain", false)
	post(t, c, "/v1/drains", map[string]any{"nodes": []string{"n1"}, "id": "d1"})
	shows("before anything is marked", false)
	r.apply(&fsm.InstanceMark{ID: "inst-a", Requested: true, Automatic: true, Cause: model.CauseNodeDraining, By: "d1"})
	shows("while the policy evicts", true)
	post(t, c, "/v1/instances/inst-a/evict", nil)
	shows("when a person asked for the same", false)
	_, _, err := c.Do(t.Context(), http.MethodPost, "/v1/nodes/n1/cordon", nil, map[string]any{"auto_evicting": true})
	wantCode(t, err, model.CodeInvalid)
}

// The lanes of a drain are shown to who asks for them. Names of jobs that the caller may not read are hidden.
func TestDrainLanes(t *testing.T) {
	r := twoTeams(t)
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"node.*"}, Nodes: []string{"n2"}}}}})
	lane := func(person, query string) any {
		return get(t, r.client(pki.RoleCLI, person), "/v1/drains/hidden-drain"+query)["lanes"]
	}
	if got := lane("alice", ""); got != nil {
		t.Errorf("lanes that nobody asked for: %v", got)
	}
	for person, want := range map[string]string{"alice": "hidden-inst bank/http", "bob": "hidden hidden"} {
		one := lane(person, "?lanes=true").([]any)[0].(map[string]any)
		if got := fmt.Sprint(one["instance"], " ", one["group"]); got != want || one["node"] != "n2" {
			t.Errorf("%s sees %v", person, one)
		}
	}
}

// Status says which nodes make a HOLD last, and why each counts.
func TestHoldNodes(t *testing.T) {
	r := newRig(t)
	r.world()
	hold := func() map[string]any { return get(t, r.cli(), "/v1/status")["hold"].(map[string]any) }
	evidence := func(of map[model.NodeID]fsm.Liveness) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.live = of
	}
	dead := fsm.Liveness{Age: model.Hour, Gossip: fsm.GossipDead}
	evidence(map[model.NodeID]fsm.Liveness{"01N1": dead})
	if got := hold()["nodes"].([]any); len(got) != 0 {
		t.Errorf("nodes without a HOLD: %v", got)
	}
	r.apply(&fsm.HoldSet{Active: true, Reason: "2 of 2 nodes are silent"})
	got := hold()
	nodes := got["nodes"].([]any)
	if len(nodes) != 1 || nodes[0].(map[string]any)["node"] != "n1" || nodes[0].(map[string]any)["why"] != "silent" ||
		nodes[0].(map[string]any)["last_seen"] == nil || got["calm_since"] != nil || fmt.Sprint(got["calm_nodes"]) != "0" {
		t.Errorf("hold: %v", got)
	}
	unheard, seen := fsm.Liveness{Age: 1000, Unheard: true}, fsm.Liveness{Age: 1000, Unheard: true, SeenBy: "s2"}
	evidence(map[model.NodeID]fsm.Liveness{"01N1": unheard, "01N2": seen})
	if got := fmt.Sprint(hold()["nodes"]); strings.Count(got, "node_id") != 1 || !strings.Contains(got, "why:unheard") {
		t.Errorf("a leader that has heard no node yet, while another server has heard n2: %v", got)
	}
	r.node("01N3", "n3")
	settings := r.machine.State().Settings
	settings.FailureDomainLabel = "rack"
	r.apply(&fsm.SettingsSet{Settings: settings})
	for _, id := range []model.NodeID{"01N1", "01N2"} {
		r.apply(&fsm.NodeLabel{ID: id, Labels: map[string]string{"rack": "a"}})
	}
	evidence(map[model.NodeID]fsm.Liveness{"01N1": dead, "01N2": dead})
	if got := hold()["domain"]; got != "" {
		t.Errorf("nothing else is out, and the domain is %q", got)
	}
	evidence(map[model.NodeID]fsm.Liveness{"01N1": dead, "01N2": dead, "01N3": dead})
	if got := hold()["domain"]; got != "a" {
		t.Errorf("a domain and another node are out, and the domain is %q", got)
	}
	calm := true
	r.apply(&fsm.HoldSet{Active: true, Calm: &calm})
	if got := hold(); got["calm_since"] == nil {
		t.Errorf("a calm hold: %v", got)
	}
}
