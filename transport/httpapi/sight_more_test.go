package httpapi_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport/httpapi"
)

// Whoever may do something to jobs of one class does not learn from can-i which names jobs of other classes have.
func TestCanIDoesNotTellOfJobs(t *testing.T) {
	r := newRig(t)
	r.world()
	batch := spec("bank", 1)
	batch.Class = "batch"
	r.apply(&fsm.JobSubmit{Spec: batch}, &fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"job.*", "volume.*"}, Classes: []string{"production"}}}}})
	r.bind("mine cert:bob", "admin cert:alice")
	bob, alice := r.client(pki.RoleCLI, "bob"), r.client(pki.RoleCLI, "alice")
	for verb, object := range map[string]string{"job.stop": "job/NAME", "job.read": "job/NAME",
		"job.scale": "group/NAME/http", "volume.read": "volume/NAME/http/0/data"} {
		ask := func(name string) string {
			query := values("verb=" + verb + "&object=" + strings.ReplaceAll(object, "NAME", name))
			return strings.ReplaceAll(said(t, bob, "GET", "/v1/auth/can-i", query, nil), name, "NAME")
		}
		if hidden, absent := ask("bank"), ask("sunk"); hidden != absent {
			t.Errorf("%s: of a hidden job bob learns %s, of none %s", verb, hidden, absent)
		}
	}
	query := values("verb=job.stop&object=job/bank&as=cert:bob")
	if got := get(t, alice, "/v1/auth/can-i?"+query.Encode()); fmt.Sprint(got["allowed"]) != "false" {
		t.Errorf("alice, who may read rights, learns of bob: %v", got)
	}
}

// A revert goes to a version that exists when its caller is judged. So nobody reverts to one that is made meanwhile,
// and that asks for what the caller may not have.
func TestRevertToAVersionToCome(t *testing.T) {
	r := newRig(t)
	armed := false
	r.startWith("s1", func(c *httpapi.Config) {
		c.Consensus = beforeWrite{c.Consensus, func() {
			if armed {
				armed = false
				asRoot, later := spec("web", 1), spec("web", 2)
				asRoot.Groups[0].Exec.User = "root"
				r.apply(&fsm.JobSubmit{Spec: asRoot}, &fsm.JobSubmit{Spec: later})
			}
		}}
	})
	r.world()
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"job.*"}, Jobs: []string{"web"}}}}})
	r.bind("mine cert:bob", "admin cert:alice")
	armed = true
	_, _, err := r.client(pki.RoleCLI, "bob").Do(t.Context(), http.MethodPost, "/v1/jobs/web/revert", nil,
		map[string]any{"version": 2})
	wantCode(t, err, model.CodeNotFound)
	state := r.machine.State()
	j, _ := state.Jobs.Get("web")
	if v, _ := state.JobVersion("web", j.Version); v.Spec.Groups[0].Exec.User != "" {
		t.Error("the job runs as root")
	}
}

// The nodes that a drain did not take, and those of transfers, are hidden from those who may not see them.
func TestRejectedAndTransfersHideNodes(t *testing.T) {
	r := twoTeams(t)
	r.node("01N3", "n3")
	r.apply(&fsm.TransferStart{ID: "own-move", Token: "t", Work: model.TransferMigrate, Volume: "web/http/0/data",
		To: "01N3"})
	r.apply(&fsm.DrainStart{ID: "own-drain", Nodes: []string{"n1", "n2", "q9"},
		Options: model.DrainOptions{Deadline: model.Hour}})
	names := regexp.MustCompile(`"n2"|"n3"|hidden-drain`)
	bob, alice := r.client(pki.RoleCLI, "bob"), r.client(pki.RoleCLI, "alice")
	for _, path := range []string{"/v1/drains/own-drain", "/v1/transfers/own-move"} {
		all := strings.ReplaceAll(said(t, alice, "GET", path, nil, nil), "hidden-", "")
		got := said(t, bob, "GET", path, nil, nil)
		if !names.MatchString(all) || strings.Contains(all, "hidden") {
			t.Errorf("%s: alice gets %s", path, all)
		}
		if names.MatchString(got) || !strings.Contains(got, `"hidden"`) {
			t.Errorf("%s: bob gets %s", path, got)
		}
	}
}

// A refusal tells a caller who may read the rights which role allows it; others are sent to an administrator.
func TestRefusalNamesTheBinding(t *testing.T) {
	r := newRig(t)
	r.world()
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "reader", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"auth.read"}}, {Verbs: []rights.VerbPattern{"node.cordon"}, Nodes: []string{"n1"}}}}},
		&fsm.RoleSet{Role: rights.Role{Name: "scaler", Allow: []rights.Grant{
			{Verbs: []rights.VerbPattern{"job.scale"}, Jobs: []string{"web"}}}}})
	r.bind("reader cert:eve", "viewer cert:vera", "scaler cert:sam", "admin token:root")
	for who, want := range map[string][2]string{
		"eve":  {"the role admin allows it to token:root", "the role scaler allows it to cert:sam"},
		"vera": {"ask an administrator", "ask an administrator"},
	} {
		c := r.client(pki.RoleCLI, who)
		drained := said(t, c, "POST", "/v1/nodes/n1/drain", nil, nil)
		scaled := said(t, c, "POST", "/v1/jobs/web/scale", nil, map[string]int{"count": 1})
		if !strings.Contains(drained, want[0]) || who == "vera" && !strings.Contains(scaled, want[1]) ||
			who == "eve" && !strings.Contains(scaled, "the role ") {
			t.Errorf("%s: %s; %s", who, drained, scaled)
		}
	}
	r.apply(&fsm.BindingRemove{Role: "admin", To: "token:root"})
	c := r.client(pki.RoleCLI, "eve")
	if got := said(t, c, "POST", "/v1/jobs/web/scale", nil, map[string]int{"count": 1}); !strings.Contains(got,
		"the role scaler allows it to cert:sam") {
		t.Errorf("restricted to the job: %s", got)
	}
	if got := said(t, c, "POST", "/v1/nodes/n1/drain", nil, nil); !strings.Contains(got, "no role that is bound") {
		t.Errorf("nobody may: %s", got)
	}
}

// A stream of exec that loses its place to another subject says so.
func TestDisplacedExecSaysWhy(t *testing.T) {
	r := newRig(t)
	r.start("s2", httpapi.Limits{Streams: 8, RequestsPerSecond: 100_000})
	r.world()
	r.runAgentOf("01N1", "n1", &echoAgent{behalf: make(chan string, 9), gone: make(chan struct{}, 9)})
	events := func(name string) {
		resp := must(r.client(pki.RoleCLI, name, "s2").Open(t.Context(), reach.Request{Path: "/v1/events"}))(t)
		t.Cleanup(func() { resp.Body.Close() })
	}
	for _, name := range []string{"a", "a", "b", "b", "c", "c", "bob"} {
		events(name)
	}
	e := must(r.enter(t.Context(), r.client(pki.RoleCLI, "bob", "s2"), "sh"))(t)
	events("eve")
	if end := e.ended(t); end.Error == nil || end.Error.Code != model.CodeBusy ||
		!strings.Contains(end.Error.Message, "fewer streams") {
		t.Errorf("the end says %+v", end.Error)
	}
}
