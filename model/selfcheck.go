package model

import (
	"fmt"
	"strings"
)

// SelfCheck is the name of a check that an agent makes of its own machine. The set is closed.
type SelfCheck string

// The self-checks.
const (
	SelfDiskFull   SelfCheck = "disk_full"           // the disk of the data directory has hardly any space left
	SelfDiskWrite  SelfCheck = "disk_not_writable"   // a small file can't be written to the data directory
	SelfDiskSlow   SelfCheck = "disk_slow"           // a small file can be written, but it takes too long
	SelfCgroup     SelfCheck = "cgroup_not_writable" // a cgroup can't be created
	SelfClockJumps SelfCheck = "clock_jumps"         // the wall clock jumps, compared with the monotonic clock
)

// SelfChecks returns all self-checks, sorted by name.
func SelfChecks() []SelfCheck {
	return []SelfCheck{SelfCgroup, SelfClockJumps, SelfDiskFull, SelfDiskWrite, SelfDiskSlow}
}

// Trouble is a self-check that fails, with the reason in words.
type Trouble struct {
	Check  SelfCheck `cbor:"1,keyasint"`
	Reason string    `cbor:"2,keyasint"` // at most 256 bytes
}

// SelfReport is an agent's report about its own machine. Gen is at least 1 and grows with each change. A report
// replaces reports of the same registration with a smaller Gen.
type SelfReport struct {
	Gen      uint64    `cbor:"1,keyasint"`
	Troubles []Trouble `cbor:"2,keyasint,omitempty"`
	Disk     []DiskUse `cbor:"3,keyasint,omitempty"` // instances above their disk limit, in order of id
	// Measured is true once this agent process has measured the disk use. Until then, the servers keep the Disk that an
	// earlier agent process reported.
	Measured bool          `cbor:"4,keyasint,omitempty"`
	Ports    []PortProblem `cbor:"5,keyasint,omitempty"` // ports that the agent can't listen on
	// Runtime is nil if the node has no container runtime.
	Runtime *ContainerRuntime `cbor:"6,keyasint,omitempty"`
}

// MaxDiskUses is the largest number of instances above their disk limit that is recorded for one node.
const MaxDiskUses = 64

// DiskUse is an instance whose work directory is larger than its job file allows.
type DiskUse struct {
	ID         InstanceID `cbor:"1,keyasint"`
	UsedBytes  int64      `cbor:"2,keyasint"`
	LimitBytes int64      `cbor:"3,keyasint"`
	AtLeast    bool       `cbor:"4,keyasint,omitempty"` // only a part could be measured, so UsedBytes is a lower bound
	Dir        string     `cbor:"5,keyasint,omitempty"` // path on the node; at most 256 bytes
}

// Words returns a phrase with the size of the work directory and its limit.
func (u DiskUse) Words() string {
	about := ""
	if u.AtLeast {
		about = "at least "
	}
	return fmt.Sprintf("its work directory has %s%s, its limit is %s", about,
		SizeText(u.UsedBytes), SizeText(u.LimitBytes))
}

// ContainerRuntime is what an agent reports about the container runtime of its node.
type ContainerRuntime struct {
	Version string `cbor:"1,keyasint,omitempty"`
	// Down says why the runtime does not answer; "" means that it answers. Containers that run already go on without it.
	Down string `cbor:"2,keyasint,omitempty"`
	// Pulls says that the agent pulls the images that its assignments name, before an instance needs them. Servers then
	// place a container on the node only once its image is there.
	Pulls bool `cbor:"3,keyasint,omitempty"`
	// Images lists the images that the agent was asked for or runs, at most MaxImages of them.
	Images []NodeImage `cbor:"4,keyasint,omitempty"`
	// Bridge is the subnet of the containers that have a network of their own, such as "172.24.8.0/22". "" means that the
	// node can't give containers one; NoBridge then says why. Agents of older builds report neither.
	Bridge   string `cbor:"5,keyasint,omitempty"`
	NoBridge string `cbor:"6,keyasint,omitempty"`
}

// LacksForContainers begins the Down of a node that can't run containers although its runtime answers.
const LacksForContainers = "the node can't run containers: "

// MendRuntime returns what helps a node on which a container runtime is down, given its Down.
func MendRuntime(node, down string) string {
	if strings.HasPrefix(down, LacksForContainers) {
		return "give it what it lacks, and restart its agent; see: outspan node status " + node
	}
	return "start containerd there: systemctl start containerd"
}

// MaxImages is the largest number of images that are recorded for one node.
const MaxImages = 64

// NodeImage is what an agent reports about one image.
type NodeImage struct {
	Digest string     `cbor:"1,keyasint"` // of the image's index
	State  ImageState `cbor:"2,keyasint"`
	Bytes  int64      `cbor:"3,keyasint,omitempty"` // pulled so far
	Total  int64      `cbor:"4,keyasint,omitempty"` // to pull in all; 0 means that it is not known yet
	Words  string     `cbor:"5,keyasint,omitempty"` // the registry's words, if the pull failed; at most 256 bytes
	// Missing says that the pull failed because the registry does not have the digest.
	Missing bool `cbor:"6,keyasint,omitempty"`
}

// ImageState is how far an agent is with an image. The set is closed.
type ImageState string

// The states of an image on a node.
const (
	ImageQueued  ImageState = "queued" // waits until the agent has ended other pulls
	ImagePulling ImageState = "pulling"
	ImagePresent ImageState = "present"
	ImageFailed  ImageState = "failed" // the last try failed; the agent tries again while the image is wanted
)

// Known returns the constant that equals x. ok is false if there is none.
func (x ImageState) Known() (known ImageState, ok bool) {
	for _, known := range [...]ImageState{ImageQueued, ImagePulling, ImagePresent, ImageFailed} {
		if x == known {
			return known, true
		}
	}
	return "", false
}
