package httpapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// tell reports an instance's status with the next generation, as the node's agent would.
func (r *rig) tell(node model.NodeID, status model.InstanceStatus) {
	r.t.Helper()
	inst, _ := r.machine.State().Instances.Get(status.ID)
	status.Generation = inst.Status.Generation + 1
	r.apply(&fsm.NodeReport{ID: node, Epoch: r.epoch(node), Instances: []model.InstanceStatus{status}})
}

// wantProblem fails the test unless status shows exactly this problem.
func wantProblem(t *testing.T, r *rig, want string) {
	t.Helper()
	if got := problemsNow(t, r, ""); len(got) != 1 || got[0] != want {
		t.Errorf("problems: %q\nwant: %q", got, want)
	}
}

// A failed rollout is a problem until another version is submitted or the job is stopped. The problem names what can be
// done.
func TestProblemOfAFailedRollout(t *testing.T) {
	r := newRig(t)
	r.world()
	r.place("inst-c", 2, "01N1", model.ObservedReady)
	r.apply(&fsm.DeploymentStep{ID: "web-1", Status: model.DeploymentFailed, Reason: "no progress for 10m"})
	wantProblem(t, r,
		"deployment_failed job/web: deployment web-1 failed: no progress for 10m -> outspan why web; mend the job file, "+
			"then: outspan job run FILE")
	changed := spec("web", 3)
	for n, end := range []fsm.DeploymentStep{{Status: model.DeploymentSucceeded},
		{Status: model.DeploymentFailed, Reason: "retry_limit"}} {
		changed.Groups[0].Exec.Command = fmt.Sprint("/bin/web", n)
		r.apply(&fsm.JobSubmit{Spec: changed})
		if got := problemsNow(t, r, ""); len(got) > 0 {
			t.Errorf("a new version: %q", got)
		}
		end.ID = model.NewDeploymentID("web", uint64(n+2))
		r.apply(&end)
	}
	wantProblem(t, r,
		"deployment_failed job/web: deployment web-3 failed: retry_limit -> outspan why web; to go back to version 2: "+
			"outspan job revert web 2")
	r.apply(&fsm.JobStop{Job: "web"})
	if got := problemsNow(t, r, ""); len(got) > 0 {
		t.Errorf("a stopped job: %q", got)
	}
}

// A program that exits again and again is a problem of its group. An instance that failed and is not replaced any more
// is another problem.
func TestProblemOfACrashLoop(t *testing.T) {
	r := newRig(t)
	r.world()
	r.place("inst-c", 2, "01N2", model.ObservedBooting)
	none := func(what string) {
		t.Helper()
		if got := problemsNow(t, r, ""); len(got) > 0 {
			t.Errorf("%s: %q", what, got)
		}
	}
	r.tell("01N2",
		model.InstanceStatus{ID: "inst-c", Observed: model.ObservedUnready, Reason: "exited: exit code 1", Restarts: 1})
	none("the first end")
	r.tell("01N2", model.InstanceStatus{ID: "inst-c", Observed: model.ObservedUnready, Reason: "restarting", Restarts: 2})
	none("a restart that somebody asked for")
	r.tell("01N2",
		model.InstanceStatus{ID: "inst-c", Observed: model.ObservedUnready, Reason: "check_failed: no answer", Restarts: 2})
	none("a check that fails")
	r.tell("01N2",
		model.InstanceStatus{ID: "inst-c", Observed: model.ObservedUnready, Reason: "exited: exit code 1", Restarts: 2})
	wantProblem(t, r,
		"crash_loop group/web/http: 1 of 3 instances: its program ends again and again (restarts of inst-c: 2): exited: "+
			"exit code 1 on node n2 -> outspan logs inst-c")
	r.tell("01N2", model.InstanceStatus{ID: "inst-c", Observed: model.ObservedReady, Restarts: 3})
	none("it is ready")

	r.tell("01N2", model.InstanceStatus{ID: "inst-c", Observed: model.ObservedFailed, Reason: "crash_loop"})
	none("the first failure")
	last := model.InstanceID("inst-c")
	for n, id := range []model.InstanceID{"inst-d", "inst-e", "inst-f"} {
		r.apply(&fsm.InstanceStop{ID: last, Cause: model.CauseCrashLoop})
		r.tell("01N2", model.InstanceStatus{ID: last, Observed: model.ObservedStopped})
		r.apply(&fsm.InstancePlace{ID: id, Group: "web/http", Slot: 2, Version: 1, Node: "01N2",
			Ports: model.Ports{{Name: "http", Number: 20002}}, Cause: model.CauseCrashLoop})
		r.tell("01N2", model.InstanceStatus{ID: id, Observed: model.ObservedReady})
		last = id
		if n > 0 {
			wantProblem(t,
				r,
				fmt.Sprintf("crash_loop group/web/http: 1 of 3 instances: its program ends again and again (restarts of %s: 0): "+
					"crash_loop on node n2 -> outspan logs %s", id, id))
		}
		r.tell("01N2", model.InstanceStatus{ID: id, Observed: model.ObservedFailed, Reason: "crash_loop"})
	}
	const wayOut = "; the latest: crash_loop on node n2 -> outspan logs inst-f; mend it and submit that with outspan " +
		"job run FILE, or to try once more: outspan instance restart inst-f"
	wantProblem(t, r,
		"retry_limit group/web/http: 1 of 3 instances failed: version 1 failed 4 times, more than the 3 that are "+
			"replaced in 10m"+wayOut)
	const why = "4 instances of version 1 of web/http failed, more than the 3 that are replaced in 10m; next try in 9m55s"
	r.waiting.Instances = map[model.InstanceID][]model.Blocker{"inst-f": {{Code: model.CodeRetryLimit, Message: why}}}
	// A write changes the state, because reads of the same state share the reasons why things wait.
	r.apply(&fsm.NodeLabel{ID: "01N1", Labels: map[string]string{"a": "b"}})
	wantProblem(t, r, "retry_limit group/web/http: 1 of 3 instances failed: "+why+wayOut)
}

