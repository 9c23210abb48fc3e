package fsm

import "github.com/outspan/outspan/model"

// Hold is the brake against mass eviction: while it is active no involuntary rescheduling happens.
type Hold struct {
	Active    bool       `cbor:"1,keyasint,omitempty"`
	Since     model.Time `cbor:"2,keyasint,omitempty"`
	SinceWall int64      `cbor:"3,keyasint,omitempty"`
	Reason    string     `cbor:"4,keyasint,omitempty"`
	Calm      model.Time `cbor:"5,keyasint,omitempty"` // since when its reason is gone; 0: it is not gone
}

// SettingsSet replaces the settings. IfIndex, unless 0, must be the index of their last change (conflict). Code:
// invalid.
type SettingsSet struct {
	Settings model.Settings `cbor:"1,keyasint"`
	IfIndex  uint64         `cbor:"2,keyasint,omitempty"`
}

// HoldSet begins or ends the hold. With Calm it only records whether the reason of the active hold is gone. Code: stale
// (with Calm, if no hold is active).
type HoldSet struct {
	Active bool   `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint,omitempty"`
	Calm   *bool  `cbor:"3,keyasint,omitempty"`
}

// ClusterInit is the first entry of a cluster: it sets its id, name and settings. Later ones change nothing.
type ClusterInit struct {
	ID       string         `cbor:"1,keyasint"`
	Name     string         `cbor:"2,keyasint"`
	Settings model.Settings `cbor:"3,keyasint"`
}

// FormatRaise raises the format once every server supports it. Code: conflict for a lower format, or while an agent
// can't read it.
type FormatRaise struct {
	Format uint16 `cbor:"1,keyasint"`
}

// RestoreMark is written after an operator restored a snapshot. It raises the state's incarnation, so that agents don't
// stop instances that the state does not know until the operator confirms (Confirm).
type RestoreMark struct {
	Confirm bool `cbor:"1,keyasint,omitempty"`
	// Lineages are those of the servers that write it; see ClusterID. Empty: the servers were never recovered.
	Lineages string `cbor:"2,keyasint,omitempty"`
}
