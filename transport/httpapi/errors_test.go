package httpapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// raw sends the body unchanged, as curl would. It returns a problem if the status is 400 or more, and checks that the
// problem is complete and doesn't contain the word hunter2.
func raw(t testing.TB, r *rig, role pki.Role, name, method, path, contentType,
	body string) (*http.Response, *api.Problem) {
	t.Helper()
	via := transport.Dialer{Credentials: must(r.ca.Credentials(role, name))(t)}.HTTPTransport()
	t.Cleanup(via.CloseIdleConnections)
	req := must(http.NewRequestWithContext(t.Context(), method, "https://"+r.servers[r.lead].address+path,
		strings.NewReader(body)))(t)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp := must(via.RoundTrip(req))(t)
	defer resp.Body.Close()
	text := must(io.ReadAll(resp.Body))(t)
	if resp.StatusCode < 400 {
		return resp, nil
	}
	if got := resp.Header.Get("Content-Type"); got != api.ContentTypeProblem {
		t.Errorf("%s %s: an error of type %q:\n%s", method, path, got, text)
	}
	p := new(api.Problem)
	if err := json.Unmarshal(text, p); err != nil {
		t.Fatalf("%s %s: %v\n%s", method, path, err, text)
	}
	if p.Status != resp.StatusCode || p.Type == "" || p.Title == "" || p.Message == "" || p.Code == "" {
		t.Errorf("%s %s: status %d, incomplete problem %s", method, path, resp.StatusCode, text)
	}
	if strings.Contains(string(text), "hunter2") {
		t.Errorf("%s %s repeats what was sent: %s", method, path, text)
	}
	return resp, p
}

