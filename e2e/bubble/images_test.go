package bubble

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// registry is where all machines get their images. Safe for concurrent use.
type registry struct {
	mu      sync.Mutex
	slow    time.Duration // how long a pull takes
	down    bool
	pulled  int // pulls that fetched an image
	givenUp int // pulls that the agent ended
}

func (r *registry) change(slow time.Duration, down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow, r.down = slow, down
}

func (r *registry) ask() (slow time.Duration, down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slow, r.down
}

func (r *registry) counts() (pulled, givenUp int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulled, r.givenUp
}

// store is the agent.Images of one machine. What it pulled survives the end of the agent and of the power. Its disk
// never fills up. Safe for concurrent use.
type store struct {
	registry *registry

	mu     sync.Mutex
	have   map[string]bool // digests
	layers map[string]bool // ids of instances
}

func newStore(r *registry) *store {
	return &store{registry: r, have: map[string]bool{}, layers: map[string]bool{}}
}

// Resolve implements agent.Images. It is never called, because the jobs of these tests name digests.
func (s *store) Resolve(_ context.Context, name string) (string, []string, error) {
	return "", nil, model.Refuse(image.CodeInvalidName, "%s has no digest", name)
}

// Runtime implements agent.Images.
func (s *store) Runtime(context.Context) model.ContainerRuntime {
	return model.ContainerRuntime{Version: "simulated"}
}

// Pull implements agent.Images. It asks the registry each second whether it is still up.
func (s *store) Pull(ctx context.Context, name string, progress func(int64)) error {
	_, digest, _ := strings.Cut(name, "@")
	if s.has(digest) {
		return nil
	}
	for began := time.Now(); ; {
		slow, down := s.registry.ask()
		if down {
			return model.Refuse(image.CodePullFailed, "pull %s: connection refused", name)
		}
		if time.Since(began) >= slow {
			break
		}
		select {
		case <-time.After(time.Second):
			if progress != nil {
				progress(int64(time.Since(began).Seconds() * mib))
			}
		case <-ctx.Done():
			s.registry.mu.Lock()
			s.registry.givenUp++
			s.registry.mu.Unlock()
			return model.Refuse(image.CodePullFailed, "pull %s: it was given up: %v", name, ctx.Err())
		}
	}
	s.mu.Lock()
	s.have[digest] = true
	s.mu.Unlock()
	s.registry.mu.Lock()
	s.registry.pulled++
	s.registry.mu.Unlock()
	return nil
}

func (s *store) has(digest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.have[digest]
}

// Defaults implements agent.Images.
func (s *store) Defaults(_ context.Context, digest string) (image.Defaults, error) {
	if !s.has(digest) {
		return image.Defaults{}, model.Refuse(image.CodeNotHere, "no image %s", digest)
	}
	return image.Defaults{Entrypoint: []string{"/program"}}, nil
}

// Mounts implements agent.Images. The source of the mount is the digest.
func (s *store) Mounts(_ context.Context, id, digest string) ([]image.Mount, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.have[digest] {
		return nil, model.Refuse(image.CodeNotHere, "no image %s", digest)
	}
	s.layers[id] = true
	return []image.Mount{{Type: "bind", Source: digest}}, nil
}

// Layers implements agent.Images.
func (s *store) Layers(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.layers)), nil
}

// Release implements agent.Images.
func (s *store) Release(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.layers, id)
	return nil
}

// Survey implements agent.Images.
func (s *store) Survey(ctx context.Context) (image.Survey, error) {
	var list []image.Held
	digests, _ := s.List(ctx)
	for _, d := range digests {
		list = append(list, image.Held{Digest: d, Parts: map[string]int64{d: mib}})
	}
	return image.Survey{Images: list}, nil
}

// Disk implements agent.Images.
func (s *store) Disk(context.Context) (image.Disk, error) { return image.Disk{Total: 1 << 40}, nil }

// Remove implements agent.Images.
func (s *store) Remove(_ context.Context, digest string, leave func() bool) (gone bool, err error) {
	if !leave() {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.have, digest)
	return true, nil
}

