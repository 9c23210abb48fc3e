package fsm

import (
	"errors"
	"slices"

	"github.com/outspan/outspan/model"
)

// CheckStep compares a state with a later state of the same history. A restored snapshot begins a new history.
// CheckStep returns Findings with each difference that must never occur (S1, S8, S9, S19), or nil.
func CheckStep(before, after State) error {
	c := &checker{rule: S8, s: &after, gone: map[string]bool{}}
	c.endings(before.Index)
	c.clocks(&before)
	eachChange(before.Nodes, after.Nodes, c.nodeStep)
	eachChange(before.Instances, after.Instances, c.instanceStep)
	eachChange(before.Drains, after.Drains, c.drainStep)
	eachChange(before.Deployments, after.Deployments, c.deploymentStep)
	eachChange(before.Jobs, after.Jobs, func(name model.JobName, a, b *Job) {
		c.want(c.purged(name) || b.Version >= a.Version && b.Index >= a.Index && b.Stable >= a.Stable,
			"job %s: version %d to %d, index %d to %d, stable %d to %d", a.Name, a.Version, b.Version, a.Index,
			b.Index, a.Stable, b.Stable)
	})
	eachChange(before.Groups, after.Groups, func(id model.GroupID, a, b *Group) {
		c.want(c.purged(jobOf(id)) || b.Placed >= a.Placed, "group %s: %d placements became %d", a.ID, a.Placed, b.Placed)
	})
	eachChange(before.Services, after.Services, func(_ model.ServiceName, a, b *Service) {
		c.want(b.Generation >= a.Generation, "service %s: generation %d became %d", a.Name, a.Generation, b.Generation)
	})
	eachChange(before.Requests, after.Requests, func(_ model.RequestID, a, b *Request) {
		c.want(b.Index > a.Index && a.At.Add(requestMinimum) <= after.Now, "the outcome of request %s was rewritten", a.ID)
	})
	c.newRows(&before)
	checkPlaced(c, &before)
	c.assigned(&before)
	c.listed(&before)
	trust, _ := errors.AsType[Findings](CheckTrust(before, after))
	return append(c.found, trust...).Err()
}

// endings records in gone the nodes that were forgotten, the jobs that were purged and the instances that stopped after
// the index since. A row under such a name may now be of another object. If an instance was created under the same id
// after the index since, its stop is ignored.
func (c *checker) endings(since uint64) {
	again := map[string]bool{}
	for _, e := range c.s.Events.From(NewEventKey(since+1, 0)) {
		switch {
		case e.After == "forgotten", e.After == "purged":
			c.gone[e.Subject] = true
		case e.Type == model.EventAllocated:
			again[e.Subject] = true
		case e.Type == model.EventStatus && e.After == string(model.ObservedStopped) && !again[e.Subject]:
			c.gone[e.Subject] = true
		}
	}
}

// instruction has those fields of an instance's row that the agent gets and that may change during the instance's life.
type instruction struct {
	desired     model.Desired
	restarts    uint64
	preparation uint64
	grace       model.Duration
	cause       model.Cause
}

func instructionFor(i *Instance) instruction {
	if !i.agentKnows() {
		return instruction{}
	}
	o := instruction{desired: i.Desired, restarts: i.Links.RestartSeq, preparation: i.Preparation(),
		cause: i.Marks.StopCause}
	if i.Marks.GraceOverride != nil {
		o.grace = *i.Marks.GraceOverride
	}
	return o
}

// assigned checks that Assigned was raised on each node whose instructions changed. An agent gets new instructions only
// after Assigned has grown.
func (c *checker) assigned(before *State) {
	want := func(i *Instance) {
		n, ok := c.s.Nodes.Get(i.Node)
		if !ok {
			return // nobody waits for instructions of a node that was forgotten
		}
		c.want(n.Assigned > before.Index,
			"instance %s: what its agent is told changed after index %d, its node was last called at %d",
			i.ID, before.Index, n.Assigned)
	}
	for _, row := range differences(before.Instances, c.s.Instances) {
		if row.has && instructionFor(row.before) != instructionFor(row.after) {
			want(row.after)
		}
		if !row.has && row.before.agentKnows() && !row.before.Terminal() {
			want(row.before)
		}
	}
}

// eachChange calls visit for each key whose rows in the two tables differ. It ignores keys that only one table has.
func eachChange[K ~string | ~uint64, V comparable](before, after Table[K, V], visit func(key K, a, b V)) {
	for key, row := range differences(before, after) {
		if row.had && row.has {
			visit(key, row.before, row.after)
		}
	}
}

func (c *checker) purged(job model.JobName) bool { return c.gone["job/"+string(job)] }

