package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// The answer to a write that changes a job does not say why instances wait, because the leader has not decided yet. A
// dry run, a write that changes nothing, and every later read say why.
func TestAnswerOfAJobWrite(t *testing.T) {
	r := newRig(t)
	r.world()
	r.waiting.Groups = map[model.GroupID]model.Blocker{
		"web/http": {Code: model.CodeNoMemory, Message: "2 nodes lack memory"}}
	scaled := func(count int, query string) map[string]any {
		return decode(t,
			must2(r.cli().Do(t.Context(), http.MethodPost, "/v1/jobs/web/scale", values(query),
				map[string]any{"count": count}))(t))["job"].(map[string]any)
	}
	for _, c := range []struct {
		what   string
		job    map[string]any
		reason string
	}{
		{"a dry run", scaled(7, "dry_run=true"), string(model.CodeNoMemory)},
		{"a change", scaled(7, ""), ""},
		{"no change", scaled(7, ""), string(model.CodeNoMemory)},
		{"a look", get(t, r.cli(), "/v1/jobs/web"), string(model.CodeNoMemory)},
	} {
		group := c.job["groups"].([]any)[0].(map[string]any)
		if reason := group["reason"]; reason != c.reason || group["pending"].(json.Number) == "0" {
			t.Errorf("%s: %v are pending for %v, want some for %v", c.what, group["pending"], reason, c.reason)
		}
	}
}

// A write needs the exact name or id of an object. A prefix of a name is refused, even if an object with exactly this
// name existed earlier.
func TestWritesTakeWholeNames(t *testing.T) {
	r := newRig(t)
	r.world()
	for name, count := range map[string]int{"api-prod": 3, "api": 0} {
		one := spec(name, count)
		one.Groups[0].Services = nil
		r.apply(&fsm.JobSubmit{Spec: one})
	}
	stop := func() (map[string]any, error) {
		raw, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/jobs/api/stop", nil, map[string]any{"purge": true})
		if err != nil {
			return nil, err
		}
		return decode(t, raw), nil
	}
	got, err := stop()
	if err != nil || got["job"] != nil {
		t.Errorf("S18: stopped and purged at once: the answer shows job %v, %v", got["job"], err)
	}
	_, err = stop()
	wantCode(t, err, model.CodeNotFound)
	if job := get(t, r.cli(), "/v1/jobs/api-prod"); job["status"] != "pending" || isTrue(job["purge"]) {
		t.Errorf("S18: another job is %v, purged %v", job["status"], job["purge"])
	}
	for path, body := range map[string]map[string]any{
		"/v1/nodes/01N1/cordon": {}, "/v1/instances/inst-a/restart": {}, // whole ids
	} {
		if _, _, err := r.cli().Do(t.Context(), http.MethodPost, path, nil, body); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	r.node("01M1", "machine-1")
	for _, path := range []string{"/v1/nodes/01M/disable", "/v1/nodes/machine/drain", "/v1/instances/inst-/evict",
		"/v1/members/s/promote"} {
		_, _, err := r.cli().Do(t.Context(), http.MethodPost, path, nil, map[string]any{})
		wantCode(t, err, model.CodeNotFound)
	}
}

// Validation warns about parts of a spec that are allowed but probably a mistake.
func TestValidateWarns(t *testing.T) {
	r := newRig(t)
	job := spec("api", 1)
	job.Groups[0].Update.AutoRevert = true
	warnings := fmt.Sprint(post(t, r.cli(), "/v1/jobs/validate", map[string]any{"job": job})["warnings"])
	if !strings.Contains(warnings, "group http has auto_revert and no check") {
		t.Errorf("warnings: %s", warnings)
	}
}

// A new job must not have a gate on a fact that its group never reports, even if the fact is named "ready". The log
// accepts such a job, because an earlier version may have written it.
func TestGateOnAFactNeedsARoleCheck(t *testing.T) {
	r := newRig(t)
	job := func(check *model.RoleCheckSpec, gate string) model.JobSpec {
		return model.JobSpec{Name: "db", Groups: []model.GroupSpec{{
			Name: "pg", Count: 1, Exec: model.ExecSpec{Command: "/bin/db"}, RoleCheck: check,
			Eviction: model.EvictionSpec{When: []string{gate}},
		}}}
	}
	for _, path := range []string{"/v1/jobs", "/v1/jobs/validate", "/v1/jobs/db/plan"} {
		for _, gate := range []string{"self.ready", "!self.ready", "self.in_sync"} {
			_, _, err := r.cli().Do(t.Context(), http.MethodPost, path, nil, map[string]any{"job": job(nil, gate)})
			wantCode(t, err, model.CodeInvalid)
			if !strings.Contains(err.Error(), gate+`" rests on facts`) {
				t.Errorf("%s: %v", path, err)
			}
		}
		for gate, check := range map[string]*model.RoleCheckSpec{
			"self.ready": {Exec: []string{"/bin/facts"}}, "group.ready >= 1": nil,
		} {
			if _, _, err := r.cli().Do(t.Context(), http.MethodPost, path, nil,
				map[string]any{"job": job(check, gate)}); err != nil {
				t.Errorf("%s, %s: %v", path, gate, err)
			}
		}
	}
	r.apply(&fsm.JobSubmit{Spec: job(nil, "self.ready")})
}

// A version of a job as a file comes to the same job when it is read again. A text that is no job file gets the line of
// each mistake.
func TestJobFiles(t *testing.T) {
	r := newRig(t)
	r.world()
	file := get(t, r.cli(), "/v1/jobs/web/versions/1/file")
	text := fmt.Sprint(file["text"])
	if !strings.Contains(text, `job "web" {`) || strings.Contains(text, "SIGTERM") {
		t.Fatalf("version 1 as a file:\n%s", text)
	}
	parse := func(text string) (map[string]any, error) {
		raw, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/jobs/parse", nil, map[string]any{"text": text})
		if err != nil {
			return nil, err
		}
		return decode(t, raw), nil
	}
	got, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	plan := decode(t, must2(r.cli().Do(t.Context(), http.MethodPost, "/v1/jobs", values("dry_run=true"), got))(t))
	if isTrue(plan["changed"]) {
		t.Errorf("its own file would change the job: %v", plan)
	}
	_, err = parse("job \"web\" {\n  grup \"http\" {}\n}\n")
	wantCode(t, err, model.CodeInvalid)
	if !strings.Contains(err.Error(), "job:2") || !strings.Contains(err.Error(), "grup") {
		t.Errorf("the mistake in line 2 is told as %v", err)
	}
	_, err = parse(strings.Repeat("[", 200<<10))
	wantCode(t, err, model.CodeInvalid)
	_, _, err = r.cli().Do(t.Context(), http.MethodGet, "/v1/jobs/web/versions/9/file", nil, nil)
	wantCode(t, err, model.CodeNotFound)
}
