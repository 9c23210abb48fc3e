package model

// EventType says what happened. The set is closed.
type EventType string

// The types of events; see "Event types" in docs/model.md.
const (
	EventNodeRegistered EventType = "node.registered"
	EventNodeState      EventType = "node.state_changed"
	EventNodeChecks     EventType = "node.checks_changed"        // results of the agent's checks of its own machine
	EventNodePort       EventType = "node.port_changed"          // the agent can't listen on a port, or can again
	EventNodeRuntime    EventType = "node.runtime_changed"       // it appeared, stopped answering, or answers
	EventNodeAck        EventType = "node.blockers_acknowledged" // an operator agreed that instances stay on the node
	EventAllocated      EventType = "instance.allocated"
	EventDesired        EventType = "instance.desired_state_changed"
	EventStatus         EventType = "instance.status_changed"
	EventRestarted      EventType = "instance.restarted"    // the agent restarted the program in place, once or more
	EventDisk           EventType = "instance.disk_changed" // the instance exceeded its disk limit, or fell below it again
	EventEviction       EventType = "instance.eviction_changed"
	// a hook or a gate ended the preparation of a stop; written once, not for each try
	EventPreparation  EventType = "instance.preparation_failed"
	EventDrainStarted EventType = "drain.started"
	EventDrainPhase   EventType = "drain.phase_changed"
	EventBudget       EventType = "budget.changed"
	EventJob          EventType = "job.changed"
	EventDeployment   EventType = "deployment.changed"
	EventSettings     EventType = "settings.changed"
	EventLeader       EventType = "leader.changed" // a new term began; the leader may be the same as before
	EventHold         EventType = "hold.changed"
	EventVolume       EventType = "volume.changed"

	EventTokenCreated  EventType = "token.created"
	EventTokenRevoked  EventType = "token.revoked"
	EventMemberJoined  EventType = "member.joined" // a join token admitted a server or agent
	EventMemberRevoked EventType = "member.revoked"
	// a member renewed once more with its previous key: an answer was lost, or two machines have that key
	EventMemberRenewedTwice EventType = "member.renewed_twice"

	EventPersonJoined  EventType = "person.joined" // a person or script got a certificate
	EventPersonRevoked EventType = "person.revoked"

	EventKey EventType = "key.changed" // a key of the cluster entered a phase, was exported or was dropped

	// EventRights says that a role was set or removed, or given to somebody or taken away, or that an access token was
	// made or revoked.
	EventRights EventType = "rights.changed"

	EventNewcomerWaits    EventType = "newcomer.waits" // a newcomer waits until a person approves it
	EventNewcomerApproved EventType = "newcomer.approved"
	EventNewcomerRejected EventType = "newcomer.rejected"
)

// EventTypes lists all types.
func EventTypes() []EventType {
	return []EventType{
		EventNodeRegistered, EventNodeState, EventNodeChecks, EventNodePort, EventNodeRuntime, EventNodeAck,
		EventAllocated,
		EventDesired, EventStatus,
		EventRestarted, EventDisk, EventEviction, EventPreparation, EventDrainStarted, EventDrainPhase,
		EventBudget, EventJob, EventDeployment,
		EventSettings, EventLeader, EventHold, EventVolume,
		EventTokenCreated, EventTokenRevoked, EventMemberJoined, EventMemberRevoked, EventMemberRenewedTwice,
		EventKey, EventPersonJoined, EventPersonRevoked, EventRights,
		EventNewcomerWaits, EventNewcomerApproved, EventNewcomerRejected,
	}
}

// EventSubjects lists the kinds of objects that events are about. An event's subject begins with one of them, such as
// "node/n1".
func EventSubjects() []string {
	return []string{"access", "binding", "budget", "class", "cluster", "deployment", "drain", "group", "instance", "job",
		"key", "member", "node", "role", "settings", "token", "volume"}
}
