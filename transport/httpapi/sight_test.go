package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport"
)

// twoTeams makes a rig in which bob may do everything to the job web and the node n1, and knows nothing of the jobs
// bank, bank-a and bank-b, the node n2 and what belongs to them.
func twoTeams(t *testing.T) *rig {
	t.Helper()
	r := withVolume(t)
	job := spec("bank", 1)
	job.Groups[0].Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
	r.apply(&fsm.JobSubmit{Spec: job})
	r.apply(&fsm.JobSubmit{Spec: spec("bank-a", 1)})
	r.apply(&fsm.JobSubmit{Spec: spec("bank-b", 1)})
	g, _ := r.machine.State().Groups.Get("bank/http")
	r.apply(&fsm.InstancePlace{ID: "hidden-inst", Group: "bank/http", Version: g.Version, Node: "01N2",
		Ports: model.Ports{{Name: "http", Number: 20007}}, Cause: model.CauseScaleUp})
	r.apply(&fsm.NodeReport{ID: "01N2", Epoch: r.epoch("01N2"),
		Instances: []model.InstanceStatus{{ID: "hidden-inst", Generation: 1, Observed: model.ObservedReady}}})
	r.apply(&fsm.TransferStart{ID: "hidden-move", Token: "t", Work: model.TransferBackup, Volume: "bank/http/0/data",
		Options: fsm.TransferOptions{Live: true}})
	r.apply(&fsm.DrainStart{ID: "hidden-drain", Nodes: []string{"n2"},
		Options: model.DrainOptions{Deadline: model.Hour}})
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"*"}, Jobs: []string{"web"}},
		{Verbs: []rights.VerbPattern{"node.*"}, Nodes: []string{"n1"}},
		{Verbs: []rights.VerbPattern{"class.*"}, Classes: []string{"batch"}}}}})
	r.bind("mine cert:bob", "admin cert:alice")
	return r
}

// said returns the answer to a request as text: the code, the message and the hint of a refusal, or the body.
func said(t *testing.T, c *transport.Client, method, path string, query url.Values, body any) string {
	t.Helper()
	answer, _, err := c.Do(t.Context(), method, path, query, body)
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		return fmt.Sprint(refusal.Code, ": ", refusal.Message, "; ", refusal.Hint)
	}
	return fmt.Sprint(string(answer), err)
}

