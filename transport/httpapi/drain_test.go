package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
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
