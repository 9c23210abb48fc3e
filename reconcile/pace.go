package reconcile

import "github.com/outspan/outspan/fsm"

const (
	usualStart = 5 * fsm.Second // of a group of which nothing is known to have started
	usualStop  = fsm.Second     // what a program takes of its grace
)

// pace estimates how long it takes what a rehearsal has agents do at once. All agents work side by side, so a step
// takes as long as its slowest part.
type pace struct {
	sum    fsm.Duration // of the steps that are over
	now    fsm.Duration // of this step
	starts map[fsm.GroupID]fsm.Duration
}

func newPace() pace { return pace{starts: map[fsm.GroupID]fsm.Duration{}} }

// note takes what an agent reports of an instance in this step.
func (c *pace) note(s *fsm.State, inst *fsm.Instance, news []fsm.InstanceStatus) {
	if len(news) == 0 {
		return
	}
	switch news[len(news)-1].Observed {
	case fsm.ObservedReady:
		if !inst.Ready() {
			c.now = max(c.now, c.start(s, inst.Group))
		}
	case fsm.ObservedStopped:
		c.now = max(c.now, c.stop(s, inst))
	}
}

// next ends a step.
func (c *pace) next() { c.sum, c.now = c.sum+c.now, 0 }

// start is how long an instance of the group takes from its placement until it is ready: as long as the quickest of
// those that are ready. The others may have been
// unready since.
func (c *pace) start(s *fsm.State, group fsm.GroupID) fsm.Duration {
	if known, ok := c.starts[group]; ok {
		return known
	}
	quickest := fsm.Forever
	for inst := range s.InstancesOf(group) {
		if inst.Ready() && inst.Marks.ReadySince > 0 {
			quickest = min(quickest, inst.Marks.ReadySince.Sub(inst.Marks.Created))
		}
	}
	if quickest == fsm.Forever {
		quickest = usualStart
	}
	c.starts[group] = quickest
	return quickest
}

// stop is how long an instance takes to stop once it was told to.
func (c *pace) stop(s *fsm.State, inst *fsm.Instance) fsm.Duration {
	spec, ok := s.Spec(inst.Group, inst.Version)
	if !ok {
		return usualStop
	}
	return spec.Stop.DrainDelay + min(spec.Stop.Grace, usualStop)
}