// Whoever may not read an object gets for its name, and for words like it, the answer that a name gets which does not
// exist. This walks every operation with a name in its path.
func TestHiddenNamesAreLikeAbsentOnes(t *testing.T) {
	r := twoTeams(t)
	bob, alice := r.client(pki.RoleCLI, "bob"), r.client(pki.RoleCLI, "alice")
	dry := url.Values{"dry_run": {"true"}}
	same := func(method, path string, query url.Values, body any, pairs ...[2]string) {
		t.Helper()
		for _, pair := range pairs {
			var got [2]string
			for i, name := range pair {
				q := url.Values{}
				for key, values := range query {
					q.Set(key, strings.ReplaceAll(values[0], "NAME", name))
				}
				filled := strings.ReplaceAll(path, "NAME", url.PathEscape(name))
				var b any
				if text, ok := body.(string); ok {
					b = decode(t, []byte(strings.ReplaceAll(text, "NAME", name)))
				}
				got[i] = strings.ReplaceAll(said(t, bob, method, filled, q, b), name, "NAME")
			}
			if got[0] != got[1] {
				t.Errorf("%s %s %v %v\n%q: %s\n%q: %s", method, path, query, body, pair[0], got[0], pair[1], got[1])
			}
		}
	}
	byNoun := map[string][][2]string{ // hidden, absent; whole names, ids, a unique and an ambiguous prefix, a mistype
		"nodes": {{"n2", "q9"}, {"01N2", "01Q9"}}, "drains": {{"hidden-drain", "absent-drain"}, {"hidden", "absent"}},
		"jobs":        {{"bank", "sunk"}, {"ban", "sun"}, {"bank-", "sunk-"}, {"bamk", "sumk"}},
		"deployments": {{"bank-1", "sunk-1"}, {"bank", "sunk"}},
		"instances":   {{"hidden-inst", "absent-inst"}, {"hidden-", "absent-"}},
		"volumes":     {{"bank/http/0/data", "sunk/http/0/data"}, {"bank/", "sunk/"}},
		"transfers":   {{"hidden-move", "absent-move"}}, "services": {{"bank", "sunk"}}, "classes": {{"system", "absent"}},
	}
	for noun, pairs := range byNoun { // the hidden ones exist
		answer := said(t, alice, http.MethodGet, "/v1/"+noun+"/"+url.PathEscape(pairs[0][0]), nil, nil)
		if !strings.HasPrefix(answer, "{") {
			t.Errorf("%s: alice gets %s", pairs[0][0], answer)
		}
	}
	walked := 0
	for _, op := range operationsOf(t, r) {
		parts := strings.Split(op[1], "/")
		if len(parts) < 4 || !strings.HasPrefix(parts[3], "{") || byNoun[parts[2]] == nil {
			continue
		}
		parts[3] = "NAME"
		path := strings.ReplaceAll(strings.Join(parts, "/"), "{version}", "1")
		query := dry
		if op[0] == http.MethodGet {
			query = nil
		}
		same(op[0], path, query, nil, byNoun[parts[2]]...)
		walked++
	}
	if walked < 38 {
		t.Errorf("only %d operations", walked)
	}
	nodes, jobs, instances := byNoun["nodes"], byNoun["jobs"], byNoun["instances"]
	same("GET", "/v1/instances", url.Values{"job": {"NAME"}}, nil, jobs...)
	same("GET", "/v1/instances", url.Values{"node": {"NAME"}}, nil, nodes...)
	same("GET", "/v1/volumes", url.Values{"node": {"NAME"}}, nil, nodes...)
	same("GET", "/v1/volumes", url.Values{"job": {"NAME"}}, nil, jobs...)
	same("GET", "/v1/deployments", url.Values{"job": {"NAME"}}, nil, jobs...)
	for _, kind := range []string{"node", "job", "instance", "drain", "deployment"} {
		same("GET", "/v1/why", url.Values{"subject": {"NAME"}}, nil, byNoun[kind+"s"]...)
		same("GET", "/v1/why", url.Values{"subject": {kind + "/NAME"}}, nil, byNoun[kind+"s"]...)
	}
	same("GET", "/v1/why", url.Values{"subject": {"NAME/http"}}, nil, jobs...)
	same("GET", "/v1/why", url.Values{"subject": {"NAME"}}, nil, [2]string{"s1", "s9"})
	same("GET", "/v1/auth/can-i", url.Values{"verb": {"instance.read"}, "object": {"instance/NAME"}}, nil, instances[0])
	same("GET", "/v1/auth/can-i", url.Values{"verb": {"job.read"}, "object": {"deployment/NAME"}}, nil,
		byNoun["deployments"][0])
	same("POST", "/v1/drains", dry, `{"nodes":["NAME"]}`, nodes...)
	same("POST", "/v1/nodes/n1/ack-blockers", dry, `{"instances":["NAME"]}`, instances...)
	same("POST", volumeURL+"/migrate", dry, `{"to":"NAME"}`, nodes...)
	same("POST", "/v1/volumes/web%2Fhttp%2F0%2Fdata/attach", dry, `{"node":"NAME","copies":{"data":1}}`, nodes...)
}

// A list that a parameter narrows does not count what it hides, and shows everything else.
func TestSightShowsWhatOneMayUse(t *testing.T) {
	r := twoTeams(t)
	bob := r.client(pki.RoleCLI, "bob")
	if got := get(t, bob, "/v1/volumes?job=bank"); got["hidden"] != nil {
		t.Errorf("volumes of a hidden job: %v", got)
	}
	if got := get(t, bob, "/v1/volumes"); fmt.Sprint(got["hidden"]) != "1" {
		t.Errorf("all volumes: %v", got)
	}
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"instance.*", "job.submit", "volume.*"}, Jobs: []string{"web"}}}}})
	if got := get(t, bob, "/v1/instances?node=n1")["items"].([]any); len(got) != 1 {
		t.Errorf("instances of a node that bob's instances name: %v", got)
	}
	_, _, err := bob.Do(t.Context(), "POST", "/v1/jobs/web/revert", values("dry_run=true"), nil)
	if refusal, ok := errors.AsType[*model.Error](err); ok && refusal.Code == model.CodeForbidden {
		t.Errorf("bob may submit web, and does not find it: %v", err)
	}
}

// A log that somebody follows ends when the class of its job changes to one that the reader may not read.
func TestStreamEndsWithTheClass(t *testing.T) {
	r := newRig(t)
	r.world()
	r.runAgent("01N1", "n1", &logAgent{end: make(chan struct{})})
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"instance.logs"}, Classes: []string{"production"}}}}})
	r.bind("mine cert:bob", "admin cert:alice")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // generous
	defer cancel()
	resp := must(r.client(pki.RoleCLI, "bob").Open(ctx, reach.Request{Path: "/v1/jobs/web/logs",
		Query: url.Values{"follow": {"true"}}}))(t)
	defer resp.Body.Close()
	batch := spec("web", 3)
	batch.Class = "batch"
	r.apply(&fsm.JobSubmit{Spec: batch})
	_, _ = io.Copy(io.Discard, resp.Body)
	if ctx.Err() != nil {
		t.Error("the log goes on")
	}
}

