package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A revert without a version goes to the newest version that completed its rollout and differs from the current one.
// The revert keeps the current counts.
func TestRevertGoesToWhatWorked(t *testing.T) {
	r := newRig(t)
	r.world()
	submit := func(command string, count int) {
		next := spec("web", count)
		next.Groups[0].Exec.Command = command
		r.apply(&fsm.JobSubmit{Spec: next})
	}
	ended := func(version int, status model.DeploymentStatus) {
		r.apply(&fsm.DeploymentStep{ID: model.DeploymentID(fmt.Sprintf("web-%d", version)), Status: status, Reason: "so"})
	}
	revert := func(query string, body map[string]any) (map[string]any, error) {
		raw, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/jobs/web/revert", values(query), body)
		if err != nil {
			return nil, err
		}
		return decode(t, raw), nil
	}
	want := func(job model.JobName, version uint64, command string, count int) {
		t.Helper()
		s := r.machine.State()
		v, ok := s.JobVersion(job, version)
		if !ok {
			t.Fatalf("there is no version %d", version)
		}
		if g := v.Spec.Groups[0]; g.Exec.Command != command || g.Count != count {
			t.Errorf("version %d is %s, %d of it; want %s, %d", version, g.Exec.Command, g.Count, command, count)
		}
	}

	// No version has completed its rollout yet.
	submit("/bin/two", 3)
	_, err := revert("", nil)
	wantCode(t, err, model.CodeNotFound)

	// Version 2 completes its rollout, 3 fails, 4 is superseded by 5, and 5 is rolling.
	ended(2, model.DeploymentSucceeded)
	r.apply(&fsm.JobScale{Job: "web", Group: "http", Count: 7})
	submit("/bin/three", 3)
	ended(3, model.DeploymentFailed)
	submit("/bin/four", 3)
	submit("/bin/five", 5)
	got, err := revert("dry_run=true", nil)
	if err != nil || fmt.Sprint(got["reverted_to"]) != "2" || got["spec"] == nil {
		t.Errorf("the dry run goes to %v, %v; want 2, and the spec", got["reverted_to"], err)
	}
	want("web", 5, "/bin/five", 5)
	got, err = revert("", nil)
	if err != nil || fmt.Sprint(got["reverted_to"]) != "2" || got["spec"] != nil {
		t.Errorf("it goes to %v, %v; want 2", got["reverted_to"], err)
	}
	want("web", 6, "/bin/two", 5)

	// The current version is 6, a revert to version 2, and then 7, a restart of version 6. All three have the same spec,
	// so there is no other version to revert to.
	ended(6, model.DeploymentSucceeded)
	_, err = revert("", nil)
	wantCode(t, err, model.CodeConflict)
	r.apply(&fsm.JobRestart{Job: "web"})
	ended(7, model.DeploymentSucceeded)
	_, err = revert("", nil)
	wantCode(t, err, model.CodeConflict)

	// A request may name the version. The counts of this version are used only if the request asks for them.
	if _, err = revert("", map[string]any{"version": 3}); err != nil {
		t.Fatal(err)
	}
	want("web", 8, "/bin/three", 5)
	_, err = revert("", map[string]any{"version": 4, "if_version": 7})
	wantCode(t, err, model.CodeStale)
	if _, err = revert("", map[string]any{"version": 2, "counts": true}); err != nil {
		t.Fatal(err)
	}
	want("web", 9, "/bin/two", 7)
	_, err = revert("", map[string]any{"version": 6})
	wantCode(t, err, model.CodeConflict)
	if versions := get(t, r.cli(), "/v1/jobs/web/versions")["items"].([]any); true {
		done, reverts := "", ""
		for _, v := range versions {
			v := v.(map[string]any)
			if isTrue(v["completed"]) {
				done += fmt.Sprint(v["version"], " ")
			}
			if v["revert_of"] != nil {
				reverts += fmt.Sprint(v["version"], " of ", v["revert_of"], "; ")
			}
		}
		if reverts != "6 of 2; 8 of 3; 9 of 2; " {
			t.Errorf("versions %s are reverts, want 6 of 2, 8 of 3, 9 of 2", reverts)
		}
		if done != "2 6 7 " {
			t.Errorf("versions %s completed their rollout, want 2 6 7", done)
		}
	}
}

// If a revert can't keep the current counts, it uses the counts of the earlier version, and its note says why.
func TestRevertSaysThatItTakesOldCounts(t *testing.T) {
	r := newRig(t)
	r.world()
	next := spec("web", 2)
	next.Groups[0].Exec.Command, next.Groups[0].Resources.MemoryBytes = "/bin/two", 1<<20
	r.apply(&fsm.JobSubmit{Spec: next})
	next = spec("web", 0)
	r.apply(&fsm.JobSubmit{Spec: next})
	two := spec("web", 2)
	two.Groups[0].Update.Canary = 2
	r.apply(&fsm.JobSubmit{Spec: two})
	one := spec("web", 1)
	r.apply(&fsm.JobSubmit{Spec: one})
	version := r.machine.State()
	job, _ := version.Jobs.Get("web")
	for _, query := range []string{"dry_run=true", ""} {
		raw, _, err := r.cli().
			Do(t.Context(), http.MethodPost, "/v1/jobs/web/revert", values(query), map[string]any{"version": job.Version - 1})
		if err != nil {
			t.Fatal(err)
		}
		note := fmt.Sprint(decode(t, raw)["note"])
		if want := fmt.Sprintf("with the counts of version %d", job.Version-1); !strings.Contains(note, want) ||
			!strings.Contains(note, "canary") {
			t.Errorf("%q: the note is %q, want %q and the canary", query, note, want)
		}
	}
	raw, _, err := r.cli().
		Do(t.Context(), http.MethodPost, "/v1/jobs/web/revert", nil, map[string]any{"version": job.Version - 2})
	if err != nil || decode(t, raw)["note"] != nil {
		t.Errorf("a revert that keeps the counts says %s, %v", raw, err)
	}
}
