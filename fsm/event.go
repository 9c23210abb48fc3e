package fsm

import (
	"fmt"

	"github.com/outspan/outspan/model"
)

// EventKey orders events by the index of their entry, and then by their position in the entry.
type EventKey uint64

// NewEventKey returns the key of event number n of the entry at index. n must be below 2^20.
func NewEventKey(index uint64, n int) EventKey { return EventKey(index<<20 | uint64(n)) }

// Index returns the index of the entry that emitted the event.
func (k EventKey) Index() uint64 { return uint64(k) >> 20 }

// String returns the id of the event: "<index>.<n>".
func (k EventKey) String() string { return fmt.Sprintf("%d.%d", k.Index(), uint64(k)&(1<<20-1)) }

// Event is the record of one change. It never contains a secret.
type Event struct {
	Key  EventKey        `cbor:"1,keyasint"`
	Type model.EventType `cbor:"2,keyasint"`
	// such as "node/ID", "instance/ID", "drain/ID", "job/NAME", "group/JOB/GROUP" or "deployment/ID"
	Subject string            `cbor:"3,keyasint"`
	Wall    int64             `cbor:"4,keyasint"`
	Cause   model.Cause       `cbor:"5,keyasint,omitempty"`
	Actor   model.Actor       `cbor:"6,keyasint,omitempty"`
	Request model.RequestID   `cbor:"7,keyasint,omitempty"`
	Before  string            `cbor:"8,keyasint,omitempty"`
	After   string            `cbor:"9,keyasint,omitempty"`
	Data    map[string]string `cbor:"10,keyasint,omitempty"` // keys such as node, group, reason and text
	At      model.Time        `cbor:"11,keyasint"`           // cluster time, from which the event's age is measured
}
