package fsm

import "github.com/outspan/outspan/model"

// Group is the running state of a job's group, with sums that Apply maintains so that nothing has to be counted.
type Group struct {
	ID model.GroupID `cbor:"1,keyasint"`
	// the job version that current instances run: the one at which the template last changed
	Version uint64     `cbor:"2,keyasint"`
	Count   int        `cbor:"3,keyasint"` // wanted; 0 once the job is stopped or the group was removed from it
	Role    model.Role `cbor:"4,keyasint"`

	Ready    int          `cbor:"5,keyasint"` // of any version: desired running, observed ready, node not offline
	Running  int          `cbor:"6,keyasint"` // desired running
	Alive    int          `cbor:"7,keyasint"` // not confirmed stopped
	Budget   model.Budget `cbor:"8,keyasint"`
	Stops    []model.Time `cbor:"9,keyasint,omitempty"`  // voluntary stops begun within the rate's window
	Placed   uint64       `cbor:"10,keyasint"`           // all placements so far; the attempt in an instance id
	Failures []Failure    `cbor:"11,keyasint,omitempty"` // recent failures, for reschedule limits and avoidance
	Removed  bool         `cbor:"12,keyasint,omitempty"` // no longer in the job's spec
	Held     int          `cbor:"13,keyasint,omitempty"` // ready instances whose stop is being prepared
	Lost     int          `cbor:"15,keyasint,omitempty"` // running instances on nodes that are offline
	// instances that are being stopped for a cause after which a system group places another one on the node
	Replaced int `cbor:"16,keyasint,omitempty"`
	// when the rescheduler last began to move one of its instances; 0 = never
	MovedAt model.Time `cbor:"14,keyasint,omitempty"`
	// log index at which its instances, their addresses or their states last changed
	PeersAt uint64 `cbor:"17,keyasint,omitempty"`
}

// Failure is one instance that failed on a node.
type Failure struct {
	At      model.Time   `cbor:"1,keyasint"`
	Node    model.NodeID `cbor:"2,keyasint"`
	Version uint64       `cbor:"3,keyasint"`
	Reason  string       `cbor:"4,keyasint"`
}
