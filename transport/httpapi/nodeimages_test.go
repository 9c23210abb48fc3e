package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport"
)

// imageAgent tells of fixed images, and prunes the last one.
type imageAgent struct {
	asked chan string
	held  []transport.HeldImage
}

func (a *imageAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if who, ok := transport.SubjectFrom(r.Context()); !ok || who.Kind != model.SubjectServer {
		http.Error(w, "not a server", http.StatusForbidden)
		return
	}
	a.asked <- r.Method + " " + r.URL.String()
	if r.Method == http.MethodPost {
		_ = json.NewEncoder(w).Encode(transport.PrunedImages{Images: a.held[len(a.held)-1:], Bytes: 7, More: true})
		return
	}
	_ = json.NewEncoder(w).Encode(a.held)
}

func rigDigest(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

// imageSpec is a job of one image with the digest of a letter.
func imageSpec(name, letter string) model.JobSpec {
	job := spec(name, 1)
	job.Groups[0].Exec = model.ExecSpec{}
	job.Groups[0].Container = &model.ContainerSpec{Image: "reg/" + name + "@" + rigDigest(letter)}
	return job
}

// The list of images has what agents tell, claims, and pulls that failed. Nodes whose agents don't answer are named.
func TestListImages(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.node("01N1", "n1")
	r.node("01N2", "n2")
	r.apply(&fsm.NodeReport{ID: "01N1", Epoch: r.epoch("01N1"), Self: &model.SelfReport{Gen: 1,
		Runtime: &model.ContainerRuntime{Version: "2.1", Pulls: true}}})
	r.apply(&fsm.JobSubmit{Spec: imageSpec("web", "a")}, &fsm.JobSubmit{Spec: imageSpec("gone", "c")},
		&fsm.ImageWant{Group: "web/http", Version: 1, Node: "01N1", Cause: model.CauseScaleUp, Bare: true},
		&fsm.ImageWant{Group: "gone/http", Version: 1, Node: "01N1", Cause: model.CauseScaleUp, Bare: true},
		&fsm.ImageDrop{Group: "gone/http", Failed: "404", Pause: model.Minute})
	used := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a := &imageAgent{asked: make(chan string, 9), held: []transport.HeldImage{
		{Digest: rigDigest("a"), Names: []string{"reg/web"}, State: model.ImagePulling, Bytes: 3},
		{Digest: rigDigest("b"), Names: []string{"reg/db:1"}, State: model.ImagePresent, Bytes: 9, Instances: 2, Used: used}}}
	r.runAgentOf("01N1", "n1", a)
	raw, _, err := r.cli("s2").Do(t.Context(), "GET", "/v1/images", nil, nil)
	var got api.Images
	if err != nil || json.Unmarshal(raw, &got) != nil {
		t.Fatalf("%s, %v", raw, err)
	}
	var rows []string
	for _, i := range got.Items {
		rows = append(rows, strings.TrimSpace(fmt.Sprint(i.Node, " ", i.Names, " ", i.Digest[7:8], " ", i.State, " ", i.Bytes,
			" ", i.Instances, " ", i.Claims, " ", i.UsedAt != nil && i.UsedAt.Equal(used), " ", i.RetryAt != nil, " ",
			i.Reason)))
	}
	want := []string{"n1 [reg/db:1] b present 9 2 0 true false", "n1 [reg/gone] c failed 0 0 0 false true 404",
		"n1 [reg/web] a pulling 3 0 1 false false"}
	if !slices.Equal(rows, want) || !slices.Equal(got.Silent, []string{"n2"}) {
		t.Errorf("got %q, silent %v, want %q", rows, got.Silent, want)
	}
	if asked := <-a.asked; asked != "GET /v1/agent/images" {
		t.Errorf("the agent was asked for %s", asked)
	}
	for node, want := range map[string]string{"n2": `{"items":[],"silent":["n2"],`, "n9": "not_found: "} {
		if got := said(t, r.cli("s2"), "GET", "/v1/images", url.Values{"node": {node}}, nil); !strings.HasPrefix(got, want) {
			t.Errorf("of %s: %s", node, got)
		}
	}
}

// The leader makes the agent of a node prune, for whoever has the right to it.
func TestPruneImages(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.node("01N1", "n1")
	r.node("01N2", "n2")
	a := &imageAgent{asked: make(chan string, 9), held: []transport.HeldImage{
		{Digest: rigDigest("b"), Names: []string{"reg/db:1"}, State: model.ImagePresent, Bytes: 9}}}
	r.runAgentOf("01N1", "n1", a)
	see := rights.Grant{Verbs: []rights.VerbPattern{"node.read"}}
	keep := rights.Grant{Verbs: []rights.VerbPattern{"node.*"}, Nodes: []string{"n1"}}
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "see", Allow: []rights.Grant{see}}},
		&fsm.RoleSet{Role: rights.Role{Name: "keep", Allow: []rights.Grant{keep}}})
	r.bind("see cert:bob", "keep cert:alice", "admin cert:root")
	alice, bob := r.client(pki.RoleCLI, "alice", "s2"), r.client(pki.RoleCLI, "bob", "s2")
	for _, tt := range []struct {
		by                *transport.Client
		path, query, want string
	}{
		{alice, "/v1/nodes/n1/images/prune", "dry_run=true", `{"node":"n1","items":[{"node":"n1",`},
		{alice, "/v1/nodes/n1/images/prune", "", `{"node":"n1","items":[{"node":"n1",`},
		{alice, "/v1/nodes/n2/images/prune", "", "not_found: "},
		{alice, "/v1/nodes/n9/images/prune", "", "not_found: "},
		{bob, "/v1/nodes/n1/images/prune", "", "forbidden: cert:bob may not do node.prune on node/n1"},
	} {
		if got := said(t, tt.by, "POST", tt.path, values(tt.query), nil); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s?%s: %s, want %s", tt.path, tt.query, got, tt.want)
		}
	}
	for _, want := range []string{"POST /v1/agent/images/prune?dry_run=true&request_id=",
		"POST /v1/agent/images/prune?request_id="} {
		if asked := <-a.asked; !strings.HasPrefix(asked, want) {
			t.Errorf("the agent was asked for %s, want %s", asked, want)
		}
	}
	if len(a.asked) > 0 {
		t.Errorf("the agent was asked for %s too", <-a.asked)
	}
	seen := get(t, alice, "/v1/images")
	if fmt.Sprint(seen["hidden"]) != "1" || !strings.Contains(fmt.Sprint(seen["items"]), "reg/db:1") {
		t.Errorf("alice sees %v", seen)
	}
}