// List implements agent.Images.
func (s *store) List(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.have)), nil
}

// MarkUsed implements agent.Images.
func (s *store) MarkUsed(context.Context, func(string) bool) error { return nil }

// Abandon implements agent.Images.
func (s *store) Abandon(context.Context, func(string) bool) error { return nil }

// Close implements agent.Images.
func (s *store) Close() error { return nil }

// mayStart fails the test if a container is started without its image.
func (s *store) mayStart(t *testing.T, spec driver.Spec) {
	if spec.Container != nil && !s.has(spec.Container.Rootfs[0].Source) {
		t.Errorf("instance %s is started without its image", spec.ID)
	}
}

// contained makes a group run an image. Another release is another image.
func contained(g model.GroupSpec, release int) model.GroupSpec {
	g.Exec = model.ExecSpec{}
	g.Container = &model.ContainerSpec{Image: fmt.Sprintf("reg/%s@sha256:%064x", g.Name, release)}
	return g
}

// claims returns how many images are wanted for instances that are not placed yet.
func (w *world) claims() int {
	st := w.state()
	return st.Pulls.Len()
}

// pulling runs three containers on three of four nodes, makes a pull take the given time, and begins to drain a node
// that has one of them. Only the node without the image has room for the replacement. The test fails if fewer than
// three programs serve from then on.
func pulling(t *testing.T, w *world, slow time.Duration) (id model.GroupID, drain model.DrainID, n *node) {
	t.Helper()
	id = w.run("web", contained(group("g", 3, 64*mib), 1))
	if on := w.on(id); len(on) != 3 {
		t.Fatalf("the instances are on %v, want three nodes", on)
	}
	w.truth.hold(id, 3)
	w.registry.change(slow, false)
	for i, node := range w.nodes {
		if w.on(id)[node.name] == 0 {
			continue
		}
		if n == nil {
			n = node
			continue
		}
		full := group("full", 1, nodeMemory-192*mib) // what the container and the overheads leave
		full.Constraints = []model.Constraint{{Attribute: "node.name", Operator: "=", Value: node.name}}
		w.run(fmt.Sprintf("full%d", i), full)
	}
	drain, err := w.drain(choices{Nodes: []string{n.name}, Deadline: model.Hour})
	must(t, err)
	return id, drain, n
}

// The leader dies while a node pulls an image for minutes. The next leader lets the pull go on, nothing is stopped
// before, and the drain ends.
func TestPullOutlastsTheLeader(t *testing.T) {
	inBubble(t, options{registry: &registry{}}, func(t *testing.T, w *world) {
		id, drain, n := pulling(t, w, 3*time.Minute)
		w.eventually(10*time.Second, "the image is wanted", func() bool { return w.claims() == 1 })
		time.Sleep(time.Minute)
		old := w.leader()
		old.kill()
		took := w.eventually(3*time.Minute, "drained", func() bool { return w.part(drain, n).Phase == model.PhaseDrained })
		t.Logf("drained %s after the end of the leader", took)
		if pulled, givenUp := w.registry.counts(); pulled != 4 || givenUp != 0 {
			t.Errorf("%d pulls and %d that were given up, want one for each of 4 nodes", pulled, givenUp)
		}
		w.ready(id, 3, time.Minute)
		st := w.state()
		for _, d := range st.Deployments.All() {
			if d.Status != model.DeploymentSucceeded {
				t.Errorf("deployment %s %s: %s", d.ID, d.Status, d.Reason)
			}
		}
		old.restart()
		w.agree()
	})
}

