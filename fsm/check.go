package fsm

import (
	"cmp"
	"errors"
	"slices"

	"github.com/outspan/outspan/model"
)

// maxFindings bounds the findings of one checker, because one broken rule tends to break many rows. Check joins the
// findings of two checkers.
const maxFindings = 20

// Check returns Findings with what is wrong in the state, or nil. Sums, indexes and references must match the rows, and
// values must be in their closed sets. It also checks S1, S2, S7 and S11 (see docs/proof.md), as far as one state can
// show them. Check only reads the state, and takes about 5 microseconds an instance.
func Check(s State) error {
	present, _ := errors.AsType[Findings](CheckPresent(s))
	past, _ := errors.AsType[Findings](CheckPast(s))
	return append(present, past...).Err()
}

// CheckPresent checks what Check does, except for the events and the stored requests. There are many of these rows, and
// they hardly ever change once they are written. Checking all of them after each entry of a long log would take most of
// the time.
func CheckPresent(s State) error {
	c := &checker{s: &s, memory: map[model.NodeID]Usage{}, waits: map[model.NodeID]int64{},
		sums: map[model.GroupID]groupSum{}}
	for _, part := range []func(){
		c.scalars, c.instances, c.slots, func() { checkPulls(c) }, c.nodes, c.indexes, c.nodeIndexes,
		c.unsettledIndexes, c.groups, c.jobs, c.versions,
		c.deployments, c.services, c.volumes, c.transfers, c.drains, c.budgets, c.classes,
		c.jobSums, c.rails, c.trustKeys, c.joinTokens, c.trustMembers, c.people, c.newcomers, c.rights, c.accessTokens,
	} {
		if part(); len(c.found) >= maxFindings {
			break
		}
	}
	return c.found.Err()
}

// checker collects the findings of Check or CheckStep.
type checker struct {
	rule   Invariant // the invariant in findings of want: empty in Check, S8 in CheckStep
	s      *State
	memory map[model.NodeID]Usage
	waits  map[model.NodeID]int64
	sums   map[model.GroupID]groupSum
	ports  int
	// gone is filled by CheckStep only. It has the event subjects of nodes that were forgotten, of jobs that were purged
	// and of instances that stopped, between the two states. See endings.
	gone  map[string]bool
	found Findings
}

type groupSum struct{ ready, running, lost, alive, held, replaced int }

// want adds a finding unless ok is true.
func (c *checker) want(ok bool, format string, args ...any) { c.holds(c.rule, ok, format, args...) }

// holds adds a finding for a rule unless ok is true. It ignores findings after the first maxFindings.
func (c *checker) holds(rule Invariant, ok bool, format string, args ...any) {
	if !ok && len(c.found) < maxFindings {
		c.found.Add(rule, format, args...)
	}
}

func oneOf[T comparable](v T, set ...T) bool { return slices.Contains(set, v) }

func (c *checker) scalars() {
	s := c.s
	c.want(s.Format >= 1 && s.Format <= model.CurrentFormat, "the state has format %d, this program knows 1 to %d",
		s.Format, model.CurrentFormat)
	c.want(s.Now >= 0, "cluster time is %d", s.Now)
	c.want(s.SettingsIndex <= s.Index, "the settings are of index %d, the state of %d", s.SettingsIndex, s.Index)
	if refusal := s.Settings.Check(); refusal != nil {
		c.want(false, "the settings: %s", refusal.Message)
	}
	c.want(len(s.Classes) > 0, "there is no class")
	for i, class := range s.Classes {
		_, at, _ := s.Class(class.Name)
		c.want(class.Name != "" && at == i, "class %q is empty or stands twice", class.Name)
		c.want(class.PreemptEqual.Valid(), "class %s: preempt_equal is %q", class.Name, class.PreemptEqual)
	}
}

