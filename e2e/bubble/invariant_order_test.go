package bubble

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// deleted is S9: an instance that ended or was deleted is never there again, whoever reports it late and whatever name
// is used again; and a job that was purged takes nothing of the old one over.
func (c *court) deleted(s step) error {
	if s.before.Instances.Same(s.after.Instances) {
		return nil
	}
	var f findings
	for id, i := range s.after.Instances.All() {
		since, over := c.ended[id]
		switch {
		case over && !i.Terminal():
			f.add("S9: instance %s ended at index %d, and is %s, %s now", id, since, i.Desired, i.Status.Observed)
		case i.Terminal() && !over:
			c.ended[id] = s.after.Index
		}
		name, _ := i.Group.Split()
		if version, ok := s.after.JobVersion(name, i.Version); ok && version.Index > i.Marks.CreatedIndex {
			f.add("S9: instance %s is of index %d, the version %d of %s that it runs of index %d: it was of another job", id, i.Marks.CreatedIndex, i.Version, name, version.Index)
		}
	}
	for id := range s.before.Instances.All() {
		if _, known := c.ended[id]; !known && !s.after.Instances.Has(id) {
			c.ended[id] = s.after.Index
		}
	}
	return f.err()
}

// terms is S10: what was decided in one term is not accepted in another.
func (c *court) terms(s step) error {
	e := s.entry
	accepted := func(r fsm.Result) bool { return r.Refusal == nil }
	if e.Term != 0 && e.Term != e.term && slices.ContainsFunc(e.results, accepted) {
		return fmt.Errorf("S10: entry %d was decided in term %d and taken in term %d", e.index, e.Term, e.term)
	}
	return nil
}

// once is S4 for the log: a request is carried out by at most one entry, however often it was sent.
func (c *court) once(s step) error {
	e := s.entry
	if e.Request == "" || slices.ContainsFunc(e.results, func(r fsm.Result) bool { return r.Replay || refusedAs(r, model.CodeRequestConflict, model.CodeBusy) }) {
		return nil
	}
	if first, again := c.ids[e.Request]; again {
		return fmt.Errorf("S4: request %s was carried out at index %d and again at %d", e.Request, first, e.index)
	}
	c.ids[e.Request] = e.index
	return nil
}

func refusedAs(r fsm.Result, codes ...model.Code) bool {
	return r.Refusal != nil && slices.Contains(codes, r.Refusal.Code)
}

// strangers is S15: what an agent says changes what is observed of its own node and its instances, and of nothing else.
func (c *court) strangers(s step) error {
	name, agent := strings.CutPrefix(string(s.entry.Actor), "agent:")
	if !agent {
		return nil
	}
	var f findings
	own := func(id model.NodeID) bool {
		n, ok := s.after.Nodes.Get(id)
		return ok && n.Name == name
	}
	for id, n := range s.after.Nodes.All() {
		was, ok := s.before.Nodes.Get(id)
		if own(id) || ok && was == n {
			continue
		}
		if !ok || was.Health != n.Health || was.Agent.Epoch != n.Agent.Epoch || was.Agent.BootID != n.Agent.BootID || was.FactsGen != n.FactsGen || was.Return != n.Return || was.Intent != n.Intent {
			f.add("S15: agent %s changed node %s", name, n.Name)
		}
	}
	if !s.before.Instances.Same(s.after.Instances) {
		for id, i := range s.after.Instances.All() {
			was, ok := s.before.Instances.Get(id)
			if ok && was == i || own(i.Node) {
				continue
			}
			if !ok || was.Status.Observed != i.Status.Observed || was.Status.Generation != i.Status.Generation || len(was.Status.Facts) != len(i.Status.Facts) {
				f.add("S15: agent %s changed what is observed of instance %s on node %s", name, id, i.Node)
			}
		}
	}
	return f.err()
}

