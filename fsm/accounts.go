package fsm

import (
	"maps"
	"slices"

	"github.com/outspan/outspan/model"
)

// setInstance replaces an instance's row and updates every sum and index that depends on the row, such as the node's
// usage and the group's counts. before is nil if the instance is new, and after is nil if it is removed. Every change
// of an instance must be made by setInstance, so that no sum is forgotten.
func (s *State) setInstance(before, after *Instance) {
	row := after
	if row == nil {
		row = before
	}
	if after != nil {
		after.Marks.ChangedIndex = s.Index
		after.endPreparation()
	}
	s.instances.setInstance(before, after)
	s.accountUnheard(row, before, after)
	s.accountNode(row, before, after)
	s.accountGroup(row, before, after)
	s.accountClass(row, before, after)
	if before.holdsClaims() && !after.holdsClaims() {
		s.roomCameFree(row)
	}
	s.touchTable("instances")
	s.touchObject("instance/", string(row.ID))
	if s.entry.names {
		s.entry.written = append(s.entry.written, row)
	}
}

// accountUnheard updates the number of the group's ready instances on nodes whose agents have not reported since a
// restore. Instances whose stop is being prepared are not counted.
func (s *State) accountUnheard(row, before, after *Instance) {
	if s.unheard.Has(row.Node) {
		s.countUnheard(row.Group, count(after.free())-count(before.free()))
	}
}

// accountNode updates the node's Placed and Promised. It raises Assigned if the agent must learn of the change.
func (s *State) accountNode(row, before, after *Instance) {
	held, holds := before.takesRoom(), after.takesRoom()
	waits := before.WaitsForRoom() || after.WaitsForRoom()
	assigned := before.agentKnows() != after.agentKnows() || after.agentKnows() &&
		(before.Desired != after.Desired || before.Links.RestartSeq != after.Links.RestartSeq ||
			before.Preparation() != after.Preparation())
	waits = waits || held != holds && s.stopsForPull(row)
	node, ok := s.Nodes.Get(row.Node)
	if !ok || held == holds && !assigned && !waits {
		return
	}
	n := *node
	if waits {
		n.Promised = s.promisedOn(n.ID)
	}
	if held != holds {
		sign := int64(1)
		if held {
			sign = -1
		}
		n.Placed.CPU += sign * row.Claims.Resources.CPU
		n.Placed.MemoryBytes += sign * row.Claims.Resources.MemoryBytes
		n.Placed.Instances += int(sign)
	}
	if assigned {
		n.Assigned = s.Index
		s.touchObject("assigned/", string(n.ID))
	}
	s.putNode(&n)
}

// accountGroup updates the group's counts and what depends on them: its budgets, its list of peers and the generation
// of its services.
func (s *State) accountGroup(row, before, after *Instance) {
	group, ok := s.Groups.Get(row.Group)
	if !ok {
		return
	}
	g := *group
	g.Ready += count(after.isReady()) - count(before.isReady())
	g.Running += count(after != nil && after.Desired == model.DesiredRunning) -
		count(before != nil && before.Desired == model.DesiredRunning)
	g.Lost += count(after.isLost()) - count(before.isLost())
	g.Replaced += count(after.isReplaced()) - count(before.isReplaced())
	g.Alive += count(after.holdsClaims()) - count(before.holdsClaims())
	g.Held += count(after != nil && after.holdsUnit()) - count(before != nil && before.holdsUnit())
	g.Placed += uint64(count(before == nil))
	counted := before == nil || g.Held != group.Held || g.Ready != group.Ready || g.Running != group.Running ||
		g.Alive != group.Alive || g.Lost != group.Lost || g.Replaced != group.Replaced
	listed := before.listed() != after.listed() || before.PeerState() != after.PeerState()
	if listed {
		g.PeersAt = s.Index
		s.touchObject("peers/", string(g.ID))
	}
	if counted || listed {
		s.putGroup(&g)
	}
	if counted {
		s.touchTable("jobs")
		s.touchObject("job/", string(jobOf(g.ID)))
	}
	if before.isReady() != after.isReady() {
		s.renewServices(g.ID)
	}
	if g.Want() != group.Want() {
		s.resolveBudget(g.ID)
	}
}

// renewServices raises the generation of a group's services after the set of their backends changed.
func (s *State) renewServices(group model.GroupID) {
	spec, ok := s.Policy(group)
	if !ok {
		return
	}
	for _, svc := range spec.Services {
		if row, ok := s.Services.Get(model.ServiceName(svc.Name)); ok && row.Group == group {
			next := *row
			next.Generation = s.Index
			s.putService(&next)
			s.touchTable("services")
		}
	}
}

// Preparation returns the number of the preparation that the agent must run for the instance, or 0 if there is none.
func (i *Instance) Preparation() uint64 {
	if !i.Eviction.Preparing {
		return 0
	}
	return i.Eviction.Seq
}

// holdsClaims reports whether the instance still takes memory and ports of its node. Every instance does so until it is
// confirmed stopped.
func (i *Instance) holdsClaims() bool { return i != nil && i.Status.Observed != model.ObservedStopped }

func (i *Instance) isReady() bool { return i != nil && i.Ready() }

// isLost reports whether the instance should run, and its node is offline.
func (i *Instance) isLost() bool {
	return i != nil && i.Desired == model.DesiredRunning && i.Status.Observed == model.ObservedLost
}

// isReplaced reports whether the instance is being stopped for a cause after which a system group starts another
// instance on the same node. Such a group still wants an instance on that node.
func (i *Instance) isReplaced() bool {
	if !i.holdsClaims() || i.Desired == model.DesiredRunning || i.Status.Observed == model.ObservedLost {
		return false
	}
	switch i.Marks.StopCause {
	case model.CauseRollout, model.CauseUser, model.CauseCrashLoop, model.CauseStartTimeout,
		model.CauseOOM, model.CauseCheckFailed:
		return true
	}
	return false
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func jobOf(g model.GroupID) model.JobName {
	job, _ := g.Split()
	return job
}

// sortedKeys returns the keys of a map in ascending order, so that no result depends on the order of the map.
func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// keepsEvents returns false in a draft, because nobody reads a draft's events. Code that would make many events calls
// keepsEvents first, to save the work.
func (s *State) keepsEvents() bool { return !s.entry.draft }

// emit fills in the key, times, actor and request of an event, and appends the event to the table of events. In a
// draft, or while events are muted, emit only counts the event.
func (s *State) emit(e Event) {
	s.entry.made++
	if !s.keepsEvents() || s.entry.muted {
		return
	}
	s.addLeftOut(&e)
	e.Key = NewEventKey(s.Index, s.entry.events)
	s.entry.events++
	e.At, e.Wall, e.Actor, e.Request = s.Now, s.Wall, s.entry.actor, s.entry.request
	s.putEvent(&e)
	s.touchTable("events")
}