func TestErrors(t *testing.T) {
	r := newRig(t)
	r.world()
	const asJSON = "application/json"
	tests := []struct {
		name, method, path, content, body string
		status                            int
		code                              model.Code
		says                              string // in message or hint
	}{
		{"unknown path", "GET", "/v1/nodez", "", "", 404, model.CodeNoRoute, "/openapi.json"},
		{"root", "GET", "/", "", "", 404, model.CodeNoRoute, "/openapi.json"},
		{"wrong method", "DELETE", "/v1/jobs", "", "", 405, model.CodeNoRoute, "use GET or POST"},
		{"unknown node", "GET", "/v1/nodes/n9", "", "", 404, model.CodeNotFound, "outspan node ls"},
		{"ambiguous node", "GET", "/v1/nodes/01N", "", "", 400, model.CodeAmbiguous, "more characters"},
		{"a read with a body", "GET", "/v1/nodes", asJSON, `{"password":"hunter2"}`, 400,
			model.CodeInvalid, "a read takes no body"},
		{"unknown query", "GET", "/v1/nodes?limt=1", "", "", 400, model.CodeInvalid, "limt: unknown query parameter"},
		{"query of wrong type", "GET", "/v1/nodes?limit=hunter2", "", "", 400, model.CodeInvalid, "limit: "},
		{"limit too high", "GET", "/v1/nodes?limit=99999", "", "", 400, model.CodeInvalid, "limit: "},
		{"unknown consistency", "GET", "/v1/nodes?consistency=hunter2", "", "", 400, model.CodeInvalid, "consistency: "},
		{"bad wait", "GET", "/v1/nodes?index=1&wait=hunter2", "", "", 400, model.CodeInvalid, "30s"},
		{"wait too long", "GET", "/v1/nodes?index=1&wait=2m", "", "", 400, model.CodeInvalid, "at most 60s"},
		{"filter without operator", "GET", "/v1/nodes?filter=active", "", "", 400, model.CodeInvalid, "field=value"},
		{"filter on unknown field", "GET", "/v1/nodes?filter=stat%3Dactive", "", "", 400, model.CodeInvalid,
			`did you mean "state"?`},
		{"foreign next", "GET", "/v1/nodes?next=%21", "", "", 400, model.CodeInvalid, "earlier answer"},
		{"unknown field", "POST", "/v1/jobs/web/scale", asJSON, `{"group":"http","cuont":3}`, 400, model.CodeInvalid,
			`did you mean "count"?`},
		{"unknown inner field", "POST", "/v1/jobs", asJSON,
			`{"job":{"name":"a","groups":[{"name":"g","exec":{"comand":"hunter2"}}]}}`, 400, model.CodeInvalid,
			`"job.groups[0].exec.comand"`},
		{"field twice", "POST", "/v1/jobs/web/scale", asJSON, `{"count":3,"count":4}`, 400, model.CodeInvalid, "given twice"},
		{"wrong type", "POST", "/v1/jobs/web/scale", asJSON, `{"count":"hunter2"}`, 400, model.CodeInvalid,
			`"count" must be a whole number, not string`},
		{"bad duration", "POST", "/v1/nodes/n1/drain", asJSON, `{"deadline":"hunter2"}`, 400,
			model.CodeInvalid, `"deadline"`},
		{"bad amount", "POST", "/v1/jobs", asJSON,
			`{"job":{"name":"a","groups":[{"name":"g","budget":{"min_ready":"hunter2"}}]}}`, 400, model.CodeInvalid,
			`"job.groups[0].budget.min_ready"`},
		{"not JSON", "POST", "/v1/jobs/web/scale", asJSON, `count=3`, 400, model.CodeInvalid, "not JSON"},
		{"cut off", "POST", "/v1/jobs/web/scale", asJSON, `{"count":3`, 400, model.CodeInvalid, "ends in the middle"},
		{"two values", "POST", "/v1/jobs/web/scale", asJSON, `{"count":3} {}`, 400,
			model.CodeInvalid, "after the JSON value"},
		{"too deep", "POST", "/v1/jobs/web/scale", asJSON, strings.Repeat(`{"count":`, 70) + "1", 400,
			model.CodeInvalid, "nested"},
		{"deep where anything goes", "POST", "/v1/nodes/n1/label", asJSON, `{"labels":` + strings.Repeat(`[`, 70), 400,
			model.CodeInvalid, "nested"},
		{"missing value", "POST", "/v1/jobs/web/scale", asJSON, `{}`, 400, model.CodeInvalid, "count is missing"},
		{"body where none is taken", "POST", "/v1/jobs/web/stop", asJSON, `{"force":true}`, 400,
			model.CodeInvalid, `"force"`},
		{"form", "POST", "/v1/jobs/web/stop", "application/x-www-form-urlencoded", `a=b`, 415,
			model.CodeMediaType, "application/json"},
		{"form without body", "POST", "/v1/jobs/web/stop", "text/plain", ``, 415, model.CodeMediaType, "application/json"},
		{"too large", "POST", "/v1/jobs", asJSON, `{"job":"` + strings.Repeat("x", 2<<20) + `"}`, 413,
			model.CodeTooLarge, "1 MiB"},
		{"bad request id", "POST", "/v1/jobs/web/stop?request_id=a%20b", asJSON, `{}`, 400, model.CodeInvalid, "request_id"},
		{"refused by the state", "POST", "/v1/jobs", asJSON,
			`{"job":{"name":"a","class":"gold","groups":[{"name":"g","count":1,"exec":{"command":"/x"}}]}}`, 400,
			model.CodeUnknownClass, "production"},
		{"budget", "POST", "/v1/instances/inst-a/evict", asJSON, `{}`, 409, model.CodeBudgetMinReady, "until 3 are ready"},
		{"budget of a group that replaces first", "POST", "/v1/instances/inst-a/evict", asJSON, `{}`, 409,
			model.CodeBudgetMinReady, "outspan instance evict inst-a --surge"},
		{"unknown setting", "PUT", "/v1/settings", asJSON, `{"ofline_after":"30s"}`, 400, model.CodeInvalid,
			`did you mean "offline_after"?`},
		{"no setting", "PUT", "/v1/settings", asJSON, ``, 400, model.CodeInvalid, "no setting"},
		{"stale settings", "PUT", "/v1/settings?if_index=999", asJSON, `{"offline_after":"30s"}`, 409,
			model.CodeConflict, "read them again"},
		{"stale settings by the body", "PUT", "/v1/settings", asJSON, `{"offline_after":"30s","if_index":999}`, 409,
			model.CodeConflict, "read them again"},
		{"settings that were never set", "PUT", "/v1/settings?if_index=0", asJSON, `{"offline_after":"30s"}`, 409,
			model.CodeConflict, "read them again"},
		{"condition where there is none", "POST", "/v1/nodes/n1/cordon", asJSON, `{"if_index":"1"}`, 400,
			model.CodeInvalid, "if_index"},
		{"bad request id in the body", "POST", "/v1/jobs/web/stop", asJSON, `{"request_id":"a b"}`, 400,
			model.CodeInvalid, "request_id"},
		{"request id of both kinds", "POST", "/v1/jobs/web/stop?request_id=a", asJSON, `{"request_id":"b"}`, 400,
			model.CodeInvalid, "request_id"},
		{"request id that is none", "POST", "/v1/jobs/web/stop", asJSON, `{"request_id":{"a":1}}`, 400,
			model.CodeInvalid, "request_id"},
		{"stale job", "POST", "/v1/jobs?if_index=1", asJSON,
			`{"job":{"name":"web","groups":[{"name":"g","count":1,"exec":{"command":"/x"}}]}}`, 409,
			model.CodeConflict, "plan again"},
		{"plan of another job", "POST", "/v1/jobs/web/plan", asJSON, `{"job":{"name":"api","groups":[]}}`, 400,
			model.CodeInvalid, "path names job"},
		{"nodes and selector", "POST", "/v1/drains", asJSON, `{"nodes":["n1"],"selector":{"rack":"r1"}}`, 400,
			model.CodeInvalid, "one of them"},
		{"selector of nothing", "POST", "/v1/drains", asJSON, `{"selector":{"rack":"r9"}}`, 404,
			model.CodeNotFound, "no node has"},
		{"unknown policy", "POST", "/v1/drains", asJSON, `{"nodes":["n1"],"policy":"hunter2"}`, 400, model.CodeInvalid,
			`policy is unknown use one of: block-if-contains-last-replica, `},
		{"drain of unknown node", "POST", "/v1/nodes/n9/drain", asJSON, `{}`, 404, model.CodeNotFound, "outspan node ls"},
		{"unknown member", "POST", "/v1/members/x/promote", asJSON, `{}`, 404, model.CodeNotFound, "outspan server members"},
		{"quorum", "DELETE", "/v1/members/s1", "", ``, 409, model.CodeConflict, "quorum"},
		{"unknown consistency of a snapshot", "GET", "/v1/snapshot?consistency=strong", "", ``, 400, model.CodeInvalid,
			"none of default"},
		{"corrupt snapshot", "PUT", "/v1/snapshot", "application/octet-stream", `hunter2`, 400, model.CodeInvalid, ""},
		{"servers only", "POST", "/v1/peer/ages", transport.ContentTypeCBOR, "", 403, model.CodeForbidden, "role cli"},
		{"bad log stream", "GET", "/v1/instances/inst-a/logs?stream=hunter2", "", "", 400, model.CodeInvalid, "stdout"},
		{"agent that is away", "GET", "/v1/instances/inst-a/logs", "", "", 502, model.CodeAgentUnreachable, "n1"},
		{"bad event id", "GET", "/v1/events?after=hunter2", "", "", 400, model.CodeInvalid, "index.n"},
		{"misspelt event query", "GET", "/v1/events?folow=false", "", "", 400, model.CodeInvalid, `did you mean "follow"?`},
		{"why nothing", "GET", "/v1/why?subject=nothing", "", "", 404, model.CodeNotFound, "no instance, job"},
		{"why of more than one", "GET", "/v1/why?subject=01N", "", "", 400, model.CodeAmbiguous, "more characters"},
		{"why without subject", "GET", "/v1/why", "", "", 400, model.CodeInvalid, "subject"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := r.machine.State()
			resp, p := raw(t, r, pki.RoleCLI, "alice", tt.method, tt.path, tt.content, tt.body)
			if p == nil {
				t.Fatalf("%s %s: %s, want %d", tt.method, tt.path, resp.Status, tt.status)
			}
			if p.Detail != p.Message {
				t.Errorf("%s %s: the detail is %q, the message %q", tt.method, tt.path, p.Detail, p.Message)
			}
			if p.Status != tt.status || p.Code != tt.code || !strings.Contains(p.Message+" "+p.Hint, tt.says) {
				t.Errorf("%s %s: %d %s %q hint %q; want %d %s saying %q", tt.method, tt.path, p.Status, p.Code, p.Message, p.Hint,
					tt.status, tt.code, tt.says)
			}
			after := r.machine.State()
			if tables := changed(&before, &after); len(tables) > 0 {
				t.Errorf("a refused request changed %s", tables)
			}
		})
	}
}

