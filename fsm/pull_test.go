package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// pullState returns a cluster with the nodes n1 and n2 of 1 GiB, whose agents pull on order, and a job of two
// containers of 400 MiB with a static port.
func pullState(t *testing.T) State {
	t.Helper()
	settings := model.DefaultSettings()
	settings.InstanceOverhead = 0
	s := run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: settings})
	for _, id := range []model.NodeID{"n1", "n2"} {
		node := register(id)
		node.Shape.Capacity.MemoryBytes = 1 << 30
		s = run(t, s, 1000, node, &NodeReport{ID: id, Full: true}, reportImage(s, id, 1, ""))
	}
	return run(t, s, 1000, &JobSubmit{Spec: pulledJob(1)})
}

func pulledJob(version int) model.JobSpec {
	return model.JobSpec{Name: "web", Groups: []model.GroupSpec{{Name: "http", Count: 2,
		Container: &model.ContainerSpec{Image: image(version)},
		Ports:     []model.PortSpec{{Name: "http", Static: 8080}}, Resources: model.Resources{MemoryBytes: 400 << 20}}}}
}

func digestOf(n int) string {
	_, digest, _ := strings.Cut(image(n), "@")
	return digest
}

// reportImage reports the state of the image with this number; state "" means that the agent has no image.
func reportImage(s State, id model.NodeID, number int, state model.ImageState) *NodeReport {
	runtime := &model.ContainerRuntime{Version: "2.1", Pulls: true}
	if state != "" {
		runtime.Images = []model.NodeImage{{Digest: digestOf(number), State: state, Words: "401 from the registry"}}
	}
	gen := uint64(1)
	if n, ok := s.Nodes.Get(id); ok {
		gen = n.Self.Gen + 1
	}
	return &NodeReport{ID: id, Self: &model.SelfReport{Gen: gen, Runtime: runtime}}
}

func wantImage(slot int, node model.NodeID) *ImageWant {
	return &ImageWant{Group: "web/http", Slot: slot, Version: 1, Node: node, Cause: model.CauseScaleUp}
}

func placePulled(id model.InstanceID, slot int, node model.NodeID) *InstancePlace {
	return &InstancePlace{ID: id, Group: "web/http", Slot: slot, Version: 1, Node: node, Cause: model.CauseScaleUp,
		Ports: model.Ports{{Name: "http", Number: 8080}}}
}

func sound(t *testing.T, s State) {
	t.Helper()
	if err := Check(s); err != nil {
		t.Fatal(err)
	}
}

// S21: an instance is placed once its image is on the node. Its claim then ends in the same command. Where agents don't
// pull on order, nothing waits for the image.
func TestImageIsThereFirst(t *testing.T) {
	s := run(t, pullState(t), 2000, wantImage(0, "n1"))
	n, _ := s.Nodes.Get("n1")
	if n.Assigned != s.Index {
		t.Errorf("the agent was last called at %d, want %d", n.Assigned, s.Index)
	}
	for _, state := range []model.ImageState{"", model.ImagePulling, model.ImageFailed} {
		s = run(t, s, 3000, reportImage(s, "n1", 1, state))
		after, refusal := attempt(s, 3000, placePulled("i1", 0, "n1"))
		if refusal == nil || refusal.Code != model.CodeImagePulling {
			t.Errorf("S21: with the image %q: %v", state, refusal)
		}
		if err := CheckStep(s, after); err != nil {
			t.Error(err)
		}
	}
	s = run(t, s, 4000, reportImage(s, "n1", 2, model.ImagePresent))
	if _, refusal := attempt(s, 4000, placePulled("i1", 0, "n1")); refusal == nil {
		t.Error("S21: another image does")
	}
	s = run(t, s, 4000, reportImage(s, "n1", 1, model.ImagePresent), placePulled("i1", 0, "n1"))
	sound(t, s)
	n, _ = s.Nodes.Get("n1")
	if s.Pulls.Len() != 0 || n.Promised != 0 || n.Placed.MemoryBytes != 400<<20 {
		t.Errorf("after the placement %d claims, %d promised, %+v placed", s.Pulls.Len(), n.Promised, n.Placed)
	}
	old := &NodeReport{ID: "n2", Self: &model.SelfReport{Gen: 9, Runtime: &model.ContainerRuntime{Version: "1.6"}}}
	s = run(t, s, 5000, old, placePulled("i2", 1, "n2"))
	sound(t, s)
	if _, refusal := attempt(s, 5000, wantImage(1, "n2")); refusal == nil || refusal.Code != model.CodeInvalid {
		t.Errorf("an order to an agent that pulls when it starts an instance: %v", refusal)
	}
}

