package fsm

import "github.com/outspan/outspan/model"

// Deployment is the change of a job from one version to the next.
type Deployment struct {
	ID       model.DeploymentID     `cbor:"1,keyasint"`
	Job      model.JobName          `cbor:"2,keyasint"`
	Version  uint64                 `cbor:"3,keyasint"`
	Status   model.DeploymentStatus `cbor:"4,keyasint"`
	Reason   string                 `cbor:"5,keyasint,omitempty"`
	Promoted bool                   `cbor:"6,keyasint,omitempty"` // the canaries were accepted, or none are needed
	// The deadline is measured from this time: the last one at which the deployment was queued, began to roll, made
	// progress, was promoted, or began or stopped waiting.
	Progress model.Time `cbor:"7,keyasint"`
	Wall     int64      `cbor:"8,keyasint"`
	Index    uint64     `cbor:"9,keyasint"`
	// The deployment waits for something that is not the fault of its version. Its deadline is suspended meanwhile, and
	// starts from zero afterwards.
	Waiting bool `cbor:"10,keyasint,omitempty"`
}

// DeploymentStep changes the status of a deployment. When a job's latest deployment succeeds, the deployment's version
// becomes the job's stable version. If the job's latest version has the same instances, the latest version becomes
// stable instead. Codes: not_found, conflict (the present status can't change to this one), invalid (a failure without
// a reason).
type DeploymentStep struct {
	ID     model.DeploymentID     `cbor:"1,keyasint"`
	Status model.DeploymentStatus `cbor:"2,keyasint"`
	Reason string                 `cbor:"3,keyasint,omitempty"`
}

// DeploymentWait records whether a deployment waits for something that is not the fault of its version. It changes
// nothing if the same value is recorded already. Codes: not_found, conflict (the deployment has ended).
type DeploymentWait struct {
	ID      model.DeploymentID `cbor:"1,keyasint"`
	Waiting bool               `cbor:"2,keyasint,omitempty"`
}

// DeploymentPromote accepts the canaries of a deployment. Codes: not_found, conflict (the deployment has ended, or has
// no canaries that wait to be accepted).
type DeploymentPromote struct {
	ID model.DeploymentID `cbor:"1,keyasint"`
}
