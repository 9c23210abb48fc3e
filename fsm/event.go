package fsm

import (
	"fmt"

	"github.com/outspan/outspan/model"
)

// EventType is what happened, in a closed set.
type EventType string

// The events (model, "Codes").
const (
	EventNodeRegistered EventType = "node.registered"
	EventNodeState      EventType = "node.state_changed"
	EventNodeChecks     EventType = "node.checks_changed" // of the agent's checks of its own machine
	EventNodePort       EventType = "node.port_changed"   // its agent can't listen on a port, or can again
	EventAllocated      EventType = "instance.allocated"
	EventDesired        EventType = "instance.desired_state_changed"
	EventStatus         EventType = "instance.status_changed"
	EventRestarted      EventType = "instance.restarted"    // its agent has restarted the program in place, once or more
	EventDisk           EventType = "instance.disk_changed" // it went above its disk limit, or below it again
	EventEviction       EventType = "instance.eviction_changed"
	EventPreparation    EventType = "instance.preparation_failed" // a hook or a gate ended the preparation of its stop; told once, not at each try
	EventDrainStarted   EventType = "drain.started"
	EventDrainPhase     EventType = "drain.phase_changed"
	EventBudget         EventType = "budget.changed"
	EventJob            EventType = "job.changed"
	EventDeployment     EventType = "deployment.changed"
	EventSettings       EventType = "settings.changed"
	EventLeader         EventType = "leader.changed"
	EventHold           EventType = "hold.changed"
	EventVolume         EventType = "volume.changed"
)

// EventTypes lists them.
func EventTypes() []EventType {
	return []EventType{
		EventNodeRegistered, EventNodeState, EventNodeChecks, EventNodePort, EventAllocated, EventDesired, EventStatus, EventRestarted,
		EventDisk, EventEviction, EventPreparation, EventDrainStarted, EventDrainPhase, EventBudget, EventJob, EventDeployment,
		EventSettings, EventLeader, EventHold, EventVolume,
	}
}

// EventSubjects lists the kinds of objects that events are about: the first words of their subjects.
func EventSubjects() []string {
	return []string{"budget", "class", "cluster", "deployment", "drain", "group", "instance", "job", "node", "settings", "volume"}
}

// EventKey orders events: the log index, then the position within the entry.
type EventKey uint64

// NewEventKey packs an index and a position (at most 2^20 of them an entry).
func NewEventKey(index uint64, n int) EventKey { return EventKey(index<<20 | uint64(n)) }

// Index is the log index of the event's entry.
func (k EventKey) Index() uint64 { return uint64(k) >> 20 }

// String is the event's id: "<index>.<n>".
func (k EventKey) String() string { return fmt.Sprintf("%d.%d", k.Index(), uint64(k)&(1<<20-1)) }

// Event is one thing that happened. It never holds a secret.
type Event struct {
	Key     EventKey          `cbor:"1,keyasint"`
	Type    EventType         `cbor:"2,keyasint"`
	Subject string            `cbor:"3,keyasint"` // "node/ID", "instance/ID", "drain/ID", "job/NAME", "group/JOB/GROUP", "deployment/ID"
	Wall    int64             `cbor:"4,keyasint"`
	Cause   model.Cause       `cbor:"5,keyasint,omitempty"`
	Actor   model.Actor       `cbor:"6,keyasint,omitempty"`
	Request model.RequestID   `cbor:"7,keyasint,omitempty"`
	Before  string            `cbor:"8,keyasint,omitempty"`
	After   string            `cbor:"9,keyasint,omitempty"`
	Data    map[string]string `cbor:"10,keyasint,omitempty"` // such as node, group, reason, text
	At      model.Time        `cbor:"11,keyasint"`           // cluster time, which says how long it is kept
}
