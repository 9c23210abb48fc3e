package fsm

import (
	"iter"
	"strconv"
	"strings"

	"github.com/outspan/outspan/model"
)

// State is the whole replicated truth, as a value. Assigning a State is a read-only view of that moment, safe for many
// goroutines; only a fork can be written. Its tables are its only large parts, so it has more fields than other
// structs.
type State struct {
	Index       uint64     // of the last applied entry
	LogTerm     uint64     // of that entry
	Now         model.Time // cluster time; never goes back
	Wall        int64      // Unix ms of the latest entry, for people; it may go back
	WallDoubt   WallDoubt
	Format      uint16
	Incarnation uint64     // raised when a snapshot is restored by an operator
	Unconfirmed bool       // restored, and the operator has not confirmed yet
	Restored    uint64     // the incarnation with which the last restore began
	Confirmed   model.Time // when the operator confirmed the last restore; 0: there was none
	Cluster     ClusterID

	Settings      model.Settings
	SettingsIndex uint64
	Hold          Hold
	Leader        Leader
	Classes       []Class // the most important first

	Nodes       Table[model.NodeID, *Node]
	Jobs        Table[model.JobName, *Job]
	Versions    Table[string, *JobVersion] // versionKey
	Groups      Table[model.GroupID, *Group]
	Instances   Table[model.InstanceID, *Instance]
	Drains      Table[model.DrainID, *Drain]
	Deployments Table[model.DeploymentID, *Deployment]
	Services    Table[model.ServiceName, *Service]
	Volumes     Table[model.VolumeID, *Volume]
	Events      EventTable
	Requests    Table[model.RequestID, *Request]
	Transfers   Table[model.TransferID, *Transfer]
	Backups     Table[model.BackupID, *Backup]
	Budgets     Table[model.BudgetName, *SharedBudget]
	Actors      Table[model.ActorKind, *ActorLedger]
	Rails       Table[RailName, *Rail]

	// Indexes, derived from the rows above; they are not in snapshots.
	nodeNames  Table[string, model.NodeID]
	households Table[model.NodeID, *household]
	inGroup    Table[string, *Instance]      // group/slot/instance; the rows themselves, for whole groups are read in one go
	copiesOn   Table[string, model.VolumeID] // node/volume, of replicated volumes
	requestLog Table[uint64, model.RequestID]
	requestsOf Table[model.Actor, int]
	classUse   Table[model.ClassName, Usage] // of the instances that count toward quotas
	jobSums    Table[model.JobName, jobSum]  // of each job, and under everyJob of all

	departing       Table[model.InstanceID, present] // on their way out, or wished to go
	unsettled       Table[model.GroupID, present]    // whose sums say that they have not what they want
	openDeployments Table[model.DeploymentID, present]
	offDuty         Table[model.NodeID, present] // cordoned, draining or disabled
	restoring       Table[model.NodeID, present] // on which a restore left something open
	unheard         Table[model.NodeID, present] // see Node.unheard
	hushed          Table[string, present]       // hushKey, of nodes of which an event was left out; see SelfTold
	unheardReady    Table[model.GroupID, int]    // see Ledger.Unheard; no row: 0

	entry entryContext // of the entry being applied; zero in a published State
	undo  *undoLog     // of a fork
}

// ClusterID names a cluster for ever and for people.
type ClusterID struct {
	ID   string `cbor:"1,keyasint"`
	Name string `cbor:"2,keyasint"`
	// Lineages are those of History, with commas between them. The servers keep their own; these are for a recovery
	// from a snapshot.
	Lineages string `cbor:"3,keyasint,omitempty"`
}

// entryContext is what commands need to know of the entry that they are in.
type entryContext struct {
	actor   model.Actor
	request model.RequestID
	events  int
	touched touches
	group   []Command // the group of commands being applied
	later   []Event   // emitted when that is done
	draft   bool      // commands are only tried
	made    int       // events, also those that are not kept
	muted   bool      // events are not kept
	untold  int       // events that the next one tells of; see SelfEvents

	names   bool        // written is kept
	written []*Instance // a row of each instance whose row was written; one may be there more than once
}