// A rollout whose next instance fits nowhere is a problem, and the job says why, although all instances of the old
// version are ready. A pull that goes on is only the reason.
func TestProblemOfARolloutThatFitsNowhere(t *testing.T) {
	r := newRig(t)
	r.world()
	r.place("inst-c", 2, "01N1", model.ObservedReady)
	reason := func() any { return get(t, r.cli(), "/v1/jobs/web")["groups"].([]any)[0].(map[string]any)["reason"] }
	waits := func(code model.Code) {
		r.waiting.Groups = map[model.GroupID]model.Blocker{"web/http": {Code: code, Message: "no node has it"}}
	}
	waits(model.CodeImagePull)
	r.apply(&fsm.DeploymentStep{ID: "web-1", Status: model.DeploymentRolling})
	wantProblem(t, r, "unschedulable group/web/http: its rollout waits: no node has it -> outspan why web/http")
	if got := reason(); got != "image_pull_failed" {
		t.Errorf("reason %v", got)
	}
	rollout := func() any { return get(t, r.cli(), "/v1/deployments/web-1")["reason"] }
	if got := rollout(); got != "http: no node has it" {
		t.Errorf("the deployment's reason is %v", got)
	}
	waits(model.CodeImagePulling)
	r.apply(&fsm.NodeLabel{ID: "01N1", Labels: map[string]string{"a": "b"}})
	if got := problemsNow(t, r, ""); len(got) > 0 || reason() != "image_pulling" || rollout() != "http: no node has it" {
		t.Errorf("while it pulls: %q, %v, %v", got, reason(), rollout())
	}
	waits(model.CodeImagePull)
	r.apply(&fsm.DeploymentStep{ID: "web-1", Status: model.DeploymentSucceeded})
	if got := problemsNow(t, r, ""); len(got) > 0 || reason() != "" || rollout() != "" {
		t.Errorf("the rollout has ended: %q, %v, %v", got, reason(), rollout())
	}
}

// A container runtime that does not answer is a problem of its node until it answers, or the node is offline.
func TestProblemOfARuntime(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	r.withRuntime("01N1", "containerd does not answer")
	wantProblem(t, r, "runtime_down node/n1: it takes no new containers, and those that run go on: containerd does not "+
		"answer -> start containerd there: systemctl start containerd")
	r.withRuntime("01N1", "the node can't run containers: it has no cgroups")
	wantProblem(t, r, "runtime_down node/n1: it takes no new containers, and those that run go on: the node can't run "+
		"containers: it has no cgroups -> give it what it lacks, and restart its agent; see: outspan node status n1")
	r.withRuntime("01N1", "")
	if got := problemsNow(t, r, ""); len(got) > 0 {
		t.Errorf("it answers again: %q", got)
	}
}

