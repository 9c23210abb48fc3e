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

func (w *world) cmdRuntime(args []string) string {
	n, _ := w.state.Nodes.Get(model.NodeID(args[0]))
	return w.must(w.apply("agent:"+model.Actor(args[0]), &fsm.NodeReport{ID: n.ID, Epoch: n.Agent.Epoch,
		Self: &model.SelfReport{Gen: n.Self.Gen + 1,
			Runtime: &model.ContainerRuntime{Version: "2.1", Down: strings.Join(args[1:], " ")}}}))
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
