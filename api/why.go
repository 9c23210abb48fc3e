package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Why explains the state of one object.
type Why struct {
	Subject    string          `json:"subject"`
	State      string          `json:"state"`
	Since      *time.Time      `json:"since"`
	Chain      []WhyLink       `json:"chain" doc:"how it came to its state, oldest first"`
	Considered []WhyConsidered `json:"considered" doc:"nodes that placement looked at"`
	Hidden     int             `json:"hidden,omitempty" doc:"how many more nodes it looked at that the caller may not see"`
	Blockers   []DrainBlocker  `json:"blockers"`
	Next       string          `json:"next"`
}

// WhyLink is one step of how an object got into its state.
type WhyLink struct {
	Index uint64      `json:"index"`
	Time  time.Time   `json:"time"`
	Cause model.Cause `json:"cause"`
	Actor model.Actor `json:"actor"`
	Text  string      `json:"text"`
}

// WhyConsidered is a node that placement excluded or scored.
type WhyConsidered struct {
	Node       string       `json:"node"`
	NodeID     model.NodeID `json:"node_id"`
	ExcludedBy model.Code   `json:"excluded_by,omitempty"`
	Score      *int64       `json:"score,omitempty"`
}
