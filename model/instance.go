package model

// Desired is the state that the servers want for an instance: running, then perhaps draining, then stopped.
type Desired string

// The desired states. DesiredStopped is final, and a draining instance never becomes running again.
const (
	DesiredRunning  Desired = "running"
	DesiredDraining Desired = "draining"
	DesiredStopped  Desired = "stopped"
)

// Observed is the state that an instance is known to have, usually from its agent's last report. The servers themselves
// set it for a new instance (pending), when they mark a node offline (lost), and when an instance is confirmed stopped.
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

// InstanceStatus is an agent's report about one instance. Generation grows with each report, so a late or repeated
// report changes nothing. The first report of a newer registration is accepted with any generation, because an agent
// whose journal could not be written starts again at an older generation.
type InstanceStatus struct {
	ID         InstanceID `cbor:"1,keyasint"`
	Generation uint64     `cbor:"2,keyasint"`
	Observed   Observed   `cbor:"3,keyasint"`
	// required if the instance failed, such as crash_loop, start_timeout, oom_killed or shim_lost
	Reason   string `cbor:"4,keyasint,omitempty"`
	ExitCode *int   `cbor:"5,keyasint,omitempty"`
	Restarts int    `cbor:"6,keyasint,omitempty"`
	// Facts are the result of the last role check, or nil if nothing is known. A fact that is not confirmed for three
	// intervals is removed.
	Facts map[string]string `cbor:"7,keyasint,omitempty"`
	Hook  *HookResult       `cbor:"8,keyasint,omitempty"` // result of the last preparation
	// epoch of the registration under which the report was sent; set when the report is applied
	Epoch uint64 `cbor:"9,keyasint,omitempty"`
}

// HookResult is the result of a preparation, which runs the before_stop hook, if there is one, and checks the
// instance's own gates again.
type HookResult struct {
	Seq     uint64 `cbor:"1,keyasint"`           // Eviction.Seq of the preparation
	OK      bool   `cbor:"2,keyasint,omitempty"` // the stop may begin
	Message string `cbor:"3,keyasint,omitempty"` // why the stop may not begin
}
