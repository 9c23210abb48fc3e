package sim

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// stormWindow and stormLimit bound how often one slot is filled. What fails is tried again with growing pauses, what is
// drained moves once, so it takes many faults to come near.
const (
	stormWindow = model.Minute
	stormLimit  = 14
)

// endedBook is what is gone for good.
type endedBook struct {
	instances map[model.InstanceID]bool
	slots     map[string][]model.Time
}

func newEndedBook() endedBook {
	return endedBook{instances: map[model.InstanceID]bool{}, slots: map[string][]model.Time{}}
}

// storms is S7: nothing is replaced that needs no replacement, and no slot is filled again and again.
func (j *judge) storms(c *committed) {
	c.taken(func(_ []fsm.Command, command fsm.Command) {
		place, ok := command.(*fsm.InstancePlace)
		if !ok || j.failure != nil {
			return
		}
		slot := string(place.Group) + "/" + string(rune('0'+place.Slot))
		var recent []model.Time
		for _, t := range j.ended.slots[slot] {
			if t.Add(stormWindow) > c.after.Now {
				recent = append(recent, t)
			}
		}
		j.ended.slots[slot] = append(recent, c.after.Now)
		if len(recent) >= stormLimit {
			j.fail(fsm.S7, "entry %d fills slot %d of %s for the %dth time within %s", c.index, place.Slot, place.Group, len(recent)+1, stormWindow)
		}
		if place.Replaces != "" {
			j.counts[CountReplacements]++
		}
		for i := range c.before.InstancesInSlot(place.Group, place.Slot) {
			if now, ok := c.after.Instances.Get(i.ID); ok && content(c.before, c.after, i, now, place) && c.onPurpose(i.ID, place) {
				j.fail(fsm.S7, "entry %d places %s into slot %d of %s, where %s is %s and nothing is wrong with it", c.index, place.ID, place.Slot, place.Group, i.ID, i.Status.Observed)
				return
			}
		}
	})
}

// content reports whether an instance holds its slot and nothing says that it should not.
func content(earlier, after *fsm.State, before, now *fsm.Instance, place *fsm.InstancePlace) bool {
	if !before.Wanted() || !now.Wanted() || now.Eviction.Requested || before.Eviction.Requested || before.Version != place.Version {
		return false
	}
	a, ok := earlier.Nodes.Get(before.Node)
	b, still := after.Nodes.Get(before.Node)
	if !ok || !still || a.Health == model.HealthOffline || b.Health == model.HealthOffline || leaves(earlier, a) || leaves(after, b) {
		return false
	}
	if before.Status.Observed == model.ObservedPending || before.Status.Observed == model.ObservedBooting {
		return after.Now < max(before.Marks.Created, before.Marks.UnreadySince).Add(earlier.Settings.StartTimeout)
	}
	if spec, ok := earlier.Policy(place.Group); ok && before.Status.Observed == model.ObservedUnready && place.Cause == model.CauseCheckFailed {
		tolerated := model.Duration(0)
		if spec.Toleration.NotReady != nil {
			tolerated = *spec.Toleration.NotReady
		}
		return after.Now <= before.Marks.UnreadySince.Add(tolerated)
	}
	return true
}

// onPurpose reports whether nothing was wrong with an instance when the leader decided, either: a reason may have gone
// meanwhile, and then one of the two is a surplus (L14).
func (c *committed) onPurpose(id model.InstanceID, place *fsm.InstancePlace) bool {
	if c.basis == nil {
		return true
	}
	i, ok := c.basis.Instances.Get(id)
	return ok && content(c.basis, c.after, i, i, place)
}

// leaves reports whether a node is in a state in which what runs there has to leave it.
func leaves(s *fsm.State, n *fsm.Node) bool {
	return n.Intent == model.IntentDraining || n.Intent == model.IntentDisabled || n.Intent == model.IntentCordoned && s.Settings.EvictOn == model.EvictOnCordon
}

// deleted is S9: what is gone stays gone, and what is new was made by this entry.
func (j *judge) deleted(c *committed) {
	placed, registered, submitted := map[model.InstanceID]bool{}, map[model.NodeID]bool{}, map[model.JobName]bool{}
	c.taken(func(_ []fsm.Command, command fsm.Command) {
		switch one := command.(type) {
		case *fsm.InstancePlace:
			placed[one.ID] = true
		case *fsm.NodeRegister:
			registered[one.ID] = true
		case *fsm.JobSubmit:
			submitted[one.Spec.Name] = true
		}
	})
	if !c.before.Instances.Same(c.after.Instances) {
		j.deletedInstances(c, placed)
	}
	for id := range c.after.Nodes.All() {
		if !c.before.Nodes.Has(id) && !registered[id] {
			j.fail(fsm.S9, "entry %d brings node %s back", c.index, id)
		}
	}
	for name := range c.after.Jobs.All() {
		if !c.before.Jobs.Has(name) && !submitted[name] {
			j.fail(fsm.S9, "entry %d brings job %s back", c.index, name)
		}
	}
	for name := range c.before.Jobs.All() {
		if !c.after.Jobs.Has(name) {
			j.counts[CountPurged]++
			for id := range c.before.GroupsOf(name) {
				j.rates.forget("group/" + string(id))
			}
		}
	}
}

