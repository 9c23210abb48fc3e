package model

// Holding is an instance that an agent has and that is not known to have stopped. One that the state has no row of, as
// after a restore, holds its slot all the same: only one may fill it.
type Holding struct {
	ID    InstanceID `cbor:"1,keyasint"`
	Group GroupID    `cbor:"2,keyasint,omitempty"` // empty: the agent has lost its journal; it may be any
	Slot  int        `cbor:"3,keyasint,omitempty"`
	Ends  bool       `cbor:"4,keyasint,omitempty"` // it is to stop: a person has decided so, or no restore lost its row
	// first told when no restore was open on its node: it holds slots of groups that are or were there only
	Late bool `cbor:"9,keyasint,omitempty"`

	// What it runs by, for InstanceAdopt.
	Spec       string        `cbor:"5,keyasint,omitempty"` // GroupSpec.Digest; empty: unknown
	Ports      Ports         `cbor:"6,keyasint,omitzero"`
	Copies     []VolumeEpoch `cbor:"7,keyasint,omitempty"` // of its volumes, in order of name
	RestartSeq uint64        `cbor:"8,keyasint,omitempty"`
}

// VolumeEpoch tells which data is in a volume: see fsm.Volume.Made.
type VolumeEpoch struct {
	Name  string `cbor:"1,keyasint"`
	Epoch uint64 `cbor:"2,keyasint,omitempty"`
}

// ReasonEnded is that of an instance that is to run, and whose agent knows that it stopped before: the state is one
// from before that. It ends, which is no failure.
const ReasonEnded = "stopped_before"
