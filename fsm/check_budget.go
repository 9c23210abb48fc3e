package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// budgets checks that shared budgets and groups name each other, and that each shared budget has the numbers that
// follow from its groups. It also checks that the stops of shared budgets and of actors are sorted and not in the
// future.
func (c *checker) budgets() {
	s := c.s
	named := 0
	for id, g := range s.Groups.All() {
		policy, ok := s.Policy(id)
		if !ok || g.Removed {
			continue
		}
		for _, name := range policy.Budgets {
			b, ok := s.Budgets.Get(name)
			c.want(ok && slices.Contains(b.Groups, id), "group %s names the budget %s, which does not have it", id, name)
			named++
		}
	}
	for name, b := range s.Budgets.All() {
		c.want(b.Name == name && model.ValidName(string(name)), "budget %s: its row says %q", name, b.Name)
		refusal := b.Spec.Check()
		c.want(refusal == nil, "budget %s: %v", name, refusal)
		want := 0
		for _, id := range b.Groups {
			g, ok := s.Groups.Get(id)
			if c.want(ok, "budget %s: its group %s does not exist", name, id); ok {
				want += g.Want()
			}
		}
		resolved := model.ResolveBudget(&b.Spec, everything(), want)
		c.want(b.Resolved == resolved, "budget %s says %+v; for the %d that its groups want it would be %+v",
			name, b.Resolved, want, resolved)
		c.want(slices.IsSorted(b.Groups), "budget %s: its groups are out of order", name)
		c.want(slices.IsSorted(b.Stops) && (len(b.Stops) == 0 || b.Stops[len(b.Stops)-1] <= s.Now),
			"budget %s: its stops are out of order", name)
		c.want(b.Index <= s.Index, "budget %s is of index %d, the state of %d", name, b.Index, s.Index)
		named -= len(b.Groups)
	}
	c.want(named == 0, "shared budgets and groups name each other %d times more one way", named)
	for k, l := range s.Actors.All() {
		c.want(k.Valid() && l.Actor == k, "the stops of %q: the row says %q", k, l.Actor)
		c.want(slices.IsSorted(l.Stops) && (len(l.Stops) == 0 || l.Stops[len(l.Stops)-1] <= s.Now),
			"the stops of %s are out of order", k)
	}
}

// classes checks that the usage of each class equals the sum over its instances, and that the limits of each class are
// valid.
func (c *checker) classes() {
	use := map[model.ClassName]Usage{}
	for _, i := range c.s.Instances.All() {
		if job, ok := c.s.Jobs.Get(jobOf(i.Group)); ok && i.counted() {
			use[job.Class] = use[job.Class].plus(i.Claims.Resources, 1)
		}
	}
	for _, class := range c.s.Classes {
		c.want(c.s.ClassUsage(class.Name) == use[class.Name], "class %s uses %+v, its instances sum up to %+v", class.Name,
			c.s.ClassUsage(class.Name), use[class.Name])
		c.want(class.Quota.MemoryBytes >= 0 && class.Quota.Instances >= 0 && class.MaxDown.Amount.Valid(),
			"class %s: %+v", class.Name, class)
	}
}
