package fsm

import (
	"github.com/outspan/outspan/model"
)

// Actor returns the name under which the transfer stops the instance of its slot, as in Eviction.By.
func (t *Transfer) Actor() string { return "transfer " + string(t.ID) + " (" + string(t.Kind) + ")" }

// Transfer is work on the local volumes of one slot; these volumes always stay together. The row has the request, the
// progress, and what the work left on disks.
type Transfer struct {
	ID    model.TransferID   `cbor:"1,keyasint"`
	Kind  model.TransferKind `cbor:"2,keyasint"`
	Group model.GroupID      `cbor:"3,keyasint"`
	Slot  int                `cbor:"4,keyasint"`
	Names []string           `cbor:"5,keyasint"` // of the volumes; Volume returns the id of the first one
	// home of the volumes; for a restore and an attach, home of the volumes that are replaced
	From    model.NodeID    `cbor:"6,keyasint,omitempty"`
	To      model.NodeID    `cbor:"7,keyasint,omitempty"` // empty for a backup
	Backup  model.BackupID  `cbor:"8,keyasint,omitempty"` // for a restore, or an attach of a restored copy
	Options TransferOptions `cbor:"9,keyasint"`

	Phase   model.TransferPhase `cbor:"10,keyasint"`
	Source  TransferSide        `cbor:"11,keyasint"` // the agent of From
	Target  TransferSide        `cbor:"12,keyasint"` // the agent of To
	Failure TransferFailure     `cbor:"13,keyasint"`
	Left    TransferLeft        `cbor:"14,keyasint"`
	Marks   TransferMarks       `cbor:"15,keyasint"`
	// The target proves itself to the source with the token, which is useless without the certificate of an agent.
	Token string `cbor:"16,keyasint" debug:"secret"`
	// epochs of the replaced copies, in the order of Names; set when the copy is attached
	Epochs []uint64 `cbor:"17,keyasint,omitempty"`
	// for an attach of data that was found on To: epochs of the data, in the order of Names
	Found []uint64 `cbor:"18,keyasint,omitempty"`
}

// TransferOptions are the choices in the request for a transfer.
type TransferOptions struct {
	Live    bool             `cbor:"1,keyasint,omitempty"` // a backup while the instance runs: data as after a power cut
	Attach  bool             `cbor:"2,keyasint,omitempty"` // a restore that replaces the volume in use
	Copy    model.TransferID `cbor:"3,keyasint,omitempty"` // for an attach: the transfer that made or left the copy
	Cooling model.Duration   `cbor:"4,keyasint,omitempty"` // time to keep the replaced copy; default volume_cooling
}

// TransferSide is what one agent has reported about its part of a transfer.
type TransferSide struct {
	State model.TransferState `cbor:"1,keyasint,omitempty"`
	Bytes int64               `cbor:"2,keyasint,omitempty"` // processed so far
	Total int64               `cbor:"3,keyasint,omitempty"` // to process in all; 0 means that it is not known yet
	Sum   string              `cbor:"4,keyasint,omitempty"` // SHA-256 of all data, once that is verified
}

// TransferFailure says why a transfer failed, or what went wrong after it had succeeded (cleanup_failed).
type TransferFailure struct {
	Code    model.Code `cbor:"1,keyasint,omitempty"`
	Message string     `cbor:"2,keyasint,omitempty"`
}

// TransferLeft is what a transfer left on disks beside the volumes in use. The transfer's row stays until nothing is
// left.
type TransferLeft struct {
	Old      model.NodeID `cbor:"1,keyasint,omitempty"` // the node that keeps the replaced copy
	Until    model.Time   `cbor:"2,keyasint,omitempty"` // time until which that copy is kept
	Drop     bool         `cbor:"3,keyasint,omitempty"` // the agent of Old should remove the copy
	Detached model.NodeID `cbor:"4,keyasint,omitempty"` // the node that has a restored copy which is not attached
	Proven   bool         `cbor:"5,keyasint,omitempty"` // an instance was ready on the copy that replaced the old one
}

// TransferMarks say who requested a transfer, and when things happened to it.
type TransferMarks struct {
	Actor      model.Actor `cbor:"1,keyasint"`
	Index      uint64      `cbor:"2,keyasint"`
	Wall       int64       `cbor:"3,keyasint"`
	Moved      model.Time  `cbor:"4,keyasint"` // time of the last progress
	EndedIndex uint64      `cbor:"5,keyasint,omitempty"`
	EndedWall  int64       `cbor:"6,keyasint,omitempty"`
}

// Backup is an archive of the volumes of a slot, in the backup directory of a node.
type Backup struct {
	ID    model.BackupID `cbor:"1,keyasint"`
	Group model.GroupID  `cbor:"2,keyasint"`
	Slot  int            `cbor:"3,keyasint"`
	Names []string       `cbor:"4,keyasint"`
	Node  model.NodeID   `cbor:"5,keyasint"` // the node that wrote it
	Bytes int64          `cbor:"6,keyasint"`
	Sum   string         `cbor:"7,keyasint"` // SHA-256 of its manifest
	Live  bool           `cbor:"8,keyasint,omitempty"`
	Actor model.Actor    `cbor:"9,keyasint"`
	Wall  int64          `cbor:"10,keyasint"`
	Index uint64         `cbor:"11,keyasint"`
}

