package fsm

import (
	"cmp"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

const (
	keptTransfers = 200    // most ended transfers that left nothing on a disk; older ones are removed
	keptBackups   = 10_000 // most backups on record; another one is refused
)

// TransferOf returns the transfer of a slot's volumes that has not ended, if there is one.
func (s *moves) TransferOf(group model.GroupID, slot int) (*Transfer, bool) {
	for _, v := range s.slotVolumes(group, slot) {
		if t, ok := s.Transfers.Get(v.Transfer); ok && !t.Phase.Ended() {
			return t, true
		}
	}
	return nil, false
}

// slotVolumes returns the local volumes of a slot that are in use, in order of name.
func (s *moves) slotVolumes(group model.GroupID, slot int) []*Volume {
	prefix := model.NewVolumeID(group, slot, "")
	var found []*Volume
	for id, v := range s.Volumes.From(prefix) {
		if !strings.HasPrefix(string(id), string(prefix)) {
			break
		}
		if v.Kind == model.VolumeLocal && v.Copy == "" {
			found = append(found, v)
		}
	}
	return found
}

// Leaving returns the transfer that moves an instance away from its node, if there is one.
func (s *moves) Leaving(inst *Instance) (*Transfer, bool) {
	if !inst.Links.HasVolumes {
		return nil, false
	}
	t, ok := s.TransferOf(inst.Group, inst.Slot)
	return t, ok && t.Leaves() && t.From == inst.Node
}

func (s *moves) leaving(inst *Instance) bool {
	_, ok := s.Leaving(inst)
	return ok
}

// slotHeld refuses a placement in a slot while a transfer keeps the slot empty. Code: volume_in_use.
func (s *State) slotHeld(spec *model.GroupSpec, group model.GroupID, slot int) *model.Error {
	if len(spec.Volumes) == 0 {
		return nil
	}
	if t, ok := s.TransferOf(group, slot); ok && t.Holds() {
		return model.Refuse(model.CodeVolumeInUse, "the volumes of slot %d of %s are in transfer %s, which is %s",
			slot, group, t.ID, t.Phase)
	}
	return nil
}

// slotBusy returns an instance of the slot that is not known to have stopped, if there is one.
func (s *instances) slotBusy(group model.GroupID, slot int) (*Instance, bool) {
	for inst := range s.InstancesInSlot(group, slot) {
		if inst.holdsClaims() {
			return inst, true
		}
	}
	return nil, false
}

func (c *TransferStart) apply(s *State) error {
	if !model.ValidName(string(c.ID)) || len(c.Token) > 128 {
		return model.Refuse(model.CodeInvalid, "%q is no id of a transfer", c.ID)
	}
	if s.Transfers.Has(c.ID) || s.Backups.Has(model.BackupID(c.ID)) {
		return model.Refuse(model.CodeConflict, "the transfer id %s is taken", c.ID)
	}
	t := &Transfer{
		ID: c.ID, Kind: c.Work, To: c.To, Options: c.Options, Phase: model.TransferQueued, Token: c.Token,
		Marks: TransferMarks{Actor: s.entry.actor, Index: s.Index, Wall: s.Wall, Moved: s.Now},
	}
	if t.Options.Cooling <= 0 {
		t.Options.Cooling = s.Settings.VolumeCooling
	}
	var refusal *model.Error
	switch c.Work {
	case model.TransferMigrate, model.TransferBackup:
		refusal = s.planVolume(t, c.Volume)
	case model.TransferRestore:
		refusal = s.planRestore(t, c)
	case model.TransferAttach:
		if len(c.Found) > 0 {
			refusal = s.planFound(t, c)
			break
		}
		refusal = s.planAttach(t, c.Volume)
	default:
		refusal = model.Refuse(model.CodeInvalid, "%q is no kind of transfer", c.Work)
	}
	if refusal != nil {
		return refusal
	}
	s.forgetTransfers()
	s.setTransfer(nil, t)
	s.bindVolumes(t, t.ID)
	return nil
}

// planVolume fills in a migration or a backup of the volumes of a slot. id is one of these volumes.
func (s *State) planVolume(t *Transfer, id model.VolumeID) *model.Error {
	v, ok := s.Volumes.Get(id)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no volume %q", id).WithHint("list them with: outspan volume ls")
	}
	if v.Copy != "" || v.Kind != model.VolumeLocal {
		return model.Refuse(model.CodeConflict, "volume %s is not a local volume in use", id).
			WithHint("a restored one is put in its place with: outspan volume attach %s", id)
	}
	t.Group, t.Slot, t.From = v.Group, v.Slot, v.Home
	t.Names = s.namesOf(v)
	if refusal := s.unbound(t); refusal != nil {
		return refusal
	}
	if policy, ok := s.Policy(t.Group); ok {
		// After a restore of the state, the volume's row may describe an old copy.
		if refusal := s.SlotUnsettled(policy, t.Group, t.Slot); refusal != nil {
			return refusal
		}
	}
	home, there := s.Nodes.Get(v.Home)
	if !there {
		return model.Refuse(model.CodeConflict, "volume %s is lost: no node has its data", id).
			WithHint("restore a backup: outspan volume restore BACKUP --node NODE --attach")
	}
	if home.Health == model.HealthOffline {
		return model.Refuse(model.CodeVolumeOffline, "the home of volume %s, node %s, is offline", id, home.Name).
			WithHint(
				"bring the node back, or restore a backup on another node: outspan volume restore BACKUP --node NODE --attach")
	}
	if t.Kind == model.TransferBackup {
		t.To = ""
		return s.mayBackup(home)
	}
	if t.To == t.From {
		return model.Refuse(model.CodeConflict, "volume %s is on node %s already", id, home.Name)
	}
	return s.mayMoveTo(t)
}