// preemptions is S11: who takes the room of others is of a higher class, or of the same where that is fair and the
// owner has the larger share; all of them begin to stop in the entry that places it, on its node; and it waits until
// they are gone.
func (c *court) preemptions(s step) error {
	var f findings
	s.began(func(was, now *fsm.Instance) {
		if now.Marks.StopCause != model.CausePreempted {
			return
		}
		taker, ok := s.after.Instances.Get(model.InstanceID(now.Marks.StopReason))
		switch {
		case !ok || s.before.Instances.Has(taker.ID):
			f.add("S11: instance %s was preempted by %q, which was not placed in the same entry", now.ID, now.Marks.StopReason)
		case taker.Node != now.Node:
			f.add("S11: instance %s on %s was preempted for %s on %s", now.ID, now.Node, taker.ID, taker.Node)
		case runs(was) && !slices.Contains(taker.Links.Awaits, now.ID):
			f.add("S11: instance %s was preempted by %s, which does not wait for its end", now.ID, taker.ID)
		}
		if ok {
			if err := s.outranks(taker.Group, now.Group); err != nil {
				f.add("S11: %s was preempted by %s: %w", now.ID, taker.ID, err)
			}
		}
	})
	s.placed(func(i *fsm.Instance) {
		for _, id := range i.Links.Awaits {
			victim, ok := s.after.Instances.Get(id)
			was, known := s.before.Instances.Get(id)
			if !ok || !known || victim.Marks.StopCause != model.CausePreempted || was.Desired != model.DesiredRunning {
				f.add("S11: instance %s waits for %s, which does not stop for it in the same entry", i.ID, id)
			}
		}
	})
	return f.err()
}

// outranks returns nil if one group may take the room of another.
func (s step) outranks(taker, owner model.GroupID) error {
	a, b := classOf(s, taker), classOf(s, owner)
	if a < 0 || b < 0 {
		return errors.New("a class is unknown")
	}
	if a < b {
		return nil
	}
	class := s.before.Classes[a]
	if a > b || class.PreemptEqual != model.PreemptFair {
		return fmt.Errorf("class %s does not outrank %s", class.Name, s.before.Classes[b].Name)
	}
	had, largest := shares(&s.before, s, a)
	has, _ := shares(&s.after, s, a)
	from, _ := owner.Split()
	to, _ := taker.Split()
	s.began(func(_, now *fsm.Instance) { // what was placed earlier in the entry was there already
		if name, _ := now.Group.Split(); name == from && now.Marks.StopCause == model.CausePreempted {
			has[from] += memoryOf(s, now.Group)
		}
	})
	s.placed(func(i *fsm.Instance) { // what needed nobody's room may have been placed afterwards
		if name, _ := i.Group.Split(); name == to && len(i.Links.Awaits) == 0 {
			has[to] -= memoryOf(s, i.Group)
		}
	})
	largest = max(largest, has[from])
	if from == to || has[to] > largest { // of what else happened in the entry it may have given some back
		return fmt.Errorf("job %s had %d, and job %s has %d; the largest was %d", from, had[from], to, has[to], largest)
	}
	return nil
}

// shares is the memory of what is to run, by job of a class, and the largest of them.
func shares(st *fsm.State, s step, class int) (by map[model.JobName]int64, largest int64) {
	by = map[model.JobName]int64{}
	for _, i := range st.Instances.All() {
		if i.Desired == model.DesiredRunning && classOf(s, i.Group) == class {
			name, _ := i.Group.Split()
			by[name] += memoryOf(s, i.Group)
		}
	}
	for _, share := range by {
		largest = max(largest, share)
	}
	return by, largest
}

// classOf is the rank of a group's class; -1 if it is not known.
func classOf(s step, id model.GroupID) int {
	name, _ := id.Split()
	job, ok := s.before.Jobs.Get(name)
	if !ok {
		return -1
	}
	return slices.IndexFunc(s.before.Classes, func(c fsm.Class) bool { return c.Name == job.Class })
}

func memoryOf(s step, id model.GroupID) int64 {
	spec, ok := s.before.Policy(id)
	if !ok {
		return 0
	}
	return spec.Resources.MemoryBytes + s.before.Settings.InstanceOverhead
}
