package reconcile_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func (w *world) register(id model.NodeID, shape model.NodeShape) {
	a := w.agents[id]
	info := model.AgentInfo{BootID: fmt.Sprintf("boot%d", a.boot), Incarnation: fmt.Sprint(w.state.Index),
		Address: "127.0.0.1", Key: []byte("k")}
	if refusal := w.apply("agent:"+model.Actor(id),
		&fsm.NodeRegister{ID: id, Name: cmp.Or(a.name, string(id)), Agent: info, Shape: shape}); refusal != nil {
		w.t.Fatalf("%s: %v", w.at, refusal)
	}
	n, _ := w.state.Nodes.Get(id)
	report := &fsm.NodeReport{ID: id, Epoch: n.Agent.Epoch, Full: true, Incarnation: w.state.Incarnation}
	if a.pulls {
		report.Self = &model.SelfReport{Gen: 1, Runtime: &model.ContainerRuntime{Version: "2.1", Pulls: true,
			Images: slices.Clone(a.images)}}
	}
	for _, inst := range a.order {
		if status, ok := a.running[inst]; ok {
			status.Generation++
			a.running[inst] = status
			report.Instances = append(report.Instances, status)
		}
	}
	if refusal := w.apply("agent:"+model.Actor(id), report); refusal != nil {
		w.t.Fatalf("%s: %v", w.at, refusal)
	}
}

func (w *world) comeBack(id model.NodeID, rebooted bool) string {
	a := w.agents[id]
	if rebooted {
		a.boot++
		a.running, a.order = map[model.InstanceID]model.InstanceStatus{}, nil
	}
	n, _ := w.state.Nodes.Get(id)
	w.live[id] = fsm.Liveness{Gossip: fsm.GossipAlive}
	w.register(id, n.Shape)
	return ""
}

// reach reports whether a node's agent can reach the servers.
func (w *world) reach(id model.NodeID) bool {
	n, known := w.state.Nodes.Get(id)
	return known && n.Health != model.HealthOffline && !w.live[id].Silent
}

func (w *world) work(nodes []string) bool {
	changed := false
	for _, id := range w.nodes {
		if len(nodes) > 0 && !slices.Contains(nodes, string(id)) || !w.reach(id) {
			continue
		}
		changed = w.pull(id) || changed
		var todo []*fsm.Instance
		for inst := range w.state.InstancesOn(id) {
			if !inst.Terminal() {
				todo = append(todo, inst)
			}
		}
		slices.SortFunc(todo, func(a, b *fsm.Instance) int { return strings.Compare(w.names[a.ID], w.names[b.ID]) })
		for _, inst := range todo {
			changed = w.workOn(inst) || changed
		}
	}
	return w.moveVolumes(nodes) || changed
}

func (w *world) workOn(inst *fsm.Instance) bool {
	switch {
	case inst.WaitsForRoom():
		return false // the agent does not get the assignment before there is room
	case inst.Preparation() != 0:
		return w.prepare(inst)
	case inst.Desired != model.DesiredRunning:
		w.status(inst, model.ObservedStopped, "")
	case inst.Status.Observed == model.ObservedPending:
		w.status(inst, model.ObservedBooting, "")
		w.ready(inst)
	case inst.Status.Observed == model.ObservedBooting:
		w.ready(inst)
	default:
		return false
	}
	return true
}

// cmdTroubled makes agents report that a check of their machine fails (troubled n1 n2 disk_full), or that no check
// fails (well n1).
func (w *world) cmdTroubled(args []string) string {
	self, out := model.SelfReport{}, ""
	if last := args[len(args)-1]; slices.Contains(model.SelfChecks(), model.SelfCheck(last)) {
		args = args[:len(args)-1]
		self.Troubles = []model.Trouble{{Check: model.SelfCheck(last), Reason: "its " + last}}
	}
	for _, id := range args {
		n, _ := w.state.Nodes.Get(model.NodeID(id))
		word := self
		word.Gen = n.Self.Gen + 1
		out += w.must(w.apply("agent:"+model.Actor(id), &fsm.NodeReport{ID: n.ID, Epoch: n.Agent.Epoch, Self: &word}))
	}
	return out
}

// imageVocabulary returns the commands of scenarios about container runtimes and images, by name.
func imageVocabulary() map[string]func(*world, []string) string {
	return map[string]func(*world, []string) string{
		"runtime":  (*world).cmdRuntime,
		"registry": (*world).cmdRegistry,
		"images":   (*world).cmdImages,
	}
}

// cmdRuntime makes an agent report its container runtime: runtime n1; runtime n1 gone (it does not answer); runtime n1
// pulls (the agent pulls on order); runtime n1 bridge SUBNET (containers can have a network of their own); runtime n1
// lacks portmap (they can't).
func (w *world) cmdRuntime(args []string) string {
	down := strings.Join(args[1:], " ")
	if down == "pulls" {
		w.agents[model.NodeID(args[0])].pulls, down = true, ""
	}
	if word, rest, _ := strings.Cut(down, " "); word == "bridge" || word == "lacks" {
		a := w.agents[model.NodeID(args[0])]
		a.bridge, a.lacks, down = "", "", ""
		*map[string]*string{"bridge": &a.bridge, "lacks": &a.lacks}[word] = rest
	}
	return w.reportRuntime(model.NodeID(args[0]), down)
}

