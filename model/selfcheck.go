package model

// SelfCheck names, in a closed set, what an agent checks of its own machine.
type SelfCheck string

// The self-checks.
const (
	SelfDiskFull   SelfCheck = "disk_full"           // the data directory has hardly any room
	SelfDiskWrite  SelfCheck = "disk_not_writable"   // a small file can't be written there
	SelfDiskSlow   SelfCheck = "disk_slow"           // a small file can be written, but it takes too long
	SelfCgroup     SelfCheck = "cgroup_not_writable" // a cgroup can't be made any more
	SelfClockJumps SelfCheck = "clock_jumps"         // the wall clock jumps against the monotonic clock
)

// SelfChecks lists them in order of name.
func SelfChecks() []SelfCheck {
	return []SelfCheck{SelfCgroup, SelfClockJumps, SelfDiskFull, SelfDiskWrite, SelfDiskSlow}
}

// Trouble is a self-check that fails, and why, in words.
type Trouble struct {
	Check  SelfCheck `cbor:"1,keyasint"`
	Reason string    `cbor:"2,keyasint"` // at most 256 bytes
}

// SelfReport is an agent's word on its own machine. It replaces those of older generations. The first of a
// registration is 1.
type SelfReport struct {
	Gen      uint64    `cbor:"1,keyasint"`
	Troubles []Trouble `cbor:"2,keyasint,omitempty"`
	Disk     []DiskUse `cbor:"3,keyasint,omitempty"` // in order of id
	// Measured says that Disk is what the agent found. Before it has looked, what was told by an earlier one still
	// counts.
	Measured bool          `cbor:"4,keyasint,omitempty"`
	Ports    []PortProblem `cbor:"5,keyasint,omitempty"` // those that the agent can't listen on
}
