package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// historyOf returns a state in which the job web has one version for each of the given commands of its group api. The
// rollout of each version is completed.
func historyOf(t *testing.T, commands ...string) State {
	t.Helper()
	s := run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()}, register("n1"),
		&NodeReport{ID: "n1", Full: true})
	for _, command := range commands {
		s = submitted(t, s, command)
	}
	return s
}

func submitted(t *testing.T, s State, command string) State {
	t.Helper()
	spec := webSpec()
	spec.Groups[0].Exec.Command = command
	return completed(t, run(t, s, 1000, &JobSubmit{Spec: spec}))
}

// completed completes the rollout of web's current version if it is still running.
func completed(t *testing.T, s State) State {
	t.Helper()
	job, _ := s.Jobs.Get("web")
	if d, ok := s.Deployments.Get(job.Deployment); ok && !d.Status.Ended() {
		return run(t, s, 1000, &DeploymentStep{ID: d.ID, Status: model.DeploymentSucceeded})
	}
	return s
}

func reverted(t *testing.T, s State, version uint64) State {
	t.Helper()
	return completed(t, run(t, s, 1000, &JobRevert{Job: "web", Version: version, CurrentCounts: true}))
}

// RevertTarget skips versions that an earlier revert has abandoned. If the current version is itself a revert and the
// job is not stopped, RevertTarget refuses, and the person must name a version.
func TestRevertOfARevert(t *testing.T) {
	target := func(s State) string {
		job, _ := s.Jobs.Get("web")
		version, refusal := s.RevertTarget(job)
		if refusal != nil {
			return fmt.Sprint(refusal.Code, ": ", refusal.Message, "; ", refusal.Hint)
		}
		return fmt.Sprint(version)
	}
	want := func(what string, s State, want string) {
		t.Helper()
		if got := target(s); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	s := historyOf(t, "one", "two", "three")
	want("at 3", s, "2")
	s = reverted(t, s, 2)
	const again = "conflict: job web is at version 4, which is a revert to version 2 already; to go further back name " +
		"the version: outspan job revert web VERSION"
	want("at 4, a revert to 2", s, again)
	want("at 5, a restart of it", run(t, s, 1000, &JobRestart{Job: "web"}),
		"conflict: job web is at version 5, which is a revert to version 2 already")
	want("scaled", run(t, s, 1000, &JobScale{Job: "web", Group: "api", Count: 7}), again)
	want("stopped: what it had", run(t, s, 1000, &JobStop{Job: "web"}), "2")
	further := reverted(t, s, 1)
	want("at 5, a revert to 1", further, "conflict: job web is at version 5, which is a revert to version 1 already")
	want("at 6, after a new version on that", submitted(t, further, "six"), "5")

	s = submitted(t, s, "five")
	want("at 5, a new version after the revert", s, "4")
	s = submitted(t, reverted(t, s, 4), "two") // the same spec as in versions 2, 4 and 6, so no new version
	if job, _ := s.Jobs.Get("web"); job.Version != 6 {
		t.Fatalf("the job is at version %d", job.Version)
	}
	s = submitted(t, s, "seven")
	want("at 7", s, "6")

	// The rollout of version 4, a revert to version 2, did not complete. The next revert skips version 4 and version 3,
	// which it abandoned.
	s = run(t, historyOf(t, "one", "two", "three"), 1000, &JobRevert{Job: "web", Version: 2, CurrentCounts: true})
	want("at 5, the revert to 2 did not complete", submitted(t, s, "five"), "2")
}

// oldState returns a state in which the job web has a version that today's checks refuse, as if an older program had
// accepted it. The function breaks changes the spec of this version.
func oldState(t *testing.T, breaks func(*model.GroupSpec)) State {
	t.Helper()
	s := historyOf(t, "one")
	v, _ := s.JobVersion("web", 1)
	old := *v
	old.Spec.Groups = append([]model.GroupSpec(nil), v.Spec.Groups...)
	breaks(&old.Spec.Groups[0])
	if old.Spec.Check() == nil {
		t.Fatal("the spec passes today's checks")
	}
	f := s.fork()
	f.putVersion(&old)
	return f.publish()
}

// A version that today's checks refuse can still be scaled, and a revert to it can keep the current counts. A count out
// of bounds is refused for such a version too.
func TestVersionsThatTodaysChecksRefuse(t *testing.T) {
	s := oldState(t, func(g *model.GroupSpec) { g.Stop.Signal = "SIGOLD" })
	s = run(t, s, 1000, &JobScale{Job: "web", Group: "api", Count: 5})
	if v, _ := s.JobVersion("web", 1); v.Spec.Groups[0].Count != 5 {
		t.Errorf("its count is %d, want 5", v.Spec.Groups[0].Count)
	}
	for _, count := range []int{-1, 100_001} {
		_, refusal := attempt(s, 1000, &JobScale{Job: "web", Group: "api", Count: count})
		wantCode(t, fmt.Sprint("count ", count), refusal, model.CodeInvalid)
		if says := fmt.Sprintf("job web, group api: count is %d;", count); refusal != nil &&
			!strings.HasPrefix(refusal.Message, says) {
			t.Errorf("count %d: %v, want %q", count, refusal, says)
		}
	}
	s = submitted(t, s, "two")
	s = run(t, s, 1000, &JobScale{Job: "web", Group: "api", Count: 7})
	s = reverted(t, s, 1)
	if v, _ := s.JobVersion("web", 3); v.Spec.Groups[0].Count != 7 || v.Spec.Groups[0].Stop.Signal != "SIGOLD" ||
		v.Message != "revert to version 1" {
		t.Errorf("version 3 has %d of signal %s, %q", v.Spec.Groups[0].Count, v.Spec.Groups[0].Stop.Signal, v.Message)
	}
}

// If the spec of the earlier version would be invalid with the current counts, the revert takes the counts of the
// earlier version. The message of the new version says so.
func TestRevertSaysWhoseCountsItHas(t *testing.T) {
	s := historyOf(t)
	spec := webSpec()
	spec.Groups[0].Count, spec.Groups[0].Update.Canary = 3, 3
	s = submitted(t, run(t, s, 1000, &JobSubmit{Spec: spec}), "two")
	s = run(t, s, 1000, &JobScale{Job: "web", Group: "api", Count: 1})
	s = run(t, s, 1000, &JobRevert{Job: "web", Version: 1, CurrentCounts: true, Message: "the new one leaks"})
	v, _ := s.JobVersion("web", 3)
	want :=
		"the new one leaks; with the counts of version 1: job web, group api: update.canary is 3, more than the count of 1"
	if v.Spec.Groups[0].Count != 3 || v.Message != want || v.Reverts != 1 {
		t.Errorf("it has %d, a revert to %d, and says %q, want %q", v.Spec.Groups[0].Count, v.Reverts, v.Message, want)
	}
}

// If the current version is a revert whose rollout failed, a revert without a version is refused. RevertAdvice names
// the version to go back to.
func TestRevertAdviceNamesTheVersion(t *testing.T) {
	s := reverted(t, historyOf(t, "one", "two"), 1)
	s = run(t, s, 1000, &JobRevert{Job: "web", Version: 2, CurrentCounts: true},
		&DeploymentStep{ID: "web-4", Status: model.DeploymentFailed, Reason: "no progress for 10m"})
	job, _ := s.Jobs.Get("web")
	const back = "to go back to version 3: outspan job revert web 3"
	if got := s.RevertAdvice(job); got != back {
		t.Errorf("the way back is %q, want %q", got, back)
	}
	if _, refusal := s.RevertTarget(job); refusal == nil ||
		!strings.HasPrefix(refusal.Hint, back+"; to go further back name the version") {
		t.Errorf("a revert without a version: %v", refusal)
	}
	s = run(t, s, 1000, &JobRevert{Job: "web", Version: 3, CurrentCounts: true})
	s = completed(t, s)
	job, _ = s.Jobs.Get("web")
	if got := s.RevertAdvice(job); job.Version != 5 || job.Stable != 5 || !strings.HasPrefix(got, "mend the job file") {
		t.Errorf("at version %d, stable %d: the way back is %q", job.Version, job.Stable, got)
	}
	s = run(t, s, 1000, &JobRestart{Job: "web"})
	job, _ = s.Jobs.Get("web")
	// RevertAdvice does not name version 5, because version 6 has the same spec, and such a revert is refused
	if got := s.RevertAdvice(job); job.Stable != 5 || !strings.HasPrefix(got, "mend the job file") {
		t.Errorf("after a restart: the way back is %q", got)
	}
}
