package api

import (
	"github.com/outspan/outspan/model"
)

// Move is a move that the rescheduler would make, or that a rebalance began.
type Move struct {
	Instance model.InstanceID `json:"instance"`
	Group    model.GroupID    `json:"group"`
	From     string           `json:"from" doc:"the node that it is on"`
	To       string           `json:"to" doc:"the node that it is moved to"`
	Cause    model.Cause      `json:"cause" enum:"rebalance,affinity" doc:"rebalance: its node is over-used; affinity: the other one meets more of its group's preferences"`
	Gain     int              `json:"gain" doc:"in points: 100 are a whole node's memory, or the full weight of an affinity"`
	Blocker  *DrainBlocker    `json:"blocker,omitempty" doc:"why it does not begin now"`
}

// MoveList shows the moves that a rebalance would make now. The moves that would begin at once are first.
type MoveList struct {
	Items       []Move `json:"items"`
	Index       uint64 `json:"index"`
	Rescheduler string `json:"rescheduler" doc:"the setting: off means that nothing is moved without an order"`
}

// MovesReply is the answer to a rebalance.
type MovesReply struct {
	Written
	Items []Move `json:"items" doc:"the moves that began"`
}