// namesOf lists the names of the local volumes that are in the same slot as first. The list begins with the name of
// first.
func (s *moves) namesOf(first *Volume) []string {
	names := []string{first.Name}
	for _, v := range s.slotVolumes(first.Group, first.Slot) {
		if v.Name != first.Name {
			names = append(names, v.Name)
		}
	}
	return names
}

func (s *State) mayBackup(n *Node) *model.Error {
	if n.Shape.Attributes[model.AttributeBackup] == "" {
		return model.Refuse(model.CodeNodeNotEligible, "node %s has no backup directory", n.Name).
			WithHint("set backup_dir in the agent block of its file")
	}
	if s.Backups.Len() >= keptBackups {
		return model.Refuse(model.CodeBusy, "%d backups are on record", keptBackups).
			WithHint("forget old ones with: outspan volume forget BACKUP")
	}
	return nil
}

func (s *State) unbound(t *Transfer) *model.Error {
	if other, ok := s.TransferOf(t.Group, t.Slot); ok {
		return model.Refuse(model.CodeVolumeInUse, "transfer %s works on the volumes of slot %d of %s already",
			other.ID, t.Slot, t.Group).
			WithHint("wait for it, or give it up: outspan volume cancel %s", other.ID)
	}
	return nil
}

// planRestore fills in a restore. The volume that the backup becomes may be lost, or may not exist.
func (s *State) planRestore(t *Transfer, c *TransferStart) *model.Error {
	b, ok := s.Backups.Get(c.Backup)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no backup %q", c.Backup).
			WithHint("list them with: outspan volume backups")
	}
	t.Backup, t.Group, t.Slot, t.Names = b.ID, b.Group, b.Slot, slices.Clone(b.Names)
	if c.Volume != "" {
		if refusal := t.restoreAs(c.Volume); refusal != nil {
			return refusal
		}
	}
	if !s.Groups.Has(t.Group) {
		return model.Refuse(model.CodeNotFound, "there is no group %s any more", t.Group).
			WithHint("run its job first, or name another volume with --volume")
	}
	n, ok := s.Nodes.Get(t.To)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no node %s", t.To)
	}
	if n.Shape.Attributes[model.AttributeBackup] == "" {
		return model.Refuse(model.CodeNodeNotEligible, "node %s has no backup directory", n.Name).
			WithHint("set backup_dir in the agent block of its file; the archive must be in it")
	}
	if !t.Options.Attach {
		return s.Eligible(n)
	}
	return s.planReplace(t)
}

