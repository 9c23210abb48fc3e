package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	usualStart = 5 * model.Second // assumed time to start if the group has no ready instance
	usualStop  = model.Second     // upper bound of the assumed time between stop signal and end
)

// pace estimates how long each step of a rehearsal would really take on the agents. All agents work in parallel, so a
// step takes as long as its slowest instance.
type pace struct {
	now    model.Duration                   // estimated length of the current step so far
	starts map[model.GroupID]model.Duration // by group: result of method start, computed once
}

func newPace() pace { return pace{starts: map[model.GroupID]model.Duration{}} }

// note lengthens the current step if the last report in news shows that the instance has become ready or has stopped.
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

// start returns how long an instance of the group takes from its placement until it is ready. It uses the quickest of
// the group's ready instances, because a slower one may have become unready and ready again. If no instance is ready,
// it returns usualStart.
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
