package fsm

import (
	"github.com/outspan/outspan/model"
)

// State is the whole replicated state, as a value. A copy of a State is a read-only view of one moment and safe for
// concurrent use. Only a fork can be written.
//
// Its rows are in seven drawers. They are embedded, so s.Nodes is the table of nodes. A drawer only stores rows and
// keeps the indexes that follow from them. The methods of State apply the rules, emit events and set the time.
type State struct {
	Index       uint64     // of the last applied entry
	LogTerm     uint64     // raft term of that entry
	Now         model.Time // cluster time; never goes back
	Wall        int64      // Unix ms of the latest entry, for people; it may go back
	WallDoubt   WallDoubt
	Format      uint16
	Incarnation uint64     // raised by a restore, and when an agent registers that has seen a later state
	Unconfirmed bool       // a restore is not confirmed by the operator yet
	Restored    uint64     // the incarnation with which the last restore began
	Confirmed   model.Time // when an operator last confirmed a restore; 0 means never
	Cluster     ClusterID
	Hold        Hold
	Leader      Leader

	fleet     // Nodes, Drains
	jobs      // Jobs, Versions, Groups, Deployments, Services, Budgets
	instances // Instances, Pulls
	moves     // Volumes, Transfers, Backups
	rules     // Settings, SettingsIndex, Classes, Actors, Rails
	history   // Events, Requests
	trust     // TrustKeys, JoinTokens, TrustMembers, People, Newcomers, Roles, Bindings, RightsIndex

	entry entryContext // of the entry being applied; zero in a published State
	undo  *undoLog     // of a fork
}

// ClusterID identifies a cluster: by an id that never changes, and by a name for people.
type ClusterID struct {
	ID   string `cbor:"1,keyasint"`
	Name string `cbor:"2,keyasint"`
	// Lineages are those of History, separated by commas. Servers store their own lineages on disk; the ones here are for
	// a recovery from a snapshot.
	Lineages string `cbor:"3,keyasint,omitempty"`
}

// entryContext is what commands need to know of the entry being applied.
type entryContext struct {
	actor   model.Actor
	request model.RequestID
	events  int
	touched touchedTopics
	group   []Command    // the group of commands being applied
	paid    *MemberAdmit // the last admission of that group that spent a use of a join token
	later   []Event      // events to emit after that group
	draft   bool         // commands are only tried, in a Draft
	made    int          // number of events, including those that are not kept
	muted   bool         // events are not kept
	leftOut int          // number of left-out events, which the next event reports; see SelfEvents

	names   bool        // whether written is filled in
	written []*Instance // a row of each instance whose row was written; an instance may be listed more than once
}

// NewState returns the state before the first entry.
func NewState() State {
	s := State{Format: model.CurrentFormat, rules: rules{Settings: model.DefaultSettings(), Classes: BuiltinClasses()}}
	return *s.fork()
}

// fork returns a State that can be written while s stays as it is. It copies no table before the first write to it, so
// it makes two allocations.
func (s State) fork() *State {
	s.undo = new(undoLog)
	s.fleet.fork(s.undo)
	s.jobs.fork(s.undo)
	s.instances.fork(s.undo)
	s.moves.fork(s.undo)
	s.rules.fork(s.undo)
	s.history.fork(s.undo)
	s.trust.fork(s.undo)
	return &s
}