// When a drain is canceled, the pull for it ends.
func TestCanceledDrainEndsItsPull(t *testing.T) {
	inBubble(t, options{registry: &registry{}}, func(t *testing.T, w *world) {
		id, drain, n := pulling(t, w, time.Hour)
		w.eventually(10*time.Second, "the image is wanted", func() bool { return w.claims() == 1 })
		time.Sleep(10 * time.Second)
		before := w.members(id)
		_, err := w.send("/v1/drains/"+string(drain)+"/cancel", map[string]any{"uncordon": true})
		must(t, err)
		w.eventually(10*time.Second, "the pull has ended", func() bool {
			_, givenUp := w.registry.counts()
			return givenUp == 1 && w.claims() == 0
		})
		if after := w.members(id); !maps.EqualFunc(before, after, func(a, b fsm.Instance) bool { return a.ID == b.ID }) {
			t.Errorf("the instances %v became %v", before, after)
		}
		if n.row().Intent != model.IntentActive {
			t.Errorf("%s is %s", n.name, n.row().Intent)
		}
	})
}

// While the registry is down, the drain names it and stops nothing. It ends by itself once the registry is back.
func TestDrainAwaitsTheRegistry(t *testing.T) {
	inBubble(t, options{registry: &registry{}}, func(t *testing.T, w *world) {
		_, drain, n := pulling(t, w, time.Hour)
		w.registry.change(0, true)
		type status struct {
			Nodes []struct {
				Blockers []struct{ Message string }
			}
		}
		w.eventually(5*time.Minute, "the drain names the registry", func() bool {
			var s status
			w.get("/v1/drains/"+string(drain), &s)
			for _, b := range s.Nodes[0].Blockers {
				if strings.Contains(b.Message, "could not pull its image") && strings.Contains(b.Message, "connection refused") {
					return true
				}
			}
			return false
		})
		time.Sleep(20 * time.Minute)
		if moved := w.part(drain, n).Moved; moved != 0 {
			t.Errorf("%d were moved while the registry was down", moved)
		}
		w.registry.change(time.Second, false)
		w.eventually(6*time.Minute, "drained", func() bool { return w.part(drain, n).Phase == model.PhaseDrained })
	})
}

// All invariants hold while containers are rolled out, scaled and drained, servers and nodes are lost, and the registry
// is slow or down. No container starts without its image.
func TestImageChurn(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		inBubble(t, options{nodes: 5, registry: &registry{}}, func(t *testing.T, w *world) {
			web := contained(roleGroup(model.RoleService, 4, ""), 1)
			web.Budget = &model.BudgetSpec{MinReady: amount(2)}
			first := contained(roleGroup(model.RoleService, 3, ""), 1)
			first.Eviction.Order = model.OrderStopFirst
			alone := contained(roleGroup(model.RoleService, 2, ""), 1)
			alone.Exclusive = &model.ExclusiveSpec{Lease: 10 * model.Second}
			k := newWork(w, random, job("web", "", web), job("first", "", first), job("alone", "", alone),
				job("program", "", roleGroup(model.RoleService, 3, "")))
			k.begin()
			k.run(during(100*time.Second), k.release, k.release, k.release, k.weather, k.weather, k.submit, k.scale, k.scale,
				k.stopJob, k.roll, k.drainWith, k.drainWith, k.change, k.intend, k.crash, k.look,
				k.killServer, k.killLeader, k.cutServer, k.powerOff, k.confirmDead, k.killAgent, k.cutNode)
			w.registry.change(0, false)
			k.settle()
			pulled, givenUp := w.registry.counts()
			t.Logf("%d images pulled, %d pulls given up", pulled, givenUp)
			if pulled == 0 {
				t.Error("nothing was pulled")
			}
		})
	})
}

// release submits a job with another image.
func (k *work) release() {
	job := *k.one()
	job.Groups = slices.Clone(job.Groups)
	if job.Groups[0].Container == nil {
		return
	}
	k.versions++
	job.Groups[0] = contained(job.Groups[0], 1+k.versions)
	k.ask("/v1/jobs", map[string]any{"job": job})
}

// weather makes the registry fast, slow or unreachable.
func (k *work) weather() {
	slow, down := time.Duration(k.random.IntN(20))*time.Second, k.random.IntN(4) == 0
	k.say("registry: slow %s, down %v", slow, down)
	k.w.registry.change(slow, down)
}
