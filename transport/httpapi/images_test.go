package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// registryAgent is an agent that resolves images. It counts the questions.
type registryAgent struct {
	mu      sync.Mutex
	digest  string
	refusal *model.Error // its answer if not nil
	asked   []string
}

func (a *registryAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if who, ok := transport.SubjectFrom(r.Context()); !ok || who.Kind != model.SubjectServer {
		http.Error(w, "not a server", http.StatusForbidden)
		return
	}
	a.asked = append(a.asked, r.URL.Query().Get("name"))
	if a.refusal != nil {
		p := api.NewProblem(a.refusal)
		w.Header().Set("Content-Type", api.ContentTypeProblem)
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p)
		return
	}
	_ = json.NewEncoder(w).Encode(transport.ResolvedImage{Digest: a.digest, Platforms: []string{"linux/amd64", "odd"}})
}

// count returns how many questions the agent got since the last call.
func (a *registryAgent) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.asked)
	a.asked = nil
	return n
}

func digestOf(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

// withRuntime makes a node report a container runtime.
func (r *rig) withRuntime(id model.NodeID, down string) {
	r.t.Helper()
	n, _ := r.machine.State().Nodes.Get(id)
	r.apply(&fsm.NodeReport{ID: id, Epoch: n.Agent.Epoch, Self: &model.SelfReport{Gen: n.Self.Gen + 1,
		Runtime: &model.ContainerRuntime{Version: "2.1.0", Down: down}}})
}

func containers(name, image string, groups ...string) model.JobSpec {
	one := model.JobSpec{Name: model.JobName(name)}
	for _, g := range groups {
		one.Groups = append(one.Groups, model.GroupSpec{Name: g, Count: 1, Container: &model.ContainerSpec{Image: image}})
	}
	return one
}

func imageNow(t *testing.T, r *rig, job model.JobName) []string {
	t.Helper()
	s := r.machine.State()
	j, ok := s.Jobs.Get(job)
	if !ok {
		t.Fatalf("there is no job %s", job)
	}
	v, _ := s.JobVersion(j.Name, j.Version)
	var images []string
	for _, g := range v.Spec.Groups {
		images = append(images, g.Container.Image)
	}
	return images
}

// TestImagesAreResolvedOnce: a submit asks one agent for the digest of each name, once, and the version has it. What
// repeats an earlier spec asks for nothing: scale, restart, revert, keep_images, a name with its digest, and a repeated
// request.
func TestImagesAreResolvedOnce(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	r.node("01N2", "n2")
	a := &registryAgent{digest: digestOf("a")}
	r.runAgentOf("01N1", "n1", a)
	r.withRuntime("01N1", "")
	do := func(path, query string, in any) map[string]any {
		t.Helper()
		return decode(t, must2(r.cli().Do(t.Context(), http.MethodPost, path, values(query), in))(t))
	}
	want := func(what, image string, asked int) {
		t.Helper()
		for _, got := range imageNow(t, r, "shop") {
			if got != image {
				t.Errorf("%s: the image is %s, want %s", what, got, image)
			}
		}
		if n := a.count(); n != asked {
			t.Errorf("%s: agents were asked %d times, want %d", what, n, asked)
		}
	}
	body := map[string]any{"job": containers("shop", "reg/web:1", "http", "admin")}
	plan := do("/v1/jobs/shop/plan", "", body)["images"].([]any)[0].(map[string]any)
	if plan["digest"] != a.digest || plan["image"] != "reg/web:1" || a.count() != 1 {
		t.Errorf("the plan has %v", plan)
	}
	do("/v1/jobs", "dry_run=true", body)
	if _, ok := r.machine.State().Jobs.Get("shop"); ok || a.count() != 1 {
		t.Error("a dry run made the job, or did not ask for its images")
	}
	reply := do("/v1/jobs", "request_id=x1", body)
	want("a submit", "reg/web:1@"+digestOf("a"), 1)
	if images := reply["images"].([]any); len(images) != 2 ||
		images[1].(map[string]any)["platforms"].([]any)[0] != "linux/amd64" {
		t.Errorf("the reply has the images %v", reply["images"])
	}
	a.digest = digestOf("b")
	do("/v1/jobs", "request_id=x1", body)
	want("a repeated request", "reg/web:1@"+digestOf("a"), 0)
	do("/v1/jobs/shop/scale", "", map[string]any{"group": "http", "count": 2})
	do("/v1/jobs/shop/restart", "", map[string]any{})
	want("a scale and a restart", "reg/web:1@"+digestOf("a"), 0)
	do("/v1/jobs", "", map[string]any{"job": body["job"], "keep_images": true})
	want("keep_images", "reg/web:1@"+digestOf("a"), 0)
	do("/v1/jobs", "", body)
	want("a new submit", "reg/web:1@"+digestOf("b"), 1)
	do("/v1/jobs/shop/revert", "", map[string]any{"version": 1})
	want("a revert", "reg/web:1@"+digestOf("a"), 0)
	do("/v1/jobs", "", map[string]any{"job": containers("shop", "reg/web:2", "http"), "keep_images": true})
	want("keep_images with another name", "reg/web:2@"+digestOf("b"), 1)
	do("/v1/jobs", "", map[string]any{"job": containers("shop", "reg/web:3@"+digestOf("c"), "http")})
	want("a digest in the name", "reg/web:3@"+digestOf("c"), 0)
}

// TestImageIsUnresolved: without an answer there is no new version, and the refusal has the registry's words.
func TestImageIsUnresolved(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	a := &registryAgent{refusal: model.Refuse(model.CodeImageUnresolved, "reg: manifest unknown")}
	r.runAgentOf("01N1", "n1", a)
	submit := func(image string) *model.Error {
		t.Helper()
		_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/jobs", nil,
			map[string]any{"job": containers("shop", image, "http")})
		known, _ := errors.AsType[*model.Error](err)
		return known
	}
	for _, tt := range []struct {
		what  string
		does  func()
		says  string
		asked int
	}{
		{"no runtime", func() {}, "no node that could run it has a container runtime that answers", 0},
		{"runtime down", func() { r.withRuntime("01N1", "no socket") }, "has a container runtime that answers", 0},
		{"unknown to the registry", func() { r.withRuntime("01N1", "") },
			"node n1 can't find image reg/web:1: reg: manifest unknown", 1},
		{"no digest", func() { a.refusal = nil }, "its agent gave no digest", 1},
	} {
		tt.does()
		refusal := submit("reg/web:1")
		if refusal == nil || refusal.Code != model.CodeImageUnresolved || !strings.Contains(refusal.Message, tt.says) ||
			!strings.Contains(refusal.Hint, "reg/web:1@sha256:...") {
			t.Errorf("%s: %v", tt.what, refusal)
		}
		if strings.Contains(refusal.Hint, "--keep-images") {
			t.Errorf("%s: there is no version whose image could be kept: %s", tt.what, refusal.Hint)
		}
		if n := a.count(); n != tt.asked {
			t.Errorf("%s: the agent was asked %d times", tt.what, n)
		}
	}
	if _, ok := r.machine.State().Jobs.Get("shop"); ok {
		t.Error("a refused submit made the job")
	}
	_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/jobs/validate", nil,
		map[string]any{"job": containers("shop", "reg/web:1", "http")})
	if err != nil || a.count() != 0 {
		t.Errorf("a check of the spec: %v", err)
	}
}