// A caller's bindings are searched once, and not for each item of a list.
func TestRightsCostLittle(t *testing.T) {
	r := newRig(t)
	for n := range 40 {
		r.apply(&fsm.JobSubmit{Spec: spec(fmt.Sprintf("job-%d", n), 0)})
	}
	var some []fsm.Command
	for n := range 2000 {
		some = append(some, &fsm.BindingAdd{Role: rights.Viewer, To: fmt.Sprintf("cert:p%d", n)})
	}
	some = append(some, &fsm.RoleSet{Role: rights.Role{Name: "one", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"job.read"}, Jobs: []string{"job-7"}}}}})
	r.apply(some...)
	r.bind("one cert:bob", "admin cert:alice")
	bob := r.client(pki.RoleCLI, "bob")
	get(t, bob, "/v1/jobs") // the first one searches
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := get(t, bob, "/v1/jobs"); fmt.Sprint(got["hidden"]) != "39" {
		t.Fatalf("jobs: %v", got)
	}
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > 20_000 { // 40 searches of 2000 bindings were 80,000
		t.Errorf("%d allocations", n)
	}
}

// A repeated request is judged as the first one: the answer shows the present state.
func TestReplayIsJudged(t *testing.T) {
	r := twoTeams(t)
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"job.*"}, Jobs: []string{"web", "bank"}}}}})
	bob := r.client(pki.RoleCLI, "bob")
	restart := func() error {
		_, _, err := bob.Do(t.Context(), "POST", "/v1/jobs/bank/restart", values("request_id=once"), nil)
		return err
	}
	if err := restart(); err != nil {
		t.Fatal(err)
	}
	if err := restart(); err != nil {
		t.Errorf("the repetition: %v", err)
	}
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"job.read"}, Jobs: []string{"bank"}},
		{Verbs: []rights.VerbPattern{"job.*"}, Jobs: []string{"web"}}}}})
	wantCode(t, restart(), model.CodeForbidden)
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
		{Verbs: []rights.VerbPattern{"job.*"}, Jobs: []string{"web"}}}}})
	got := said(t, bob, "POST", "/v1/jobs/bank/restart", values("request_id=once"), nil)
	if strings.Contains(got, "bank") {
		t.Errorf("the repetition shows %s", got)
	}
}

// A dry run of a revert shows the spec only to whoever may read the job.
func TestRevertHidesTheSpec(t *testing.T) {
	r := twoTeams(t)
	again := spec("web", 1)
	again.Groups[0].Exec.Command = "/bin/other"
	again.Groups[0].Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
	r.apply(&fsm.JobSubmit{Spec: again})
	bob := r.client(pki.RoleCLI, "bob")
	for verb, want := range map[rights.VerbPattern]bool{"job.read": true, "job.plan": false} {
		r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
			{Verbs: []rights.VerbPattern{"job.submit", verb}, Jobs: []string{"web"}}}}})
		got := said(t, bob, "POST", "/v1/jobs/web/revert", values("dry_run=true"), map[string]any{"version": 1})
		if strings.Contains(got, "env-secret") != want || !strings.HasPrefix(got, "{") {
			t.Errorf("with %s: %s", verb, got)
		}
	}
}

// To fail a deployment that goes back to an earlier version is a revert.
func TestFailedDeploymentIsJudgedAsRevert(t *testing.T) {
	r := twoTeams(t)
	job := spec("auto", 0)
	job.Groups[0].Update.AutoRevert = true
	r.apply(&fsm.JobSubmit{Spec: job})
	r.apply(&fsm.DeploymentStep{ID: "auto-1", Status: model.DeploymentSucceeded})
	job.Groups[0].Count, job.Groups[0].Exec.Command = 1, "/bin/other"
	r.apply(&fsm.JobSubmit{Spec: job})
	bob := r.client(pki.RoleCLI, "bob")
	for verb, want := range map[rights.VerbPattern]string{
		"job.submit": "{", "job.read": "forbidden: cert:bob may not do job.submit",
	} {
		r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
			{Verbs: []rights.VerbPattern{"job.deploy", verb}, Jobs: []string{"auto"}}}}})
		got := said(t, bob, "POST", "/v1/deployments/auto-2/fail", values("dry_run=true"), nil)
		if !strings.HasPrefix(got, want) {
			t.Errorf("with %s: %s, want %s", verb, got, want)
		}
	}
}
