package bubble

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// surges is S7: what is desired to run and not lost is at most the count and its surge, a slot has at most a holder and
// one successor, and nothing is replaced twice at a time.
func (c *court) surges(s step) error {
	if s.before.Instances.Same(s.after.Instances) {
		return nil
	}
	var f findings
	for id, g := range s.after.Groups.All() {
		if g.Role == model.RoleSystem {
			continue
		}
		wanted, moving, bySlot := 0, 0, map[int]int{}
		for i := range s.after.InstancesOf(id) {
			if i.Desired == model.DesiredRunning {
				bySlot[i.Slot]++
			}
			if !i.Wanted() || i.Slot >= g.Count {
				continue // above the count only what was there before a scale-down is left
			}
			wanted++
			if old, ok := s.after.Instances.Get(i.Links.Replaces); ok && old.Wanted() {
				moving++
			}
		}
		for slot, n := range bySlot {
			if n > 2 {
				f.add("S7: slot %d of %s has %d instances", slot, id, n)
			}
		}
		if wanted > g.Count+moving {
			f.add("S7: %d instances of %s run, its count is %d and %d are being replaced", wanted, id, g.Count, moving)
		}
	}
	s.placed(func(i *fsm.Instance) { c.placement(&f, s, i) })
	return f.err()
}

// placement judges one new instance.
func (c *court) placement(f *findings, s step, i *fsm.Instance) {
	g, ok := s.before.Groups.Get(i.Group)
	old, replaces := s.before.Instances.Get(i.Links.Replaces)
	if !replaces {
		if ok && g.Role != model.RoleSystem && i.Slot >= max(g.Count, countOf(s, i.Group)) {
			f.add("S7: instance %s fills slot %d of %s, which has %d", i.ID, i.Slot, i.Group, g.Count)
		}
		return
	}
	if next, twice := s.after.Instances.Get(old.Links.ReplacedBy); twice && next.Wanted() && next.ID != i.ID {
		f.add("S7: instance %s is a second replacement of %s, which has %s", i.ID, old.ID, next.ID)
	}
	if i.Cause == model.CauseRollout && ok {
		if limit, all := surgeOf(s, i.Group), rolling(s, i.Group); len(all) > max(limit, pairs(&s.before, i.Group)) { // what a drain doubled may go on as the new version
			f.add("S7: %d of %s are rolled out at once, %d may be: %s", len(all), i.Group, limit, strings.Join(all, "; "))
		}
	}
}

func countOf(s step, id model.GroupID) int {
	g, ok := s.after.Groups.Get(id)
	if !ok {
		return 0
	}
	return g.Count
}

// surgeOf is how many instances more than its count a rollout of a group may have.
func surgeOf(s step, id model.GroupID) int {
	policy, ok := s.after.Policy(id)
	if !ok {
		return 0
	}
	return max(policy.Update.MaxSurge, policy.Update.Canary, 1)
}

// rolling lists the instances that roll a group out, beside ones that are still wanted and serve.
func rolling(s step, id model.GroupID) (all []string) {
	for i := range s.after.InstancesOf(id) {
		old, ok := s.after.Instances.Get(i.Links.Replaces)
		if i.Cause != model.CauseRollout || !i.Wanted() || !ok || !old.Wanted() {
			continue
		}
		if node, there := s.after.Nodes.Get(old.Node); there && node.Intent == model.IntentActive && !old.Eviction.Requested {
			all = append(all, fmt.Sprintf("%s (version %d, %s) for %s (version %d, %s)", i.ID, i.Version, i.Status.Observed, old.ID, old.Version, old.Status.Observed))
		} // others have to leave in any case
	}
	return all
}

// pairs counts the slots of a group in which one instance is to take over from another. One that was lost on its way
// counts: its slot gets another one.
func pairs(st *fsm.State, id model.GroupID) int {
	n := 0
	for i := range st.InstancesOf(id) {
		if old, ok := st.Instances.Get(i.Links.Replaces); ok && i.Desired == model.DesiredRunning && old.Wanted() {
			n++
		}
	}
	return n
}

// failing reports whether a cause is that of something which failed by itself: what replaces it is limited.
func failing(cause model.Cause) bool {
	switch cause {
	case model.CauseCrashLoop, model.CauseStartTimeout, model.CauseOOM, model.CauseCheckFailed:
		return true
	}
	return false
}

const (
	retryWindow = 10 * model.Minute
	// Three are tried at once, and then again and again with growing delay, each instance of a group for itself.
	retriesAtMost = 3 + 10
)

// waves is S7 for replacements: what failed is tried again a limited number of times within a window, and a node that
// returns starts no second wave.
func (c *court) waves(s step) error {
	var f findings
	s.placed(func(i *fsm.Instance) {
		if failing(i.Cause) {
			g, _ := s.after.Groups.Get(i.Group)
			at := append(slices.Clone(c.retried[i.Group]), s.after.Now)
			for len(at) > 0 && s.after.Now.Sub(at[0]) > retryWindow {
				at = at[1:]
			}
			c.retried[i.Group] = at
			if limit := retriesAtMost * max(1, g.Count); len(at) > limit {
				f.add("S7: %d instances of %s replaced what failed within %s, at most %d should", len(at), i.Group, retryWindow, limit)
			}
		}
		old, replaces := s.before.Instances.Get(i.Links.Replaces)
		if i.Cause != model.CauseNodeOffline || !replaces {
			return
		}
		node, there := s.after.Nodes.Get(old.Node)
		if there && node.Health != model.HealthOffline && old.Wanted() { // one that stops, or is gone with its machine, needs another one in any case
			f.add("S7: instance %s replaces %s because of an offline node, but that is %s on node %s, which is %s", i.ID, old.ID, old.Status.Observed, node.Name, node.Health)
		}
	})
	return f.err()
}

// holds is S12: while a hold is set nothing involuntary begins.
func (c *court) holds(s step) error {
	if !s.before.Hold.Active || !s.after.Hold.Active {
		return nil
	}
	for id, n := range s.after.Nodes.All() {
		if was, ok := s.before.Nodes.Get(id); ok && was.Health != model.HealthOffline && n.Health == model.HealthOffline {
			return fmt.Errorf("S12: node %s was marked offline during a hold", n.Name)
		}
	}
	var f findings
	s.placed(func(i *fsm.Instance) {
		old, replaces := s.before.Instances.Get(i.Links.Replaces)
		if i.Cause == model.CauseNodeOffline && replaces && old.Status.Observed == model.ObservedLost { // a slot that was given up before is filled
			f.add("S12: instance %s replaces %s of an offline node during a hold", i.ID, old.ID)
		}
	})
	s.began(func(was, now *fsm.Instance) {
		if now.Marks.StopCause == model.CauseNodeOffline && runs(was) {
			f.add("S12: instance %s was told to stop because of an offline node during a hold", now.ID)
		}
	})
	return f.err()
}
