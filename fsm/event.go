package fsm

import (
	"fmt"

	"github.com/outspan/outspan/model"
)

// EventKey orders events: the log index, then the position within the entry.
type EventKey uint64

// NewEventKey packs an index and a position (at most 2^20 of them an entry).
func NewEventKey(index uint64, n int) EventKey { return EventKey(index<<20 | uint64(n)) }

// Index is the log index of the event's entry.
func (k EventKey) Index() uint64 { return uint64(k) >> 20 }

// String is the event's id: "<index>.<n>".
func (k EventKey) String() string { return fmt.Sprintf("%d.%d", k.Index(), uint64(k)&(1<<20-1)) }

// Event is one thing that happened. It never contains a secret.
type Event struct {
	Key  EventKey        `cbor:"1,keyasint"`
	Type model.EventType `cbor:"2,keyasint"`
	// "node/ID", "instance/ID", "drain/ID", "job/NAME", "group/JOB/GROUP", "deployment/ID"
	Subject string            `cbor:"3,keyasint"`
	Wall    int64             `cbor:"4,keyasint"`
	Cause   model.Cause       `cbor:"5,keyasint,omitempty"`
	Actor   model.Actor       `cbor:"6,keyasint,omitempty"`
	Request model.RequestID   `cbor:"7,keyasint,omitempty"`
	Before  string            `cbor:"8,keyasint,omitempty"`
	After   string            `cbor:"9,keyasint,omitempty"`
	Data    map[string]string `cbor:"10,keyasint,omitempty"` // such as node, group, reason, text
	At      model.Time        `cbor:"11,keyasint"`           // cluster time; decides how long the event is kept
}