// instances checks each instance on its own, and adds it to the sums of its node and its group.
func (c *checker) instances() {
	for id, i := range c.s.Instances.All() {
		c.want(i.ID == id && i.Status.ID == id, "instance %s: its row names %s, its status %s", id, i.ID, i.Status.ID)
		c.instanceStates(i)
		node, ok := c.s.Nodes.Get(i.Node)
		c.want(ok, "instance %s: its node %s does not exist", id, i.Node)
		if ok && node.Health == model.HealthOffline && i.holdsClaims() {
			c.want(i.Status.Observed == model.ObservedLost, "instance %s is %s on the offline node %s; it must be lost",
				id, i.Status.Observed, i.Node)
		}
		c.want(c.s.Groups.Has(i.Group), "instance %s: its group %s does not exist", id, i.Group)
		_, ok = c.s.Spec(i.Group, i.Version)
		c.want(ok, "instance %s: version %d of its spec is gone", id, i.Version)
		c.want(i.Slot >= 0, "instance %s has the slot %d", id, i.Slot)
		c.want(i.Marks.CreatedIndex <= i.Marks.ChangedIndex && i.Marks.ChangedIndex <= c.s.Index,
			"instance %s: created at index %d, changed at %d, the state is at %d",
			id, i.Marks.CreatedIndex, i.Marks.ChangedIndex, c.s.Index)
		c.addUp(i)
		c.members(i)
	}
}

func (c *checker) instanceStates(i *Instance) {
	observed := i.Status.Observed
	c.want(oneOf(i.Desired, model.DesiredRunning, model.DesiredDraining, model.DesiredStopped),
		"instance %s: desired is %q", i.ID, i.Desired)
	c.want(oneOf(observed, model.ObservedPending, model.ObservedBooting, model.ObservedReady, model.ObservedUnready,
		model.ObservedDraining, model.ObservedStopped, model.ObservedFailed, model.ObservedLost),
		"instance %s: observed is %q", i.ID, observed)
	c.want(observed != model.ObservedStopped || i.Desired == model.DesiredStopped,
		"instance %s is stopped and desired is %s: it must be failed, or its end written", i.ID, i.Desired)
	c.want(observed != model.ObservedFailed || i.Status.Reason != "", "instance %s failed without a reason", i.ID)
	c.want(i.Cause.Valid(), "instance %s: cause %q", i.ID, i.Cause)
	c.want(i.Desired == model.DesiredRunning || i.Marks.StopCause.Valid(), "instance %s is %s for the cause %q", i.ID,
		i.Desired, i.Marks.StopCause)
	c.want(!i.Eviction.Requested || i.Eviction.Cause.Valid(), "instance %s: its eviction has the cause %q",
		i.ID, i.Eviction.Cause)
	c.want(i.Eviction.Requested || i.Eviction == Eviction{Seq: i.Eviction.Seq},
		"instance %s: an eviction that nobody asked for: %+v", i.ID, i.Eviction)
	e := i.Eviction
	c.want(!e.Preparing || e.Requested && e.Seq > 0 && e.RetryAt > 0 && i.Desired == model.DesiredRunning && i.runs(),
		"instance %s is %s, %s and being prepared: %+v", i.ID, i.Desired, observed, e)
	c.want(e.Aborts == 0 || e.Seq >= uint64(e.Aborts), "instance %s: %d of %d preparations were aborted",
		i.ID, e.Aborts, e.Seq)
	c.want(len(i.Status.Facts) == 0 || len(CleanFacts(i.Status.Facts)) == len(i.Status.Facts),
		"instance %s: its facts are not clean: %v", i.ID, i.Status.Facts)
	c.holds(S1, i.Claims.Resources.MemoryBytes > 0 && i.Claims.Resources.CPU >= 0, "instance %s claims %+v",
		i.ID, i.Claims.Resources)
	c.want((i.Marks.ReadySince != 0 || i.Marks.Created == 0 || c.s.Now == 0) || observed != model.ObservedReady,
		"instance %s is ready since never", i.ID)
}

func (c *checker) addUp(i *Instance) {
	sum := c.sums[i.Group]
	sum.ready += count(i.Ready())
	sum.running += count(i.Desired == model.DesiredRunning)
	sum.alive += count(i.holdsClaims())
	sum.lost += count(i.isLost())
	sum.held += count(i.holdsUnit())
	sum.replaced += count(i.isReplaced())
	c.sums[i.Group] = sum
	if !i.holdsClaims() {
		return
	}
	if i.WaitsForRoom() {
		c.waiting(i)
		return
	}
	u := c.memory[i.Node]
	u.CPU += i.Claims.Resources.CPU
	u.MemoryBytes += i.Claims.Resources.MemoryBytes
	u.Instances++
	c.memory[i.Node] = u
	for _, p := range i.Claims.Ports {
		port := p.Number
		owner, _ := c.s.PortOwner(i.Node, port)
		c.holds(S1, owner == i.ID, "port %d of node %s: instance %s claims it, %q owns it", port, i.Node, i.ID, owner)
		c.holds(S1, port >= 1 && port <= 65535, "instance %s claims the port %d", i.ID, port)
		c.ports++
	}
}

