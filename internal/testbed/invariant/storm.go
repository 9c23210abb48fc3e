package invariant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// surges checks S7. It calls placement for each new instance, and checks the size of each group that is no system
// group. The group has at most as many wanted instances (see fsm.Instance.Wanted) as its count, plus one for each
// instance that is being replaced. A slot has at most two instances that are desired running: a holder and a successor.
func (j *Judge) surges(f *fsm.Findings, s *Step) {
	for id, g := range s.After.Groups.All() {
		if g.Role == model.RoleSystem {
			continue
		}
		wanted, moving, bySlot := 0, 0, map[int]int{}
		for i := range s.After.InstancesOf(id) {
			if i.Desired == model.DesiredRunning {
				bySlot[i.Slot]++
			}
			if !i.Wanted() || i.Slot >= g.Count {
				continue // after a scale-down, older instances can be in slots above the count for a while
			}
			wanted++
			if old, ok := s.After.Instances.Get(i.Links.Replaces); ok && old.Wanted() {
				moving++
			}
		}
		for _, slot := range slices.Sorted(maps.Keys(bySlot)) {
			if n := bySlot[slot]; n > 2 {
				f.Add(fsm.S7, "slot %d of %s has %d instances", slot, id, n)
			}
		}
		if wanted > g.Count+moving {
			f.Add(fsm.S7, "%d instances of %s run, its count is %d and %d are being replaced", wanted, id, g.Count, moving)
		}
	}
	s.placed(func(i *fsm.Instance) { j.placement(f, s, i) })
}

// placement checks S7 for one new instance. If the instance replaces no other, its slot must be below the group's
// count. No instance has two replacements at the same time. A rollout replaces at most as many instances at the same
// time as its surge allows.
func (j *Judge) placement(f *fsm.Findings, s *Step, i *fsm.Instance) {
	g, ok := s.Before.Groups.Get(i.Group)
	old, replaces := s.Before.Instances.Get(i.Links.Replaces)
	if !replaces {
		if ok && g.Role != model.RoleSystem && i.Slot >= max(g.Count, countOf(s, i.Group)) {
			f.Add(fsm.S7, "instance %s fills slot %d of %s, which has %d", i.ID, i.Slot, i.Group, g.Count)
		}
		return
	}
	if next, twice := s.After.Instances.Get(old.Links.ReplacedBy); twice && next.Wanted() && next.ID != i.ID {
		f.Add(fsm.S7, "instance %s is a second replacement of %s, which has %s", i.ID, old.ID, next.ID)
	}
	if i.Cause == model.CauseRollout && ok {
		// If a drain had placed second instances in more slots than the surge allows, the rollout may continue in all these
		// slots.
		if limit, all := surgeOf(s, i.Group), rolling(s, i.Group); len(all) > max(limit, pairs(s.Before, i.Group)) {
			f.Add(fsm.S7, "%d of %s are rolled out at once, %d may be: %s", len(all), i.Group, limit, strings.Join(all, "; "))
		}
	}
}

func countOf(s *Step, id model.GroupID) int {
	g, ok := s.After.Groups.Get(id)
	if !ok {
		return 0
	}
	return g.Count
}

// surgeOf returns how many additional instances a rollout of a group may have.
func surgeOf(s *Step, id model.GroupID) int {
	policy, ok := s.After.Policy(id)
	if !ok {
		return 0
	}
	return max(policy.Update.MaxSurge, policy.Update.Canary, 1)
}

// rolling describes the new instances of a rollout whose predecessors still run and would stay without the rollout.
func rolling(s *Step, id model.GroupID) (all []string) {
	for i := range s.After.InstancesOf(id) {
		old, ok := s.After.Instances.Get(i.Links.Replaces)
		if i.Cause != model.CauseRollout || !i.Wanted() || !ok || !old.Wanted() {
			continue
		}
		if node, there := s.After.Nodes.Get(old.Node); there && node.Intent == model.IntentActive && !old.Eviction.Requested {
			all = append(all, fmt.Sprintf("%s (version %d, %s) for %s (version %d, %s)", i.ID, i.Version, i.Status.Observed,
				old.ID, old.Version, old.Status.Observed))
		} // other predecessors have to leave in any case
	}
	return all
}

// pairs counts the slots of a group in which one instance is to replace another. Slots whose successor is lost are
// included, because they get another successor.
func pairs(st *fsm.State, id model.GroupID) int {
	n := 0
	for i := range st.InstancesOf(id) {
		if old, ok := st.Instances.Get(i.Links.Replaces); ok && i.Desired == model.DesiredRunning && old.Wanted() {
			n++
		}
	}
	return n
}

