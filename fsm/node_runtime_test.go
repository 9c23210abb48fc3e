package fsm

import (
	"errors"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// A container is placed only where a container runtime answers and the image's platform fits, and a job with an image
// whose digest is not known is refused. A runtime that does not answer makes the node neither degraded nor ineligible.
func TestContainersNeedARuntime(t *testing.T) {
	image := "web@sha256:" + strings.Repeat("a", 64)
	job := func(image string, platforms ...string) *JobSubmit {
		return &JobSubmit{Spec: model.JobSpec{Name: "web", Groups: []model.GroupSpec{{Name: "http", Count: 1,
			Container: &model.ContainerSpec{Image: image, Platforms: platforms}}}}}
	}
	node := register("n1")
	node.Shape.Attributes = map[string]string{"os": "linux", "arch": "amd64"}
	base := run(t, oneNode(t, model.DefaultSettings()), 1500, node, &NodeReport{ID: "n1", Full: true})
	_, refusal := attempt(base, 2000, job("web:1"))
	if !errors.Is(refusal, &model.Error{Code: model.CodeImageUnresolved}) {
		t.Errorf("an image without a digest: %v", refusal)
	}
	reported := func(r model.ContainerRuntime) *NodeReport {
		r.Version = "2.1"
		return &NodeReport{ID: "n1", Self: &model.SelfReport{Gen: 1, Runtime: &r}}
	}
	runtime := func(down string) *NodeReport { return reported(model.ContainerRuntime{Down: down}) }
	bridged := job(image)
	bridged.Spec.Groups[0].Container.Network = model.NetworkBridge
	const subnet = "172.24.0.0/22"
	for _, tt := range []struct {
		name   string
		job    *JobSubmit
		report *NodeReport
		want   model.Code // "" means that the instance is placed
	}{
		{"no runtime", job(image), &NodeReport{ID: "n1"}, model.CodeNoRuntime},
		{"down", job(image), runtime("no socket"), model.CodeRuntimeDown},
		{"up", job(image), runtime(""), ""},
		{"its platform", job(image, "linux/arm64", "linux/amd64"), runtime(""), ""},
		{"an agent that knows no networks", bridged, runtime(""), model.CodeNoNetwork},
		{"no plugins", bridged, reported(model.ContainerRuntime{NoBridge: "no plugins"}), model.CodeNoNetwork},
		{"a network", bridged, reported(model.ContainerRuntime{Bridge: subnet}), ""},
		{"a network, and down", bridged, reported(model.ContainerRuntime{Bridge: subnet, Down: "gone"}),
			model.CodeRuntimeDown},
		{"no plugins, and the node's network", job(image), reported(model.ContainerRuntime{NoBridge: "no plugins"}), ""},
		{"another platform", job(image, "linux/arm64"), runtime(""), model.CodeConstraint},
	} {
		s := run(t, base, 3000, tt.job, tt.report)
		n, _ := s.Nodes.Get("n1")
		if s.Eligible(n) != nil || n.State() != model.NodeActive {
			t.Errorf("%s: the node is %s, eligible %v", tt.name, n.State(), s.Eligible(n))
		}
		_, refusal := attempt(s, 4000, &InstancePlace{ID: "i1", Group: "web/http", Version: 1, Node: "n1",
			Cause: model.CauseScaleUp})
		if tt.want == "" && refusal != nil || tt.want != "" && (refusal == nil || refusal.Code != tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, refusal, tt.want)
		}
	}
}

// The state remembers since when a runtime does not answer, whatever reasons follow, and bounds its texts.
func TestRuntimeIsRemembered(t *testing.T) {
	s := oneNode(t, model.DefaultSettings())
	long := strings.Repeat("x", 1000)
	for _, step := range []struct {
		at, since model.Time
		runtime   *model.ContainerRuntime
		words     string
	}{
		{2000, 0, &model.ContainerRuntime{Version: long}, "up " + long[:maxRuntimeVersion]},
		{3000, 3000, &model.ContainerRuntime{Down: "a"}, "down"},
		{4000, 3000, &model.ContainerRuntime{Down: long}, "down"},
		{5000, 0, &model.ContainerRuntime{}, "up"},
		{5500, 0, &model.ContainerRuntime{Bridge: "172.24.0.0/22", NoBridge: long}, "up, bridge 172.24.0.0/22"},
		{6000, 6000, &model.ContainerRuntime{Down: "b"}, "down"},
		{7000, 0, nil, "none"},
	} {
		n, _ := s.Nodes.Get("n1")
		before := len(events(&s, model.EventNodeRuntime))
		was := n.Self.Runtime.words()
		s = run(t, s, step.at, &NodeReport{ID: "n1", Self: &model.SelfReport{Gen: n.Self.Gen + 1, Runtime: step.runtime}})
		n, _ = s.Nodes.Get("n1")
		if x := n.Self.Runtime; x.words() != step.words ||
			x != nil && (x.DownSince != step.since || len(x.Down) > maxAgentText) {
			t.Errorf("at %d: %+v", step.at, x)
		}
		if got := len(events(&s, model.EventNodeRuntime)) - before; (got > 0) != (was != step.words) {
			t.Errorf("at %d: %d events for %s -> %s", step.at, got, was, step.words)
		}
	}
}

func events(s *State, of model.EventType) (all []Event) {
	for _, e := range s.Events.All() {
		if e.Type == of {
			all = append(all, *e)
		}
	}
	return all
}
