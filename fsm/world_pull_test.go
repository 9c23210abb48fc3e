package fsm

import (
	"fmt"
	"strings"

	"github.com/outspan/outspan/model"
)

// pulling draws commands about images: jobs of containers, claims to nodes, what agents report of images, placements
// where an image is, and claims that are given up.
func (w world) pulling() []Command {
	if w.r = w.apart; !w.rarely(2) {
		return nil
	}
	draws := []func() Command{w.containers, w.want, w.want, w.images, w.images, w.placePulled, w.placePulled,
		func() Command {
			c := w.pull()
			return &ImageDrop{Group: c.Group, Slot: c.Slot, Failed: pick(w, "", "no such host", "no such host"),
				Pause: pick[model.Duration](w, 0, 30*model.Second, 5*model.Minute), Missing: w.rarely(3)}
		}}
	return []Command{pick(w, draws...)()}
}

func image(n int) string {
	return fmt.Sprintf("reg/app%d@sha256:%s", n, strings.Repeat(fmt.Sprint(n), 64))
}

func (w world) containers() Command {
	g := model.GroupSpec{Name: "a", Count: w.int(1, 3), Container: &model.ContainerSpec{Image: image(w.int(1, 2))},
		Resources: model.Resources{MemoryBytes: pick[int64](w, 16, 200) << 20}}
	if w.rarely(3) {
		g.Ports = []model.PortSpec{{Name: "http", Static: 9000}}
	}
	if w.rarely(4) {
		g.Role = model.RoleSystem
	}
	return &JobSubmit{Spec: model.JobSpec{Name: "image", Groups: []model.GroupSpec{g}}}
}

func (w world) want() Command {
	g, ok := w.s.Groups.Get("image/a")
	if !ok {
		return w.containers()
	}
	c := &ImageWant{Group: g.ID, Slot: w.int(0, g.Count), Version: g.Version, Node: w.eligible(),
		Cause: model.CauseScaleUp, Bare: w.rarely(4)}
	for inst := range w.s.InstancesInSlot(g.ID, c.Slot) {
		if inst.Node == c.Node {
			c.After = inst.ID
		}
	}
	return c
}

// images draws what the agent of a node reports about its images.
func (w world) images() Command {
	n := w.node()
	runtime := &model.ContainerRuntime{Version: "2.1", Pulls: !w.rarely(6)}
	for i := range 3 {
		_, digest, _ := strings.Cut(image(i+1), "@")
		runtime.Images = append(runtime.Images, model.NodeImage{Digest: pick(w, digest, digest, digest, "odd"),
			State: pick(w, model.ImagePulling, model.ImagePresent, model.ImagePresent, model.ImageFailed, model.ImageQueued,
				"odd"),
			Bytes: int64(w.int(-1, 5)), Words: pick(w, "", "401"), Missing: w.rarely(3)})
	}
	return &NodeReport{ID: n.ID, Epoch: n.Agent.Epoch, Self: &model.SelfReport{Gen: n.Self.Gen + 1,
		Troubles: n.Self.Troubles, Runtime: runtime}}
}

func (w world) pull() *Pull {
	for _, c := range w.s.Pulls.All() {
		if w.bool() {
			return c
		}
	}
	return &Pull{Group: "image/a", Node: w.eligible(), Version: 1}
}

func (w world) placePulled() Command {
	pull := w.pull()
	c := &InstancePlace{ID: model.InstanceID(w.fresh("i")), Group: pull.Group, Slot: pull.Slot, Version: pull.Version,
		Node: pull.Node, Cause: model.CauseScaleUp}
	if spec, ok := w.s.Spec(c.Group, c.Version); ok {
		for _, p := range spec.Ports {
			c.Ports = append(c.Ports, model.Port{Name: p.Name, Number: p.Static})
		}
	}
	for inst := range w.s.InstancesInSlot(c.Group, c.Slot) {
		if inst.Desired == model.DesiredRunning {
			c.Replaces = inst.ID
		}
	}
	return c
}
