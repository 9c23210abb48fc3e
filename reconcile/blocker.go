package reconcile

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// blockerOf returns what keeps an instance on a draining node. It returns false if the instance has stopped, or if the
// drain need not wait for it.
func (p *pass) blockerOf(d *drainPart, inst *fsm.Instance) (model.Blocker, bool) {
	b := model.Blocker{Instance: inst.ID}
	with := func(code model.Code, message, unblock string) (model.Blocker, bool) {
		b.Code, b.Message, b.Unblock = code, message, unblock
		return b, true
	}
	stays := p.state().Movable(inst)
	t, moves := p.state().Leaving(inst)
	recorded, waits := p.reasons.blockers[inst.ID]
	switch {
	case inst.Status.Observed == model.ObservedStopped:
		return b, false
	case d.node.Health == model.HealthOffline:
		return with(model.CodeNodeOffline, "node "+d.node.Name+" is offline: it is not known to have stopped",
			"bring the machine back, or if it is gone: outspan node confirm-dead "+d.node.Name)
	case inst.Desired != model.DesiredRunning:
		return with(model.CodeStopping, "it is stopping", "")
	case moves:
		b.Volume = t.Volume()
		return with(model.CodeReplacementPending, "it moves with its volumes: "+p.transferText(t), "")
	case stays != nil && !d.drain.Options.Force:
		b.Volume = p.volumeOf(inst)
		if slices.Contains(d.node.Acked, inst.ID) {
			return b, false
		}
		return with(stays.Code, stays.Message, p.unblockStay(d.node, b.Volume))
	case p.isSystem(inst) && d.drain.Options.IgnoreSystem:
		return b, false
	case d.drain.Paused:
		return with(model.CodePaused, "the drain is paused", "outspan drain resume "+string(d.drain.ID))
	case p.in.State.Settings.Paused:
		return with(model.CodePaused, "actuation is paused", "outspan settings resume")
	case !d.part.Turn:
		return with(model.CodeReplacementPending, "the node waits for its turn in the drain", "")
	case waits:
		return recorded, true
	case p.rebuilt(inst):
		return with(model.CodeReplicaEvicting, "its copy is being built elsewhere", "")
	case p.isSystem(inst):
		return with(model.CodeReplacementPending, "it goes last, when the others have stopped", "")
	}
	return with(model.CodeReplacementPending, "its replacement is being made", "")
}

// volumeOf returns the local volume that ties an instance to its node, or "" if it has none.
func (p *pass) volumeOf(inst *fsm.Instance) model.VolumeID {
	spec, ok := p.state().Spec(inst.Group, inst.Version)
	if !ok {
		return ""
	}
	for _, v := range spec.Volumes {
		if v.Kind == model.VolumeLocal {
			return model.NewVolumeID(inst.Group, inst.Slot, v.Name)
		}
	}
	return ""
}

// unblockStay says what an operator can do about an instance that does not leave its node automatically.
func (p *pass) unblockStay(n *fsm.Node, volume model.VolumeID) string {
	text := "outspan node ack-blockers " + n.Name
	if volume != "" {
		text += ", or move it: outspan volume migrate " + string(volume) + " --to NODE"
	}
	return text
}
