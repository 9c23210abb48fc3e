package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	usualStart = 5 * model.Second // time to start, for a group without a ready instance
	usualStop  = model.Second     // how much of its grace a program usually needs
)

// pace estimates how long a rehearsal's agents take for the work of one step. All agents work in parallel, so a step
// takes as long as its slowest part.
type pace struct {
	now    model.Duration // length of the current step so far
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

// start returns how long an instance of the group takes from its placement until it is ready. That is the time of the
// quickest of its ready instances. Slower ones may have become unready and ready again.
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
