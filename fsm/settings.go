package fsm

import "github.com/outspan/outspan/model"

// Hold is the brake against mass eviction: while it is active, no involuntary rescheduling happens.
type Hold struct {
	Active    bool       `cbor:"1,keyasint,omitempty"`
	Since     model.Time `cbor:"2,keyasint,omitempty"`
	SinceWall int64      `cbor:"3,keyasint,omitempty"`
	Reason    string     `cbor:"4,keyasint,omitempty"`
	Calm      model.Time `cbor:"5,keyasint,omitempty"` // since when its reason has been gone; 0 means it is not gone
}

// SettingsSet replaces the settings. IfIndex, unless 0, must be the index of their last change. Codes: invalid;
// conflict if they have changed since.
type SettingsSet struct {
	Settings model.Settings `cbor:"1,keyasint"`
	IfIndex  uint64         `cbor:"2,keyasint,omitempty"`
}

// HoldSet begins or ends the hold. If Calm is set, it only records whether the reason of the active hold is gone. Code:
// stale if Calm is set and no hold is active.
type HoldSet struct {
	Active bool   `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint,omitempty"`
	Calm   *bool  `cbor:"3,keyasint,omitempty"`
}

// ClusterInit is the first command of a cluster. It sets the cluster's id, name and settings. Later ones change
// nothing. Code: invalid.
type ClusterInit struct {
	ID       string         `cbor:"1,keyasint"`
	Name     string         `cbor:"2,keyasint"`
	Settings model.Settings `cbor:"3,keyasint"`
}

// FormatRaise raises the format once every server supports it. Code: conflict if the format is lower than the present
// one, or if an agent can't read it.
type FormatRaise struct {
	Format uint16 `cbor:"1,keyasint"`
}

// RestoreMark is written after an operator restored a snapshot. It raises the state's incarnation. From then on, agents
// don't stop instances that the state does not know. A second RestoreMark, with Confirm, ends that: the operator has
// confirmed the restore. Code: invalid.
type RestoreMark struct {
	Confirm bool `cbor:"1,keyasint,omitempty"`
	// Lineages are those of the servers that write the mark, as in ClusterID. It is empty if the servers were never
	// recovered.
	Lineages string `cbor:"2,keyasint,omitempty"`
}