func (c *checker) clocks(before *State) {
	s := c.s
	c.want(s.Index > before.Index, "index %d became %d", before.Index, s.Index)
	c.want(s.Leader.Term >= before.Leader.Term, "the leader of term %d became that of term %d",
		before.Leader.Term, s.Leader.Term)
	c.want(s.LogTerm >= before.LogTerm, "term %d became %d", before.LogTerm, s.LogTerm)
	c.want(s.Now >= before.Now, "time %d became %d", before.Now, s.Now)
	c.want(s.Format >= before.Format && s.Incarnation >= before.Incarnation,
		"format %d became %d, incarnation %d became %d", before.Format, s.Format, before.Incarnation, s.Incarnation)
	c.want(before.Cluster.ID == "" || s.Cluster == before.Cluster, "cluster %+v became %+v", before.Cluster, s.Cluster)
	c.want(s.SettingsIndex >= before.SettingsIndex, "the settings' index %d became %d",
		before.SettingsIndex, s.SettingsIndex)
}

func (c *checker) nodeStep(id model.NodeID, a, b *Node) {
	if c.gone["node/"+string(id)] {
		return
	}
	c.want(b.Version >= a.Version && b.Assigned >= a.Assigned, "node %s: version %d became %d, assigned %d became %d", id,
		a.Version, b.Version, a.Assigned, b.Assigned)
	c.want(b.Agent.Epoch >= a.Agent.Epoch, "node %s: epoch %d became %d", id, a.Agent.Epoch, b.Agent.Epoch)
	registered := b.Agent.Epoch > a.Agent.Epoch
	c.want(registered == (b.Registrations > a.Registrations), "node %s: epoch %d became %d in %d registrations", id,
		a.Agent.Epoch, b.Agent.Epoch, b.Registrations-a.Registrations)
	c.want(registered || a.Agent.BootID == b.Agent.BootID, "node %s: its boot id changed without a registration", id)
	c.want(registered || a.Health != model.HealthOffline || b.Health == model.HealthOffline,
		"node %s came back from offline without a registration", id)
	judged := a.Intent != b.Intent || a.Health != b.Health || registered
	c.want(!judged || b.Version > a.Version, "node %s: intent, health or epoch changed and its version did not", id)
	room := max(a.Allocatable().MemoryBytes, b.Allocatable().MemoryBytes)
	between := b.Registrations > a.Registrations+1 // then the node may have had a size that neither state shows
	c.holds(S1, between || b.Placed.MemoryBytes <= a.Placed.MemoryBytes || b.Placed.MemoryBytes <= room,
		"node %s: %d bytes are placed on %d", id, b.Placed.MemoryBytes, room)
}

func (c *checker) instanceStep(id model.InstanceID, a, b *Instance) {
	if b.Marks.CreatedIndex > a.Marks.CreatedIndex {
		// Between the two states, the row of instance a was removed (with its job, or because its slot has newer instances),
		// and a proposer used the id again for b. The leader never does so, because it derives ids from the index (P27).
		c.want(a.Terminal() || c.gone["instance/"+string(id)], "instance %s began anew before it had ended", id)
		return
	}
	c.want(!a.Terminal() || b.Terminal(), "instance %s had ended and is %s, %s now", id, b.Desired, b.Status.Observed)
	rank := map[model.Desired]int{model.DesiredRunning: 0, model.DesiredDraining: 1, model.DesiredStopped: 2}
	c.want(rank[b.Desired] >= rank[a.Desired], "instance %s: desired went back from %s to %s", id, a.Desired, b.Desired)
	c.want(observedEdge(a.Status.Observed, b.Status.Observed), "instance %s: observed went from %s to %s", id,
		a.Status.Observed, b.Status.Observed)
	c.want(b.Status.Epoch >= a.Status.Epoch, "instance %s: its status was of epoch %d and is of %d", id,
		a.Status.Epoch, b.Status.Epoch)
	c.want(b.Status.Generation >= a.Status.Generation || b.Status.Epoch > a.Status.Epoch,
		"instance %s: generation %d became %d", id, a.Status.Generation, b.Status.Generation)
	c.want(a.Group == b.Group && a.Slot == b.Slot && a.Version == b.Version && a.Node == b.Node && a.Cause == b.Cause &&
		a.Links.Replaces == b.Links.Replaces,
		"instance %s changed what it is", id)
	c.want(a.Claims.Resources == b.Claims.Resources, "instance %s: its claims went from %+v to %+v", id,
		a.Claims.Resources, b.Claims.Resources)
	c.want(a.Marks.StopCause == "" || a.Marks.StopCause == b.Marks.StopCause && a.Marks.StopBegan == b.Marks.StopBegan,
		"instance %s: its stop began for %s and now for %s", id, a.Marks.StopCause, b.Marks.StopCause)
	c.want(b.Marks.ChangedIndex > a.Marks.ChangedIndex, "instance %s changed at index %d and again at %d", id,
		a.Marks.ChangedIndex, b.Marks.ChangedIndex)
	c.want(!slices.ContainsFunc(b.Links.Awaits, func(id model.InstanceID) bool {
		return !slices.Contains(a.Links.Awaits, id)
	}), "instance %s awaited %v and now %v", id, a.Links.Awaits, b.Links.Awaits)
	c.want(b.Eviction.Seq >= a.Eviction.Seq, "instance %s: preparation %d became %d", id, a.Eviction.Seq, b.Eviction.Seq)
	c.want(b.Links.RestartSeq >= a.Links.RestartSeq, "instance %s: restart %d became %d", id,
		a.Links.RestartSeq, b.Links.RestartSeq)
}

