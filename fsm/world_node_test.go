package fsm

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/model"
)

func (w world) nodeRegister() Command {
	id := model.NodeID(fmt.Sprintf("n%d", w.int(1, 5)))
	c := &NodeRegister{ID: id, Name: string(id) + ".local",
		Agent: model.AgentInfo{BootID: pick(w, "boot1", "boot2"), Address: "127.0.0.1", Key: []byte("k")}}
	c.Shape = model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: pick[int64](w, 1, 4, 8, 16) << 28},
		Reserved: model.Resources{MemoryBytes: 1 << 20}, PortMin: 8000, PortMax: 8007,
		Attributes: map[string]string{model.AttributeBackup: pick(w, "/b", "/b", "")}}
	switch w.int(1, 40) {
	case 1, 2, 3:
		c.Name = pick(w, "n1.local", "bad name", "")
	case 4, 5:
		c.Shape.Capacity.MemoryBytes = pick[int64](w, 0, -5)
	case 6, 7:
		c.ID = pick[model.NodeID](w, "", "a/b", "n1/")
	case 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20:
		c.Shape.Labels = map[string]string{"rack": pick(w, "r1", "r2")}
	}
	if w.rarely(8) {
		c.Seen = model.Seen{Incarnation: w.s.Incarnation + uint64(w.int(0, 2)), Index: w.s.Index + uint64(w.int(-3, 3))}
	}
	return c
}

func (w world) nodeHealth() Command {
	n := w.node()
	c := &NodeHealth{ID: n.ID, Health: pick(w, model.HealthOnline, model.HealthDegraded, model.HealthOffline),
		BootID: n.Agent.BootID, Epoch: n.Agent.Epoch}
	if w.rarely(10) {
		c.Epoch--
	}
	if w.rarely(30) {
		c.Health = "well"
	}
	return c
}

func (w world) nodeReport() Command {
	n := w.node()
	c := &NodeReport{FactsGen: n.FactsGen + uint64(w.int(0, 1)), ID: n.ID, Epoch: n.Agent.Epoch,
		Full: w.rarely(4) || n.Return.Recovering}
	if w.rarely(15) {
		c.Epoch--
	}
	for i := range w.s.InstancesOn(n.ID) {
		if w.rarely(5) {
			continue
		}
		c.Instances = append(c.Instances, w.speak(i, model.InstanceStatus{
			ID: i.ID, Generation: i.Status.Generation + uint64(w.int(0, 2)), Reason: pick(w, "", "crash_loop"),
			Observed: pick(w, model.ObservedBooting, model.ObservedReady, model.ObservedReady, model.ObservedReady,
				model.ObservedUnready, model.ObservedDraining, model.ObservedStopped, model.ObservedStopped, model.ObservedFailed,
				model.ObservedLost, model.ObservedPending, "odd"),
		}))
	}
	c.Transfers = w.transferReports(n.ID)
	if w.rarely(6) {
		c.Self = &model.SelfReport{Gen: n.Self.Gen + uint64(w.int(0, 1))}
		for w.bool() {
			c.Self.Troubles = append(c.Self.Troubles,
				model.Trouble{Check: pick(w, append(model.SelfChecks(), "odd")...), Reason: pick(w, "", "it is full")})
		}
		for w.bool() {
			c.Self.Disk = append(c.Self.Disk,
				model.DiskUse{ID: w.instance().ID, UsedBytes: int64(w.int(0, 9)), LimitBytes: int64(w.int(0, 3))})
		}
		c.Self.Measured = !w.rarely(3)
		switch c.Self.Gen % 4 {
		case 1:
			c.Self.Runtime = &model.ContainerRuntime{Version: "2.1"}
		case 2:
			c.Self.Runtime = &model.ContainerRuntime{Version: "2.1", Down: "no socket"}
		}
		for w.bool() {
			c.Self.Ports = append(c.Self.Ports, model.PortProblem{
				Port: w.int(0, 3), Service: model.ServiceName(pick(w, "", "web", "/")),
				Code: pick(w, model.PortTaken, model.PortReserved, "odd"), Reason: pick(w, "", "held"),
			})
		}
	}
	if w.rarely(6) { // an instance of any node, or one that does not exist
		c.Instances = append(c.Instances,
			model.InstanceStatus{ID: w.instance().ID, Generation: 99, Observed: model.ObservedReady})
	}
	return c
}

func (w world) nodeIntent() Command {
	return &NodeIntent{ID: w.node().ID,
		Intent: pick(w, model.IntentActive, model.IntentActive, model.IntentActive, model.IntentCordoned,
			model.IntentDraining, model.IntentDisabled, "idle")}
}

func (w world) nodeLabel() Command {
	return &NodeLabel{w.node().ID, map[string]string{pick(w, "rack", "zone", "bad key"): pick(w, "", "x")}}
}

func (w world) nodeAck() Command {
	c := &NodeAck{ID: w.node().ID}
	if w.bool() {
		c.Instances = []model.InstanceID{w.instance().ID}
	}
	return c
}

// eligible draws a node, mostly one that takes new instances.
func (w world) eligible() model.NodeID {
	var ids []model.NodeID
	for id, n := range w.s.Nodes.All() {
		if w.s.Eligible(n) == nil {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 || w.rarely(8) {
		return w.node().ID
	}
	return pick(w, ids...)
}

// offline draws a node, preferably one that is offline.
func (w world) offline() model.NodeID {
	for id, n := range w.s.Nodes.All() {
		if n.Health == model.HealthOffline && w.bool() {
			return id
		}
	}
	return w.node().ID
}

// nodeForget draws a NodeForget. It lists most of the groups whose data would be lost with the node.
func (w world) nodeForget() Command {
	c := &NodeForget{ID: w.offline()}
	for _, id := range w.s.LostWith(c.ID) {
		if group := groupOfVolume(id); !slices.Contains(c.LoseData, group) && !w.rarely(4) {
			c.LoseData = append(c.LoseData, group)
		}
	}
	return c
}
