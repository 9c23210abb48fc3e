package httpapi_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport/httpapi"
)

// talker is a rig that explains everything with names of all kinds.
type talker struct{ *rig }

// everything names what bob may see and what he may not, in words as explanations have them.
const everything = "instance hidden-inst on node n2 (01N2) of bank/http waits; instance inst-a on node n1; volume " +
	"bank/http/0/data, job bank, drain hidden-drain, transfer hidden-move, deployment bank-1, the bank is fine, " +
	`job "bank", node/n2, on n2.`

var blocked = model.Blocker{Code: model.CodeReplacementPending, Instance: "hidden-inst", Volume: "bank/http/0/data",
	Message: everything, Unblock: "outspan node confirm-dead n2"}

func (talker) Why(_ httpapi.Question, subject string) (model.WhyResult, error) {
	return model.WhyResult{Subject: subject, State: everything, Next: everything,
		Chain:      []model.WhyLink{{Index: 3, Wall: 1000, Text: everything}},
		Considered: []model.Considered{{Node: "01N1", Score: 7}, {Node: "01N2", ExcludedBy: model.CodeNoMemory}},
		Blockers:   []model.Blocker{blocked}}, nil
}

func (talker) Waiting(httpapi.Question) httpapi.Waiting {
	return httpapi.Waiting{Groups: map[model.GroupID]model.Blocker{"web/http": blocked}}
}

func (talker) DrainStatus(q httpapi.Question, id model.DrainID) (all []model.DrainStatus) {
	d, _ := q.State.Drains.Get(id)
	for _, n := range d.Nodes {
		all = append(all, model.DrainStatus{Node: n.Node, Blockers: []model.Blocker{blocked},
			Remaining: []model.NodeRemaining{{Instance: "hidden-inst"}, {Instance: "inst-a"}}})
	}
	return all
}

func (talker) Forecast(q httpapi.Question, id model.DrainID) (all []model.Forecast) {
	return []model.Forecast{{Node: "01N1", Instance: "hidden-inst", Group: "bank/http", Target: "01N2", Blocker: &blocked,
		Note: everything}, {Node: "01N1", Instance: "inst-a", Group: "web/http", Target: "01N1"}}
}

func (talker) Moves(httpapi.Question) ([]fsm.Move, [][]fsm.Command) {
	return []fsm.Move{{Instance: "hidden-inst", Group: "bank/http", From: "01N2", To: "01N1", Blocker: &blocked},
		{Instance: "inst-a", Group: "web/http", From: "01N1", To: "01N2"}}, nil
}

func (talker) Plan(_ httpapi.Question, spec model.JobSpec) (model.JobPlan, error) {
	return model.JobPlan{Job: spec.Name, Groups: []model.PlannedGroup{{Group: "web/http", Message: everything,
		Preempts: []model.InstanceID{"hidden-inst", "inst-a"}}}}, nil
}

// An explanation names nothing that the caller may not read, and says that there is something. This calls every
// operation that explains.
func TestExplanationsHideNames(t *testing.T) {
	r := twoTeams(t)
	r.startWith("s1", func(c *httpapi.Config) { c.Explainer, c.Planner = talker{r}, talker{r} })
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"*"}, Jobs: []string{"web"}},
		{Verbs: []rights.VerbPattern{"node.*"}, Nodes: []string{"n1"}},
		{Verbs: []rights.VerbPattern{"cluster.rebalance"}}}}},
		&fsm.JobScale{Job: "web", Group: "http", Count: 3})
	bob, alice := r.client(pki.RoleCLI, "bob"), r.client(pki.RoleCLI, "alice")
	names := regexp.MustCompile(`hidden-inst|\bn2\b|01N2|bank/|job bank|hidden-drain|hidden-move|bank-1`)
	type request struct {
		method, path string
		body         any
	}
	check := func(tt request) {
		t.Helper()
		path, query, _ := strings.Cut(tt.path, "?")
		all := said(t, alice, tt.method, path, values(query), tt.body)
		got := said(t, bob, tt.method, path, values(query), tt.body)
		if !names.MatchString(all) || !strings.HasPrefix(got, "{") {
			t.Errorf("%s %s: alice gets %s\nbob gets %s", tt.method, tt.path, all, got)
		}
		if found := names.FindString(got); found != "" || !strings.Contains(got, "hidden") {
			t.Errorf("%s %s names %s: %s", tt.method, tt.path, found, got)
		}
	}
	check(request{"POST", "/v1/nodes/n1/drain?dry_run=true", nil})
	check(request{"POST", "/v1/drains?dry_run=true", map[string]any{"nodes": []string{"n1"}}})
	f := decode(t, []byte(said(t, bob, "POST", "/v1/nodes/n1/drain", values("dry_run=true"),
		nil)))["forecast"].([]any)[0].(map[string]any)
	if f["instance"] != "hidden" || f["group"] != "hidden" || f["target"] != "hidden" || f["node"] != "n1" {
		t.Errorf("forecast: %v", f)
	}
	r.apply(&fsm.DrainStart{ID: "own-drain", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
	for _, tt := range []request{
		{"GET", "/v1/why?subject=instance/inst-a", nil}, {"GET", "/v1/why?subject=job/web", nil},
		{"GET", "/v1/why?subject=group/web/http", nil}, {"GET", "/v1/why?subject=node/n1", nil},
		{"GET", "/v1/why?subject=drain/own-drain", nil}, {"GET", "/v1/instances/inst-a/why", nil},
		{"POST", "/v1/jobs/web/plan", api.SubmitBody{Job: spec("web", 1)}},
		{"GET", "/v1/drains/own-drain", nil}, {"GET", "/v1/drains", nil},
		{"POST", "/v1/drains/own-drain/pause?dry_run=true", nil},
		{"POST", "/v1/drains/own-drain/resume?dry_run=true", nil},
		{"GET", "/v1/rebalance", nil}, {"GET", "/v1/jobs/web", nil},
	} {
		check(tt)
	}
	const want = "an instance you may not see (job hidden) on a node you may not see (a node you may not see) of a " +
		"group you may not see waits; instance inst-a on node n1; a volume you may not see, a job you may not see, a drain " +
		"you may not see, a transfer you may not see, a deployment you may not see, the bank is fine, " +
		`job "a job you may not see", a node you may not see, on a node you may not see.`
	v := get(t, bob, "/v1/why?subject=node/n1")
	if v["state"] != want || fmt.Sprint(v["hidden"]) != "1" || len(v["considered"].([]any)) != 1 {
		t.Errorf("why: %v", v)
	}
	one := v["blockers"].([]any)[0].(map[string]any)
	if one["instance"] != "hidden" || one["volume"] != "hidden" ||
		one["unblock"] != "ask somebody who may see what is hidden here" {
		t.Errorf("blocker: %v", one)
	}
	v = decode(t, []byte(said(t, bob, "POST", "/v1/jobs/web/plan", nil, api.SubmitBody{Job: spec("web", 1)})))
	if got := fmt.Sprint(v["groups"].([]any)[0].(map[string]any)["preempts"]); got != "[hidden inst-a]" {
		t.Errorf("plan: %s", got)
	}
}