func (w *world) reportRuntime(id model.NodeID, down string) string {
	n, _ := w.state.Nodes.Get(id)
	a := w.agents[id]
	runtime := &model.ContainerRuntime{Version: "2.1", Down: down, Pulls: a.pulls, Bridge: a.bridge, NoBridge: a.lacks}
	if a.pulls {
		runtime.Images = slices.Clone(a.images)
	}
	return w.must(w.apply("agent:"+model.Actor(id), &fsm.NodeReport{ID: n.ID, Epoch: n.Agent.Epoch,
		Self: &model.SelfReport{Gen: n.Self.Gen + 1, Troubles: n.Self.Troubles, Runtime: runtime}}))
}

// pull makes an agent pull the images that its node is asked for, as w.registry says, and report what has changed. It
// drops what is neither wanted nor there.
func (w *world) pull(id model.NodeID) bool {
	a := w.agents[id]
	n, _ := w.state.Nodes.Get(id)
	if !a.pulls || n.Self.Runtime == nil || n.Self.Runtime.Down != "" {
		return false
	}
	next := slices.DeleteFunc(slices.Clone(a.images), func(image model.NodeImage) bool {
		return image.State != model.ImagePresent && !w.wanted(id, image.Digest)
	})
	for c := range w.state.PullsOn(id) {
		i := slices.IndexFunc(next, func(image model.NodeImage) bool { return image.Digest == c.Digest() })
		if i < 0 {
			next, i = append(next, model.NodeImage{Digest: c.Digest()}), len(next)
		}
		if next[i].State == model.ImagePresent {
			continue
		}
		next[i].Total, next[i].Words = 40<<20, ""
		switch registry := w.registry[id] + w.registry[""]; registry {
		case "":
			next[i].State, next[i].Bytes = model.ImagePresent, 40<<20
		case "queued":
			next[i].State = model.ImageQueued
		case "slow":
			next[i].State, next[i].Bytes = model.ImagePulling, 10<<20
		default:
			next[i].State, next[i].Words = model.ImageFailed, registry
		}
	}
	if slices.Equal(next, a.images) {
		return false
	}
	a.images = next
	w.reportRuntime(id, "")
	return true
}

func (w *world) wanted(id model.NodeID, digest string) bool {
	for c := range w.state.PullsOn(id) {
		if c.Digest() == digest {
			return true
		}
	}
	return false
}

// cmdRegistry says what the registry answers from now on: registry slow (agents pull and get no further); registry
// queued (pulls wait for their turn on the node); registry no such host (the pulls fail); registry up. A node in front
// makes it the answer to this node: registry n1 slow.
func (w *world) cmdRegistry(args []string) string {
	id := model.NodeID(args[0])
	if w.agents[id] == nil {
		id = ""
	} else {
		args = args[1:]
	}
	if w.registry[id] = strings.Join(args, " "); w.registry[id] == "up" {
		delete(w.registry, id)
	}
	return ""
}

// cmdImages prints the claims, and what each node has of images.
func (w *world) cmdImages([]string) string {
	var out strings.Builder
	for _, c := range w.state.Pulls.All() {
		fmt.Fprintf(&out, "%s/%d v%d on %s for %s (%s), %d MiB\n", c.Group, c.Slot, c.Version, c.Node, c.Name(), c.Cause,
			c.MemoryBytes>>20)
	}
	for _, id := range w.nodes {
		if n, ok := w.state.Nodes.Get(id); ok && n.Self.Runtime != nil {
			for _, image := range n.Self.Runtime.Images {
				fmt.Fprintf(&out, "%s %s %s\n", id, image.Digest[len(image.Digest)-4:], image.State)
			}
		}
	}
	return out.String()
}

func (w *world) status(inst *fsm.Instance, observed model.Observed, reason string) string {
	a := w.agents[inst.Node]
	status, known := a.running[inst.ID]
	if !known {
		a.order = append(a.order, inst.ID)
	}
	status = model.InstanceStatus{ID: inst.ID, Generation: status.Generation + 1, Observed: observed, Reason: reason,
		Facts: status.Facts, Hook: status.Hook}
	a.running[inst.ID] = status
	if observed == model.ObservedStopped {
		delete(a.running, inst.ID)
		a.order = slices.DeleteFunc(a.order, func(id model.InstanceID) bool { return id == inst.ID })
	}
	if status.Generation <= inst.Status.Generation {
		status.Generation = inst.Status.Generation + 1
	}
	n, _ := w.state.Nodes.Get(inst.Node)
	return w.must(w.apply("agent:"+model.Actor(inst.Node),
		&fsm.NodeReport{ID: inst.Node, Epoch: n.Agent.Epoch, Instances: []model.InstanceStatus{status}}))
}

func (w *world) cmdReport(args []string) string {
	inst, ok := w.state.Instances.Get(w.id(args[0]))
	if !ok {
		return "gone: " + args[0] + "\n"
	}
	return w.status(inst, model.Observed(args[1]), strings.Join(args[2:], " "))
}

func (w *world) cmdSettle([]string) string {
	var out strings.Builder
	for range 60 {
		before := w.state.Index
		text := w.decide()
		out.WriteString(text)
		if moved := w.work(nil); w.state.Index == before && !moved {
			return strings.TrimSuffix(out.String(), text) + text
		}
	}
	w.t.Fatalf("%s: it does not settle:\n%s", w.at, out.String())
	return ""
}
