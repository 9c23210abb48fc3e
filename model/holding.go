package model

// Holding is an instance that an agent has and that is not known to have stopped. Even if the state has no row for the
// instance, as after a restore, the instance may hold its slot, so that no other instance is placed in the slot.
type Holding struct {
	ID    InstanceID `cbor:"1,keyasint"`
	Group GroupID    `cbor:"2,keyasint,omitempty"` // empty if unknown, because the agent lost its journal
	Slot  int        `cbor:"3,keyasint,omitempty"`
	Ends  bool       `cbor:"4,keyasint,omitempty"` // it must stop: a person decided so, or the state removed its row
	// The instance was first reported when nothing of a restore was unsettled on its node. It holds its slot only if its
	// group has, or had, an instance or data on that node.
	Late bool `cbor:"9,keyasint,omitempty"`

	// What the instance was started with. fsm.InstanceAdopt needs it to add the row again.
	Spec       string        `cbor:"5,keyasint,omitempty"` // the GroupSpec.Digest; empty if unknown
	Ports      Ports         `cbor:"6,keyasint,omitzero"`
	Copies     []VolumeEpoch `cbor:"7,keyasint,omitempty"` // the data in its volumes
	RestartSeq uint64        `cbor:"8,keyasint,omitempty"`
}

// VolumeEpoch says which data an instance has in one of its volumes. Epoch is compared with fsm.Volume.Made.
type VolumeEpoch struct {
	Name  string `cbor:"1,keyasint"`
	Epoch uint64 `cbor:"2,keyasint,omitempty"`
}

// ReasonEnded is the reason that an agent reports for an instance that the state wants running, although the agent
// knows that it has stopped. This happens after the state was restored from an earlier time. The instance counts as
// stopped, not as failed.
const ReasonEnded = "stopped_before"
