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
	// from when its deadline counts: when it was queued, began to roll, last made progress, was promoted, or began or
	// stopped waiting
	Progress model.Time `cbor:"7,keyasint"`
	Wall     int64      `cbor:"8,keyasint"`
	Index    uint64     `cbor:"9,keyasint"`
	// the deployment waits for something that is not the fault of its version; its deadline stands still, and starts over
	// afterwards
	Waiting bool `cbor:"10,keyasint,omitempty"`
}

// DeploymentStep moves a deployment forward. A success makes its version the stable one, or the job's latest version if
// that has the same instances. Codes: not_found, conflict (the deployment can't get this status after its present one),
// invalid (a failure without a reason).
type DeploymentStep struct {
	ID     model.DeploymentID     `cbor:"1,keyasint"`
	Status model.DeploymentStatus `cbor:"2,keyasint"`
	Reason string                 `cbor:"3,keyasint,omitempty"`
}

// DeploymentWait records whether a deployment waits for something that is not the fault of its version. It changes
// nothing if that is recorded already. Codes: not_found, conflict (the deployment has ended).
type DeploymentWait struct {
	ID      model.DeploymentID `cbor:"1,keyasint"`
	Waiting bool               `cbor:"2,keyasint,omitempty"`
}

// DeploymentPromote accepts the canaries of a deployment. Codes: not_found, conflict (the deployment has ended, or has
// no canaries that wait).
type DeploymentPromote struct {
	ID model.DeploymentID `cbor:"1,keyasint"`
}