// restoreAs changes the slot of a restore to the slot in id. The backup must have a volume with the name in id. Codes:
// invalid, conflict.
func (t *Transfer) restoreAs(id model.VolumeID) *model.Error {
	group, slot, name, refusal := splitVolumeID(id)
	if refusal != nil {
		return refusal
	}
	if !slices.Contains(t.Names, name) {
		return model.Refuse(model.CodeConflict, "backup %s has no volume %q; it has %s", t.Backup, name,
			strings.Join(t.Names, ", "))
	}
	t.Group, t.Slot = group, slot
	return nil
}

// planReplace checks that the copy on the node To may replace the volumes in use, and fills in From.
func (s *State) planReplace(t *Transfer) *model.Error {
	if refusal := s.unbound(t); refusal != nil {
		return refusal
	}
	policy, ok := s.Policy(t.Group)
	for _, name := range t.Names {
		if !ok || !slices.ContainsFunc(policy.Volumes, func(v model.VolumeSpec) bool {
			return v.Name == name && v.Kind == model.VolumeLocal
		}) {
			return model.Refuse(model.CodeConflict, "%s has no local volume %q", t.Group, name)
		}
	}
	if refusal := s.coversSlot(t); refusal != nil {
		return refusal
	}
	for _, v := range s.slotVolumes(t.Group, t.Slot) {
		t.From = v.Home
	}
	if inst, busy := s.slotBusy(t.Group, t.Slot); busy && inst.Status.Observed == model.ObservedLost {
		n, _ := s.Nodes.Get(inst.Node)
		return model.Refuse(model.CodeVolumeInUse, "instance %s is on the offline node %s and not known to have stopped",
			inst.ID, n.Name).
			WithHint("if the machine is gone: outspan node confirm-dead %s", n.Name)
	}
	return s.mayMoveTo(t)
}

// coversSlot refuses a transfer after which the volumes of its slot would be on different nodes. Code: conflict.
func (s *State) coversSlot(t *Transfer) *model.Error {
	for _, v := range s.slotVolumes(t.Group, t.Slot) {
		if v.Home != "" && v.Home != t.To && !slices.Contains(t.Names, v.Name) {
			return model.Refuse(model.CodeConflict, "slot %d of %s also has the volume %s on node %s, which the copy lacks",
				t.Slot, t.Group, v.Name, v.Home)
		}
	}
	return nil
}

// transferNaming returns the running transfer that will fill a volume whose row is created now. It returns "" if there
// is none.
func (s *moves) transferNaming(id model.VolumeID) model.TransferID {
	for _, t := range s.Transfers.All() {
		if !t.Phase.Ended() && (t.Kind != model.TransferRestore || t.Options.Attach) && slices.Contains(t.Volumes(), id) {
			return t.ID
		}
	}
	return ""
}

// planAttach fills in the attachment of a restored volume, or of an old copy that is kept.
func (s *State) planAttach(t *Transfer, id model.VolumeID) *model.Error {
	made, old := s.OldCopy(id)
	if !old {
		v, ok := s.Volumes.Get(id)
		if !ok {
			return model.Refuse(model.CodeNotFound, "there is no volume %q", id).WithHint("list them with: outspan volume ls")
		}
		if made, ok = s.Transfers.Get(v.Copy); !ok || made.Left.Detached == "" {
			return model.Refuse(model.CodeConflict, "volume %s is in use already", id)
		}
	}
	t.Group, t.Slot, t.Names = made.Group, made.Slot, slices.Clone(made.Names)
	t.To, t.Options.Copy, t.Backup = cmp.Or(made.Left.Detached, made.Left.Old), made.ID, made.Backup
	return s.planReplace(t)
}