func (j *judge) deletedInstances(c *committed, placed map[model.InstanceID]bool) {
	for id := range c.after.Instances.All() {
		if c.before.Instances.Has(id) {
			continue
		}
		if !placed[id] || j.ended.instances[id] {
			j.fail(fsm.S9, "entry %d brings instance %s back", c.index, id)
		}
	}
	for id := range c.before.Instances.All() {
		if !c.after.Instances.Has(id) {
			j.ended.instances[id] = true
		}
	}
}

// holds is S12: while a hold is set nothing involuntary begins, and nothing is moved or preempted. A replacement that
// had begun goes on elsewhere where people want its node empty.
func (j *judge) holds(c *committed) {
	if !c.before.Hold.Active || !c.after.Hold.Active {
		return
	}
	c.taken(func(_ []fsm.Command, command fsm.Command) {
		switch one := command.(type) {
		case *fsm.NodeHealth:
			if one.Health == model.HealthOffline {
				j.fail(fsm.S12, "entry %d marks node %s offline during a hold", c.index, one.ID)
			}
		case *fsm.InstancePlace:
			old, ok := c.before.Instances.Get(one.Replaces)
			if ok && old.Status.Observed == model.ObservedLost && one.Cause == model.CauseNodeOffline && !drainsSuccessor(c.before, old) {
				j.fail(fsm.S12, "entry %d replaces the lost %s during a hold", c.index, one.Replaces)
			}
			if len(one.Awaits) > 0 {
				j.fail(fsm.S12, "entry %d preempts during a hold", c.index)
			}
		case *fsm.InstanceMove:
			j.fail(fsm.S12, "entry %d moves %s during a hold", c.index, one.ID)
		}
	})
}

// offline is S13: nobody decides that a node is offline that a majority heard a moment ago; by what was heard, not by
// the evidence that the leader was given.
func (j *judge) offline(c *fsm.NodeHealth) {
	half := j.log.first.Settings.OfflineAfter / 2
	for _, m := range j.nodes {
		if m.id != c.ID {
			continue
		}
		heard := 0
		for s, server := range j.log.servers {
			if server.up && j.net.heardOnce(m.index, s) && j.now.Sub(j.net.lastBeat(m.index, s)) < half {
				heard++
			}
		}
		if 2*heard > servers {
			j.fail(fsm.S13, "node %s is decided to be offline, which %d servers heard within %s", c.ID, heard, half)
		}
	}
}

// owners is S15: what an agent writes changes what is observed of its own node, and nothing of others.
func (j *judge) owners(c *committed) {
	name, ok := strings.CutPrefix(string(c.entry.Actor), "agent:")
	if !ok {
		return
	}
	own := model.NodeID(name)
	if !c.before.Instances.Same(c.after.Instances) {
		for id, i := range c.after.Instances.All() {
			was, ok := c.before.Instances.Get(id)
			if !ok || was == i || i.Node == own {
				continue
			}
			if was.Status.Observed != i.Status.Observed || was.Status.Generation != i.Status.Generation || was.Desired != i.Desired {
				j.fail(fsm.S15, "entry %d of %s changes instance %s on node %s", c.index, own, id, i.Node)
			}
		}
	}
	for id, n := range c.after.Nodes.All() {
		was, ok := c.before.Nodes.Get(id)
		if ok && id != own && (was.Health != n.Health || was.Intent != n.Intent || was.Agent.Epoch != n.Agent.Epoch || was.FactsGen != n.FactsGen || !slices.Equal(was.Self.Troubles, n.Self.Troubles)) {
			j.fail(fsm.S15, "entry %d of %s changes node %s", c.index, own, id)
		}
	}
}

// drainsSuccessor reports whether an instance's replacement runs on a node that people want empty.
func drainsSuccessor(s *fsm.State, i *fsm.Instance) bool {
	next, ok := s.Successor(i)
	if !ok {
		return false
	}
	n, ok := s.Nodes.Get(next.Node)
	return ok && n.Health == model.HealthOnline && n.Intent != model.IntentActive
}
