package model

// Desired is what the servers want of an instance: running -> draining -> stopped, or running -> stopped.
type Desired string

// The desired states. DesiredStopped is terminal, and a draining instance never goes back to running.
const (
	DesiredRunning  Desired = "running"
	DesiredDraining Desired = "draining"
	DesiredStopped  Desired = "stopped"
)

// Observed is what the agent last reported, or lost, which servers set with the offline entry.
type Observed string

// The observed states.
const (
	ObservedPending  Observed = "pending"
	ObservedBooting  Observed = "booting"
	ObservedReady    Observed = "ready"
	ObservedUnready  Observed = "unready"
	ObservedDraining Observed = "draining"
	ObservedStopped  Observed = "stopped"
	ObservedFailed   Observed = "failed"
	ObservedLost     Observed = "lost"
)

// InstanceStatus is an agent's report of one instance. Generation grows with each report of it, so that a late or
// repeated one changes nothing. A newer registration counts more: an agent whose journal refused to write begins again
// at an older generation.
type InstanceStatus struct {
	ID         InstanceID `cbor:"1,keyasint"`
	Generation uint64     `cbor:"2,keyasint"`
	Observed   Observed   `cbor:"3,keyasint"`
	// required with failed: crash_loop, start_timeout, oom_killed, shim_lost ...
	Reason   string `cbor:"4,keyasint,omitempty"`
	ExitCode *int   `cbor:"5,keyasint,omitempty"`
	Restarts int    `cbor:"6,keyasint,omitempty"`
	// Facts are what the role check last said; nil: nothing is known. What can't be confirmed for three intervals is
	// withdrawn.
	Facts map[string]string `cbor:"7,keyasint,omitempty"`
	Hook  *HookResult       `cbor:"8,keyasint,omitempty"` // of the last preparation
	// of the registration that reported it; it is noted where the report is applied
	Epoch uint64 `cbor:"9,keyasint,omitempty"`
}

// HookResult is what became of a preparation: the before_stop hook, if there is one, and the instance's own gates
// looked at once more.
type HookResult struct {
	Seq     uint64 `cbor:"1,keyasint"`           // Eviction.Seq of the preparation
	OK      bool   `cbor:"2,keyasint,omitempty"` // the stop may begin
	Message string `cbor:"3,keyasint,omitempty"` // why not
}