// OldCopy returns the transfer that left an old copy of a volume, if the copy is still kept. id is "VOLUME@TRANSFER".
func (s *moves) OldCopy(id model.VolumeID) (*Transfer, bool) {
	volume, by, _ := strings.Cut(string(id), "@")
	t, ok := s.Transfers.Get(model.TransferID(by))
	return t, ok && t.Left.Old != "" && !t.Left.Drop && slices.Contains(t.Volumes(), model.VolumeID(volume))
}

// mayMoveTo checks that the target node may take the instance of the slot: the node is eligible, meets the group's
// constraints, and has room.
func (s *State) mayMoveTo(t *Transfer) *model.Error {
	n, ok := s.Nodes.Get(t.To)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no node %q", t.To)
	}
	if refusal := s.Eligible(n); refusal != nil {
		return refusal
	}
	g, ok := s.Groups.Get(t.Group)
	policy, known := s.Policy(t.Group)
	if !ok || !known || g.Role == model.RoleSystem {
		return model.Refuse(model.CodeConflict,
			"volumes of %s can't move: it has one instance on each node, or is gone", t.Group)
	}
	if refusal := n.Starts(policy); refusal != nil {
		return refusal
	}
	for i := range policy.Constraints {
		if !n.Meets(&policy.Constraints[i]) {
			return model.Refuse(model.CodeConstraint, "node %s does not meet the constraint on %s", n.Name,
				policy.Constraints[i].Attribute)
		}
	}
	if t.Slot >= g.Count || t.From == t.To {
		return nil // no instance will run there, or it is there already
	}
	return s.Room(n, s.ClaimsOf(policy, nil))
}

// forgetTransfers removes ended transfers that left nothing, lowest ids first, until only keptTransfers of them remain.
func (s *moves) forgetTransfers() {
	var old []model.TransferID
	for id, t := range s.Transfers.All() {
		if t.Phase.Ended() && !t.Leftover() {
			old = append(old, id)
		}
	}
	for i := 0; i < len(old)-keptTransfers; i++ {
		s.delTransfer(old[i])
	}
}

// setTransfer replaces a row, makes the agents of From and To read their assignments again, and emits an event if the
// phase changed.
func (s *State) setTransfer(before, after *Transfer) {
	s.putTransfer(after)
	s.touch("volumes", Topic("transfer/"+after.ID))
	for _, id := range []model.NodeID{after.From, after.To} {
		s.callAgent(id)
	}
	was := ""
	if before != nil {
		was = string(before.Phase)
	}
	if was == string(after.Phase) {
		return
	}
	s.emit(Event{Type: model.EventVolume, Subject: "volume/" + string(after.Volume()), Before: was,
		After: string(after.Phase), Data: map[string]string{
			"transfer": string(after.ID), "kind": string(after.Kind), "from": string(after.From), "to": string(after.To),
			"code": string(after.Failure.Code), "reason": after.Failure.Message}})
}

// callAgent makes the agent of a node read its assignments again.
func (s *State) callAgent(id model.NodeID) {
	if n, ok := s.Nodes.Get(id); ok {
		next := *n
		next.Assigned = s.Index
		s.putNode(&next)
		s.touch(Topic("assigned/" + id))
	}
}

// bindVolumes records by as the running transfer of the volumes in use that t works on. If by is empty, no transfer
// works on them any more. bindVolumes does nothing for a restore that does not replace the volumes in use.
func (s *moves) bindVolumes(t *Transfer, by model.TransferID) {
	if t.Kind == model.TransferRestore && !t.Options.Attach {
		return
	}
	for _, id := range t.Volumes() {
		if v, ok := s.Volumes.Get(id); ok && v.Transfer != by {
			next := *v
			next.Transfer = by
			s.putVolume(&next)
		}
	}
}