// S1: a claim holds the memory and the static ports of its instance, against placements and other claims.
func TestPullHoldsItsRoom(t *testing.T) {
	big := model.JobSpec{Name: "big", Groups: []model.GroupSpec{{Name: "one", Count: 2,
		Exec: model.ExecSpec{Command: "/bin/big"}, Resources: model.Resources{MemoryBytes: 700 << 20}}}}
	port := model.JobSpec{Name: "port", Groups: []model.GroupSpec{{Name: "one", Count: 1,
		Exec: model.ExecSpec{Command: "/bin/port"}, Ports: []model.PortSpec{{Name: "http", Static: 8080}}}}}
	s := run(t, pullState(t), 2000, &JobSubmit{Spec: big}, &JobSubmit{Spec: port}, wantImage(0, "n1"))
	for _, tt := range []struct {
		what string
		does Command
		want model.Code
	}{
		{"memory", &InstancePlace{ID: "b", Group: "big/one", Version: 1, Node: "n1", Cause: model.CauseScaleUp},
			model.CodeNoMemory},
		{"a port", &InstancePlace{ID: "p", Group: "port/one", Version: 1, Node: "n1", Cause: model.CauseScaleUp,
			Ports: model.Ports{{Name: "http", Number: 8080}}}, model.CodeNoPorts},
		{"the port of another claim", wantImage(1, "n1"), model.CodeNoPorts},
		{"a second claim of the slot", wantImage(0, "n2"), model.CodeSlotTaken},
		{"a slot that there is not", wantImage(2, "n2"), model.CodeStale},
	} {
		if after, refusal := attempt(s, 3000, tt.does); refusal == nil || refusal.Code != tt.want {
			t.Errorf("S1: %s: %v, want %s; %v", tt.what, refusal, tt.want, Check(after))
		}
	}
	sound(t, s)
}

// Claims that own a static port on every node refuse it to a job, but neither to their own job nor to a higher class.
func TestPortsOfClaimsCanBeAskedFor(t *testing.T) {
	s := run(t, pullState(t), 2000, wantImage(0, "n1"), wantImage(1, "n2"))
	if after, refusal := attempt(s, 3000, &JobSubmit{Spec: pulledJob(2)}); refusal != nil {
		t.Errorf("the next version of the job: %v; %v", refusal, Check(after))
	}
	other := pulledJob(1)
	for class, want := range map[model.ClassName]model.Code{"": model.CodeNoPorts, model.ClassCritical: ""} {
		other.Name, other.Class = "other", class
		_, refusal := attempt(s, 3000, &JobSubmit{Spec: other})
		if (refusal != nil) != (want != "") || refusal != nil && refusal.Code != want {
			t.Errorf("another job of class %q: %v, want %q", class, refusal, want)
		}
	}
}

// A claim takes over the room of an instance that stops for it: it needs only what it takes beyond that.
func TestPullAfterAnInstance(t *testing.T) {
	filler := model.JobSpec{Name: "big", Groups: []model.GroupSpec{{Name: "one", Count: 1,
		Exec: model.ExecSpec{Command: "/bin/big"}, Resources: model.Resources{MemoryBytes: 600 << 20}}}}
	s := run(t, pullState(t), 2000, reportImage(State{}, "n1", 1, ""), &JobSubmit{Spec: filler},
		&InstancePlace{ID: "b", Group: "big/one", Version: 1, Node: "n1", Cause: model.CauseScaleUp})
	s = run(t, s, 2000, reportImage(s, "n1", 1, model.ImagePresent), placePulled("i1", 0, "n1"),
		observed("n1", "i1", model.ObservedReady), &JobSubmit{Spec: pulledJob(2)})
	want := &ImageWant{Group: "web/http", Version: 2, Node: "n1", Cause: model.CauseRollout}
	if _, refusal := attempt(s, 3000, want); refusal == nil || refusal.Code != model.CodeNoMemory {
		t.Errorf("a claim beside the old instance: %v", refusal)
	}
	want.After = "i1"
	s = run(t, s, 3000, want)
	sound(t, s)
	promised := func(want int64) {
		t.Helper()
		sound(t, s)
		if n, _ := s.Nodes.Get("n1"); n.Promised != want<<20 {
			t.Errorf("%d MiB are promised, want %d", n.Promised>>20, want)
		}
	}
	promised(0)
	s = run(t, s, 4000, &InstanceStop{ID: "i1", Cause: model.CauseRollout, Bypass: true})
	promised(0)
	s = run(t, s, 5000, observedAt("n1", "i1", model.ObservedStopped, 2))
	promised(400)
	owner, _ := s.PortOwner("n1", 8080)
	if owner != "web/http/00000000" {
		t.Errorf("%q owns the port of the stopped instance", owner)
	}
	next := placePulled("i2", 0, "n1")
	next.Version = 2
	s = run(t, s, 6000, reportImage(s, "n1", 2, model.ImagePresent), next)
	promised(0)
}

