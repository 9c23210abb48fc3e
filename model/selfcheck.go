package model

import (
	"fmt"
)

// SelfCheck names, in a closed set, a check that an agent makes of its own machine.
type SelfCheck string

// The self-checks.
const (
	SelfDiskFull   SelfCheck = "disk_full"           // the data directory has hardly any room left
	SelfDiskWrite  SelfCheck = "disk_not_writable"   // a small file can't be written to the data directory
	SelfDiskSlow   SelfCheck = "disk_slow"           // a small file can be written, but it takes too long
	SelfCgroup     SelfCheck = "cgroup_not_writable" // a cgroup can't be made any more
	SelfClockJumps SelfCheck = "clock_jumps"         // the wall clock jumps against the monotonic clock
)

// SelfChecks lists all checks in order of name.
func SelfChecks() []SelfCheck {
	return []SelfCheck{SelfCgroup, SelfClockJumps, SelfDiskFull, SelfDiskWrite, SelfDiskSlow}
}

// Trouble is a self-check that fails, and why, in words.
type Trouble struct {
	Check  SelfCheck `cbor:"1,keyasint"`
	Reason string    `cbor:"2,keyasint"` // at most 256 bytes
}

// SelfReport is an agent's report about its own machine. It replaces reports with a smaller Gen. The first one of a
// registration has Gen 1.
type SelfReport struct {
	Gen      uint64    `cbor:"1,keyasint"`
	Troubles []Trouble `cbor:"2,keyasint,omitempty"`
	Disk     []DiskUse `cbor:"3,keyasint,omitempty"` // in order of id
	// Measured says that the agent has measured Disk. Before that, the last report of an earlier agent process still
	// counts.
	Measured bool          `cbor:"4,keyasint,omitempty"`
	Ports    []PortProblem `cbor:"5,keyasint,omitempty"` // ports that the agent can't listen on
}

// MaxDiskUses bounds how many instances above their disk limit are recorded for one node.
const MaxDiskUses = 64

// DiskUse is an instance whose work directory is larger than its job file allows.
type DiskUse struct {
	ID         InstanceID `cbor:"1,keyasint"`
	UsedBytes  int64      `cbor:"2,keyasint"`
	LimitBytes int64      `cbor:"3,keyasint"`
	AtLeast    bool       `cbor:"4,keyasint,omitempty"` // the agent could not measure all of it
	Dir        string     `cbor:"5,keyasint,omitempty"` // on the node; at most 256 bytes
}

// Words returns how much it uses and what its limit is.
func (u DiskUse) Words() string {
	about := ""
	if u.AtLeast {
		about = "at least "
	}
	return fmt.Sprintf("its work directory has %s%s, its limit is %s", about,
		SizeText(u.UsedBytes), SizeText(u.LimitBytes))
}
