package fsm

import (
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// volumesAtWork returns a refusal while a transfer keeps a node from being drained. If the node is offline, only a
// transfer that moves a volume away from it does so. A forced drain does not wait for backups, because it gives them
// up.
func (s *State) volumesAtWork(d *Drain, n *Node) *model.Error {
	if plant.Is(plant.DrainForgetsMoves) {
		return nil
	}
	for _, t := range s.Transfers.All() {
		switch {
		case t.From == n.ID && t.Leaves() && !t.Phase.Attached():
			return model.Refuse(model.CodeReplacementPending, "volume %s is moved away by transfer %s, which is %s",
				t.Volume(), t.ID, t.Phase)
		case s.waitsOn(t, n.ID) && n.Health != model.HealthOffline:
			return model.Refuse(model.CodeReplacementPending,
				"volume %s was moved here by transfer %s, and no instance has been ready on it since", t.Volume(), t.ID).
				WithHint("move it on: outspan volume migrate %s --to NODE", t.Volume())
		case t.To == n.ID && t.Phase.Attached() && n.Health != model.HealthOffline:
			return model.Refuse(model.CodeReplacementPending, "volume %s is put to use here by transfer %s, which is %s",
				t.Volume(), t.ID, t.Phase).
				WithHint("when that has ended: outspan volume migrate %s --to NODE", t.Volume())
		case backsUp(t, n.ID) && n.Health != model.HealthOffline && !d.Options.Force:
			return model.Refuse(model.CodeBackupRunning, "backup %s of volume %s is %s, %d of %d MiB", t.ID, t.Volume(), t.Phase,
				t.Source.Bytes>>20, t.Source.Total>>20).
				WithHint("wait for it, or give it up: outspan volume cancel %s", t.ID)
		}
	}
	return nil
}

// waitsOn reports whether a failed transfer has put its volume to use on a node, and no instance of the slot has been
// ready on the volume since.
func (s *State) waitsOn(t *Transfer, node model.NodeID) bool {
	v, ok := s.Volumes.Get(t.Volume())
	return ok && v.Home == node && t.Phase == model.TransferFailed && t.Left.Old != "" &&
		!t.Left.Proven && s.mayEnd(t) != nil
}

// backsUp reports whether a transfer is a backup that runs on a node.
func backsUp(t *Transfer, node model.NodeID) bool {
	return t.From == node && t.Kind == model.TransferBackup && !t.Phase.Ended() && t.Phase != model.TransferQueued
}

func (s *State) endBackups(node model.NodeID) {
	var running []*Transfer
	for _, t := range s.Transfers.All() {
		if backsUp(t, node) {
			running = append(running, t)
		}
	}
	for _, t := range running {
		s.failTransfer(t, model.CodeCanceled, "its node was drained by force")
	}
}