// S1: a preemptor that gets the room and the port which a claim was to take over ends the claim.
func TestPreemptorTakesTheRoomOfAClaim(t *testing.T) {
	job := pulledJob(1)
	job.Groups[0].Budget = &model.BudgetSpec{MinReady: &model.Amount{}}
	next := pulledJob(2)
	next.Groups[0].Budget = job.Groups[0].Budget
	taker := model.JobSpec{Name: "big", Class: model.ClassCritical, Groups: []model.GroupSpec{{Name: "one", Count: 1,
		Exec: model.ExecSpec{Command: "/bin/big"}, Resources: model.Resources{MemoryBytes: 700 << 20},
		Ports: []model.PortSpec{{Name: "http", Static: 8080}}}}}
	s := run(t, pullState(t), 2000, &JobSubmit{Spec: job})
	s = run(t, s, 2000, reportImage(s, "n1", 1, model.ImagePresent))
	g, _ := s.Groups.Get("web/http")
	place := placePulled("i1", 0, "n1")
	place.Version = g.Version
	s = run(t, s, 2000, place, observed("n1", "i1", model.ObservedReady), &JobSubmit{Spec: next}, &JobSubmit{Spec: taker},
		&ImageWant{Group: "web/http", Version: g.Version + 1, Node: "n1", Cause: model.CauseRollout, After: "i1"})
	n, _ := s.Nodes.Get("n1")
	s = must(t, s, &InstanceStop{ID: "i1", Cause: model.CausePreempted, By: "b"},
		&InstancePlace{ID: "b", Group: "big/one", Version: 1, Node: "n1", Cause: model.CauseScaleUp,
			Ports: model.Ports{{Name: "http", Number: 8080}}, Awaits: []model.InstanceID{"i1"}, NodeVersion: n.Version})
	s = run(t, s, 3000, observedAt("n1", "i1", model.ObservedStopped, 2))
	sound(t, s)
	n, _ = s.Nodes.Get("n1")
	if s.Pulls.Len() != 0 || n.Promised != 0 || n.Placed.MemoryBytes != 700<<20 {
		t.Errorf("%d claims, %d promised, %+v placed", s.Pulls.Len(), n.Promised, n.Placed)
	}
}

// A claim ends with the node, with the job, with less memory at a registration, and when it is dropped. A failure keeps
// the version away from the node for five minutes, with the registry's words.
func TestPullsEnd(t *testing.T) {
	base := run(t, pullState(t), 2000, wantImage(0, "n1"))
	less := register("n1")
	less.Shape.Capacity.MemoryBytes = 100 << 20
	for _, tt := range []struct {
		name string
		does []Command
	}{
		{"offline", []Command{offline(base, "n1")}},
		{"dropped", []Command{&ImageDrop{Group: "web/http"}}},
		{"failed", []Command{&ImageDrop{Group: "web/http", Failed: "401 from the registry"}}},
		{"less memory", []Command{less}},
		{"purged", []Command{&JobStop{Job: "web", Purge: true}}},
	} {
		s := run(t, base, 3000, tt.does...)
		sound(t, s)
		n, _ := s.Nodes.Get("n1")
		if s.Pulls.Len() != 0 || n.Promised != 0 {
			t.Errorf("%s: %d claims, %d promised", tt.name, s.Pulls.Len(), n.Promised)
		}
		failed, away := n.PullFailed("web/http", 1, digestOf(1), s.Now)
		if away != (tt.name == "failed") || away && (failed.Words != "401 from the registry" ||
			failed.Until != s.Now.Add(pullAgain)) {
			t.Errorf("%s: the version stays away: %v, %+v", tt.name, away, failed)
		}
		if _, avoids := n.Avoids("web/http", 1, s.Now); avoids {
			t.Errorf("%s: a failed pull counts as a failed instance", tt.name)
		}
	}
}

