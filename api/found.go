package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// FoundAge compares found data with the data that is in use.
type FoundAge string

// The ages.
const (
	FoundNewer FoundAge = "newer"
	FoundOlder FoundAge = "older"
	FoundOnly  FoundAge = "only" // no node has data of this volume in use
	FoundSame  FoundAge = "same" // it is what the state has in use, but it was put aside there: nothing can use it
)

// FoundVolume is data of a slot's local volumes that is on a node's disk, and that the servers neither use nor keep as an old copy: a restore lost what they knew of
// it, or it was given up with a node that came back.
type FoundVolume struct {
	Node    string            `json:"node"`
	Volume  model.VolumeID    `json:"volume" doc:"what it can be attached as, with the others of its slot"`
	Epoch   uint64            `json:"epoch" doc:"of the newest of the volumes; a higher one is newer"`
	Age     FoundAge          `json:"age" enum:"newer,older,only,same" doc:"than the data in use; same: it is that data, and was put aside"`
	Written time.Time         `json:"written" doc:"when a file directly in it was last written, by the node's clock"`
	Copies  map[string]uint64 `json:"copies" doc:"epoch of each volume, by its name: what attach-volume takes"`
}

// FoundVolumes are all of them, by node and volume.
type FoundVolumes struct {
	Items  []FoundVolume `json:"items"`
	Silent []string      `json:"silent_nodes" doc:"nodes whose agents did not answer: what is there is not listed"`
	Index  uint64        `json:"index"`
}
