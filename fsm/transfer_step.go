package fsm

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/model"
)

// edges returns the changes of phase that the transfer may make, other than to failed.
func (t *Transfer) edges() [][2]model.TransferPhase {
	tail := [][2]model.TransferPhase{{model.TransferStopping, model.TransferAttaching},
		{model.TransferAttaching, model.TransferStarting}, {model.TransferStarting, model.TransferSucceeded}}
	switch t.Kind {
	case model.TransferMigrate:
		return [][2]model.TransferPhase{
			{model.TransferQueued, model.TransferStopping}, {model.TransferStopping, model.TransferCopying},
			{model.TransferCopying, model.TransferVerifying},
			{model.TransferVerifying, model.TransferAttaching}, {model.TransferAttaching, model.TransferStarting},
			{model.TransferStarting, model.TransferSucceeded},
		}
	case model.TransferBackup:
		return [][2]model.TransferPhase{
			{model.TransferQueued, model.TransferStopping}, {model.TransferQueued, model.TransferRunning},
			{model.TransferStopping, model.TransferRunning}, {model.TransferRunning, model.TransferSucceeded},
		}
	case model.TransferRestore:
		return append(tail, [2]model.TransferPhase{model.TransferQueued, model.TransferRunning},
			[2]model.TransferPhase{model.TransferRunning, model.TransferStopping},
			[2]model.TransferPhase{model.TransferRunning, model.TransferSucceeded})
	case model.TransferAttach:
		if len(t.Found) > 0 {
			return append(tail, [2]model.TransferPhase{model.TransferQueued, model.TransferRunning},
				[2]model.TransferPhase{model.TransferRunning, model.TransferStopping})
		}
		return append(tail, [2]model.TransferPhase{model.TransferQueued, model.TransferStopping})
	}
	return nil
}

func (c *TransferStep) apply(s *State) error {
	t, ok := s.Transfers.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no transfer %s", c.ID)
	case c.Drop:
		return asError(s.dropOld(t))
	case t.Phase.Ended():
		return model.Refuse(model.CodeStale, "transfer %s has %s", t.ID, t.Phase)
	case c.Phase == model.TransferFailed:
		if c.Code == "" {
			return model.Refuse(model.CodeInvalid, "transfer %s failed without a code", t.ID)
		}
		s.failTransfer(t, c.Code, c.Message)
		return nil
	case !slices.Contains(t.edges(), [2]model.TransferPhase{t.Phase, c.Phase}):
		return model.Refuse(model.CodeStale, "transfer %s is %s and can't become %s", t.ID, t.Phase, c.Phase)
	}
	if refusal := s.mayStep(t, c.Phase); refusal != nil {
		return refusal
	}
	s.step(t, c.Phase)
	return nil
}

func asError(refusal *model.Error) error {
	if refusal == nil {
		return nil
	}
	return refusal
}

// mayStep checks the conditions of a phase on the present state, because the leader's view may have been older. Volumes
// are copied only while no instance can write them, except by a live backup. A copy replaces the old one only after it
// was verified.
func (s *State) mayStep(t *Transfer, to model.TransferPhase) *model.Error {
	if refusal := cmp.Or(s.transferUnsettled(t, to), s.mayTouch(t, to)); refusal != nil {
		return refusal
	}
	want := model.TransferState("")
	switch {
	case to == model.TransferVerifying && t.Target.State != model.SideVerifying:
		want = model.SideVerified
	case to == model.TransferAttaching && t.Kind != model.TransferAttach, t.Phase == model.TransferRunning:
		want = model.SideVerified
	case to == model.TransferStarting:
		want = model.SideAttached
	case t.Phase == model.TransferStarting && to == model.TransferSucceeded:
		return s.mayEnd(t)
	}
	if want != "" && t.Worker().State != want {
		return model.Refuse(model.CodeStale, "transfer %s: its agent says %q, not %s", t.ID, t.Worker().State, want)
	}
	if t.Kind == model.TransferRestore && t.Phase == model.TransferRunning &&
		t.Options.Attach != (to == model.TransferStopping) {
		return model.Refuse(model.CodeStale, "transfer %s: attach is %t", t.ID, t.Options.Attach)
	}
	if to == model.TransferAttaching {
		if refusal := s.coversSlot(t); refusal != nil {
			return refusal
		}
		return s.mayMoveTo(t)
	}
	return nil
}