// observedEdge reports whether the observed state of an instance may change between the two given states in one or more
// entries. No instance becomes pending again, and a stopped instance stays stopped.
func observedEdge(from, to model.Observed) bool {
	return from == to || from != model.ObservedStopped && to != model.ObservedPending
}

func (c *checker) drainStep(id model.DrainID, a, b *Drain) {
	c.want(a.EndedIndex == 0 || a.EndedIndex == b.EndedIndex, "drain %s ended at index %d and again at %d",
		id, a.EndedIndex, b.EndedIndex)
	c.want(len(a.Nodes) == len(b.Nodes) && a.Index == b.Index, "drain %s became another one", id)
	for i := range min(len(a.Nodes), len(b.Nodes)) {
		p, q := a.Nodes[i], b.Nodes[i]
		c.want(p.Node == q.Node, "drain %s: node %s became %s", id, p.Node, q.Node)
		c.want(p.Phase == model.PhaseDraining || p.Phase == q.Phase && p.LastError == q.LastError,
			"drain %s, node %s: %s became %s", id, p.Node, p.Phase, q.Phase)
		c.want(!p.Turn || q.Turn && p.Deadline == q.Deadline, "drain %s, node %s: its deadline went from %d to %d", id,
			p.Node, p.Deadline, q.Deadline)
	}
}

func (c *checker) deploymentStep(id model.DeploymentID, a, b *Deployment) {
	if c.purged(a.Job) {
		return
	}
	rank := map[model.DeploymentStatus]int{model.DeploymentQueued: 0, model.DeploymentRolling: 1,
		model.DeploymentSucceeded: 2, model.DeploymentFailed: 2, model.DeploymentSuperseded: 2}
	c.want(rank[b.Status] > rank[a.Status] || b.Status == a.Status, "deployment %s: %s became %s", id, a.Status, b.Status)
	c.want(!a.Promoted || b.Promoted, "deployment %s was promoted", id)
}

// newRows checks that no deleted instance or event came back, that no event was rewritten, and that no new node has
// more memory placed on it than it offers.
func (c *checker) newRows(before *State) {
	for id, row := range differences(before.Instances, c.s.Instances) {
		if !row.had {
			created := row.after.Marks.CreatedIndex
			c.holds(S9, created > before.Index, "instance %s came back from index %d", id, created)
		}
	}
	for key, row := range differences(before.Events.rows, c.s.Events.rows) {
		c.want(!row.had || !row.has, "event %s was rewritten", key)
		c.holds(S9, row.had || key.Index() > before.Index, "event %s came back", key)
	}
	for id, n := range c.s.Nodes.All() {
		if !before.Nodes.Has(id) { // a new node that registered twice may have been larger for a while
			c.holds(S1, n.Registrations > 1 || n.Placed.MemoryBytes <= max(n.Allocatable().MemoryBytes, 0),
				"node %s is new and holds %d bytes of %d", id, n.Placed.MemoryBytes, n.Allocatable().MemoryBytes)
		}
	}
}

// listed checks that PeersAt was raised for each change of a group's list of peers. Readers of the list wait until
// PeersAt grows.
func (c *checker) listed(before *State) {
	seen := func(i *Instance) model.PeerState {
		if !i.listed() {
			return ""
		}
		return i.PeerState()
	}
	want := func(i *Instance) {
		if g, ok := c.s.Groups.Get(i.Group); ok {
			c.want(g.PeersAt > before.Index, "instance %s: what its group is told changed after index %d, the group at %d",
				i.ID, before.Index, g.PeersAt)
		}
	}
	for _, row := range differences(before.Instances, c.s.Instances) {
		if row.has && seen(row.before) != seen(row.after) {
			want(row.after)
		}
		if !row.has && seen(row.before) != "" && !c.purged(jobOf(row.before.Group)) {
			want(row.before)
		}
	}
}