// Volume returns the id of the transfer's first volume. For a migration and a backup, that is the volume that the
// request named.
func (t *Transfer) Volume() model.VolumeID { return model.NewVolumeID(t.Group, t.Slot, t.Names[0]) }

// Volumes returns the ids of all the volumes of the transfer.
func (t *Transfer) Volumes() []model.VolumeID {
	ids := make([]model.VolumeID, len(t.Names))
	for i, name := range t.Names {
		ids[i] = model.NewVolumeID(t.Group, t.Slot, name)
	}
	return ids
}

// Holds reports whether the transfer keeps its slot empty now.
func (t *Transfer) Holds() bool {
	switch t.Phase {
	case model.TransferStopping, model.TransferCopying, model.TransferVerifying, model.TransferAttaching:
		return true
	case model.TransferRunning:
		return t.Kind == model.TransferBackup && !t.Options.Live
	}
	return false
}

// Leaves reports whether the transfer moves the slot's instance from From to another node.
func (t *Transfer) Leaves() bool {
	return !t.Phase.Ended() && t.From != t.To &&
		(t.Kind == model.TransferMigrate || t.Kind == model.TransferAttach || t.Kind == model.TransferRestore &&
			t.Options.Attach && t.Phase != model.TransferQueued && t.Phase != model.TransferRunning)
}

// Worker returns what was reported by the agent that does the work: the source for a backup, otherwise the target.
func (t *Transfer) Worker() *TransferSide {
	if t.Kind == model.TransferBackup {
		return &t.Source
	}
	return &t.Target
}

// Leftover reports whether the transfer has left an old or a restored copy on a disk, beside the volumes in use.
func (t *Transfer) Leftover() bool { return t.Left.Old != "" || t.Left.Detached != "" }

// DetachedID returns the id of a volume that the transfer restored and that is not in use.
func (t *Transfer) DetachedID(name string) model.VolumeID {
	return model.NewVolumeID(t.Group, t.Slot, name) + "@" + model.VolumeID(t.ID)
}

// TransferStart begins work on the volumes of a slot. For a migration and a backup, Volume is the volume in use. For a
// restore, Volume is the volume that the backup becomes; it need not exist. For an attach, Volume is the restored
// volume, or VOLUME@TRANSFER for an old copy. With Found, an attach takes data on the disk of To that the state does
// not know, and Volume is the volume that the data becomes.
//
// Codes: not_found, volume_in_use (another transfer, or an instance that is not known to have stopped),
// volume_home_node_offline, node_not_eligible, no_capacity_memory, constraint_unmatched, conflict, invalid, busy, and
// those of SlotUnsettled.
type TransferStart struct {
	ID      model.TransferID    `cbor:"1,keyasint"`
	Work    model.TransferKind  `cbor:"2,keyasint"`
	Volume  model.VolumeID      `cbor:"3,keyasint"`
	To      model.NodeID        `cbor:"4,keyasint,omitempty"`
	Backup  model.BackupID      `cbor:"5,keyasint,omitempty"`
	Options TransferOptions     `cbor:"6,keyasint"`
	Token   string              `cbor:"7,keyasint" debug:"secret"`
	Found   []model.VolumeEpoch `cbor:"8,keyasint,omitempty"`
}

// TransferStep moves a transfer to its next phase, or ends it. The step to attaching makes the target's copy the one in
// use. This step is refused unless that copy was verified and no instance can run on the old one. If Drop is set, the
// phase does not change; instead, the agent gets the order to remove an old copy whose time is over and that is not
// needed any more.
//
// Codes: not_found, invalid, stale (the phase does not follow the present one, or an agent has not done its part),
// conflict (the old copy is needed, or volumes would be on different nodes), volume_in_use, replacement_pending,
// node_not_eligible, constraint_unmatched, no_capacity_memory, restore_unconfirmed, and those of SlotUnsettled.
type TransferStep struct {
	ID      model.TransferID    `cbor:"1,keyasint"`
	Phase   model.TransferPhase `cbor:"2,keyasint,omitempty"`
	Code    model.Code          `cbor:"3,keyasint,omitempty"` // if Phase is failed
	Message string              `cbor:"4,keyasint,omitempty"`
	Drop    bool                `cbor:"5,keyasint,omitempty"`
}

// TransferCancel gives up a transfer that has not attached its copy yet, or whose target is confirmed dead. If the
// transfer has ended, TransferCancel removes what it left: a restored copy that is not in use, or an old copy before
// its time. Codes: not_found, conflict.
type TransferCancel struct {
	ID model.TransferID `cbor:"1,keyasint"`
}

// BackupForget removes the record of a backup; the archive stays where it is. Codes: not_found; in_use while a transfer
// restores the backup or attaches a copy that was restored from the backup.
type BackupForget struct {
	ID model.BackupID `cbor:"1,keyasint"`
}
