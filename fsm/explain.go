package fsm

import "github.com/outspan/outspan/model"

// ClassOf returns Stateful if the instance has volumes, and otherwise Stateless.
func (i *Instance) ClassOf() model.DataClass {
	if i.Links.HasVolumes {
		return model.Stateful
	}
	return model.Stateless
}

// Counts reports whether the drain counts an instance in DrainNode.Moved, because it began to stop the instance, and
// whether it still counts the instance in DrainNode.Unreplaced.
func (d *Drain) Counts(s *State, inst *Instance) (moved, unreplaced bool) {
	part, _ := d.Node(inst.Node)
	stop := &inst.Marks
	if !part.Turn || stop.StopCause != model.CauseNodeDraining || orderedBy(stop.StopReason) != string(d.ID) {
		return false, false
	}
	if stop.StopBegan <= part.Started && stop.StopGrace == 0 { // it was pending when the turn began; see stopPending
		return false, false
	}
	if next, ok := s.Instances.Get(inst.Links.ReplacedBy); ok {
		return true, next.Desired != model.DesiredRunning && next.Marks.StopBegan <= stop.StopBegan
	}
	for next := range s.InstancesInSlot(inst.Group, inst.Slot) {
		if next.ID != inst.ID && next.Cause == model.CauseNodeDraining && next.Links.Replaces == "" &&
			next.Marks.Created >= stop.StopBegan {
			return true, false // see countReplaced
		}
	}
	return true, true
}
