package model

// Holding is an instance that an agent has and that may still run. Even if the state has no row for the instance, as
// after a restore, the instance may keep other instances out of its slot.
type Holding struct {
	ID    InstanceID `cbor:"1,keyasint"`
	Group GroupID    `cbor:"2,keyasint,omitempty"` // empty if the agent lost its journal
	Slot  int        `cbor:"3,keyasint,omitempty"`
	Ends  bool       `cbor:"4,keyasint,omitempty"` // must stop: a person decided so, or the state removed its row
	// true if no restore explains why the state has no row for the instance. Such an instance holds its slot only if the
	// state has an instance or a volume of the same group on the node.
	Late bool `cbor:"9,keyasint,omitempty"`

	// How the instance was started. fsm.InstanceAdopt needs this to add the row again.
	Spec       string        `cbor:"5,keyasint,omitempty"` // result of GroupSpec.Digest; empty if unknown
	Ports      Ports         `cbor:"6,keyasint,omitzero"`
	Copies     []VolumeEpoch `cbor:"7,keyasint,omitempty"` // the data in the instance's volumes
	RestartSeq uint64        `cbor:"8,keyasint,omitempty"`
}

// VolumeEpoch says which data an instance has in one of its volumes. Epoch is compared with fsm.Volume.Made.
type VolumeEpoch struct {
	Name  string `cbor:"1,keyasint"`
	Epoch uint64 `cbor:"2,keyasint,omitempty"`
}

// ReasonEnded is the reason that an agent reports for a stopped instance that the state wants running. This happens
// after a restore of an older state. The instance becomes stopped, not failed.
const ReasonEnded = "stopped_before"