// slots checks that a slot has at most two instances that should run, and that one of the two replaces the other. In a
// slot that allows a single holder (GroupSpec.OneHolder), at most one instance may be not confirmed stopped.
func (c *checker) slots() {
	type place struct {
		group model.GroupID
		slot  int
	}
	var at place
	var running, alive []*Instance
	flush := func() {
		c.slot(running, alive)
		running, alive = nil, nil
	}
	for _, row := range c.s.inGroup.All() {
		i, ok := c.s.Instances.Get(row.ID)
		if !ok {
			continue // the function indexes reports the missing row
		}
		if next := (place{i.Group, i.Slot}); next != at {
			flush()
			at = next
		}
		if i.Desired == model.DesiredRunning {
			running = append(running, i)
		}
		if i.holdsClaims() {
			alive = append(alive, i)
		}
	}
	flush()
}

func (c *checker) slot(running, alive []*Instance) {
	switch len(running) {
	case 0, 1:
	case 2:
		a, b := running[0], running[1]
		c.holds(S7, a.Links.Replaces == b.ID && b.Links.ReplacedBy == a.ID || b.Links.Replaces == a.ID &&
			a.Links.ReplacedBy == b.ID,
			"slot %d of %s: %s and %s are both desired, and neither replaces the other", a.Slot, a.Group, a.ID, b.ID)
	default:
		c.holds(S7, false, "slot %d of %s: %d instances are desired", running[0].Slot, running[0].Group, len(running))
	}
	// Some versions of a group may require one holder and others not. So for each instance, the spec of its own version
	// decides.
	var holder model.InstanceID
	for _, i := range alive {
		if spec, ok := c.s.Spec(i.Group, i.Version); ok && spec.OneHolder() {
			c.holds(S2, holder == "", "slot %d of %s may have a single holder, and neither %s nor %s is confirmed stopped",
				i.Slot, i.Group, holder, i.ID)
			holder = i.ID
		}
	}
}

func (c *checker) nodes() {
	for id, n := range c.s.Nodes.All() {
		c.want(n.ID == id && model.ValidName(string(id)) && model.ValidName(n.Name),
			"node %s: its row says id %s, name %q", id, n.ID, n.Name)
		c.want(oneOf(n.Intent, model.IntentActive, model.IntentCordoned, model.IntentDraining, model.IntentDisabled),
			"node %s: intent is %q", id, n.Intent)
		c.want(oneOf(n.Health, model.HealthOnline, model.HealthDegraded, model.HealthUnreachable, model.HealthOffline),
			"node %s: health is %q", id, n.Health)
		c.want(n.Promised == c.waits[id],
			"node %s: it says %d bytes are promised, the instances and claims that wait there sum up to %d",
			id, n.Promised, c.waits[id])
		c.want(n.Placed == c.memory[id], "node %s: it says %+v is placed, its instances sum up to %+v",
			id, n.Placed, c.memory[id])
		// A node may have registered again with less memory than its instances take. CheckStep checks that no more instances
		// are placed on such a node.
		c.holds(S1, n.Registrations > 1 || n.Placed.Instances == 0 || n.FreeBytes() >= 0,
			"node %s: %d bytes are placed on %d, and %d promised", id, n.Placed.MemoryBytes,
			n.Allocatable().MemoryBytes, n.Promised)
		c.want(n.Agent.Epoch >= n.Registrations && n.Registrations >= 1 && n.Version >= 1 && n.Agent.BootID != "",
			"node %s: epoch %d, version %d, boot id %q", id, n.Agent.Epoch, n.Version, n.Agent.BootID)
		c.want(n.Assigned <= c.s.Index, "node %s: assigned at index %d, the state is at %d", id, n.Assigned, c.s.Index)
		c.want(soundFailedPulls(n), "node %s: %d failed pulls, or two of one image", id, len(n.FailedPulls))
		c.want(len(n.Avoid) <= avoidLimit && slices.IsSortedFunc(n.Avoid, func(a, b AvoidEntry) int {
			return cmp.Or(compareAvoid(a, b), -1)
		}),
			"node %s: its avoid list has %d entries, or two of one version: %v", id, len(n.Avoid), n.Avoid)
		c.want((n.Troubled() || n.Self.Since == 0) && n.Self.Since <= c.s.Now, "node %s: it has %d troubles since %d", id,
			len(n.Self.Troubles), n.Self.Since)
		c.want(soundPorts(n.Self.Ports), "node %s: its ports are too many, or not in order: %v", id, n.Self.Ports)
		c.want(soundDisk(n.Self.Disk), "node %s: its disk uses are too many, or not in order: %v", id, n.Self.Disk)
		c.want(soundImages(n.Self.Runtime), "node %s: its images are too many, or not in order: %+v", id, n.Self.Runtime)
		c.want(n.Self.Events.sound(c.s.Now), "node %s: the events of its agent's words are counted as %+v", id, n.Self.Events)
		c.want(n.Health == model.HealthOffline || !n.Return.ConfirmedDead, "node %s is %s and confirmed dead", id, n.Health)
	}
}