// mayTouch refuses to copy, archive or replace volumes that an instance may still write. It allows a live backup, and
// phases that do not use the volumes. Code: volume_in_use.
func (s *State) mayTouch(t *Transfer, to model.TransferPhase) *model.Error {
	live := to == model.TransferRunning && (t.Options.Live || t.Kind != model.TransferBackup)
	if live || to != model.TransferCopying && to != model.TransferRunning && to != model.TransferAttaching {
		return nil
	}
	if inst, busy := s.slotBusy(t.Group, t.Slot); busy {
		return model.Refuse(model.CodeVolumeInUse, "instance %s still uses the volumes of slot %d of %s",
			inst.ID, t.Slot, t.Group)
	}
	return nil
}

// transferUnsettled refuses to stop an instance for a transfer, to copy volumes, and to replace them, while an instance
// that the state lost by a restore may use newer volumes. A restored state may contain a transfer that has really
// ended. Codes: those of SlotUnsettled.
func (s *State) transferUnsettled(t *Transfer, to model.TransferPhase) *model.Error {
	policy, ok := s.Policy(t.Group)
	backup := to == model.TransferRunning && t.Kind == model.TransferBackup && !t.Options.Live
	if !ok || !backup && to != model.TransferStopping && to != model.TransferCopying && to != model.TransferAttaching {
		return nil
	}
	return s.SlotUnsettled(policy, t.Group, t.Slot)
}

// mayEnd refuses the end of a transfer until the slot's instance is ready, unless the group no longer has the slot.
// Code: replacement_pending.
func (s *State) mayEnd(t *Transfer) *model.Error {
	g, ok := s.Groups.Get(t.Group)
	if !ok || t.Slot >= g.Count {
		return nil
	}
	for inst := range s.InstancesInSlot(t.Group, t.Slot) {
		if inst.Ready() {
			return nil
		}
	}
	return model.Refuse(model.CodeReplacementPending, "slot %d of %s has no ready instance yet", t.Slot, t.Group)
}

// step moves a transfer to a phase whose conditions mayStep has checked.
func (s *State) step(t *Transfer, to model.TransferPhase) {
	next := *t
	next.Phase, next.Marks.Moved = to, s.Now
	switch {
	case to == model.TransferCopying, to == model.TransferRunning && t.Kind == model.TransferBackup:
		// a newer version of the job may have added volumes
		if v, ok := s.Volumes.Get(t.Volume()); ok {
			next.Names = s.namesOf(v)
			s.bindVolumes(&next, t.ID)
		}
	case to == model.TransferAttaching:
		s.attach(&next)
	case to == model.TransferSucceeded && t.Kind == model.TransferBackup:
		s.keepBackup(&next)
	case to == model.TransferSucceeded && t.Kind == model.TransferRestore && !t.Options.Attach:
		s.keepDetached(&next)
	}
	if to.Ended() {
		next.Left.Proven = next.Left.Old != "" && s.provenCopy(t)
		next.Marks.EndedIndex, next.Marks.EndedWall = s.Index, s.Wall
		next.Token = ""
		s.bindVolumes(&next, "")
	}
	s.setTransfer(t, &next)
	s.touchJob(jobOf(t.Group))
}

// attach makes the target node the home of all the volumes at once, and records where the replaced copy is.
func (s *State) attach(t *Transfer) {
	t.Epochs = make([]uint64, len(t.Names))
	for i, name := range t.Names {
		id := model.NewVolumeID(t.Group, t.Slot, name)
		next := Volume{ID: id, Group: t.Group, Slot: t.Slot, Name: name, Kind: model.VolumeLocal}
		if v, ok := s.Volumes.Get(id); ok {
			next = *v
		}
		// back means that the found data is the data that the row describes, which the agent put aside. It replaces nothing.
		back := i < len(t.Found) && next.Home == t.To && next.Made == t.Found[i]
		if next.Home != "" {
			t.From = next.Home
		}
		if next.Home != "" && !back {
			t.Left.Old, t.Left.Until = next.Home, s.Now.Add(t.Options.Cooling)
		}
		if !back {
			t.Epochs[i] = next.Made
		}
		if i < len(t.Found) {
			next = next.withoutAside(t.To, t.Found[i])
		}
		next.Home, next.Transfer, next.Made, next.Held = t.To, t.ID, s.volumeEpoch(), true
		s.putVolume(&next)
	}
	if made, ok := s.Transfers.Get(t.Options.Copy); ok {
		s.forgetLeft(made)
	}
}

