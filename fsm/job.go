package fsm

import "github.com/outspan/outspan/model"

// Job is what is wanted of a job: its version, and whether it should run.
type Job struct {
	Name    model.JobName   `cbor:"1,keyasint"`
	Version uint64          `cbor:"2,keyasint"` // of the spec; scaling does not change it
	Class   model.ClassName `cbor:"3,keyasint"`
	Stopped bool            `cbor:"4,keyasint,omitempty"`
	// once the last instance is confirmed stopped, the job is removed
	Purge      bool               `cbor:"8,keyasint,omitempty"`
	Deployment model.DeploymentID `cbor:"5,keyasint,omitempty"` // the latest
	// the last version whose deployment succeeded, or a later version with the same instances; auto_revert goes back to it
	Stable uint64 `cbor:"6,keyasint,omitempty"`
	Index  uint64 `cbor:"7,keyasint"` // of the last change
}

// JobVersion is one spec in a job's history. The last ten versions are kept. An older one is kept while an instance
// runs it, while it is a group's current version, and while it is the job's stable version.
type JobVersion struct {
	Job     model.JobName `cbor:"1,keyasint"`
	Version uint64        `cbor:"2,keyasint"`
	Spec    model.JobSpec `cbor:"3,keyasint"`
	Actor   model.Actor   `cbor:"4,keyasint"`
	Message string        `cbor:"5,keyasint,omitempty"` // such as "revert to version 3"
	Index   uint64        `cbor:"6,keyasint"`
	Wall    int64         `cbor:"7,keyasint"`

	// for a revert: the version whose spec this one repeats; the version before this one then counts as abandoned. 0: this
	// version is no revert
	Reverts uint64 `cbor:"10,keyasint,omitempty"`

	// its rollout completed, or it has the same instances as a version whose rollout completed
	Completed bool `cbor:"9,keyasint,omitempty"`

	// groups whose count was last changed by a scale, in this version or in an earlier one
	Scaled []string `cbor:"8,keyasint,omitempty"`
}

// JobSubmit makes Spec the wanted state of a job. Every change is a new version; instances are replaced only if their
// group's template changed. The same spec again changes nothing, unless the job is stopped. Codes: invalid,
// unknown_class, unknown_budget, service_taken, conflict (IfIndex does not match, the job is being purged, or a volume
// would change its kind), no_capacity_memory, no_capacity_ports, too_large, quota_exceeded.
type JobSubmit struct {
	Spec    model.JobSpec `cbor:"1,keyasint"`
	IfIndex *uint64       `cbor:"2,keyasint,omitempty"` // if not nil: the index the job must have; 0: it must not exist
	Message string        `cbor:"3,keyasint,omitempty"`
}

// JobRevert submits the spec of another kept version again, as a new version. Codes: not_found, stale (IfVersion is not
// the current version), conflict (Version is the current version; or CurrentCounts is set, and the job would run
// exactly what it runs now), and those of JobSubmit.
type JobRevert struct {
	Job       model.JobName `cbor:"1,keyasint"`
	Version   uint64        `cbor:"2,keyasint"`
	IfVersion uint64        `cbor:"3,keyasint,omitempty"` // unless 0, the version that must be the current one
	Message   string        `cbor:"4,keyasint,omitempty"`

	// KeepCounts is set for automatic reverts: groups that were scaled keep their current count. If Version can't have
	// those counts, it keeps its own, and the message of the new version says so.
	KeepCounts bool `cbor:"5,keyasint,omitempty"`

	// CurrentCounts is set for reverts by people: every group that both versions have keeps its current count, because
	// only scaling should change counts. If Version can't have those counts, the same applies as for KeepCounts.
	CurrentCounts bool `cbor:"6,keyasint,omitempty"`
}

// JobScale changes a group's count, without a new version. The same count again changes nothing. Codes: not_found,
// conflict if the job is stopped, invalid, unknown_budget, quota_exceeded.
type JobScale struct {
	Job   model.JobName `cbor:"1,keyasint"`
	Group string        `cbor:"2,keyasint"`
	Count int           `cbor:"3,keyasint"`
}

// JobStop stops every instance of a job. If Purge is true, it also removes the job once the last instance is confirmed
// stopped. A later JobStop without Purge does not take that back. Code: not_found.
type JobStop struct {
	Job   model.JobName `cbor:"1,keyasint"`
	Purge bool          `cbor:"2,keyasint,omitempty"`
}

// JobRestart rolls every instance of a job to a new version with the same spec. If Group is not empty, it rolls only
// the instances of that group. Codes: not_found, conflict if the job is stopped, too_large, quota_exceeded.
type JobRestart struct {
	Job   model.JobName `cbor:"1,keyasint"`
	Group string        `cbor:"2,keyasint,omitempty"`
}
