package bubble

import (
	"fmt"

	"github.com/outspan/outspan/model"
)

// rooms is S1: on each node the memory of all that is not stopped is at most what it offers, and no port is taken
// twice. Who waits for the room of others takes it when they are gone.
func (c *court) rooms(s step) error {
	if s.before.Instances.Same(s.after.Instances) && s.before.Nodes.Same(s.after.Nodes) {
		return nil
	}
	var f findings
	memory := map[model.NodeID]int64{}
	ports := map[string]model.InstanceID{}
	for id, i := range s.after.Instances.All() {
		if i.Status.Observed == model.ObservedStopped || len(i.Links.Awaits) > 0 {
			continue
		}
		memory[i.Node] += i.Claims.Resources.MemoryBytes
		for _, port := range i.Claims.Ports {
			key := fmt.Sprintf("%s:%d", i.Node, port.Number)
			if other, taken := ports[key]; taken {
				f.add("S1: the instances %s and %s have the same port %s", other, id, key)
			}
			ports[key] = id
		}
	}
	for id, bytes := range memory {
		n, ok := s.after.Nodes.Get(id)
		if ok && bytes > n.Allocatable().MemoryBytes {
			f.add("S1: %d bytes are placed on node %s, which offers %d", bytes, n.Name, n.Allocatable().MemoryBytes)
		}
	}
	return f.err()
}

// holders is S2 as far as the state shows it: of a slot that is exclusive or has local volumes at most one instance is
// not confirmed stopped. The programs' own truth does the rest.
func (c *court) holders(s step) error {
	if s.before.Instances.Same(s.after.Instances) {
		return nil
	}
	var f findings
	held := map[string]model.InstanceID{}
	for id, i := range s.after.Instances.All() {
		spec, ok := s.after.Spec(i.Group, i.Version)
		if i.Status.Observed == model.ObservedStopped || !ok || !single(spec) {
			continue
		}
		slot := fmt.Sprintf("%s/%d", i.Group, i.Slot)
		if other, taken := held[slot]; taken {
			f.add("S2: slot %s may have one holder, and neither %s nor %s is confirmed stopped", slot, other, id)
		}
		held[slot] = id
	}
	return f.err()
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