// indexes checks that the indexes of nodes and instances match the rows. Of the indexes of copies and of revoked agents
// it checks only the sizes.
func (c *checker) indexes() {
	s := c.s
	for id, n := range s.Nodes.All() {
		owner, _ := s.nodeNames.Get(n.Name)
		c.want(owner == id, "the name %s of node %s leads to %q", n.Name, id, owner)
	}
	for id, i := range s.Instances.All() {
		c.want(s.inGroup.Has(inGroupKey(i)), "instance %s is missing in an index", id)
	}
	c.sizes([]indexSize{
		{"names of nodes", s.nodeNames.Len(), s.Nodes.Len()},
		{"instances of groups", s.inGroup.Len(), s.Instances.Len()},
		{"copies of nodes", s.copiesOn.Len(), c.copies()},
		{"revoked agents", s.revokedAgents.Len(), c.revokedAgents()},
	})
}

type indexSize struct {
	name      string
	got, want int
}

func (c *checker) sizes(all []indexSize) {
	for _, size := range all {
		c.want(size.got == size.want, "the index of %s has %d entries, the rows %d", size.name, size.got, size.want)
	}
}

// CheckPast returns Findings with what is wrong with the events, the stored requests and their indexes, or nil. These
// rows only record the past.
func CheckPast(s State) error {
	c := &checker{s: &s}
	c.requests()
	c.events()
	return c.found.Err()
}

func (c *checker) requests() {
	s := c.s
	most := maxRequests + minRequestsOfActor*s.requestsOf.Len()
	c.want(s.Requests.Len() <= most, "%d requests are kept, at most %d should be", s.Requests.Len(), most)
	count := map[model.Actor]int{}
	for id, r := range s.Requests.All() {
		c.want(r.ID == id && id != "", "request %q: its row says %q", id, r.ID)
		c.want(r.Index <= s.Index && r.At <= s.Now, "request %s is of index %d and time %d, the state of %d and %d", id,
			r.Index, r.At, s.Index, s.Now)
		count[r.Actor]++
		known, _ := s.requestLog.Get(r.Index)
		c.want(known == id, "the log of requests has %q at index %d, not %s", known, r.Index, id)
	}
	for actor, n := range s.requestsOf.All() {
		c.want(n == count[actor], "%d requests of %s are counted, not %d", n, actor, count[actor])
	}
	c.sizes([]indexSize{
		{"log of requests", s.requestLog.Len(), s.Requests.Len()},
		{"actors of requests", s.requestsOf.Len(), len(count)},
	})
}

func (c *checker) events() {
	bytes := 0
	for key, p := range c.s.Events.rows.All() {
		bytes += len(p)
		e, whole := p.open()
		c.want(whole, "event %s: its row can't be read", key)
		c.want(e.Key == key && key.Index() >= 1 && key.Index() <= c.s.Index,
			"event %s: its row says %s, the state is at %d", key, e.Key, c.s.Index)
		c.want(isEventType(e.Type) && e.Subject != "", "event %s: type %q, subject %q", key, e.Type, e.Subject)
		c.want(e.Cause == "" || e.Cause.Valid(), "event %s: cause %q", key, e.Cause)
	}
	c.sizes([]indexSize{{"bytes of events", c.s.Events.Bytes(), bytes}})
}

func isEventType(t model.EventType) bool {
	return slices.Contains(model.EventTypes(), t)
}
