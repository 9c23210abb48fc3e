package httpapi_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// rewrite reports whether OUTSPAN_REWRITE is set. If it is set, the tests write docs/openapi.json and the golden files.
func rewrite() bool { return os.Getenv("OUTSPAN_REWRITE") != "" }

// unstable lists values that differ from run to run, and their replacements.
var unstable = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`), `"TIME"`},
	{regexp.MustCompile(`01[0-9A-HJKMNP-TV-Z]{24}`), `ULID`},
	{regexp.MustCompile(`127\.0\.0\.1:[3-9]\d{4}"`), `127.0.0.1:PORT`},
}

// wantGolden compares an answer with the file of this name in testdata, so that no field disappears or changes its kind
// unnoticed. If rewrite returns true, it writes the file instead.
func wantGolden(t *testing.T, name string, raw []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s is no JSON: %v\n%s", name, err, raw)
	}
	noNull(t, name, "", v)
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got := string(text) + "\n"
	for _, u := range unstable {
		got = u.pattern.ReplaceAllString(got, u.with)
	}
	path := filepath.Join("testdata", name+".json")
	if rewrite() {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); if only fields were added: OUTSPAN_REWRITE=1 go test ./transport/httpapi\n%s",
			path, diff)
	}
}

// nullable lists the fields that may be null, which means that they have no value. No list and no map may be null.
var nullable = map[string]bool{
	"exit_code": true, "started_at": true, "last_seen": true, "deadline": true, "ended_at": true, "rate": true,
	"next_allowed": true, "since": true, "calm_since": true,
	"certificate_ends": true,
}

func noNull(t *testing.T, name, key string, v any) {
	t.Helper()
	switch v := v.(type) {
	case nil:
		if !nullable[key] {
			t.Errorf("%s: %q is null; send an empty list (notNil), or add the field to nullable", name, key)
		}
	case map[string]any:
		for k, inner := range v {
			noNull(t, name, k, inner)
		}
	case []any:
		for _, inner := range v {
			noNull(t, name, key, inner)
		}
	}
}

// Every answer has the fields that scripts rely on, and no secret.
func TestShapes(t *testing.T) {
	r := newRig(t)
	r.world()
	r.plan = model.JobPlan{Index: 9, Version: 2, Changes: true,
		Groups: []model.PlannedGroup{{Group: "web/http", Created: 1, Kept: 2}}}
	r.waiting.Groups = map[model.GroupID]model.Blocker{
		"web/http": {Code: model.CodeNoMemory, Message: "2 nodes lack memory"}}
	r.place("inst-c", 2, "01N2", model.ObservedPending)
	c := r.cli()
	drain := post(t, c, "/v1/nodes/n2/drain", map[string]any{"message": "kernel"})["drain"].(string)
	r.moves = []fsm.Move{
		{Instance: "inst-a", Group: "web/http", From: "01N1", To: "01N2", Cause: model.CauseRebalance, Gain: 31},
		{Instance: "inst-b", Group: "web/http", From: "01N1", To: "01N2", Cause: model.CauseAffinity, Gain: 20,
			Blocker: &model.Blocker{Code: model.CodeActorRate, Instance: "inst-b", Message: "it is moved when it is 10m old"}},
	}
	tests := []struct {
		name, method, path string
		body               any
	}{
		{"rebalance", "GET", "/v1/rebalance", nil},
		{"nodes", "GET", "/v1/nodes", nil},
		// proves L9: auto_evicting is a field of its own, and there are no conditions
		{"node", "GET", "/v1/nodes/n1", nil},
		{"jobs", "GET", "/v1/jobs", nil},
		{"job", "GET", "/v1/jobs/web", nil},
		{"job_versions", "GET", "/v1/jobs/web/versions", nil},
		{"job_version", "GET", "/v1/jobs/web/versions/1", nil},
		{"job_plan", "POST", "/v1/jobs/web/plan", map[string]any{"job": spec("web", 3)}},
		{"job_validate", "POST", "/v1/jobs/validate", map[string]any{"job": spec("api", 1)}},
		{"instances", "GET", "/v1/instances?all=true", nil},
		{"instance", "GET", "/v1/instances/inst-a", nil},
		{"why_instance", "GET", "/v1/instances/inst-a/why", nil},
		{"why", "GET", "/v1/why?subject=web/http", nil},
		{"drains", "GET", "/v1/drains", nil},
		{"drain", "GET", "/v1/drains/" + drain, nil},
		{"drain_reply", "POST", "/v1/drains?dry_run=true",
			map[string]any{"nodes": []string{"n1", "n2", "nowhere"}, "deadline": "5m"}},
		{"deployments", "GET", "/v1/deployments", nil},
		{"deployment", "GET", "/v1/deployments/web-1", nil},
		{"services", "GET", "/v1/services", nil},
		{"service", "GET", "/v1/services/web", nil},
		{"budgets", "GET", "/v1/budgets", nil},
		{"budget", "GET", "/v1/budgets/web/http", nil},
		{"classes", "GET", "/v1/classes", nil},
		{"class", "GET", "/v1/classes/batch", nil},
		{"settings", "GET", "/v1/settings", nil},
		{"members", "GET", "/v1/members", nil},
		{"verify", "GET", "/v1/members/verify?wait=3s", nil},
		{"status", "GET", "/v1/status", nil},
		{"healthz", "GET", "/healthz", nil},
		{"readyz", "GET", "/readyz?leader=1", nil},
		{"sd_prometheus", "GET", "/v1/sd/prometheus", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path, query, _ := strings.Cut(tt.path, "?")
			raw, index, err := c.Do(t.Context(), tt.method, path, values(query), tt.body)
			if err != nil {
				t.Fatalf("%s %s: %v", tt.method, tt.path, err)
			}
			if index == 0 && !strings.HasSuffix(path, "z") {
				t.Errorf("no %s", api.HeaderIndex)
			}
			for _, secret := range []string{"heartbeat-key", "very-secret"} {
				if strings.Contains(string(raw), secret) {
					t.Errorf("%s tells a secret:\n%s", tt.path, raw)
				}
			}
			wantGolden(t, tt.name, raw)
		})
	}
}

