package sim

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// unlimited reports whether no budget limits a stop, because the stop has a recorded bypass, or because its cause is a
// disabled node or a stopped job.
func unlimited(c *fsm.InstanceStop) bool {
	return c.Bypass || c.Cause == model.CauseNodeDisabled || c.Cause == model.CauseJobStopped
}

// spared reports whether an instance is up in the sense of budgets: it is ready, and no stop of it is being prepared.
func spared(i *fsm.Instance) bool { return i.Ready() && !i.Eviction.Preparing }

// lost reports whether an instance is lost after the entry, which may itself declare the node offline. The judges
// ignore the stop of a lost instance, because the instance is not up anyway.
func (c *committed) lost(id model.InstanceID) bool {
	i, ok := c.after.Instances.Get(id)
	return ok && i.Status.Observed == model.ObservedLost
}

// debit is what one entry takes from the ready instances of a group.
type debit struct {
	limited int // ready instances whose stop or preparation begins and is limited by budgets
	given   int // ready instances whose preparation ends without a stop
}

// budgets checks the part of S3 about how many instances must be ready, and passes each stop to the check of rates. It
// counts the instances and reads the jobs' specs itself, because the sums in the state may be wrong.
func (j *judge) budgets(c *committed) {
	debits := map[model.GroupID]*debit{}
	var order []model.GroupID
	of := func(id model.GroupID) *debit {
		if debits[id] == nil {
			debits[id] = &debit{}
			order = append(order, id)
		}
		return debits[id]
	}
	c.taken(func(_ []fsm.Command, command fsm.Command) {
		switch one := command.(type) {
		case *fsm.InstanceStop:
			if i, ok := c.before.Instances.Get(one.ID); ok && !c.lost(one.ID) {
				j.rates.stop(j, c, one, i)
				if spared(i) && !unlimited(one) {
					of(i.Group).limited++
				}
			}
		case *fsm.InstancePrepare:
			if i, ok := c.before.Instances.Get(one.ID); ok && spared(i) && !one.Bypass {
				of(i.Group).limited++
			}
		case *fsm.InstanceRelease:
			j.release(c, one.ID, of)
		case *fsm.InstanceMark:
			if !one.Requested {
				j.release(c, one.ID, of)
			}
		case *fsm.BudgetRemove:
			j.rates.forget("budget/" + string(one.Name))
		}
	})
	for _, id := range order {
		if d := debits[id]; d.limited > 0 {
			j.ready(c, id, debits, d)
		}
	}
}

func (j *judge) release(c *committed, id model.InstanceID, of func(model.GroupID) *debit) {
	if i, ok := c.before.Instances.Get(id); ok && i.Ready() && i.Eviction.Preparing {
		of(i.Group).given++
	}
}

// ready checks that a group, and the groups that share its budgets, keep enough instances ready.
func (j *judge) ready(c *committed, id model.GroupID, debits map[model.GroupID]*debit, d *debit) {
	g, ok := c.before.Groups.Get(id)
	if !ok || g.Role == model.RoleSystem {
		return
	}
	had := sparedOf(c.before, id)
	must := min(mustKeep(c.before, id), mustKeep(c.after, id))
	if left := had - d.limited + d.given; left < must {
		j.fail(fsm.S3, "entry %d takes %d of %s: of %d ready and not about to stop %d are left, and %d must be", c.index,
			d.limited, id, had, left, must)
		return
	}
	for _, name := range specOf(c.before, id).Budgets {
		had, taken := 0, 0
		for _, member := range sharers(c.before, name) {
			had += sparedOf(c.before, member)
			if other := debits[member]; other != nil {
				taken += other.limited - other.given
			}
		}
		must := min(mustShare(c.before, name), mustShare(c.after, name))
		if had-taken < must {
			j.fail(fsm.S3, "entry %d takes %d of those under the budget %s: %d are left, and %d must be", c.index,
				taken, name, had-taken, must)
		}
	}
}

func sparedOf(s *fsm.State, id model.GroupID) int {
	n := 0
	for i := range s.InstancesOf(id) {
		if spared(i) {
			n++
		}
	}
	return n
}

// specOf returns the spec of a group in the current version of its job. It returns an empty spec if that version has no
// such group, or if the job is stopped or unknown.
func specOf(s *fsm.State, id model.GroupID) *model.GroupSpec {
	name, group := id.Split()
	if job, ok := s.Jobs.Get(name); ok && !job.Stopped {
		if v, ok := s.JobVersion(name, job.Version); ok {
			for i := range v.Spec.Groups {
				if v.Spec.Groups[i].Name == group {
					return &v.Spec.Groups[i]
				}
			}
		}
	}
	return &model.GroupSpec{}
}

// mustKeep returns how many instances of a group must be ready. The group's own budget decides, or else the class of
// its job. mustKeep returns 0 if the group has no budget of its own and one of its shared budgets sets a number.
func mustKeep(s *fsm.State, id model.GroupID) int {
	spec := specOf(s, id)
	if b := spec.Budget; b != nil && (b.MinReady != nil || b.MaxDown != nil) {
		return keeps(b, spec.Count)
	}
	for _, name := range spec.Budgets {
		if b, ok := s.Budgets.Get(name); spec.Budget == nil && ok && (b.Spec.MinReady != nil || b.Spec.MaxDown != nil) {
			return 0
		}
	}
	name, _ := id.Split()
	job, ok := s.Jobs.Get(name)
	if !ok {
		return 0
	}
	class, _, _ := s.Class(job.Class)
	down := part(class.MaxDown.Amount, spec.Count, false)
	return spec.Count - min(max(down, class.MaxDown.Floor), spec.Count)
}

// keeps returns how many instances a budget wants ready if there are count of them. It returns 0 if the budget has
// neither min_ready nor max_down.
func keeps(b *model.BudgetSpec, count int) int {
	switch {
	case b.MinReady != nil:
		return min(part(*b.MinReady, count, true), count)
	case b.MaxDown != nil:
		return max(count-part(*b.MaxDown, count, false), 0)
	}
	return 0
}

func part(a model.Amount, count int, up bool) int {
	switch {
	case !a.Percent:
		return a.N
	case up:
		return (a.N*count + 99) / 100
	}
	return a.N * count / 100
}

// sharers returns the groups whose specs name the shared budget, including groups of stopped jobs.
func sharers(s *fsm.State, name model.BudgetName) []model.GroupID {
	var list []model.GroupID
	for id := range s.Groups.All() {
		if slices.Contains(specEvenStopped(s, id).Budgets, name) {
			list = append(list, id)
		}
	}
	return list
}

func specEvenStopped(s *fsm.State, id model.GroupID) *model.GroupSpec {
	if policy, ok := s.Policy(id); ok {
		if g, ok := s.Groups.Get(id); ok && !g.Removed {
			return policy
		}
	}
	return &model.GroupSpec{}
}

// mustShare returns how many instances a shared budget wants ready in all of its groups together.
func mustShare(s *fsm.State, name model.BudgetName) int {
	b, ok := s.Budgets.Get(name)
	if !ok {
		return 0
	}
	count := 0
	for _, id := range sharers(s, name) {
		count += specOf(s, id).Count
	}
	return keeps(&b.Spec, count)
}
