package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Image is an image on a node, or one that the node was to pull.
type Image struct {
	Node      string           `json:"node" doc:"name"`
	NodeID    model.NodeID     `json:"node_id"`
	Digest    string           `json:"digest" doc:"of the image's index"`
	Names     []string         `json:"names" doc:"without the digest"`
	State     model.ImageState `json:"state" enum:"queued,pulling,present,failed" doc:"queued: other pulls of the node come first"`
	Bytes     int64            `json:"size_bytes" doc:"on disk, with layers that other images share; of a pull: what was fetched so far"`
	Instances int              `json:"instances" doc:"on the node, that run it or may be started with it"`
	Claims    int              `json:"claims" doc:"instances that are to be placed on the node once the image is there"`
	UsedAt    *time.Time       `json:"used_at" doc:"when it was last used or pulled, exact to 10 minutes; null if it is not there"`
	Reason    string           `json:"reason" doc:"why the last pull failed, in the registry's words"`
	RetryAt   *time.Time       `json:"retry_at" doc:"until then nothing that needs the image is placed on the node"`
}

// Images lists the images of nodes, as their agents tell now.
type Images struct {
	Items       []Image      `json:"items"`
	Silent      []string     `json:"silent" doc:"nodes whose agents did not list their images"`
	RuntimeDown []NodeReason `json:"runtime_down,omitempty" doc:"those of them whose container runtime did not answer"`
	Hidden      int          `json:"hidden,omitempty" doc:"nodes that the caller may not see"`
	Index       uint64       `json:"index"`
}

// NodeReason is a node, and why something is not known of it.
type NodeReason struct {
	Node   string `json:"node" doc:"name"`
	Reason string `json:"reason"`
}

// PrunedImages is what a pruning of a node's images deleted, or would delete.
type PrunedImages struct {
	Node   string  `json:"node" doc:"name"`
	Items  []Image `json:"items" doc:"what was deleted"`
	Bytes  int64   `json:"freed_bytes" doc:"less than the sum of the sizes if other images or instances share layers"`
	More   bool    `json:"more" doc:"there was no time for all: call it again"`
	DryRun bool    `json:"dry_run"`
	Index  uint64  `json:"index"`
}
