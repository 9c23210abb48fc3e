package sim

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// assignments is a server's answer to an agent. It lists every instance that the agent must run or stop now.
type assignments struct {
	epoch    uint64
	index    uint64
	register bool // if true, the agent must register again, and list is empty
	list     []assignment
	images   []string // digests to pull
}

type assignment struct {
	id        model.InstanceID
	group     model.GroupID
	slot      int
	version   uint64
	spec      *model.GroupSpec
	desired   model.Desired
	grace     model.Duration
	ports     map[string]int
	memory    int64
	restarts  uint64
	preparing uint64
	gates     []string
}

func assignmentsOf(s fsm.State, node model.NodeID, epoch uint64) assignments {
	set := assignments{epoch: epoch}
	n, ok := s.Nodes.Get(node)
	if !ok || n.Agent.Epoch != epoch || n.Health == model.HealthOffline {
		set.register = true
		return set
	}
	set.index, set.images = n.Assigned, imagesFor(&s, node)
	for i := range s.InstancesOn(node) {
		if i.Terminal() || i.WaitsForRoom() {
			continue
		}
		set.list = append(set.list, assignmentOf(&s, i))
	}
	return set
}

func assignmentOf(s *fsm.State, i *fsm.Instance) assignment {
	a := assignment{
		id: i.ID, group: i.Group, slot: i.Slot, version: i.Version, desired: i.Desired, ports: i.Claims.Ports.Map(),
		memory:   i.Claims.Resources.MemoryBytes,
		restarts: i.Links.RestartSeq, preparing: i.Preparation(),
	}
	a.spec, _ = s.Spec(i.Group, i.Version)
	if a.spec != nil {
		a.grace = a.spec.Stop.Grace
	}
	if i.Marks.GraceOverride != nil {
		a.grace = *i.Marks.GraceOverride
	}
	if a.preparing == 0 {
		return a
	}
	if d, ok := s.Drains.Get(model.DrainID(i.Eviction.By)); ok &&
		i.Eviction.Cause == model.CauseNodeDraining && d.Options.Force {
		return a
	}
	for _, text := range s.GatesOf(i, i.Eviction.Cause) {
		if gate, refusal := model.ParseGate(text); refusal == nil && gate.Self() {
			a.gates = append(a.gates, text)
		}
	}
	return a
}
