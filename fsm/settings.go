package fsm

import "github.com/outspan/outspan/model"

// Hold is the brake against mass eviction. While it is active, no node is marked offline and no lost instance is
// replaced.
type Hold struct {
	Active    bool       `cbor:"1,keyasint,omitempty"`
	Since     model.Time `cbor:"2,keyasint,omitempty"`
	SinceWall int64      `cbor:"3,keyasint,omitempty"`
	Reason    string     `cbor:"4,keyasint,omitempty"`
	Calm      model.Time `cbor:"5,keyasint,omitempty"` // the reason has been gone since then; 0 means that it still exists
}

// SettingsSet replaces the settings. If IfIndex is not 0, it must be the index of the last change of the settings.
// Codes: invalid; conflict if the settings have changed since IfIndex.
type SettingsSet struct {
	Settings model.Settings `cbor:"1,keyasint"`
	IfIndex  uint64         `cbor:"2,keyasint,omitempty"`
}

// HoldSet begins or ends the hold. If Calm is set, HoldSet only records in Hold.Calm whether the reason of the active
// hold is gone. Code: stale if Calm is set and no hold is active.
type HoldSet struct {
	Active bool   `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint,omitempty"`
	Calm   *bool  `cbor:"3,keyasint,omitempty"`
}

// ClusterInit is the first command of a cluster. It sets the cluster's id, name and settings. A later ClusterInit
// changes nothing. Code: invalid.
type ClusterInit struct {
	ID       string         `cbor:"1,keyasint"`
	Name     string         `cbor:"2,keyasint"`
	Settings model.Settings `cbor:"3,keyasint"`
}

// FormatRaise raises the format. The leader proposes it once every server supports the new format. Code: conflict if
// the new format is lower than the present one, or if an agent can't read it.
type FormatRaise struct {
	Format uint16 `cbor:"1,keyasint"`
}

// RestoreMark is written after an operator restored a snapshot or recovered the servers. It raises the state's
// incarnation. From then on, agents don't stop instances that the state does not know, until a second RestoreMark,
// with Confirm, records that the operator has confirmed the restore. Code: invalid if Lineages is too long or
// Incarnation too high.
type RestoreMark struct {
	Confirm bool `cbor:"1,keyasint,omitempty"`
	// Lineages has the lineages of the servers that write the mark, as in ClusterID. It is empty if the servers were never
	// recovered.
	Lineages string `cbor:"2,keyasint,omitempty"`
	// Recovered says that the servers themselves began again with an older state (docs/operations.md). Tokens and members
	// are then as old as the rest of the state: all tokens are revoked, and agents may have newer keys; see TrustMember.
	Recovered bool `cbor:"3,keyasint,omitempty"`
	// VoidPeople makes all certificates of people void, because the state may have lost the revocation of any of them. A
	// recovery sets it.
	VoidPeople bool `cbor:"4,keyasint,omitempty"`
	// Incarnation is the least incarnation of the state from then on. It is higher than that of any state that the servers
	// know, so no number that was minted there is used again. 0 means one more than before.
	Incarnation uint64 `cbor:"5,keyasint,omitempty"`
}
