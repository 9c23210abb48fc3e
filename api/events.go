package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Event is the record of a change, for people and programs.
type Event struct {
	ID        string            `json:"id" doc:"index.n: resumes behind it"`
	Type      model.EventType   `json:"type"`
	Subject   string            `json:"subject" example:"node/01J8Z"`
	Time      time.Time         `json:"time"`
	Index     uint64            `json:"index"`
	Cause     model.Cause       `json:"cause"`
	Actor     model.Actor       `json:"actor"`
	RequestID model.RequestID   `json:"request_id"`
	Data      map[string]string `json:"data" doc:"before, after, and what else belongs to it"`
}
