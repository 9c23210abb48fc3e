package sim

import (
	"maps"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// roles checks S6 for every stop of a running instance. The cause that the stop names must really exist, and the
// instance's role and data must allow the stop.
func (j *judge) roles(c *committed) {
	c.taken(func(_ []fsm.Command, command fsm.Command) {
		stop, ok := command.(*fsm.InstanceStop)
		if !ok || j.failure != nil {
			return
		}
		i, ok := c.before.Instances.Get(stop.ID)
		now, still := c.after.Instances.Get(stop.ID)
		if !ok || !runs(i) || c.lost(stop.ID) || still && now.Desired == model.DesiredRunning {
			return
		}
		force := j.reason(c, stop, i)
		j.role(c, stop, i, force)
		j.lastCopy(c, stop, i)
	})
}

// reason checks that the cause that a stop names exists in the state. force is true if the cause is a drain with force.
func (j *judge) reason(c *committed, stop *fsm.InstanceStop, i *fsm.Instance) (force bool) {
	n, ok := c.before.Nodes.Get(i.Node)
	if !ok {
		return false
	}
	switch stop.Cause {
	case model.CauseNodeDisabled:
		if n.Intent != model.IntentDisabled {
			j.fail(fsm.S6, "entry %d stops %s because its node %s is disabled, which is %s", c.index, i.ID, n.ID, n.Intent)
		}
	case model.CauseNodeNotReady:
		if !n.Troubled() {
			j.fail(fsm.S6, "entry %d stops %s because its node %s is not well, which it is", c.index, i.ID, n.ID)
		}
	case model.CauseNodeDraining:
		if stop.By == fsm.ByPolicy {
			if n.Intent != model.IntentCordoned || c.before.Settings.EvictOn != model.EvictOnCordon {
				j.fail(fsm.S6, "entry %d stops %s by the policy for cordoned nodes, and its node is %s", c.index, i.ID, n.Intent)
			}
			return false
		}
		d, ok := c.before.Drains.Get(model.DrainID(stop.By))
		later, _ := c.after.Drains.Get(model.DrainID(stop.By))
		if !ok || later == nil {
			j.fail(fsm.S6, "entry %d stops %s for the drain %q, which there is not", c.index, i.ID, stop.By)
			return false
		}
		was, _ := d.Node(i.Node)
		part, _ := later.Node(i.Node)
		if was.Phase != model.PhaseDraining || !part.Turn || d.Paused {
			j.fail(fsm.S6, "entry %d stops %s for the drain %s, which is %s there, turn %v, paused %v", c.index, i.ID, d.ID,
				was.Phase, part.Turn, d.Paused)
		}
		return d.Options.Force
	}
	return false
}

// role checks a stop whose cause lies outside the job, unless it is a drain with force. An instance whose role never
// allows evictions must not be stopped. If the role allows evictions only while the instance is not the leader, the
// instance or a peer must have reported that the instance does not lead, and its node must be online.
func (j *judge) role(c *committed, stop *fsm.InstanceStop, i *fsm.Instance, force bool) {
	outside := slices.Contains([]model.Cause{model.CauseNodeDraining, model.CauseNodeDisabled, model.CauseNodeNotReady,
		model.CausePreempted, model.CauseRebalance, model.CauseAffinity}, stop.Cause)
	policy, ok := c.before.Policy(i.Group)
	if !outside || force || !ok {
		return
	}
	if policy.Eviction.Mode == model.ModeNever {
		j.fail(fsm.S6, "entry %d stops %s of %s for %s, and its role says never", c.index, i.ID, i.Group, stop.Cause)
		return
	}
	if policy.Eviction.Mode != model.ModeWhen || !slices.Contains(policy.Eviction.When, "!self.leader") {
		return
	}
	a, _ := c.before.Nodes.Get(i.Node)
	b, _ := c.after.Nodes.Get(i.Node)
	online := a.Health == model.HealthOnline || b != nil && b.Health == model.HealthOnline
	if !online || i.Status.Facts[model.FactLeader] != "false" && !saidByPeers(c.before, i) {
		j.fail(fsm.S6, "entry %d stops %s of %s for %s, which says %v on a node that is %s", c.index, i.ID, i.Group,
			stop.Cause, i.Status.Facts, a.Health)
	}
}

// saidByPeers reports whether some member of the group reports facts about the slots of others. These facts may concern
// i.
func saidByPeers(s *fsm.State, i *fsm.Instance) bool {
	for other := range s.InstancesOf(i.Group) {
		if slices.ContainsFunc(slices.Sorted(maps.Keys(other.Status.Facts)), func(name string) bool {
			return strings.HasPrefix(name, "slot.")
		}) {
			return true
		}
	}
	return false
}

// lastCopy checks that no copy with data is stopped while no other reliable copy exists. It accepts every stop of a
// stopped job or of a group whose count is 0, a user's stop with a bypass, and stops for a drain with force or with the
// policy always-allow.
func (j *judge) lastCopy(c *committed, stop *fsm.InstanceStop, i *fsm.Instance) {
	spec, ok := c.before.Spec(i.Group, i.Version)
	g, known := c.before.Groups.Get(i.Group)
	if !ok || !known || !spec.Replicated() || g.Count == 0 || stop.Cause == model.CauseJobStopped || stop.Bypass &&
		stop.Cause == model.CauseUser || !holdsData(c.before, i) {
		return
	}
	if d, ok := c.before.Drains.Get(model.DrainID(stop.By)); ok &&
		(stop.Cause == model.CauseNodeDraining || stop.Cause == model.CauseDrainTimeout) {
		policy := model.DrainPolicy(d.Options.Policy)
		if policy == "" {
			policy = model.DrainPolicy(c.before.Settings.NodeDrainPolicy)
		}
		if d.Options.Force || policy == model.PolicyAlwaysAllow {
			return
		}
	}
	if !reliable(c.before, c.after, i, true) || !reliable(c.after, c.after, i, false) {
		j.fail(fsm.S6, "entry %d stops %s of %s for %s, whose copy is the last one that can be relied on",
			c.index, i.ID, i.Group, stop.Cause)
	}
}

func holdsData(s *fsm.State, i *fsm.Instance) bool {
	spec, _ := s.Spec(i.Group, i.Version)
	for _, v := range spec.Volumes {
		if row, ok := s.Volumes.Get(fsm.NewCopyID(i.Group, i.Slot, v.Name, i.Node)); ok && row.Held {
			return true
		}
	}
	return false
}

// reliable reports whether another member is ready and in sync in the state s, on another node that is not offline. If
// strictly is true, that node must also be online, active and not recovering, and the member must not be marked for
// eviction. after is the state after the entry.
func reliable(s, after *fsm.State, i *fsm.Instance, strictly bool) bool {
	for peer := range s.InstancesOf(i.Group) {
		if peer.ID == i.ID || peer.Node == i.Node || !peer.Ready() || peer.Status.Facts[model.FactInSync] != "true" {
			continue
		}
		n, ok := s.Nodes.Get(peer.Node)
		later, _ := after.Nodes.Get(peer.Node)
		// the same entry may have declared the node online
		online := ok && (n.Health == model.HealthOnline || later != nil && later.Health == model.HealthOnline)
		// the same entry may have canceled the member's eviction
		kept, _ := after.Instances.Get(peer.ID)
		marked := peer.Eviction.Requested && (kept == nil || kept.Eviction.Requested)
		stays := online && n.Intent == model.IntentActive && !n.Return.Recovering && !marked
		if stays || !strictly && ok && n.Health != model.HealthOffline {
			return true
		}
	}
	return false
}

// preemptions counts preemptions. It also checks a part of S11: nothing is preempted while another node has enough
// room.
func (j *judge) preemptions(c *committed) {
	c.taken(func(group []fsm.Command, command fsm.Command) {
		stop, ok := command.(*fsm.InstanceStop)
		if !ok || stop.Cause != model.CausePreempted || j.failure != nil {
			return
		}
		at := slices.IndexFunc(group, func(other fsm.Command) bool {
			place, ok := other.(*fsm.InstancePlace)
			return ok && string(place.ID) == stop.By
		})
		victim, known := c.before.Instances.Get(stop.ID)
		if at < 0 || !known {
			return
		}
		place := group[at].(*fsm.InstancePlace)
		j.counts[CountPreemptions]++
		taker, owner := jobOf(c.before, place.Group), jobOf(c.before, victim.Group)
		if taker != nil && owner != nil && taker.Class == owner.Class {
			j.counts[CountEqualPreemptions]++
		}
		j.needed(c, place)
	})
}

func jobOf(s *fsm.State, id model.GroupID) *fsm.Job {
	name, _ := id.Split()
	job, _ := s.Jobs.Get(name)
	return job
}

// needed fails the history if another node had room for the preemptor both when the entry was decided and after it was
// applied. It judges only groups that need nothing but memory. Memory that other slots wait for is not regarded as
// free.
func (j *judge) needed(c *committed, place *fsm.InstancePlace) {
	spec, ok := c.before.Spec(place.Group, place.Version)
	if !ok || len(spec.Constraints)+len(spec.Ports)+len(spec.Volumes)+len(spec.Distinct) > 0 || spec.OneHolder() ||
		spec.Role == model.RoleSystem || place.Replaces != "" {
		return
	}
	room := c.after.ClaimsOf(spec, nil).Resources.MemoryBytes + waitedFor(c.after)
	had := func(s *fsm.State, id model.NodeID) bool {
		n, ok := s.Nodes.Get(id)
		return ok && s.Eligible(n) == nil && n.FreeBytes() >= room
	}
	for _, n := range c.after.Nodes.All() {
		if n.ID != place.Node && had(c.after, n.ID) && (c.basis == nil || had(c.basis, n.ID)) {
			j.fail(fsm.S11, "entry %d preempts on %s for %s, and %s has %d MiB free", c.index, place.Node,
				place.Group, n.ID, n.FreeBytes()/mib)
			return
		}
	}
}

// waitedFor returns the memory that is needed for the slots whose instance is missing or must leave its node.
func waitedFor(s *fsm.State) int64 {
	sum := int64(0)
	for id, g := range s.Groups.All() {
		spec, ok := s.Policy(id)
		if !ok {
			continue
		}
		for slot := range g.Count {
			if !stays(s, id, slot) {
				sum += s.ClaimsOf(spec, nil).Resources.MemoryBytes
			}
		}
	}
	return sum
}

func stays(s *fsm.State, group model.GroupID, slot int) bool {
	for i := range s.InstancesInSlot(group, slot) {
		if n, ok := s.Nodes.Get(i.Node); ok && i.Desired == model.DesiredRunning &&
			!i.Eviction.Requested && s.Eligible(n) == nil {
			return true
		}
	}
	return false
}
