package fsm

import "github.com/outspan/outspan/model"

// Job is the current truth of a job: which version is wanted, and whether it should run.
type Job struct {
	Name    model.JobName   `cbor:"1,keyasint"`
	Version uint64          `cbor:"2,keyasint"` // of the spec; scaling keeps it
	Class   model.ClassName `cbor:"3,keyasint"`
	Stopped bool            `cbor:"4,keyasint,omitempty"`
	// the job is removed once its last instance is confirmed stopped
	Purge      bool               `cbor:"8,keyasint,omitempty"`
	Deployment model.DeploymentID `cbor:"5,keyasint,omitempty"` // the latest
	// the last version whose deployment succeeded, or a later one that needed none; auto_revert goes back to it
	Stable uint64 `cbor:"6,keyasint,omitempty"`
	Index  uint64 `cbor:"7,keyasint"` // of the last change
}

// JobVersion is one spec in a job's history. A version is kept while an instance runs it or it is one of the last ten.
type JobVersion struct {
	Job     model.JobName `cbor:"1,keyasint"`
	Version uint64        `cbor:"2,keyasint"`
	Spec    model.JobSpec `cbor:"3,keyasint"`
	Actor   model.Actor   `cbor:"4,keyasint"`
	Message string        `cbor:"5,keyasint,omitempty"` // such as "revert to version 3"
	Index   uint64        `cbor:"6,keyasint"`
	Wall    int64         `cbor:"7,keyasint"`

	// for a revert, the version whose spec it repeats; the version before the revert is then abandoned. 0: no revert
	Reverts uint64 `cbor:"10,keyasint,omitempty"`

	Completed bool `cbor:"9,keyasint,omitempty"` // its rollout completed, or it changes no instance of such a version

	// groups whose count was changed by a scale, in this version or an earlier one
	Scaled []string `cbor:"8,keyasint,omitempty"`
}

// JobSubmit makes Spec the wanted state of a job. Every change is a new version; instances are replaced only if their
// group's template changed. The same spec again changes nothing. IfIndex, unless nil, must be the job's index (0: the
// job must not exist), otherwise the code is conflict. Codes: invalid, not_supported, unknown_class, service_taken,
// conflict, too_large, quota_exceeded.
type JobSubmit struct {
	Spec    model.JobSpec `cbor:"1,keyasint"`
	IfIndex *uint64       `cbor:"2,keyasint,omitempty"`
	Message string        `cbor:"3,keyasint,omitempty"`
}

// JobRevert submits the spec of an earlier version again, as a new version. IfVersion, unless 0, must be the current
// one (stale). The system sets KeepCounts: groups that were scaled then keep their current count. If the earlier
// version can't have those counts, it keeps its own, and the message of the new version says so.
type JobRevert struct {
	Job       model.JobName `cbor:"1,keyasint"`
	Version   uint64        `cbor:"2,keyasint"`
	IfVersion uint64        `cbor:"3,keyasint,omitempty"`
	Message   string        `cbor:"4,keyasint,omitempty"`

	KeepCounts bool `cbor:"5,keyasint,omitempty"`

	// CurrentCounts is set for people: every group of both versions keeps its current count, because scaling is what
	// changes counts. A version that differs from the current one only in counts is then refused (conflict).
	CurrentCounts bool `cbor:"6,keyasint,omitempty"`
}

// JobScale changes a group's count.
type JobScale struct {
	Job   model.JobName `cbor:"1,keyasint"`
	Group string        `cbor:"2,keyasint"`
	Count int           `cbor:"3,keyasint"`
}

// JobStop stops every instance of a job. Purge also removes the job, once the last of them is confirmed stopped.
type JobStop struct {
	Job   model.JobName `cbor:"1,keyasint"`
	Purge bool          `cbor:"2,keyasint,omitempty"`
}

// JobRestart rolls every instance of a job, or of one group, to a new version with the same spec.
type JobRestart struct {
	Job   model.JobName `cbor:"1,keyasint"`
	Group string        `cbor:"2,keyasint,omitempty"`
}