// The answer to a write has the write's index, and the object as the write left it. A repeated request gets the stored
// outcome.
func TestWriteShapes(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.cli()
	tests := []struct {
		name, method, path string
		body               any
	}{
		{"job_submit", "POST", "/v1/jobs", map[string]any{"job": spec("api", 1), "message": "first"}},
		{"job_scale", "POST", "/v1/jobs/web/scale", map[string]any{"count": 4}},
		{"job_restart", "POST", "/v1/jobs/web/restart", nil},
		{"deployment_fail", "POST", "/v1/deployments/web-2/fail", map[string]any{"reason": "bad"}},
		{"job_revert", "POST", "/v1/jobs/web/revert", map[string]any{"version": 1, "counts": true}},
		{"job_stop", "POST", "/v1/jobs/api/stop", map[string]any{"purge": false}},
		{"node_cordon", "POST", "/v1/nodes/n2/cordon", map[string]any{"reason": "disk"}},
		{"node_uncordon", "POST", "/v1/nodes/n2/uncordon", nil},
		{"node_disable", "POST", "/v1/nodes/n2/disable", nil},
		{"node_enable", "POST", "/v1/nodes/n2/enable", nil},
		{"node_label", "POST", "/v1/nodes/n2/label", map[string]any{"labels": map[string]string{"zone": "z1", "rack": ""}}},
		{"node_drain", "POST", "/v1/nodes/n1/drain", map[string]any{"id": "d1", "deadline": "none"}},
		{"node_ack", "POST", "/v1/nodes/n1/ack-blockers", map[string]any{"instances": []string{"inst-a"}}},
		{"drain_pause", "POST", "/v1/drains/d1/pause", nil},
		{"drain_resume", "POST", "/v1/drains/d1/resume", nil},
		{"drain_cancel", "POST", "/v1/drains/d1/cancel", map[string]any{"uncordon": true}},
		{"instance_restart", "POST", "/v1/instances/inst-a/restart", nil},
		{"instance_evict", "POST", "/v1/instances/inst-b/evict",
			map[string]any{"grace": "3s", "bypass_budget": true, "message": "noisy"}},
		{"budget_set", "PUT", "/v1/budgets/db",
			map[string]any{"min_ready": "50%", "rate": map[string]any{"max": 1, "window": "1m"}}},
		{"budget_remove", "DELETE", "/v1/budgets/db", nil},
		{"class_set", "PUT", "/v1/classes/gold",
			map[string]any{"above": "production", "max_down": "10%", "quota_memory_bytes": 1 << 30, "preempt_equal": "fair"}},
		{"class_remove", "DELETE", "/v1/classes/gold", nil},
		{"settings_set", "PUT", "/v1/settings", map[string]any{"offline_after": "30s"}},
		{"settings_pause", "POST", "/v1/settings/pause", nil},
		{"settings_resume", "POST", "/v1/settings/resume", map[string]any{"what": "actuation"}},
		{"member_promote", "POST", "/v1/members/s1/promote", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			query := values("request_id=req-" + tt.name)
			raw, index, err := c.Do(t.Context(), tt.method, tt.path, query, tt.body)
			if err != nil {
				t.Fatalf("%s %s: %v", tt.method, tt.path, err)
			}
			if index == 0 {
				t.Errorf("no %s", api.HeaderIndex)
			}
			wantGolden(t, tt.name, raw)
			if strings.HasPrefix(tt.name, "member") {
				return
			}
			if e := r.lastEntry(); e.Actor != "cert:alice" || e.Request != model.RequestID("req-"+tt.name) || e.Body == "" {
				t.Errorf("entry of %s: actor %q, request %q, body %q", tt.name, e.Actor, e.Request, e.Body)
			}
			before := r.entries()
			again, _, err := c.Do(t.Context(), tt.method, tt.path, query, tt.body)
			if err != nil {
				t.Fatalf("the same request again: %v", err)
			}
			if r.entries() != before || !isTrue(decode(t, again)["replayed"]) {
				t.Errorf("the same request again was not answered from what is stored: %s", again)
			}
		})
	}
}

func TestEmptyLists(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"nodes", "jobs", "instances", "drains", "deployments", "services", "budgets"} {
		raw, _, err := r.cli().Do(t.Context(), http.MethodGet, "/v1/"+path, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(raw), `{"items":[],"index":1}`+"\n"; got != want {
			t.Errorf("GET /v1/%s = %s, want %s", path, got, want)
		}
	}
}