func (s *State) keepBackup(t *Transfer) {
	id := model.BackupID(t.ID)
	s.putBackup(&Backup{
		ID: id, Group: t.Group, Slot: t.Slot, Names: t.Names, Node: t.From, Bytes: t.Source.Total,
		Sum: t.Source.Sum, Live: t.Options.Live,
		Actor: t.Marks.Actor, Wall: s.Wall, Index: s.Index,
	})
}

// keepDetached creates the volume rows of a restored copy that is not in use.
func (s *moves) keepDetached(t *Transfer) {
	t.Left.Detached = t.To
	for _, name := range t.Names {
		id := t.DetachedID(name)
		s.putVolume(&Volume{ID: id, Group: t.Group, Slot: t.Slot, Name: name, Kind: model.VolumeLocal,
			Home: t.To, Copy: t.ID})
	}
}

// forgetLeft forgets the restored or old copy that a transfer left, because that copy is in use now or is not wanted.
func (s *State) forgetLeft(made *Transfer) {
	for _, name := range made.Names {
		s.delVolume(made.DetachedID(name))
	}
	next := *made
	next.Left = TransferLeft{}
	s.setTransfer(made, &next)
}

// failTransfer ends a transfer as failed. The copy in use stays the same: the old one before the step to attaching, the
// new one afterwards. failTransfer also withdraws a stop that the transfer requested and that has not begun.
func (s *State) failTransfer(t *Transfer, code model.Code, message string) {
	next := *t
	next.Phase, next.Failure, next.Token = model.TransferFailed, TransferFailure{code, message}, ""
	next.Marks.EndedIndex, next.Marks.EndedWall = s.Index, s.Wall
	s.bindVolumes(&next, "")
	s.setTransfer(t, &next)
	s.touchJob(jobOf(t.Group))
	for inst := range s.InstancesInSlot(t.Group, t.Slot) {
		if inst.Desired == model.DesiredRunning && inst.Eviction.Requested && inst.Eviction.By == t.Actor() {
			s.mark(inst, false, "", "")
		}
	}
}

func (s *State) dropOld(t *Transfer) *model.Error {
	if t.Left.Old == "" || t.Left.Drop || s.Now < t.Left.Until {
		return model.Refuse(model.CodeStale, "transfer %s has no old copy whose time is over", t.ID)
	}
	if refusal := s.NeedsOld(t); refusal != nil {
		return refusal
	}
	next := *t
	next.Left.Drop = true
	s.setTransfer(t, &next)
	return nil
}

func (c *TransferCancel) apply(s *State) error {
	t, ok := s.Transfers.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no transfer %s", c.ID)
	case t.Phase.Attached() && !s.confirmedDead(t.To):
		return model.Refuse(model.CodeConflict, "transfer %s has attached the copy on node %s already", t.ID, t.To).
			WithHint("to go back, migrate the volume again when it has ended; if the machine is gone: outspan node "+
				"confirm-dead %s", t.To)
	case !t.Phase.Ended():
		s.failTransfer(t, model.CodeCanceled, "given up by "+string(s.entry.actor))
		return nil
	case t.Left.Detached != "":
		if _, used := s.attaching(t.ID); used {
			return model.Refuse(model.CodeConflict, "the copy that transfer %s made is being attached", t.ID)
		}
		s.forgetLeft(t)
		return nil
	case t.Left.Old != "" && !t.Left.Drop:
		refusal := s.homeMissing(t)
		if other, used := s.attaching(t.ID); used {
			refusal = model.Refuse(model.CodeConflict, "the old copy is being attached by transfer %s", other.ID)
		}
		if refusal != nil {
			return refusal.WithHint("to put the old copy to use again: outspan volume attach %s@%s", t.Volume(), t.ID)
		}
		next := *t
		next.Left.Drop, next.Left.Until = true, s.Now
		s.setTransfer(t, &next)
		return nil
	}
	return model.Refuse(model.CodeConflict, "transfer %s has %s and left nothing", t.ID, t.Phase)
}

func (s *fleet) confirmedDead(node model.NodeID) bool {
	n, ok := s.Nodes.Get(node)
	return ok && n.Return.ConfirmedDead
}