// After a failed pull nothing that needs the image is placed on the node for the time of the pause, whichever version
// of a job names it. Other claims that fail in the pause change nothing. A pull that succeeds, or a restart of the job,
// ends it.
func TestFailedPullPauses(t *testing.T) {
	failed := func(s State, slot int, at model.Time, pause model.Duration) State {
		s = run(t, s, at, &ImageWant{Group: "web/http", Slot: slot, Version: 1, Node: "n1", Cause: model.CauseScaleUp,
			Bare: true})
		return run(t, s, at, &ImageDrop{Group: "web/http", Slot: slot, Failed: "404", Pause: pause, Missing: true})
	}
	base := failed(pullState(t), 0, 2000, 30*model.Second)
	row := func(s State) FailedPull {
		t.Helper()
		sound(t, s)
		n, _ := s.Nodes.Get("n1")
		f, _ := n.FailedPull(digestOf(1))
		return f
	}
	want := FailedPull{Digest: digestOf(1), Words: "404", Pause: 30 * model.Second, Until: 32000, Missing: true,
		Group: "web/http", Version: 1}
	if got := row(base); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := row(failed(base, 1, 3000, model.Minute)); got != want {
		t.Errorf("a second failure in the pause: %+v, want %+v", got, want)
	}
	n, _ := base.Nodes.Get("n1")
	for _, tt := range []struct {
		version uint64
		digest  string
		now     model.Time
		away    bool
	}{{1, digestOf(1), 31999, true}, {2, digestOf(1), 31999, true}, {1, digestOf(2), 31999, false},
		{1, digestOf(1), 32000, false}} {
		if _, away := n.PullFailed("web/http", tt.version, tt.digest, tt.now); away != tt.away {
			t.Errorf("version %d of %s at %d stays away: %v", tt.version, tt.digest, tt.now, away)
		}
	}
	later := failed(base, 1, 32000, model.Minute)
	if got := row(later); got.Until != 92000 || got.Pause != model.Minute {
		t.Errorf("the next failure: %+v", got)
	}
	if got := row(run(t, later, 40000, reportImage(later, "n1", 1, model.ImageFailed))); got.Until != 92000 {
		t.Errorf("an agent that only reports the failure changes %+v", got)
	}
	if got := row(run(t, later, 40000, reportImage(later, "n1", 1, model.ImagePresent))); got != (FailedPull{}) {
		t.Errorf("after a pull that succeeded: %+v", got)
	}
	if got := row(run(t, later, 40000, &JobRestart{Job: "web", Group: "http"})); got != (FailedPull{}) {
		t.Errorf("after a restart: %+v", got)
	}
	here := run(t, pullState(t), 2000, reportImage(pullState(t), "n1", 1, model.ImagePresent))
	if got := row(failed(here, 0, 2000, model.Minute)); got != (FailedPull{}) {
		t.Errorf("a pull that has succeeded by now: %+v", got)
	}
}

// A node remembers at most failedLimit failed pulls, and none for longer than failedKept after its pause.
func TestFailedPullsAreBounded(t *testing.T) {
	s := pullState(t)
	fail := func(i int) {
		n, _ := s.Nodes.Get("n1")
		keepFailedPull(&s, n, FailedPull{Digest: fmt.Sprintf("sha256:%064d", i), Words: "404", Pause: model.Minute,
			Group: "web/http", Version: 1})
	}
	for i := range 2 * failedLimit {
		s.Now++
		fail(i)
	}
	n, _ := s.Nodes.Get("n1")
	if len(n.FailedPulls) != failedLimit || n.FailedPulls[0].Digest != fmt.Sprintf("sha256:%064d", failedLimit) {
		t.Errorf("%d rows, the first is %+v", len(n.FailedPulls), n.FailedPulls[0])
	}
	sound(t, s)
	s.Now += model.Time(model.Minute + failedKept)
	fail(0)
	if n, _ = s.Nodes.Get("n1"); len(n.FailedPulls) != 1 {
		t.Errorf("%d rows after a day", len(n.FailedPulls))
	}
}

