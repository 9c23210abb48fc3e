package fsm

import "github.com/outspan/outspan/model"

// Hold is the brake against mass eviction: while it is active no involuntary rescheduling happens.
type Hold struct {
	Active    bool       `cbor:"1,keyasint,omitempty"`
	Since     model.Time `cbor:"2,keyasint,omitempty"`
	SinceWall int64      `cbor:"3,keyasint,omitempty"`
	Reason    string     `cbor:"4,keyasint,omitempty"`
	Calm      model.Time `cbor:"5,keyasint,omitempty"` // since when its reason has been gone; 0: it is not
}

// SettingsSet replaces the settings. IfIndex other than 0 must be the index of their last change (conflict). Code:
// invalid.
type SettingsSet struct {
	Settings model.Settings `cbor:"1,keyasint"`
	IfIndex  uint64         `cbor:"2,keyasint,omitempty"`
}

// HoldSet begins or ends the hold. With Calm it only notes of the one that is active whether its reason is gone. Code:
// stale (with Calm, and none is active).
type HoldSet struct {
	Active bool   `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint,omitempty"`
	Calm   *bool  `cbor:"3,keyasint,omitempty"`
}

// ClusterInit is the first entry of a cluster: it names it and seeds the settings. Later ones change nothing.
type ClusterInit struct {
	ID       string         `cbor:"1,keyasint"`
	Name     string         `cbor:"2,keyasint"`
	Settings model.Settings `cbor:"3,keyasint"`
}

// FormatRaise raises the format once every server supports it.
type FormatRaise struct {
	Format uint16 `cbor:"1,keyasint"`
}

// RestoreMark is written after a snapshot was restored by an operator: it raises the state's incarnation, so that
// agents stop nothing that they don't know until the operator confirms (Confirm).
type RestoreMark struct {
	Confirm bool `cbor:"1,keyasint,omitempty"`
	// Lineages are those of the servers that write it; see ClusterID. Empty: they were never recovered.
	Lineages string `cbor:"2,keyasint,omitempty"`
}
