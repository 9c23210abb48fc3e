package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Newcomer is a machine that asked to join while the setting join_approval was on.
type Newcomer struct {
	Subject   string            `json:"subject" doc:"its server, or its agent if it has no server: server:s4 or agent:n4"`
	Kind      model.SubjectKind `json:"kind" enum:"server,agent"`
	Name      string            `json:"name"`
	State     NewcomerState     `json:"state" enum:"waiting,approved,rejected"`
	Key       string            `json:"key" doc:"of the subject, as outspan join shows it on that machine: the first 8 bytes of the SHA-256 of the public key"`
	AgentKey  string            `json:"agent_key,omitempty" doc:"of the agent beside a server"`
	Token     model.TokenID     `json:"token" doc:"the join token that it has"`
	Address   string            `json:"address" doc:"from which it asked"`
	Version   string            `json:"version" doc:"of its program, as it says"`
	Since     time.Time         `json:"since"`
	Index     uint64            `json:"index" doc:"the log entry with which it began to wait"`
	DecidedBy model.Actor       `json:"decided_by,omitempty" doc:"who approved or rejected it"`
}

// NewcomerState says what becomes of a newcomer.
type NewcomerState string

// The states of newcomers.
const (
	NewcomerWaiting  NewcomerState = "waiting"
	NewcomerApproved NewcomerState = "approved" // it is admitted when it asks again
	NewcomerRejected NewcomerState = "rejected"
)

// NewcomerBody says which of several newcomers of one name is meant.
type NewcomerBody struct {
	Key string `json:"key,omitempty" maxLength:"100" doc:"its key as in the list; needed if several newcomers of this name wait"`
}

// NewcomerReply is the answer to a decision about a newcomer.
type NewcomerReply struct {
	Written
	Newcomer *Newcomer `json:"newcomer,omitempty" doc:"absent when it was admitted since"`
}