// changed returns the names of the tables whose rows differ. It ignores the tables of requests and events, which a
// refused entry may write.
func changed(before, after *fsm.State) (tables []string) {
	for name, same := range map[string]bool{
		"nodes": sameRows(after.Nodes, before.Nodes), "drains": sameRows(after.Drains, before.Drains),
		"jobs": sameRows(after.Jobs, before.Jobs), "groups": sameRows(after.Groups, before.Groups),
		"instances":   sameRows(after.Instances, before.Instances),
		"deployments": sameRows(after.Deployments, before.Deployments),
		"services":    sameRows(after.Services, before.Services), "budgets": sameRows(after.Budgets, before.Budgets),
		"volumes": sameRows(after.Volumes, before.Volumes), "transfers": sameRows(after.Transfers, before.Transfers),
		"actors": sameRows(after.Actors, before.Actors), "settings": reflect.DeepEqual(after.Settings, before.Settings),
	} {
		if !same {
			tables = append(tables, name)
		}
	}
	return tables
}

func sameRows[K ~string, V comparable](a, b fsm.Table[K, V]) bool {
	return maps.Equal(maps.Collect(a.All()), maps.Collect(b.All()))
}

// If two servers have the same name, a request must name a server by its id.
func TestMembersOfOneName(t *testing.T) {
	r := newRig(t)
	r.mu.Lock()
	r.twin = "s1"
	r.mu.Unlock()
	_, p := raw(t, r, pki.RoleCLI, "alice", "DELETE", "/v1/members/s1", "", "")
	if p == nil || p.Code != model.CodeAmbiguous || !strings.Contains(p.Hint, "id-s1, id-twin") {
		t.Errorf("by the name: %+v", p)
	}
	if resp, p := raw(t, r, pki.RoleCLI, "alice", "DELETE", "/v1/members/id-twin?force=true", "", ""); p != nil {
		t.Errorf("by the id: %s %+v", resp.Status, p)
	}
}

