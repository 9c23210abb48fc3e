package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// imageScenario has containers in place of most programs. Pulls are slow, and some of them fail. It is not one of
// scenarios(), because the seeds of those would then have other histories.
func imageScenario() *scenario {
	return &scenario{name: "images", least: 3, most: 6, memory: small(), actions: 60, longest: 40 * model.Second,
		hookFails: 10, images: true, weights: more(
			weight{ActSubmit, 40}, weight{ActDrain, 24}, weight{ActCancelDrain, 10}, weight{ActUncordon, 24},
			weight{ActScale, 16}, weight{ActRevert, 6}, weight{ActFailover, 12}, weight{ActReplaceMachine, 6})}
}

// contain makes containers of most groups of a job. The image depends on the job and its arguments.
func contain(r *rand.Rand, j *model.JobSpec) {
	for i := range j.Groups {
		g := &j.Groups[i]
		if rarely(r, 4) {
			continue
		}
		image := fmt.Sprintf("reg/%s-%s", j.Name, g.Exec.Args[0])
		g.Container = &model.ContainerSpec{Image: fmt.Sprintf("%s@sha256:%064x", image, image), Command: g.Exec.Command}
		g.Exec = model.ExecSpec{}
	}
}

// pull is an image that an agent is asked for and does not have yet.
type pull struct{ model.NodeImage }

// imagesFor returns the digests that the agent of a node is asked for.
func imagesFor(s *fsm.State, node model.NodeID) []string {
	var digests []string
	for c := range s.PullsOn(node) {
		if !slices.Contains(digests, c.Digest()) {
			digests = append(digests, c.Digest())
		}
	}
	return digests
}

// wantImages makes the agent pull the images that it is asked for and does not have, and give up all other pulls.
func (m *machine) wantImages(digests []string) {
	before := len(m.pulls)
	m.pulls = slices.DeleteFunc(m.pulls, func(p *pull) bool { return !slices.Contains(digests, p.Digest) })
	news := len(m.pulls) != before
	for _, digest := range digests {
		begun := slices.ContainsFunc(m.pulls, func(p *pull) bool { return p.Digest == digest })
		if begun || m.images[digest] {
			continue
		}
		p := &pull{model.NodeImage{Digest: digest, State: model.ImageQueued, Total: 40 * mib}}
		m.pulls = append(m.pulls, p)
		m.goOn(p)
		news = true
	}
	if news {
		m.tellImages()
	}
}

// goOn continues a pull after a while: it ends, gets a little further, or fails and is tried again later.
func (m *machine) goOn(p *pull) {
	r := m.w.chance
	m.soon(between(r, 200, 30000), func() {
		if !slices.Contains(m.pulls, p) {
			return
		}
		switch n := r.IntN(6); {
		case m.w.calm || n < 3:
			m.w.step(CountPulls)
			m.images[p.Digest] = true
			m.pulls = slices.DeleteFunc(m.pulls, func(other *pull) bool { return other == p })
		case n == 3:
			p.State, p.Words, p.Missing = model.ImageFailed, "503 from the registry", p.Bytes == 0
			m.goOn(p)
		default:
			p.State, p.Words, p.Missing, p.Bytes = model.ImagePulling, "", false, p.Bytes+mib
			m.goOn(p)
		}
		m.tellImages()
	})
}

func (m *machine) tellImages() {
	m.self.now++
	m.w.trace.say("%s has %d images and pulls %d", m.id, len(m.images), len(m.pulls))
	m.kick()
}

// runtime returns what the agent reports of its container runtime; nil outside of the scenario with images.
func (m *machine) runtime() *model.ContainerRuntime {
	if !m.w.scenario.images {
		return nil
	}
	runtime := &model.ContainerRuntime{Version: "2.1", Pulls: true}
	for _, digest := range slices.Sorted(maps.Keys(m.images)) {
		runtime.Images = append(runtime.Images, model.NodeImage{Digest: digest, State: model.ImagePresent})
	}
	for _, p := range m.pulls {
		runtime.Images = append(runtime.Images, p.NodeImage)
	}
	return runtime
}

// imaged checks S21: a container starts only where its image is.
func (j *judge) imaged(p *program) {
	if p.spec != nil && p.spec.Container != nil && !p.m.images[p.spec.Container.ImageDigest()] {
		j.fail(fsm.S21, "%s starts on %s, which has no image %s", p.id, p.m.id,
			strings.TrimPrefix(p.spec.Container.Image, "reg/"))
	}
}
