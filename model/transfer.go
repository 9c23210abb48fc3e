package model

import (
	"fmt"
	"slices"
)

// TransferID names one piece of work on volumes (a ULID minted by the proposer).
type TransferID string

// BackupID names a backup; it is the id of the transfer that made it.
type BackupID string

// TransferState is what one of the two agents last said of its part.
type TransferState string

// The states of an agent's part.
const (
	SideServing   TransferState = "serving"   // the source hands out its copy
	SideCopying   TransferState = "copying"   // the worker copies, or reads or writes an archive
	SideVerifying TransferState = "verifying" // all is there and is read once more
	SideVerified  TransferState = "verified"  // every sum is right, and it is on disk
	SideAttached  TransferState = "attached"  // it stands where instances find it
	SideRetired   TransferState = "retired"   // the old copy was put aside
	SideDropped   TransferState = "dropped"   // the old copy was removed
	SideFailed    TransferState = "failed"
)

// Valid reports whether s is one of the states above.
func (s TransferState) Valid() bool {
	return slices.Contains([]TransferState{SideServing, SideCopying, SideVerifying, SideVerified, SideAttached,
		SideRetired, SideDropped, SideFailed}, s)
}

// TransferReport is an agent's report of its part of one transfer. Repeating it changes nothing.
type TransferReport struct {
	ID      TransferID    `cbor:"1,keyasint"`
	State   TransferState `cbor:"2,keyasint"`
	Bytes   int64         `cbor:"3,keyasint,omitempty"`
	Total   int64         `cbor:"4,keyasint,omitempty"`
	Sum     string        `cbor:"5,keyasint,omitempty"`
	Code    Code          `cbor:"6,keyasint,omitempty"` // with failed, or of a clean-up that did not work
	Message string        `cbor:"7,keyasint,omitempty"`
}

// TransferKind says what a transfer is for.
type TransferKind string

// The kinds of transfers.
const (
	TransferMigrate TransferKind = "migrate" // the volumes of a slot move to another node, with their instance
	TransferBackup  TransferKind = "backup"  // they are written to the backup directory of their node
	TransferRestore TransferKind = "restore" // a backup becomes a new volume on a node
	// a restored volume, an old copy or data found on a node takes the place of the one in use
	TransferAttach TransferKind = "attach"
)

// TransferPhase is how far a transfer is. It only moves forward.
type TransferPhase string

// The phases. Migrate: queued, stopping, copying, verifying, attaching, starting, succeeded. Backup: queued, stopping
// (unless live), running, succeeded. Restore: queued, running, and with attach: stopping, attaching, starting;
// succeeded. Attach: queued, running (only for found data: its agent looks whether it is there), stopping, attaching,
// starting, succeeded. Any but the last can become failed.
const (
	TransferQueued    TransferPhase = "queued"
	TransferStopping  TransferPhase = "stopping"
	TransferCopying   TransferPhase = "copying"
	TransferVerifying TransferPhase = "verifying"
	TransferRunning   TransferPhase = "running"
	TransferAttaching TransferPhase = "attaching" // the target's copy is the one in use from here on
	TransferStarting  TransferPhase = "starting"
	TransferSucceeded TransferPhase = "succeeded"
	TransferFailed    TransferPhase = "failed"
)

// Ended reports whether nothing more happens.
func (p TransferPhase) Ended() bool { return p == TransferSucceeded || p == TransferFailed }

// Attached reports whether the copy at the target is the one in use.
func (p TransferPhase) Attached() bool { return p == TransferAttaching || p == TransferStarting }

// VolumeID is "job/group/slot/name"; of a copy of a replicated volume "job/group/slot/name@node".
type VolumeID string

// NewVolumeID names a volume of a slot.
func NewVolumeID(group GroupID, slot int, name string) VolumeID {
	return VolumeID(fmt.Sprintf("%s/%d/%s", group, slot, name))
}
