package model

// Holding is an instance that an agent has and that is not known to have stopped. Even without a row in the state, as
// after a restore, it holds its slot: no other instance may fill it.
type Holding struct {
	ID    InstanceID `cbor:"1,keyasint"`
	Group GroupID    `cbor:"2,keyasint,omitempty"` // empty: unknown, as the agent lost its journal
	Slot  int        `cbor:"3,keyasint,omitempty"`
	Ends  bool       `cbor:"4,keyasint,omitempty"` // it must stop: a person decided so, or the state itself dropped it
	// first reported when no restore was open on its node; it then holds a slot only if its group is or was on that node
	Late bool `cbor:"9,keyasint,omitempty"`

	// What it was started with, for InstanceAdopt.
	Spec       string        `cbor:"5,keyasint,omitempty"` // GroupSpec.Digest; empty: unknown
	Ports      Ports         `cbor:"6,keyasint,omitzero"`
	Copies     []VolumeEpoch `cbor:"7,keyasint,omitempty"` // of its volumes, in order of name
	RestartSeq uint64        `cbor:"8,keyasint,omitempty"`
}

// VolumeEpoch says which data is in a volume: see fsm.Volume.Made.
type VolumeEpoch struct {
	Name  string `cbor:"1,keyasint"`
	Epoch uint64 `cbor:"2,keyasint,omitempty"`
}

// ReasonEnded is the reason in a report on an instance that the state wants running, although its agent knows that it
// stopped before. Then the state was restored from an earlier time. The instance ends, which is no failure.
const ReasonEnded = "stopped_before"