// An image that runs and that its registry does not have any more is a problem: no other node can have it.
func TestProblemOfAnImageThatIsGone(t *testing.T) {
	r := newRig(t)
	digest := rigDigest("a")
	runtime := func(node model.NodeID, gen uint64, images ...model.NodeImage) {
		r.apply(&fsm.NodeReport{ID: node, Epoch: r.epoch(node), Self: &model.SelfReport{Gen: gen,
			Runtime: &model.ContainerRuntime{Version: "2.1", Pulls: true, Images: images}}})
	}
	r.node("01N1", "n1")
	r.node("01N2", "n2")
	runtime("01N1", 1, model.NodeImage{Digest: digest, State: model.ImagePresent, Bytes: 1})
	runtime("01N2", 1)
	r.apply(&fsm.JobSubmit{Spec: imageSpec("web", "a")})
	r.place("inst-a", 0, "01N1", model.ObservedReady)
	fail := func(missing bool) {
		r.apply(&fsm.ImageWant{Group: "web/http", Version: 1, Node: "01N2", Cause: model.CauseNodeDraining, Bare: true})
		r.apply(&fsm.ImageDrop{Group: "web/http", Failed: "404", Pause: 1, Missing: missing})
	}
	fail(false)
	if got := problemsNow(t, r, ""); len(got) > 0 {
		t.Errorf("a registry that is down: %q", got)
	}
	n, _ := r.machine.State().Nodes.Get("01N2")
	for r.now() < n.FailedPulls[0].Until { // the pause is 1 ms
		time.Sleep(time.Millisecond)
	}
	fail(true)
	wantProblem(t, r, "image_gone group/web/http: the registry no longer has the image reg/web@"+digest+" of version 1; "+
		"it runs on n1, and can't be pulled on n2 -> push the image with this digest to the registry again, and then: "+
		"outspan job restart web; or run another image: outspan job run FILE")
	born := r.born
	r.born = born.Add(-23 * time.Hour)
	if got := strings.Join(problemsNow(t, r, ""), "\n"); !strings.Contains(got, "image_gone") {
		t.Errorf("for a day after the failure: %q", got)
	}
	r.born = born.Add(-25 * time.Hour)
	if got := strings.Join(problemsNow(t, r, ""), "\n"); strings.Contains(got, "image_gone") {
		t.Errorf("a day after the failure: %q", got)
	}
	r.born = born
	runtime("01N2", 2, model.NodeImage{Digest: digest, State: model.ImagePresent, Bytes: 1})
	if got := problemsNow(t, r, ""); len(got) > 0 {
		t.Errorf("it was pulled: %q", got)
	}
}

// Instances that fit nowhere are one problem per group, with the reason and what to do. If there are many such groups,
// eight are listed, and one more line says how many others there are.
func TestProblemOfWhatFitsNowhere(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	front := spec("front", 1200)
	r.apply(&fsm.JobSubmit{Spec: front})
	r.waiting.Groups = map[model.GroupID]model.Blocker{
		"front/http": {Code: model.CodePaused, Message: "actuation is paused"}}
	if got := problemsNow(t, r, ""); len(got) > 0 {
		t.Errorf("what waits for something else: %q", got)
	}
	fitsNowhere := model.Blocker{Code: model.CodeNoMemory, Message: "all 40 nodes have too little memory",
		Unblock: "add a node, or scale something down"}
	r.waiting.Groups["front/http"] = fitsNowhere
	// A write changes the state, because reads of the same state share the reasons why things wait.
	r.apply(&fsm.NodeLabel{ID: "01N1", Labels: map[string]string{"a": "b"}})
	wantProblem(t, r, "unschedulable group/front/http: 1200 of 1200 instances wait: all 40 nodes have too little memory"+
		" -> add a node, or scale something down; outspan why front/http")
	for n := range 12 {
		name := fmt.Sprintf("job%02d", n)
		r.apply(&fsm.JobSubmit{Spec: spec(name, 2)})
		r.waiting.Groups[model.GroupID(name+"/http")] = fitsNowhere
	}
	r.apply(&fsm.NodeLabel{ID: "01N1", Labels: map[string]string{"a": "c"}})
	got := problemsNow(t, r, "")
	if len(got) != 9 || !slices.Contains(got, "unschedulable groups: 5 more like these -> outspan job ls") {
		t.Errorf("problems:\n%s", strings.Join(got, "\n"))
	}
}