// A body without a Content-Length is also refused when it exceeds the limit.
func TestStreamedBodyTooLarge(t *testing.T) {
	r := newRig(t)
	via := transport.Dialer{Credentials: must(r.ca.Credentials(pki.RoleCLI, "alice"))(t)}.HTTPTransport()
	t.Cleanup(via.CloseIdleConnections)
	body := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), strings.NewReader("x"))
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost,
		"https://"+r.servers["s1"].address+"/v1/jobs", body))(t)
	resp := must(via.RoundTrip(req))(t)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("got %s, want 413", resp.Status)
	}
}

// A write that a browser sends from another site's page is refused, even with the user's certificate.
func TestForeignPage(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.cli()
	_, err := c.Send(t.Context(),
		reach.Request{Method: http.MethodPost, Path: "/v1/jobs/web/stop",
			Header: http.Header{"Sec-Fetch-Site": {"cross-site"}}})
	wantCode(t, err, model.CodeForbidden)
}

// The answer to a write says whether the write was done, was refused, or has an unknown outcome. A repeated request
// gets the stored outcome.
func TestOutcomes(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.cli()
	path, query := "/v1/jobs/web/scale", values("request_id=r1")
	body := map[string]int{"count": 2}
	r.fail(model.Refuse(model.CodeDiskFull, "no room"), nil)
	_, _, err := c.Do(t.Context(), http.MethodPost, path, query, body)
	wantCode(t, err, model.CodeDiskFull)

	r.fail(nil, errors.New("the connection to the quorum is lost"))
	_, _, err = c.Do(t.Context(), http.MethodPost, path, query, body)
	wantCode(t, err, model.CodeUnknownOutcome)
	if strings.Contains(err.Error(), "quorum") {
		t.Errorf("an inner error is shown: %v", err)
	}

	r.fail(nil, nil)
	before := r.entries()
	raw, _, err := c.Do(t.Context(), http.MethodPost, path, query, body)
	if err != nil {
		t.Fatal(err)
	}
	if got := decode(t, raw); !isTrue(got["replayed"]) || r.entries() != before {
		t.Errorf("the repeated request: %s, %d new entries", raw, r.entries()-before)
	}

	_, _, err = c.Do(t.Context(), http.MethodPost, path, query, map[string]int{"count": 1})
	wantCode(t, err, model.CodeRequestConflict)
	_, _, err = c.Do(t.Context(), http.MethodPost, "/v1/jobs/web/restart", query, nil)
	wantCode(t, err, model.CodeRequestConflict)

	// Another caller with the same request id is refused and does not get the stored outcome. The refusal makes no entry.
	before = r.entries()
	_, _, err = r.client(pki.RoleCLI, "mallory").Do(t.Context(), http.MethodPost, path, query, body)
	wantCode(t, err, model.CodeRequestConflict)
	if r.entries() != before {
		t.Errorf("%d entries for a refusal that needs none", r.entries()-before)
	}
}

