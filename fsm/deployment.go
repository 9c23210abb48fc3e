package fsm

import "github.com/outspan/outspan/model"

// Deployment is the change of a job from one version to the next.
type Deployment struct {
	ID       model.DeploymentID     `cbor:"1,keyasint"`
	Job      model.JobName          `cbor:"2,keyasint"`
	Version  uint64                 `cbor:"3,keyasint"`
	Status   model.DeploymentStatus `cbor:"4,keyasint"`
	Reason   string                 `cbor:"5,keyasint,omitempty"`
	Promoted bool                   `cbor:"6,keyasint,omitempty"` // canaries were accepted, or there are none
	// when a slot last got its first ready instance of this deployment, or when a wait ended
	Progress model.Time `cbor:"7,keyasint"`
	Wall     int64      `cbor:"8,keyasint"`
	Index    uint64     `cbor:"9,keyasint"`
	// it waits for something that is not the version's fault; the deadline stands still, and starts over afterwards
	Waiting bool `cbor:"10,keyasint,omitempty"`
}

// DeploymentStep moves a deployment forward. Codes: not_found, conflict for a step backwards, invalid for a failure
// without a reason.
type DeploymentStep struct {
	ID     model.DeploymentID     `cbor:"1,keyasint"`
	Status model.DeploymentStatus `cbor:"2,keyasint"`
	Reason string                 `cbor:"3,keyasint,omitempty"`
}

// DeploymentWait says whether a deployment waits for something that is not its version's fault. Codes: not_found,
// conflict if it has ended.
type DeploymentWait struct {
	ID      model.DeploymentID `cbor:"1,keyasint"`
	Waiting bool               `cbor:"2,keyasint,omitempty"`
}

// DeploymentPromote accepts the canaries of a deployment. Codes: not_found, conflict if it has ended or no canaries of
// it wait.
type DeploymentPromote struct {
	ID model.DeploymentID `cbor:"1,keyasint"`
}
