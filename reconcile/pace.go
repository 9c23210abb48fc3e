package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	usualStart = 5 * model.Second // assumed time to start, for a group without a ready instance
	usualStop  = model.Second     // assumed time to stop, if the grace is not shorter
)

// pace estimates how long each step of a rehearsal would really take on the agents. All agents work in parallel, so a
// step takes as long as its slowest instance.
type pace struct {
	now    model.Duration                   // estimated length of the current step so far
	starts map[model.GroupID]model.Duration // result of start for each group
}

func newPace() pace { return pace{starts: map[model.GroupID]model.Duration{}} }

// note takes into account what an agent reports about an instance in this step.
func (c *pace) note(s *fsm.State, inst *fsm.Instance, news []model.InstanceStatus) {
	if len(news) == 0 {
		return
	}
	switch news[len(news)-1].Observed {
	case model.ObservedReady:
		if !inst.Ready() {
			c.now = max(c.now, c.start(s, inst.Group))
		}
	case model.ObservedStopped:
		c.now = max(c.now, c.stop(s, inst))
	}
}

// next returns the estimated length of the current step, and begins a new one.
func (c *pace) next() model.Duration {
	took := c.now
	c.now = 0
	return took
}

// start returns how long an instance of the group takes from its placement until it is ready. That is the time of the
// quickest of the group's ready instances, because slower ones may have become unready and ready again. Without a ready
// instance, it is usualStart.
func (c *pace) start(s *fsm.State, group model.GroupID) model.Duration {
	if known, ok := c.starts[group]; ok {
		return known
	}
	quickest := model.Forever
	for inst := range s.InstancesOf(group) {
		if inst.Ready() && inst.Marks.ReadySince > 0 {
			quickest = min(quickest, inst.Marks.ReadySince.Sub(inst.Marks.Created))
		}
	}
	if quickest == model.Forever {
		quickest = usualStart
	}
	c.starts[group] = quickest
	return quickest
}

// stop returns how long an instance takes to stop after the order to stop.
func (c *pace) stop(s *fsm.State, inst *fsm.Instance) model.Duration {
	spec, ok := s.Spec(inst.Group, inst.Version)
	if !ok {
		return usualStop
	}
	return spec.Stop.DrainDelay + min(spec.Stop.Grace, usualStop)
}
