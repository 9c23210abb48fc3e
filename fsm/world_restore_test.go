package fsm

import "github.com/outspan/outspan/model"

// unknownOf draws an instance that n runs and the state does not know. The instance holds a slot that is empty in the
// state. unknownOf returns nil if it finds no such slot.
func (w world) unknownOf(n *Node) []model.Holding {
	for id, g := range w.s.Groups.All() {
		spec, ok := w.s.Spec(id, g.Version)
		if !ok || !holdsSlot(spec) || g.Removed || g.Count == 0 || w.bool() {
			continue
		}
		slot := w.int(0, g.Count-1)
		if w.s.SlotFilled(id, slot) {
			continue
		}
		h := model.Holding{ID: model.InstanceID(w.fresh("x")), Group: id, Slot: slot, Spec: spec.Digest()}
		for i, p := range spec.Ports {
			number := p.Static
			if number == 0 {
				number = n.Shape.PortMin + i
			}
			h.Ports = append(h.Ports, model.Port{Name: p.Name, Number: number})
		}
		h.Ports.Sorted()
		for _, v := range spec.Volumes {
			row, _ := w.s.Volumes.Get(volumeOf(&Instance{Group: id, Slot: slot, Node: n.ID}, v))
			epoch := uint64(1)
			if row != nil {
				epoch = row.Made + uint64(w.int(0, 1))
			}
			h.Copies = append(h.Copies, model.VolumeEpoch{Name: v.Name, Epoch: epoch})
		}
		return []model.Holding{h}
	}
	return nil
}

// inventory draws the full report of n's agent, with the incarnation of the state. All instances in the report are
// ready or stopped. The parameter holds lists the instances that the state does not know.
func (w world) inventory(n *Node, holds []model.Holding) *NodeReport {
	c := &NodeReport{ID: n.ID, Epoch: n.Agent.Epoch, FactsGen: n.FactsGen, Full: true,
		Incarnation: w.s.Incarnation, Holds: holds}
	for i := range w.s.InstancesOn(n.ID) {
		if !i.WaitsForRoom() {
			c.Instances = append(c.Instances,
				w.speak(i,
					model.InstanceStatus{ID: i.ID, Generation: i.Status.Generation + 1,
						Observed: pick(w, model.ObservedReady, model.ObservedReady, model.ObservedStopped)}))
		}
	}
	return c
}

// pushRestore draws the next step of a restore: an agent's inventory, the confirmation, or the adoption of an unknown
// instance. If no restore needs a step, it rarely begins a new restore, and otherwise returns nil.
func (w world) pushRestore() Command {
	if kept := w.s.Kept(); len(kept) > 0 && !w.s.Unconfirmed && w.bool() {
		return &InstanceAdopt{pick(w, kept...)}
	}
	for id, n := range w.s.Nodes.All() {
		if n.Restore.InventoryOwed && n.Health != model.HealthOffline {
			n, _ = w.s.Nodes.Get(id)
			return w.inventory(n, w.unknownOf(n))
		}
	}
	switch {
	case w.s.Unconfirmed:
		return &RestoreMark{Confirm: true}
	case w.rarely(10):
		return &RestoreMark{}
	}
	return nil
}

// pushLease draws the next step towards the end of a lease: an instance with a lease becomes ready, its node becomes
// offline, or its lease expires. The result at is about the time at which the lease expires, or 0 for the other steps.
// pushLease returns nil if it finds no step.
func (w world) pushLease() (c Command, at model.Time) {
	for _, i := range w.s.Instances.All() {
		spec, ok := w.s.Spec(i.Group, i.Version)
		n, known := w.s.Nodes.Get(i.Node)
		if !ok || !known || !spec.Fenced() || i.Terminal() || w.rarely(4) {
			continue
		}
		if end := w.s.LeaseEnd(i); end != model.Never && i.Status.Observed == model.ObservedLost {
			return &InstanceFenced{i.ID}, end + model.Time(w.int(-1, 1))
		}
		if i.Status.Observed == model.ObservedPending {
			status := model.InstanceStatus{ID: i.ID, Generation: i.Status.Generation + 1, Observed: model.ObservedReady}
			return &NodeReport{ID: n.ID, Epoch: n.Agent.Epoch, FactsGen: n.FactsGen, Instances: []model.InstanceStatus{status}},
				0
		}
		if n.Health != model.HealthOffline && w.rarely(4) {
			return &NodeHealth{ID: n.ID, Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch}, 0
		}
	}
	return nil, 0
}
