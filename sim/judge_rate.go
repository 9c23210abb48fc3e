package sim

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// stopBook has the limit and the window of one rate, and the times of the stops that were counted toward the rate
// within the last window.
type stopBook struct {
	most   int
	window model.Duration
	stops  []model.Time
}

// rateBook has a stopBook for each rate, by name: "group/ID", "budget/NAME", "actor/KIND", or "rail" for stops that
// nobody ordered (by the rescheduler, or by the policy for cordoned nodes).
type rateBook struct{ of map[string]*stopBook }

func newRateBook() rateBook { return rateBook{of: map[string]*stopBook{}} }

func (b *rateBook) forget(name string) { delete(b.of, name) }

// stop checks the part of S3 about rates: no window of cluster time may contain more stops than the rate allows, even
// if the leader changes within the window.
func (b *rateBook) stop(j *judge, c *committed, stop *fsm.InstanceStop, i *fsm.Instance) {
	now, ok := c.after.Instances.Get(stop.ID)
	if ok && now.Desired == model.DesiredRunning || !runs(i) {
		return // the command only begins a preparation, or no program runs
	}
	if stop.Cause == model.CauseRebalance || stop.Cause == model.CauseAffinity || stop.By == fsm.ByPolicy {
		running := 0
		for _, other := range c.before.Instances.All() {
			if other.Desired == model.DesiredRunning {
				running++
			}
		}
		b.spend(j, c, "rail", max(1, running*5/100), model.Minute, stop.Bypass)
	}
	if !voluntary(stop.Cause) {
		return
	}
	spec := specEvenStopped(c.before, i.Group)
	if spec.Role == model.RoleSystem && stop.Cause == model.CauseNodeDraining {
		b.actor(j, c, stop) // an instance that leaves with its node counts only toward the actor's rate
		return
	}
	if spec.Budget != nil && spec.Budget.Rate != nil {
		b.spend(j, c, "group/"+string(i.Group), spec.Budget.Rate.Max, spec.Budget.Rate.Window, unlimited(stop))
	} else {
		b.forget("group/" + string(i.Group))
	}
	for _, name := range spec.Budgets {
		if row, ok := c.before.Budgets.Get(name); ok && row.Spec.Rate != nil {
			b.spend(j, c, "budget/"+string(name), row.Spec.Rate.Max, row.Spec.Rate.Window, unlimited(stop))
		} else {
			b.forget("budget/" + string(name))
		}
	}
	b.actor(j, c, stop)
}

func (b *rateBook) actor(j *judge, c *committed, stop *fsm.InstanceStop) {
	kind := stop.Cause.StoppedBy()
	if kind == "" {
		return
	}
	name := "actor/" + string(kind)
	if rate := c.before.Settings.ActorRate(kind); rate.Max > 0 {
		b.spend(j, c, name, rate.Max, rate.Window, unlimited(stop))
	} else {
		b.forget(name)
	}
}

// spend counts a stop toward a rate. Unless free is true, the stop must not exceed the rate. If another rate is set
// under the same name, counting begins again. The limit of "rail" follows the number of running instances, so a new
// limit does not reset its count.
func (b *rateBook) spend(j *judge, c *committed, name string, most int, window model.Duration, free bool) {
	book := b.of[name]
	if book == nil || name != "rail" && (book.most != most || book.window != window) {
		book = &stopBook{most: most, window: window}
		b.of[name] = book
	}
	now := c.after.Now
	book.stops = slices.DeleteFunc(book.stops, func(t model.Time) bool { return t.Add(window) <= now })
	if len(book.stops) >= most && !free {
		j.fail(fsm.S3, "entry %d begins one more stop of %s, after %d within %s; %d are allowed", c.index, name,
			len(book.stops), window, most)
	}
	book.stops = append(book.stops, now)
}

// runs reports whether, according to the state, the program of an instance runs and has not begun to stop.
func runs(i *fsm.Instance) bool {
	switch i.Status.Observed {
	case model.ObservedBooting, model.ObservedReady, model.ObservedUnready:
		return true
	}
	return false
}

// voluntary reports whether stops for a cause count toward rates.
func voluntary(c model.Cause) bool {
	switch c {
	case model.CauseRollout, model.CauseNodeDraining, model.CauseUser, model.CausePreempted, model.CauseRebalance,
		model.CauseAffinity, model.CauseRoleReplacement, model.CauseNodeNotReady, model.CauseCheckFailed:
		return true
	}
	return false
}