// A ready container is not restarted while its node could not start it again. One that is not ready is, and so is a
// program.
func TestRestartWithoutARuntime(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	r.withRuntime("01N1", "")
	job := containers("web", "web@"+digestOf("a"), "http")
	job.Groups[0].Ports = []model.PortSpec{{Name: "http"}}
	r.apply(&fsm.JobSubmit{Spec: job})
	r.place("inst-a", 0, "01N1", model.ObservedReady)
	restart := func() error {
		_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/instances/inst-a/restart", nil, map[string]any{})
		return err
	}
	if err := restart(); err != nil {
		t.Error(err)
	}
	r.withRuntime("01N1", "no socket")
	err := restart()
	wantCode(t, err, model.CodeRuntimeDown)
	if want := "instance inst-a would be stopped and not started again: the container runtime of node n1 does not " +
		"answer: no socket"; !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v", err)
	}
	r.tell("01N1", model.InstanceStatus{ID: "inst-a", Generation: 2, Observed: model.ObservedUnready,
		Reason: "runtime_down: no socket"})
	if err := restart(); err != nil {
		t.Error(err)
	}
}

// The agent knows what helps after an error of a registry. A registry that is down is worth another try.
func TestImageAdvice(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	a := &registryAgent{digest: digestOf("a")}
	r.runAgentOf("01N1", "n1", a)
	r.withRuntime("01N1", "")
	submit := func(image string, keep bool) *model.Error {
		t.Helper()
		_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/jobs", nil,
			map[string]any{"job": containers("shop", image, "http"), "keep_images": keep})
		known, _ := errors.AsType[*model.Error](err)
		return known
	}
	if refusal := submit("reg/web:1", false); refusal != nil {
		t.Fatal(refusal)
	}
	a.refusal = model.Refuse(model.CodeRegistrySilent, "https://reg: connection refused")
	refusal := submit("reg/web:1", false)
	if refusal == nil || refusal.Code != model.CodeRegistrySilent || !api.Retryable(refusal.Code) ||
		refusal.Message != "node n1 can't find image reg/web:1: https://reg: connection refused" ||
		!strings.HasSuffix(refusal.Hint, "or keep that of the current version with --keep-images") {
		t.Errorf("%#v", refusal)
	}
	for name, keep := range map[string]bool{"reg/web:2": false, "reg/web:3": true} {
		if refusal := submit(name, keep); refusal == nil || strings.Contains(refusal.Hint, "--keep-images") {
			t.Errorf("%s: %#v", name, refusal)
		}
	}
	a.refusal = model.Refuse(model.CodeImageUnresolved, "401").WithHint("name a file in docker_config")
	if refusal := submit("reg/web:1", false); refusal == nil || refusal.Code != model.CodeImageUnresolved ||
		!strings.HasPrefix(refusal.Hint, "name a file in docker_config; without an answer, name its digest") {
		t.Errorf("%#v", refusal)
	}
}

// A node whose container runtime does not answer lists no images, and the reason is not that its agent is silent.
func TestImagesWithoutARuntime(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	a := &registryAgent{refusal: model.Refuse(model.CodeRuntimeDown, "containerd at /c does not answer: it does not run")}
	r.runAgentOf("01N1", "n1", a)
	got := get(t, r.cli(), "/v1/images")
	down, _ := got["runtime_down"].([]any)
	if len(down) != 1 || down[0].(map[string]any)["node"] != "n1" ||
		down[0].(map[string]any)["reason"] != "containerd at /c does not answer: it does not run" {
		t.Errorf("%v", got)
	}
}