func (c *BackupForget) apply(s *State) error {
	b, ok := s.Backups.Get(c.ID)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no backup %s", c.ID)
	}
	for _, t := range s.Transfers.All() {
		if t.Backup == c.ID && !t.Phase.Ended() {
			return model.Refuse(model.CodeInUse, "transfer %s restores backup %s", t.ID, c.ID).
				WithHint("wait for it, or give it up: outspan volume cancel %s", t.ID)
		}
	}
	s.delBackup(c.ID)
	s.touch("volumes")
	s.emit(Event{Type: model.EventVolume, Subject: "volume/" + string(model.NewVolumeID(b.Group, b.Slot, b.Names[0])),
		Before: "backup", After: "forgotten", Data: map[string]string{"backup": string(b.ID)}})
	return nil
}

func (s *State) reportTransfer(node model.NodeID, r model.TransferReport) {
	t, ok := s.Transfers.Get(r.ID)
	if !ok || !r.State.Valid() || node != t.From && node != t.To && node != t.Left.Old {
		return
	}
	next := *t
	r.Code, r.Message = model.Code(model.ClipText(string(r.Code), 64)), model.ClipText(r.Message, 256)
	side := TransferSide{State: r.State, Bytes: r.Bytes, Total: r.Total, Sum: model.ClipText(r.Sum, 64)}
	switch {
	case r.State == model.SideDropped:
		if t.Left.Old != node || !t.Left.Drop {
			return
		}
		next.Left.Old, next.Left.Until, next.Left.Drop = "", 0, false
	case t.Phase.Ended():
		if r.Code == "" || t.Failure.Code != "" {
			return
		}
		next.Failure = TransferFailure{r.Code, r.Message}
	case r.State == model.SideFailed && t.Phase.Attached():
		return // the agent tries again: the old copy is not in use any more
	case r.State == model.SideFailed:
		s.failTransfer(t, r.Code, r.Message)
		return
	case node == t.From && (node != t.To || t.Kind == model.TransferBackup):
		next.Source = side.after(t.Source)
	default:
		next.Target = side.after(t.Target)
	}
	if next.Source == t.Source && next.Target == t.Target && next.Left == t.Left && next.Failure == t.Failure {
		return
	}
	next.Marks.Moved = s.Now
	s.putTransfer(&next)
	s.touch("volumes", Topic("transfer/"+next.ID))
	if next.Left != t.Left {
		s.setTransfer(t, &next)
	}
}

// after returns d, but with the numbers of before if d has none.
func (d TransferSide) after(before TransferSide) TransferSide {
	if d.Total == 0 {
		d.Bytes, d.Total, d.Sum = before.Bytes, before.Total, before.Sum
	}
	return d
}

// endTransfersOf fails the transfers that can't continue without a node, because that node is being forgotten. It also
// forgets what transfers left on the node.
func (s *State) endTransfersOf(node model.NodeID, name string) {
	var concerned []*Transfer
	for _, t := range s.Transfers.All() {
		if t.From == node || t.To == node || t.Left.Old == node {
			concerned = append(concerned, t)
		}
	}
	for _, t := range concerned {
		if !t.Phase.Ended() && (t.To == node || !t.Phase.Attached()) {
			s.failTransfer(t, model.CodeNotFound, "node "+name+" was forgotten")
			t, _ = s.Transfers.Get(t.ID)
		}
		next := *t
		if next.Left.Old == node {
			next.Left.Old, next.Left.Until, next.Left.Drop = "", 0, false
		}
		if next.Left.Detached == node {
			next.Left.Detached = "" // its rows are dropped with the node's other volumes
		}
		if next.Left != t.Left {
			s.setTransfer(t, &next)
		}
	}
}

// endTransfersOfJob fails the transfers of a job that is purged, and has agents remove what the transfers left on
// disks.
func (s *State) endTransfersOfJob(job model.JobName) {
	var concerned []*Transfer
	for _, t := range s.Transfers.All() {
		if jobOf(t.Group) == job {
			concerned = append(concerned, t)
		}
	}
	for _, t := range concerned {
		if !t.Phase.Ended() {
			s.failTransfer(t, model.CodeNotFound, "job "+string(job)+" was purged")
			t, _ = s.Transfers.Get(t.ID)
		}
		if t.Leftover() {
			next := *t
			next.Left.Detached, next.Left.Drop, next.Left.Until = "", next.Left.Old != "", min(next.Left.Until, s.Now)
			s.setTransfer(t, &next)
		}
	}
}
