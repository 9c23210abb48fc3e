package invariant

import (
	"fmt"
	"maps"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// rooms checks S1: on each node, the instances that are not stopped take at most the memory that the node offers, and
// no two of them have the same port. An instance that preempts others is not counted until its victims have stopped.
func (j *Judge) rooms(f *fsm.Findings, s *Step) {
	memory := map[model.NodeID]int64{}
	ports := map[string]model.InstanceID{}
	for id, i := range s.After.Instances.All() {
		if i.Status.Observed == model.ObservedStopped || len(i.Links.Awaits) > 0 {
			continue
		}
		memory[i.Node] += i.Claims.Resources.MemoryBytes
		for _, port := range i.Claims.Ports {
			key := fmt.Sprintf("%s:%d", i.Node, port.Number)
			if other, taken := ports[key]; taken {
				f.Add(fsm.S1, "the instances %s and %s have the same port %s", other, id, key)
			}
			ports[key] = id
		}
	}
	for _, id := range slices.Sorted(maps.Keys(memory)) {
		bytes := memory[id]
		n, ok := s.After.Nodes.Get(id)
		if ok && bytes > n.Allocatable().MemoryBytes {
			f.Add(fsm.S1, "%d bytes are placed on node %s, which offers %d", bytes, n.Name, n.Allocatable().MemoryBytes)
		}
	}
}

// holders checks S2, as far as rows show it: in a slot that may have only one holder, at most one instance is not
// confirmed stopped. Tests that know the running programs check for themselves that at most one runs.
func (j *Judge) holders(f *fsm.Findings, s *Step) {
	held := map[string]model.InstanceID{}
	for id, i := range s.After.Instances.All() {
		spec, ok := s.After.Spec(i.Group, i.Version)
		if i.Status.Observed == model.ObservedStopped || !ok || !single(spec) {
			continue
		}
		slot := fmt.Sprintf("%s/%d", i.Group, i.Slot)
		if other, taken := held[slot]; taken {
			f.Add(fsm.S2, "slot %s may have one holder, and neither %s nor %s is confirmed stopped", slot, other, id)
		}
		held[slot] = id
	}
}

func single(spec *model.GroupSpec) bool { return spec.OneHolder() }

func hasVolume(spec *model.GroupSpec, kind model.VolumeKind) bool {
	for _, v := range spec.Volumes {
		if v.Kind == kind {
			return true
		}
	}
	return false
}
