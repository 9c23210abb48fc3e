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

// statsAgent tells that each of its instances uses as many bytes as its id is long. An instance that is not in the list
// has not started, and "ended" has ended.
type statsAgent struct {
	asked chan string
	ids   []model.InstanceID
}

func (a *statsAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if who, ok := transport.SubjectFrom(r.Context()); !ok || who.Kind != model.SubjectServer {
		http.Error(w, "not a server", http.StatusForbidden)
		return
	}
	a.asked <- r.URL.String()
	var all []transport.InstanceUse
	for _, id := range a.ids {
		use := &api.InstanceUse{Source: api.StatsOfCgroup, Notes: []string{}}
		use.Memory.Bytes = new(int64(len(id)))
		all = append(all, transport.InstanceUse{ID: id, Use: use})
	}
	_ = json.NewEncoder(w).Encode(all)
}

// hangingAgent never answers.
type hangingAgent struct{}

func (hangingAgent) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-transport.Stopping(r.Context()):
	}
}

// A follower asks the agent what an instance uses. Instances that don't run, and agents that don't answer, are errors.
func TestInstanceStats(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	a := &statsAgent{asked: make(chan string, 9), ids: []model.InstanceID{"inst-a"}}
	r.runAgentOf("01N1", "n1", a)
	r.place("inst-c", 2, "01N2", model.ObservedReady) // its agent is not there
	c := r.cli("s2")
	got := get(t, c, "/v1/instances/inst-a/stats")
	use, _ := got["use"].(map[string]any)
	memory, _ := use["memory"].(map[string]any)
	if fmt.Sprintf("%v %v %v %v %v %v", got["id"], got["job"], got["group"], got["slot"], got["node"],
		memory["bytes"]) != "inst-a web http 0 n1 6" || memory["peak_bytes"] != nil || got["error"] != nil {
		t.Errorf("got %v", got)
	}
	if asked := <-a.asked; asked != "/v1/agent/stats?instance=inst-a" {
		t.Errorf("the agent was asked for %s", asked)
	}
	refused := func(id, want string) {
		t.Helper()
		if got := said(t, c, "GET", "/v1/instances/"+id+"/stats", nil, nil); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", id, got)
		}
	}
	refused("inst-b", "not_running: instance inst-b has not started on node n1;")
	refused("inst-c", "agent_unreachable: the agent of node n2 does not answer; see: outspan node status n2")
	refused("nothing", "not_found: ")
	r.apply(&fsm.InstanceStop{ID: "inst-b", Cause: model.CauseUser, Bypass: true})
	r.apply(&fsm.NodeReport{ID: "01N1", Epoch: r.epoch("01N1"),
		Instances: []model.InstanceStatus{{ID: "inst-b", Generation: 9, Observed: model.ObservedStopped}}})
	refused("inst-b", "not_running: instance inst-b has ended; see: outspan instance why inst-b")
}