// failing reports whether a cause is a failure of the instance itself. The number of replacements for such causes is
// limited.
func failing(cause model.Cause) bool {
	switch cause {
	case model.CauseCrashLoop, model.CauseStartTimeout, model.CauseOOM, model.CauseCheckFailed:
		return true
	}
	return false
}

// slotsOf returns how many instances a group may have. A system group has one for each node.
func slotsOf(st *fsm.State, g *fsm.Group) int {
	if g.Role == model.RoleSystem {
		return st.Nodes.Len()
	}
	return g.Count
}

const (
	retryWindow = 10 * model.Minute
	// retriesAtMost is the maximum number of replacements of one slot within retryWindow: three without a delay, and ten
	// after growing delays.
	retriesAtMost = 3 + 10
)

// waves checks S7 for replacements. Failed instances are replaced a limited number of times within retryWindow. The
// return of a node triggers no further replacements.
func (j *Judge) waves(f *fsm.Findings, s *Step) {
	s.placed(func(i *fsm.Instance) {
		if failing(i.Cause) {
			g, _ := s.After.Groups.Get(i.Group)
			at := append(slices.Clone(j.retried[i.Group]), s.After.Now)
			for len(at) > 0 && s.After.Now.Sub(at[0]) > retryWindow {
				at = at[1:]
			}
			j.retried[i.Group] = at
			if limit := retriesAtMost * max(1, slotsOf(s.After, g)); len(at) > limit {
				f.Add(fsm.S7, "%d instances of %s replaced what failed within %s, at most %d should", len(at),
					i.Group, retryWindow, limit)
			}
		}
		old, replaces := s.Before.Instances.Get(i.Links.Replaces)
		if i.Cause != model.CauseNodeOffline || !replaces {
			return
		}
		node, there := s.After.Nodes.Get(old.Node)
		// An instance that is not wanted, because it is stopping or lost, needs a replacement in any case.
		if there && node.Health != model.HealthOffline && old.Wanted() {
			f.Add(fsm.S7, "instance %s replaces %s because of an offline node, but that is %s on node %s, which is %s", i.ID,
				old.ID, old.Status.Observed, node.Name, node.Health)
		}
	})
}

// holds checks S12. During a hold no node is marked offline, nothing is replaced or stopped because of an offline node,
// and nothing is moved or preempted. There is one exception: a lost instance may get another replacement if its first
// replacement has to leave its node too.
func (j *Judge) holds(f *fsm.Findings, s *Step) {
	if !s.Before.Hold.Active || !s.After.Hold.Active {
		return
	}
	for id, n := range s.After.Nodes.All() {
		if was, ok := s.Before.Nodes.Get(id); ok && was.Health != model.HealthOffline && n.Health == model.HealthOffline {
			f.Add(fsm.S12, "node %s was marked offline during a hold", n.Name)
		}
	}
	s.taken(func(_ []fsm.Command, command fsm.Command) {
		if move, ok := command.(*fsm.InstanceMove); ok {
			f.Add(fsm.S12, "instance %s is moved during a hold", move.ID)
		}
	})
	s.placed(func(i *fsm.Instance) {
		old, replaces := s.Before.Instances.Get(i.Links.Replaces)
		// An instance without a lost predecessor fills a slot that was empty before.
		if i.Cause == model.CauseNodeOffline && replaces && old.Status.Observed == model.ObservedLost &&
			!leavesAgain(s.Before, old) {
			f.Add(fsm.S12, "instance %s replaces %s of an offline node during a hold", i.ID, old.ID)
		}
		if len(i.Links.Awaits) > 0 {
			f.Add(fsm.S12, "instance %s preempts %v during a hold", i.ID, i.Links.Awaits)
		}
	})
	s.began(func(was, now *fsm.Instance) {
		if now.Marks.StopCause == model.CauseNodeOffline && Runs(was) {
			f.Add(fsm.S12, "instance %s was told to stop because of an offline node during a hold", now.ID)
		}
	})
}

// leavesAgain reports whether an instance's replacement runs on an online node that an operator has taken out of
// service.
func leavesAgain(st *fsm.State, i *fsm.Instance) bool {
	next, ok := st.Successor(i)
	if !ok {
		return false
	}
	n, ok := st.Nodes.Get(next.Node)
	return ok && n.Health == model.HealthOnline && n.Intent != model.IntentActive
}
