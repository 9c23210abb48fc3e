package sim

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A slot is filled at most stormLimit times within stormWindow. A failed instance is replaced after growing pauses, and
// a drained one moves only once, so only many faults together come near the limit.
const (
	stormWindow = model.Minute
	stormLimit  = 14
)

// storms checks S7: no instance is replaced without need, and no slot is filled more often than stormLimit allows.
func (j *judge) storms(c *committed) {
	c.taken(func(_ []fsm.Command, command fsm.Command) {
		place, ok := command.(*fsm.InstancePlace)
		if !ok || j.failure != nil {
			return
		}
		slot := string(place.Group) + "/" + string(rune('0'+place.Slot))
		var recent []model.Time
		for _, t := range j.filled[slot] {
			if t.Add(stormWindow) > c.after.Now {
				recent = append(recent, t)
			}
		}
		j.filled[slot] = append(recent, c.after.Now)
		if len(recent) >= stormLimit {
			j.fail(fsm.S7, "entry %d fills slot %d of %s for the %dth time within %s", c.index, place.Slot, place.Group,
				len(recent)+1, stormWindow)
		}
		if place.Replaces != "" {
			j.counts[CountReplacements]++
		}
		for i := range c.before.InstancesInSlot(place.Group, place.Slot) {
			if now, ok := c.after.Instances.Get(i.ID); ok && content(c.before, c.after, i, now, place) &&
				c.onPurpose(i.ID, place) {
				j.fail(fsm.S7, "entry %d places %s into slot %d of %s, where %s is %s and nothing is wrong with it", c.index,
					place.ID, place.Slot, place.Group, i.ID, i.Status.Observed)
				return
			}
		}
	})
}

// content reports whether there is no reason to replace an instance by the one that place creates. The parameter before
// is the instance's row in the state earlier, and the parameter now is its row in the state after.
func content(earlier, after *fsm.State, before, now *fsm.Instance, place *fsm.InstancePlace) bool {
	if !before.Wanted() || !now.Wanted() || now.Eviction.Requested || before.Eviction.Requested ||
		before.Version != place.Version {
		return false
	}
	a, ok := earlier.Nodes.Get(before.Node)
	b, still := after.Nodes.Get(before.Node)
	if !ok || !still || a.Health == model.HealthOffline || b.Health == model.HealthOffline ||
		leaves(earlier, a) || leaves(after, b) {
		return false
	}
	if before.Status.Observed == model.ObservedPending || before.Status.Observed == model.ObservedBooting {
		return after.Now < max(before.Marks.Created, before.Marks.UnreadySince).Add(earlier.Settings.StartTimeout)
	}
	if spec, ok := earlier.Policy(place.Group); ok && before.Status.Observed == model.ObservedUnready &&
		place.Cause == model.CauseCheckFailed {
		tolerated := model.Duration(0)
		if spec.Toleration.NotReady != nil {
			tolerated = *spec.Toleration.NotReady
		}
		return after.Now <= before.Marks.UnreadySince.Add(tolerated)
	}
	return true
}

// onPurpose reports whether nothing was wrong with the instance that fills the slot when the leader decided to place
// another one there. If there was a reason that is gone by now, one of the two instances is merely surplus (L14).
func (c *committed) onPurpose(id model.InstanceID, place *fsm.InstancePlace) bool {
	if c.basis == nil {
		return true
	}
	i, ok := c.basis.Instances.Get(id)
	return ok && content(c.basis, c.after, i, i, place)
}

// leaves reports whether the instances on a node must leave it.
func leaves(s *fsm.State, n *fsm.Node) bool {
	return n.Intent == model.IntentDraining || n.Intent == model.IntentDisabled || n.Intent == model.IntentCordoned &&
		s.Settings.EvictOn == model.EvictOnCordon
}

// purged counts the jobs that the entry removed, and forgets the rates of their groups.
func (j *judge) purged(c *committed) {
	for name := range c.before.Jobs.All() {
		if !c.after.Jobs.Has(name) {
			j.counts[CountPurged]++
			for id := range c.before.GroupsOf(name) {
				j.rates.forget("group/" + string(id))
			}
		}
	}
}

// offline checks S13: no decision may declare a node offline that a majority of servers heard within half of
// offline_after. What the servers heard is taken from the model of the network, not from the leader's evidence.
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