// Of a job all instances are shown: those of an agent that hangs or is not there with the reason.
func TestJobStats(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	r.node("01N3", "n3")
	r.apply(&fsm.JobSubmit{Spec: spec("web", 6)})
	for slot, node := range []model.NodeID{2: "01N2", 3: "01N3", 4: "01N3"} {
		if node != "" {
			r.place(model.InstanceID(fmt.Sprint("inst-", slot)), slot, node, model.ObservedReady)
		}
	}
	a := &statsAgent{asked: make(chan string, 9), ids: []model.InstanceID{"inst-a", "inst-b", "of-another-job"}}
	r.runAgentOf("01N1", "n1", a)
	r.runAgentOf("01N3", "n3", hangingAgent{})
	began := time.Now()
	raw, _, err := r.cli("s2").Do(t.Context(), "GET", "/v1/jobs/web/stats", url.Values{"group": {"http"}}, nil)
	var got api.JobStats
	if err != nil || json.Unmarshal(raw, &got) != nil {
		t.Fatalf("%s, %v", raw, err)
	}
	if took := time.Since(began); took > 30*time.Second { // generous: one agent may take 5 s
		t.Errorf("it took %v", took)
	}
	var rows []string
	for _, i := range got.Items {
		row := fmt.Sprint(i.Slot, " ", i.ID, " ", i.Node, " ")
		switch {
		case i.Problem != nil && i.Use == nil:
			row += string(i.Problem.Code)
		case i.Problem == nil && i.Use != nil:
			row += fmt.Sprint(*i.Use.Memory.Bytes)
		}
		rows = append(rows, row)
	}
	want := []string{"0 inst-a n1 6", "1 inst-b n1 6", "2 inst-2 n2 agent_unreachable", "3 inst-3 n3 agent_unreachable",
		"4 inst-4 n3 agent_unreachable"}
	if !slices.Equal(rows, want) || got.Job != "web" || got.Hidden != 0 {
		t.Errorf("got %q, want %q", rows, want)
	}
	if asked := <-a.asked; asked != "/v1/agent/stats?job=web" || len(a.asked) > 0 {
		t.Errorf("the agent was asked for %s", asked)
	}
	for path, want := range map[string]string{"/v1/jobs/web/stats?group=nothing": `not_found: job web has no group "nothing"`,
		"/v1/jobs/nothing/stats": "not_found: "} {
		path, query, _ := strings.Cut(path, "?")
		if got := said(t, r.cli("s2"), "GET", path, values(query), nil); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// Only instances that the caller may read have numbers, and others are not named.
func TestStatsNeedTheRightToRead(t *testing.T) {
	r := newRig(t)
	r.world()
	r.place("inst-c", 2, "01N2", model.ObservedReady)
	for id, name := range map[model.NodeID]string{"01N1": "n1", "01N2": "n2"} {
		r.runAgentOf(id, name, &statsAgent{asked: make(chan string, 9),
			ids: []model.InstanceID{"inst-a", "inst-b", "inst-c"}})
	}
	role := func(name rights.RoleName, verb rights.VerbPattern, edit func(*rights.Grant)) *fsm.RoleSet {
		g := rights.Grant{Verbs: []rights.VerbPattern{verb}}
		edit(&g)
		return &fsm.RoleSet{Role: rights.Role{Name: name, Allow: []rights.Grant{g}}}
	}
	r.apply(role("part", "instance.read", func(g *rights.Grant) { g.Nodes = []string{"n2"} }),
		role("jobs", "job.read", func(*rights.Grant) {}),
		role("bank", "instance.read", func(g *rights.Grant) { g.Jobs = []string{"bank"} }))
	r.bind("part cert:alice", "jobs cert:bob", "bank cert:carol", "admin cert:root")

	alice := r.client(pki.RoleCLI, "alice")
	got := get(t, alice, "/v1/jobs/web/stats")
	items, _ := got["items"].([]any)
	if len(items) != 1 || !strings.Contains(fmt.Sprint(items), "inst-c") || fmt.Sprint(got["hidden"]) != "2" {
		t.Errorf("alice sees %v", got)
	}
	for _, tt := range []struct{ who, path, want string }{
		{"alice", "/v1/instances/inst-c/stats", `{"id":"inst-c"`},
		{"alice", "/v1/instances/inst-a/stats", "not_found: "},
		{"bob", "/v1/instances/inst-a/stats", "forbidden: cert:bob may not do instance.read"},
		{"bob", "/v1/jobs/web/stats", "forbidden: cert:bob may not do instance.read on job/web"},
		{"carol", "/v1/instances/inst-a/stats", "not_found: "},
		{"carol", "/v1/jobs/web/stats", "not_found: "},
	} {
		if got := said(t, r.client(pki.RoleCLI, tt.who), "GET", tt.path, nil, nil); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s, %s: %s", tt.who, tt.path, got)
		}
	}
}
