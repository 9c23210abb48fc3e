package model

// EventType is the kind of an event: what happened. The set is closed.
type EventType string

// The events (docs/model.md, "Codes").
const (
	EventNodeRegistered EventType = "node.registered"
	EventNodeState      EventType = "node.state_changed"
	EventNodeChecks     EventType = "node.checks_changed"        // results of the agent's checks of its own machine
	EventNodePort       EventType = "node.port_changed"          // its agent can't listen on a port, or can again
	EventNodeAck        EventType = "node.blockers_acknowledged" // an operator agreed that instances stay on it
	EventAllocated      EventType = "instance.allocated"
	EventDesired        EventType = "instance.desired_state_changed"
	EventStatus         EventType = "instance.status_changed"
	EventRestarted      EventType = "instance.restarted"    // its agent restarted the program in place, once or more
	EventDisk           EventType = "instance.disk_changed" // it went above its disk limit, or below it again
	EventEviction       EventType = "instance.eviction_changed"
	// a hook or a gate ended the preparation of its stop; written once, not for each try
	EventPreparation  EventType = "instance.preparation_failed"
	EventDrainStarted EventType = "drain.started"
	EventDrainPhase   EventType = "drain.phase_changed"
	EventBudget       EventType = "budget.changed"
	EventJob          EventType = "job.changed"
	EventDeployment   EventType = "deployment.changed"
	EventSettings     EventType = "settings.changed"
	EventLeader       EventType = "leader.changed" // a server leads a new term; it may have led the last one
	EventHold         EventType = "hold.changed"
	EventVolume       EventType = "volume.changed"
)

// EventTypes lists all types.
func EventTypes() []EventType {
	return []EventType{
		EventNodeRegistered, EventNodeState, EventNodeChecks, EventNodePort, EventNodeAck, EventAllocated,
		EventDesired, EventStatus,
		EventRestarted, EventDisk, EventEviction, EventPreparation, EventDrainStarted, EventDrainPhase,
		EventBudget, EventJob, EventDeployment,
		EventSettings, EventLeader, EventHold, EventVolume,
	}
}

// EventSubjects lists the kinds of objects that events are about, which are the first parts of their subjects.
func EventSubjects() []string {
	return []string{"budget", "class", "cluster", "deployment", "drain", "group", "instance", "job",
		"node", "settings", "volume"}
}
