package fsm

import "github.com/outspan/outspan/model"

// Job is the wanted state of a job: its version, and whether it should run.
type Job struct {
	Name    model.JobName   `cbor:"1,keyasint"`
	Version uint64          `cbor:"2,keyasint"` // of the spec; scaling does not change it
	Class   model.ClassName `cbor:"3,keyasint"`
	Stopped bool            `cbor:"4,keyasint,omitempty"`
	// the job is removed once its last instance is confirmed stopped
	Purge      bool               `cbor:"8,keyasint,omitempty"`
	Deployment model.DeploymentID `cbor:"5,keyasint,omitempty"` // the latest
	// The last version whose deployment succeeded, or a later version that changed no instance. auto_revert goes back to
	// it. 0 means that the job has no such version yet.
	Stable uint64 `cbor:"6,keyasint,omitempty"`
	Index  uint64 `cbor:"7,keyasint"` // of the last change
}

// JobVersion is one spec in a job's history. The newest ten versions are kept. An older version is kept while it is the
// version of an instance or of a group, or the job's stable version.
type JobVersion struct {
	Job     model.JobName `cbor:"1,keyasint"`
	Version uint64        `cbor:"2,keyasint"`
	Spec    model.JobSpec `cbor:"3,keyasint"`
	Actor   model.Actor   `cbor:"4,keyasint"`
	Message string        `cbor:"5,keyasint,omitempty"` // such as "revert to version 3"
	Index   uint64        `cbor:"6,keyasint"`
	Wall    int64         `cbor:"7,keyasint"`

	// For a revert, the version whose spec is repeated here; otherwise 0. The version before a revert is abandoned:
	// RevertTarget never returns it.
	Reverts uint64 `cbor:"10,keyasint,omitempty"`

	// the rollout of this version completed, or this version has the same instances as one whose rollout completed
	Completed bool `cbor:"9,keyasint,omitempty"`

	// groups whose count was last changed by a scale, in this version or in an earlier one
	Scaled []string `cbor:"8,keyasint,omitempty"`
}

// JobSubmit makes Spec the wanted state of a job. Every change is a new version; instances are replaced only if their
// group's template changed. The same spec again changes nothing, unless the job is stopped. Codes: invalid,
// unknown_class, unknown_budget, service_taken, conflict (IfIndex does not match, the job is being purged, or a volume
// would change its kind), no_capacity_memory, no_capacity_ports, too_large, quota_exceeded, image_unresolved.
type JobSubmit struct {
	Spec model.JobSpec `cbor:"1,keyasint"`
	// If not nil, the index that the job must have. 0 means that the job must not exist.
	IfIndex *uint64 `cbor:"2,keyasint,omitempty"`
	Message string  `cbor:"3,keyasint,omitempty"`
	// IfClass, here and in the commands below: if not empty, the class that the job must have, because the caller was
	// judged by it. Code: stale.
	IfClass model.ClassName `cbor:"4,keyasint,omitempty"`
}

// JobRevert submits the spec of another kept version again, as a new version. Codes: not_found, stale if IfVersion is
// not the current version, conflict if Version is the current version or if CurrentCounts is true and the job would run
// exactly what it runs now, and those of JobSubmit.
type JobRevert struct {
	Job       model.JobName `cbor:"1,keyasint"`
	Version   uint64        `cbor:"2,keyasint"`
	IfVersion uint64        `cbor:"3,keyasint,omitempty"` // if not 0, the version that must be the current one
	Message   string        `cbor:"4,keyasint,omitempty"`

	// KeepCounts is set for automatic reverts. Groups that were scaled then keep their current count. If the spec of
	// Version is refused with these counts, the counts of Version are used, and the message of the new version says so.
	KeepCounts bool `cbor:"5,keyasint,omitempty"`

	// CurrentCounts is set for reverts by people. Every group that both versions have keeps its current count, because
	// only scaling should change counts. If the spec of Version is refused with these counts, the same applies as for
	// KeepCounts.
	CurrentCounts bool `cbor:"6,keyasint,omitempty"`

	IfClass model.ClassName `cbor:"7,keyasint,omitempty"`
	// IfTarget is, if not 0, the index at which Version was made: a job that was purged and made again has other versions
	// with the same numbers.
	IfTarget uint64 `cbor:"8,keyasint,omitempty"`
}

// JobScale changes a group's count, without a new version. The same count again changes nothing. Codes: not_found,
// conflict if the job is stopped, invalid, unknown_budget, quota_exceeded.
type JobScale struct {
	Job   model.JobName `cbor:"1,keyasint"`
	Group string        `cbor:"2,keyasint"`
	Count int           `cbor:"3,keyasint"`

	IfClass model.ClassName `cbor:"4,keyasint,omitempty"`
}

// JobStop stops every instance of a job. If Purge is true, it also removes the job once the last instance is confirmed
// stopped. A later JobStop without Purge does not cancel the removal. Code: not_found.
type JobStop struct {
	Job   model.JobName `cbor:"1,keyasint"`
	Purge bool          `cbor:"2,keyasint,omitempty"`

	IfClass model.ClassName `cbor:"3,keyasint,omitempty"`
}

// JobRestart replaces every instance of a job by one of a new version with the same spec. If Group is not empty, it
// replaces only the instances of that group. Codes: not_found, conflict if the job is stopped, too_large,
// quota_exceeded.
type JobRestart struct {
	Job   model.JobName `cbor:"1,keyasint"`
	Group string        `cbor:"2,keyasint,omitempty"`

	IfClass model.ClassName `cbor:"3,keyasint,omitempty"`
}
