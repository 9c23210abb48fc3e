package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// VolumeState is the state of a volume in one word.
type VolumeState string

// The states of volumes.
const (
	VolumeInUse VolumeState = "in_use" // an instance uses it, or the group wants an instance that would use it
	// no instance uses it, and the group wants no instance that would: the count was lowered, or the job is stopped
	VolumeUnused      VolumeState = "unused"
	VolumeMoving      VolumeState = "moving"       // a transfer works on it
	VolumeDetached    VolumeState = "detached"     // it was restored and is not in use
	VolumeHomeOffline VolumeState = "home_offline" // the node that has the data is offline
	// its home node was forgotten and the data was given up; the next instance starts with an empty volume
	VolumeLost VolumeState = "lost"
)

// Volume is a volume, a detached volume, or one copy of a replicated volume.
type Volume struct {
	ID        model.VolumeID   `json:"id" doc:"job/group/slot/name; of a restored one that is not in use with @ and its transfer, of a copy of a replicated one with @ and its node"`
	Job       model.JobName    `json:"job"`
	Group     string           `json:"group"`
	Slot      int              `json:"slot"`
	Name      string           `json:"name"`
	Kind      model.VolumeKind `json:"kind" enum:"local,replicated"`
	Node      string           `json:"node" doc:"name of the node that has the data"`
	NodeID    model.NodeID     `json:"node_id"`
	State     VolumeState      `json:"state" enum:"in_use,unused,moving,detached,home_offline,lost"`
	Instance  model.InstanceID `json:"instance" doc:"that uses it now"`
	Transfer  model.TransferID `json:"transfer" doc:"that works on it now"`
	OldCopies []OldCopy        `json:"old_copies" doc:"what it was before it was moved or replaced"`
	Lost      *VolumeLoss      `json:"lost" doc:"the last time that its data was given up"`
	Aside     []AsideData      `json:"aside,omitempty" doc:"data that it left behind when its slot began anew elsewhere, the oldest first"`
}

// AsideData is data of a volume that was left behind on a node. It stays unused unless somebody attaches it.
type AsideData struct {
	Node  string    `json:"node" doc:"name"`
	Epoch uint64    `json:"epoch" doc:"of the data; to put it to use: outspan volume attach VOLUME --node NODE --epoch EPOCH"`
	At    time.Time `json:"at" doc:"when it was left"`
}

// VolumeLoss records that the data of a volume was given up together with its home node.
type VolumeLoss struct {
	Node  string      `json:"node" doc:"name of the node that was forgotten"`
	Actor model.Actor `json:"actor"`
	At    time.Time   `json:"at"`
	Index uint64      `json:"index"`
}

// OldCopy is the data of a volume before a transfer moved or replaced it. It is kept until Until, and longer while it
// is needed.
type OldCopy struct {
	Transfer model.TransferID `json:"transfer" doc:"that replaced it"`
	Node     string           `json:"node"`
	Until    time.Time        `json:"until" doc:"when it is removed"`
	Needed   string           `json:"needed,omitempty" doc:"why it is kept even after that"`
}

// VolumeDetail is a volume with its transfers and backups.
type VolumeDetail struct {
	Volume
	Transfers []Transfer `json:"transfers" doc:"those that are still on record, the oldest first"`
	Backups   []Backup   `json:"backups"`
}

// Transfer is work on the volumes of one slot.
type Transfer struct {
	ID         model.TransferID    `json:"id"`
	Kind       model.TransferKind  `json:"kind" enum:"migrate,backup,restore,attach"`
	Phase      model.TransferPhase `json:"phase" enum:"queued,stopping,copying,verifying,running,attaching,starting,succeeded,failed"`
	Volume     model.VolumeID      `json:"volume"`
	Volumes    []model.VolumeID    `json:"volumes" doc:"all volumes of the slot move together"`
	From       string              `json:"from" doc:"node"`
	To         string              `json:"to" doc:"node"`
	Backup     model.BackupID      `json:"backup"`
	Live       bool                `json:"live"`
	Attach     bool                `json:"attach"`
	Bytes      int64               `json:"done_bytes"`
	Total      int64               `json:"total_bytes" doc:"0: not known yet"`
	Sum        string              `json:"sha256"`
	Code       model.Code          `json:"code" doc:"why it failed"`
	Message    string              `json:"message"`
	WaitingFor string              `json:"waiting_for" doc:"what keeps it where it is, if something does"`
	OldCopy    *OldCopy            `json:"old_copy"`
	Actor      model.Actor         `json:"actor"`
	CreatedAt  time.Time           `json:"created_at"`
	EndedAt    *time.Time          `json:"ended_at"`
	Index      uint64              `json:"index"`
}