// A repeated request gets the stored refusal and its index, even after the reason for the refusal is gone.
func TestStoredRefusal(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.cli()
	query := values("request_id=r1")
	_, _, err := c.Do(t.Context(), http.MethodPost, "/v1/instances/inst-a/evict", query, nil)
	wantCode(t, err, model.CodeBudgetMinReady)
	var first *api.Problem
	if !errors.As(err, &first) || first.Index == 0 || !first.Retryable {
		t.Fatalf("the refusal has no index, or is not retryable: %+v", first)
	}
	r.place("inst-c", 2, "01N2", model.ObservedReady)
	_, _, err = c.Do(t.Context(), http.MethodPost, "/v1/instances/inst-a/evict", query, nil)
	var again *api.Problem
	if !errors.As(err, &again) || again.Code != model.CodeBudgetMinReady || again.Index != first.Index {
		t.Errorf("asked again: %v at %d, want the refusal of %d", err, again.Index, first.Index)
	}
	if _, _, err := c.Do(t.Context(), http.MethodPost, "/v1/instances/inst-a/evict",
		values("request_id=r2"), nil); err != nil {
		t.Errorf("with a new id: %v", err)
	}
}

// A refusal because of a rate says when the write would be allowed.
func TestNextAllowed(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	web := spec("web", 3)
	web.Groups[0].Budget = &model.BudgetSpec{MinReady: &model.Amount{N: 0},
		Rate: &model.RateSpec{Max: 1, Window: model.Minute}}
	r.apply(&fsm.JobSubmit{Spec: web})
	r.place("inst-a", 0, "01N1", model.ObservedReady)
	r.place("inst-b", 1, "01N1", model.ObservedReady)
	c := r.cli()
	post(t, c, "/v1/instances/inst-a/evict", nil)
	_, _, err := c.Do(t.Context(), http.MethodPost, "/v1/instances/inst-b/evict", nil, nil)
	wantCode(t, err, model.CodeBudgetRate)
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.NextAllowed == nil {
		t.Fatalf("the refusal does not say when: %+v", p)
	}
	if in := time.Until(*p.NextAllowed); in < 30*time.Second || in > time.Minute {
		t.Errorf("the next is allowed in %s, want about a minute", in)
	}
}

// A dry run shows the outcome and writes no entry.
func TestDryRun(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.cli()
	before := r.entries()
	got := decode(t, must2(c.Do(t.Context(), http.MethodPost, "/v1/nodes/n1/cordon", values("dry_run=true"), nil))(t))
	if node := got["node"].(map[string]any); !isTrue(got["dry_run"]) || node["state"] != "cordoned" {
		t.Errorf("dry run: %v", got)
	}
	_, _, err := c.Do(t.Context(), http.MethodPost, "/v1/instances/inst-a/evict", values("dry_run=true"), nil)
	wantCode(t, err, model.CodeBudgetMinReady)
	if got := get(t, c, "/v1/nodes/n1")["state"]; got != "active" || r.entries() != before {
		t.Errorf("after the dry runs: node is %v, %d new entries", got, r.entries()-before)
	}
}

func must2(raw []byte, _ uint64, err error) func(testing.TB) []byte { return must(raw, err) }

func wantCode(t testing.TB, err error, code model.Code) {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got error %v, want code %s", err, code)
	}
}

// A client whose body is much larger than allowed gets an answer instead of a broken connection.
func TestTooLargeIsAnswered(t *testing.T) {
	r := newRig(t)
	via := &http.Transport{TLSClientConfig: must(r.ca.Credentials(pki.RoleCLI, "alice"))(t).
		ClientConfig(pki.RoleServer), DisableKeepAlives: true}
	for range 100 {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+r.servers["s1"].address+"/v1/jobs",
			bytes.NewReader(make([]byte, 4<<20))))(t)
		resp, err := via.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Fatalf("got %s, want 413", resp.Status)
		}
	}
}

// request_id may also be in the body, with the same meaning.
func TestParametersInBody(t *testing.T) {
	r := newRig(t)
	r.world()
	resp, refused := raw(t, r, pki.RoleCLI, "alice", "POST", "/v1/nodes/n1/cordon", "application/json",
		`{"request_id":"monday","reason":"disk"}`)
	if e := r.lastEntry(); refused != nil || e.Request != "monday" {
		t.Fatalf("%s: %+v; entry with request %q", resp.Status, refused, e.Request)
	}
	before := r.entries()
	again, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/nodes/n1/cordon", values("request_id=monday"),
		map[string]string{"reason": "disk"})
	if err != nil || !isTrue(decode(t, again)["replayed"]) || r.entries() != before {
		t.Errorf("the same with the id in the query: %s, %v", again, err)
	}
}