// A node has at most maxPulls claims to one digest, and claims to at most maxPulls digests.
func TestPullsAreBounded(t *testing.T) {
	for _, same := range []bool{true, false} {
		s := oneNode(t, model.DefaultSettings())
		s = run(t, s, 1000, reportImage(s, "n1", 1, ""))
		jobs := []model.JobSpec{{Name: "a"}, {Name: "b"}} // a job has at most 64 groups
		for i := range maxPulls + 1 {
			name := fmt.Sprintf("reg/app@sha256:%064d", i)
			if same {
				name = image(1)
			}
			job := &jobs[i%2]
			job.Groups = append(job.Groups, model.GroupSpec{Name: fmt.Sprintf("g%02d", i), Count: 1,
				Resources: model.Resources{MemoryBytes: 1 << 20}, Container: &model.ContainerSpec{Image: name}})
		}
		s = run(t, s, 1000, &JobSubmit{Spec: jobs[0]}, &JobSubmit{Spec: jobs[1]})
		for i := range maxPulls + 1 {
			want := &ImageWant{Group: model.GroupID(fmt.Sprintf("%s/g%02d", jobs[i%2].Name, i)), Version: 1, Node: "n1",
				Cause: model.CauseScaleUp, Bare: true}
			after, refusal := attempt(s, 2000, want)
			if full := i == maxPulls; full != (refusal != nil && refusal.Code == model.CodeImagePulling) {
				t.Errorf("same digest %v, claim %d: %v", same, i, refusal)
			}
			s = after
		}
		sound(t, s)
	}
}

// The state bounds what agents report of images, and remembers when each last moved.
func TestImagesAreKept(t *testing.T) {
	s := oneNode(t, model.DefaultSettings())
	runtime := &model.ContainerRuntime{Pulls: true, Images: []model.NodeImage{{Digest: "odd", State: model.ImagePresent},
		{Digest: digestOf(1), State: "odd"}}}
	for i := range 2 * model.MaxImages {
		runtime.Images = append(runtime.Images, model.NodeImage{Digest: fmt.Sprintf("sha256:%064d", 999-i),
			State: model.ImagePulling, Bytes: 1, Words: strings.Repeat("x", 1000)})
	}
	s = run(t, s, 2000, &NodeReport{ID: "n1", Self: &model.SelfReport{Gen: 1, Runtime: runtime}})
	sound(t, s)
	n, _ := s.Nodes.Get("n1")
	if images := n.Self.Runtime.Images; len(images) != model.MaxImages || len(images[0].Words) > maxAgentText {
		t.Errorf("%d images are kept, the first is %+v", len(images), images[0])
	}
	digest := n.Self.Runtime.Images[0].Digest
	for _, step := range []struct {
		at    model.Time
		bytes int64
		moved model.Time
	}{{3000, 1, 2000}, {4000, 2, 4000}, {5000, 2, 4000}} {
		n, _ := s.Nodes.Get("n1")
		s = run(t, s, step.at, &NodeReport{ID: "n1", Self: &model.SelfReport{Gen: n.Self.Gen + 1,
			Runtime: &model.ContainerRuntime{Pulls: true,
				Images: []model.NodeImage{{Digest: digest, State: model.ImagePulling, Bytes: step.bytes}}}}})
		n, _ = s.Nodes.Get("n1")
		if image, ok := n.Image(digest); !ok || image.Moved != step.moved {
			t.Errorf("at %d: %+v", step.at, image)
		}
	}
}

// S21: an agent is asked for the digest that the version has, whatever the image's name stands for by then.
func TestPullNamesTheDigest(t *testing.T) {
	s := run(t, pullState(t), 2000, wantImage(0, "n1"))
	for c := range s.PullsOn("n1") {
		if c.Image != image(1) || c.Digest() != digestOf(1) || c.Name() != "reg/app1" {
			t.Errorf("S21: the agent is asked for %s, want %s", c.Image, image(1))
		}
	}
	sound(t, s)
}