// Backup is an archive of the volumes of one slot.
type Backup struct {
	ID        model.BackupID   `json:"id"`
	Volume    model.VolumeID   `json:"volume"`
	Volumes   []model.VolumeID `json:"volumes"`
	Node      string           `json:"node" doc:"that wrote it into its backup directory"`
	SizeBytes int64            `json:"size_bytes"`
	Sum       string           `json:"sha256" doc:"of its manifest"`
	Live      bool             `json:"live" doc:"taken while an instance ran: as after a power cut, at best"`
	Actor     model.Actor      `json:"actor"`
	CreatedAt time.Time        `json:"created_at"`
	Index     uint64           `json:"index"`
}

// TransferReply is the answer to a write that concerns volumes.
type TransferReply struct {
	Written
	Transfer *Transfer `json:"transfer,omitempty"`
}

// MigrateBody moves the volumes of a slot.
type MigrateBody struct {
	To   string          `json:"to" doc:"node: id or name"`
	Keep *model.Duration `json:"keep,omitempty" doc:"how long the old copy is kept; default: the setting volume_cooling"`
}

// BackupBody makes an archive of a volume.
type BackupBody struct {
	Live bool `json:"live,omitempty" doc:"while its instance runs: as after a power cut, at best; default: the instance is stopped meanwhile"`
}

// AttachBody chooses the data that a volume's slot is to use.
type AttachBody struct {
	Node   string            `json:"node,omitempty" doc:"the data to attach was found on the disk of this node: id or name; default: a restored volume, or an old copy that is kept"`
	Copies map[string]uint64 `json:"copies,omitempty" doc:"with node: the epoch of each volume, as found-volumes tells it"`
	Keep   *model.Duration   `json:"keep,omitempty" doc:"how long the copy that is replaced is kept; default: the setting volume_cooling"`
}

// RestoreBody makes a volume from the archive of a backup.
type RestoreBody struct {
	Volume model.VolumeID  `json:"volume,omitempty" doc:"what it is to become; default: what it was made of"`
	Node   string          `json:"node" doc:"whose backup directory has the archive: id or name"`
	Attach bool            `json:"attach,omitempty" doc:"put it to use at once; the instance is stopped for that"`
	Keep   *model.Duration `json:"keep,omitempty" doc:"with attach: how long the copy that is replaced is kept; default: the setting volume_cooling"`
}

// FoundAge compares found data with the data in use.
type FoundAge string

// The values of FoundAge.
const (
	FoundNewer FoundAge = "newer"
	FoundOlder FoundAge = "older"
	FoundOnly  FoundAge = "only" // no data of this volume is in use
	FoundSame  FoundAge = "same" // it has the epoch of the data in use and is on the same node, but was put aside
)

// FoundVolume is data of a slot's local volumes on a node's disk that is neither in use nor kept as an old copy. For
// example, a restored snapshot has no records of the data, the slot started empty on another node, or the data was
// given up with a node that came back.
type FoundVolume struct {
	Node    string            `json:"node"`
	Volume  model.VolumeID    `json:"volume" doc:"what it can be attached as, with the others of its slot"`
	Epoch   uint64            `json:"epoch" doc:"of the newest of the volumes; a higher one is newer"`
	Age     FoundAge          `json:"age" enum:"newer,older,only,same" doc:"than the data in use; same: it is that data, and was put aside"`
	Written time.Time         `json:"written" doc:"when a file directly in it was last written, by the node's clock"`
	Copies  map[string]uint64 `json:"copies" doc:"epoch of each volume, by its name: what attach-volume takes"`
}

// FoundVolumes lists all found volumes, sorted by node and volume. The newest data of a volume is first.
type FoundVolumes struct {
	Items  []FoundVolume `json:"items"`
	Silent []string      `json:"silent_nodes" doc:"nodes whose agents did not answer: what is there is not listed"`
	Index  uint64        `json:"index"`
}
