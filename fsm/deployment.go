package fsm

import "github.com/outspan/outspan/model"

// Deployment is the way from one job version to the next.
type Deployment struct {
	ID       model.DeploymentID     `cbor:"1,keyasint"`
	Job      model.JobName          `cbor:"2,keyasint"`
	Version  uint64                 `cbor:"3,keyasint"`
	Status   model.DeploymentStatus `cbor:"4,keyasint"`
	Reason   string                 `cbor:"5,keyasint,omitempty"`
	Promoted bool                   `cbor:"6,keyasint,omitempty"` // canaries were accepted, or there are none
	// when a slot last had its first ready instance of it, or it went on after a wait
	Progress model.Time `cbor:"7,keyasint"`
	Wall     int64      `cbor:"8,keyasint"`
	Index    uint64     `cbor:"9,keyasint"`
	// for what is no fault of the version: its deadline stands still, and starts over afterwards
	Waiting bool `cbor:"10,keyasint,omitempty"`
}

// DeploymentStep moves a deployment forward. Code: conflict for a step backwards, not_found.
type DeploymentStep struct {
	ID     model.DeploymentID     `cbor:"1,keyasint"`
	Status model.DeploymentStatus `cbor:"2,keyasint"`
	Reason string                 `cbor:"3,keyasint,omitempty"`
}

// DeploymentWait says that a deployment waits for what is no fault of its version, or waits no longer. Codes:
// not_found, conflict if it has ended.
type DeploymentWait struct {
	ID      model.DeploymentID `cbor:"1,keyasint"`
	Waiting bool               `cbor:"2,keyasint,omitempty"`
}

// DeploymentPromote accepts the canaries of a deployment. Codes: not_found, conflict if it has ended or no canaries of
// it wait.
type DeploymentPromote struct {
	ID model.DeploymentID `cbor:"1,keyasint"`
}