// NewState is the state before the first entry.
func NewState() State {
	s := State{Format: model.CurrentFormat, Settings: model.DefaultSettings(), Classes: BuiltinClasses()}
	return *s.fork()
}

// fork returns a State that can be written while s stays as it is. It costs about a microsecond.
func (s State) fork() *State {
	s.undo = new(undoLog)
	s.Nodes, s.Jobs, s.Versions = s.Nodes.fork(s.undo), s.Jobs.fork(s.undo), s.Versions.fork(s.undo)
	s.Groups, s.Instances, s.Drains = s.Groups.fork(s.undo), s.Instances.fork(s.undo), s.Drains.fork(s.undo)
	s.Deployments, s.Services, s.Volumes = s.Deployments.fork(s.undo), s.Services.fork(s.undo), s.Volumes.fork(s.undo)
	s.Budgets, s.Actors, s.classUse = s.Budgets.fork(s.undo), s.Actors.fork(s.undo), s.classUse.fork(s.undo)
	s.Events, s.Requests, s.requestLog = s.Events.fork(s.undo), s.Requests.fork(s.undo), s.requestLog.fork(s.undo)
	s.requestsOf, s.jobSums = s.requestsOf.fork(s.undo), s.jobSums.fork(s.undo)
	s.Rails = s.Rails.fork(s.undo)
	s.Transfers, s.Backups = s.Transfers.fork(s.undo), s.Backups.fork(s.undo)
	s.nodeNames, s.households, s.inGroup = s.nodeNames.fork(s.undo), s.households.fork(s.undo), s.inGroup.fork(s.undo)
	s.copiesOn = s.copiesOn.fork(s.undo)
	s.departing, s.unsettled, s.openDeployments, s.offDuty = s.departing.fork(s.undo), s.unsettled.fork(s.undo), s.openDeployments.fork(s.undo), s.offDuty.fork(s.undo)
	s.restoring, s.unheard, s.unheardReady = s.restoring.fork(s.undo), s.unheard.fork(s.undo), s.unheardReady.fork(s.undo)
	s.hushed = s.hushed.fork(s.undo)
	return &s
}

// InstancesOf iterates over every instance of a group that the state still has a row of, in order of slot and id.
func (s *State) InstancesOf(group model.GroupID) iter.Seq[*Instance] {
	return s.groupRows(string(group) + "/")
}

// InstancesInSlot iterates over the instances of one slot.
func (s *State) InstancesInSlot(group model.GroupID, slot int) iter.Seq[*Instance] {
	return s.groupRows(slotPrefix(group, slot))
}

func (s *State) groupRows(prefix string) iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		for key, inst := range s.inGroup.From(prefix) {
			if !strings.HasPrefix(key, prefix) || !yield(inst) {
				return
			}
		}
	}
}

// Spec returns the spec that an instance runs, or the current one of a group for its version.
func (s *State) Spec(group model.GroupID, version uint64) (*model.GroupSpec, bool) {
	job, name := group.Split()
	v, ok := s.Versions.Get(versionKey(job, version))
	if !ok {
		return nil, false
	}
	for i := range v.Spec.Groups {
		if v.Spec.Groups[i].Name == name {
			return &v.Spec.Groups[i], true
		}
	}
	return nil, false
}

// JobVersion returns one entry of a job's history.
func (s *State) JobVersion(job model.JobName, version uint64) (*JobVersion, bool) {
	return s.Versions.Get(versionKey(job, version))
}

// versionKey is "job/version", with the version in ten digits. Every placement asks for two.
func versionKey(job model.JobName, version uint64) string {
	digits := strconv.FormatUint(version, 10)
	return string(job) + "/" + "0000000000"[min(len(digits), 10):] + digits
}
