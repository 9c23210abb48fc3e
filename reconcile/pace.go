package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	usualStart = 5 * model.Second // for a group that has no ready instance
	usualStop  = model.Second     // what a program needs of its grace
)

// pace estimates how long the work takes that a rehearsal's agents do at once. All agents work in parallel, so a step
// takes as long as its slowest part.
type pace struct {
	now    model.Duration // the length of the current step so far
	starts map[model.GroupID]model.Duration
}

func newPace() pace { return pace{starts: map[model.GroupID]model.Duration{}} }

// note records what an agent reports about an instance in this step.
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

// next ends a step and returns how long it took.
func (c *pace) next() model.Duration {
	took := c.now
	c.now = 0
	return took
}

// start returns how long an instance of the group takes from its placement until it is ready: as long as the quickest
// of its ready instances. For slower ones the time may include having been unready since.
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
