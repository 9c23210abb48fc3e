package transport

import (
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// TransferTask is what an agent must do for a transfer now.
type TransferTask string

// The tasks. All are idempotent: an agent that gets a task again checks its disk and continues.
const (
	// serve the volumes to the agent that shows the token, while no instance may use them
	TaskServe   TransferTask = "serve"
	TaskFetch   TransferTask = "fetch"   // copy the volumes from Peer to a place beside them, and verify the copy
	TaskBackup  TransferTask = "backup"  // write the volumes to the backup directory
	TaskRestore TransferTask = "restore" // read Backup into a place beside the volumes, and verify the copy
	TaskKeep    TransferTask = "keep"    // keep the copy beside the volumes
	TaskFind    TransferTask = "find"    // check whether the data with these Epochs is on the disk
	TaskAttach  TransferTask = "attach"  // move the copy to where instances find it, and put the data there aside
	TaskRetire  TransferTask = "retire"  // put the old copy aside
	TaskDrop    TransferTask = "drop"    // remove the old copy that was put aside
)

// TransferOrder orders an agent to do one task for a transfer. When there is no order for a transfer any more, the
// agent removes the copy that it made beside the volumes, but no data that was put aside.
type TransferOrder struct {
	ID     model.TransferID `cbor:"1,keyasint"`
	Task   TransferTask     `cbor:"2,keyasint"`
	Group  model.GroupID    `cbor:"3,keyasint"`
	Slot   int              `cbor:"4,keyasint"`
	Names  []string         `cbor:"5,keyasint"`           // of the volumes
	Peer   string           `cbor:"6,keyasint,omitempty"` // fetch: host:port of the source's API
	Token  string           `cbor:"7,keyasint,omitempty"` // serve and fetch: lets the target read the data
	Backup model.BackupID   `cbor:"8,keyasint,omitempty"`
	Sum    string           `cbor:"9,keyasint,omitempty"`  // restore: checksum of the written manifest
	Staged model.TransferID `cbor:"10,keyasint,omitempty"` // attach: the transfer that made the copy
	Live   bool             `cbor:"11,keyasint,omitempty"` // backup: an instance may use the volumes during the backup
	Wall   int64            `cbor:"12,keyasint,omitempty"` // backup: Unix ms at which it was requested
	Epoch  uint64           `cbor:"13,keyasint,omitempty"` // attach: the epoch that the volumes have from then on
	// Epochs are the epochs of the data that the task is about, in the order of Names. For an attach, they are those of
	// the old copy, or of found data that is used again. The task touches no other data.
	Epochs []uint64 `cbor:"14,keyasint,omitempty"`
	// PeerName is the name of the source's node, as in its certificate. Fetch only.
	PeerName string `cbor:"15,keyasint,omitempty"`
	// User is the user that the job file names for the group's programs. Fetch and restore only.
	User string `cbor:"16,keyasint,omitempty"`
	// Container says that the group runs an image, whose programs are users of the image. Fetch and restore only.
	Container bool `cbor:"17,keyasint,omitempty"`
}

// VolumeData is data of a volume on a node's disk, in use or not. An agent lists it at PathAgentVolumes.
type VolumeData struct {
	Group   model.GroupID `json:"group"`
	Slot    int           `json:"slot"`
	Name    string        `json:"name"`
	Epoch   uint64        `json:"epoch"`   // the volume epoch of the data, as in fsm.Volume.Made
	Aside   bool          `json:"aside"`   // the data was put aside as NAME@EPOCH, where no program finds it
	Written time.Time     `json:"written"` // when a file directly in the volume's directory was last written
}

// PathAgentVolumes is where an agent lists the data of volumes on its disk.
const PathAgentVolumes = "/v1/agent/volumes"

// PathAgentTransfer is where an agent serves volumes to another agent. The transfer's id and the requested part follow
// in the path.
const PathAgentTransfer = "/v1/agent/transfer/"

// Paths at which an agent serves people who look into an instance, through a server. The instance's id follows
// PathAgentExec and PathAgentForward; both are streams of package internal/duplex.
const (
	PathAgentExec    = "/v1/agent/exec/"
	PathAgentForward = "/v1/agent/forward/"
)

// HeaderOnBehalf carries the subject for whom a server calls an agent, escaped for a path. The agent counts by it.
const HeaderOnBehalf = "Outspan-On-Behalf-Of"

// PathAgentImage is where an agent resolves the image that the query parameter name names, without a digest.
const PathAgentImage = "/v1/agent/image"

// PathAgentImages is where an agent lists the images on its node, as a list of HeldImage.
const PathAgentImages = "/v1/agent/images"

// HeldImage is an image on a node, as its agent knows it now.
type HeldImage struct {
	Digest    string           `json:"digest"`
	Names     []string         `json:"names"`
	State     model.ImageState `json:"state"`
	Bytes     int64            `json:"bytes"` // on disk; of a pull: what was fetched so far
	Instances int              `json:"instances"`
	Used      time.Time        `json:"used,omitzero"` // zero if it is not there
	Words     string           `json:"words"`         // of the registry, if the pull failed
}

// PathAgentPrune is where an agent deletes the images that nothing on its node needs. With the parameter dry_run it
// only says which. The answer is a PrunedImages. The same request_id again, with no other pruning between, has the same
// answer.
const PathAgentPrune = "/v1/agent/images/prune"

// PruneWait is how long an agent may take to delete images.
const PruneWait = 20 * time.Second

// PrunedImages are the images that an agent has deleted, or would delete.
type PrunedImages struct {
	Images []HeldImage `json:"images"`
	Bytes  int64       `json:"bytes"` // that this frees
	More   bool        `json:"more"`  // there was no time for all, or an error ended it
}

// ResolveWait is how long an agent may take to resolve an image.
const ResolveWait = 15 * time.Second

// ResolvedImage is what a registry told an agent of an image.
type ResolvedImage struct {
	Digest    string   `json:"digest"`    // of the image's index, "sha256:..."
	Platforms []string `json:"platforms"` // such as "linux/amd64"; empty if the registry did not tell
}

// PathAgentStats is where an agent tells what instances use. The parameter instance names one, and job the instances of
// a job. The answer is a list of InstanceUse.
const PathAgentStats = "/v1/agent/stats"

// InstanceUse is what an agent tells of one instance: either Use or Problem.
type InstanceUse struct {
	ID      model.InstanceID  `json:"id"`
	Use     *api.InstanceUse  `json:"use,omitempty"`
	Problem *api.StatsProblem `json:"problem,omitempty"`
}
