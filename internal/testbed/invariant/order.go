package invariant

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// deleted checks S9: a terminal or deleted instance never runs again, despite late reports and reused names. A new job
// gets no instances of a purged job of the same name.
func (j *Judge) deleted(f *fsm.Findings, s *Step) {
	j.made(f, s)
	for id, i := range s.After.Instances.All() {
		since, over := j.ended[id]
		switch {
		case over && !i.Terminal():
			f.Add(fsm.S9, "instance %s ended at index %d, and is %s, %s now", id, since, i.Desired, i.Status.Observed)
		case i.Terminal() && !over:
			j.ended[id] = s.After.Index
		}
		name, _ := i.Group.Split()
		if version, ok := s.After.JobVersion(name, i.Version); ok && version.Index > i.Marks.CreatedIndex {
			f.Add(fsm.S9, "instance %s is of index %d, the version %d of %s that it runs of index %d: it was of another job", id,
				i.Marks.CreatedIndex, i.Version, name, version.Index)
		}
	}
	for id := range s.Before.Instances.All() {
		if _, known := j.ended[id]; !known && !s.After.Instances.Has(id) {
			j.ended[id] = s.After.Index
		}
		if !s.After.Instances.Has(id) {
			j.gone[id] = true
		}
	}
}

// made checks S9 with the entry's commands: an instance, a node or a job appears only in an entry with a command that
// creates it. The id of a deleted instance is not used again.
func (j *Judge) made(f *fsm.Findings, s *Step) {
	placed, registered, submitted := map[model.InstanceID]bool{}, map[model.NodeID]bool{}, map[model.JobName]bool{}
	s.taken(func(_ []fsm.Command, command fsm.Command) {
		switch one := command.(type) {
		case *fsm.InstancePlace:
			placed[one.ID] = true
		case *fsm.InstanceAdopt:
			placed[one.ID] = true
		case *fsm.NodeRegister:
			registered[one.ID] = true
		case *fsm.JobSubmit:
			submitted[one.Spec.Name] = true
		}
	})
	s.placed(func(i *fsm.Instance) {
		if !placed[i.ID] || j.gone[i.ID] {
			f.Add(fsm.S9, "instance %s is there again", i.ID)
		}
	})
	for id := range s.After.Nodes.All() {
		if !s.Before.Nodes.Has(id) && !registered[id] {
			f.Add(fsm.S9, "node %s is there again", id)
		}
	}
	for name := range s.After.Jobs.All() {
		if !s.Before.Jobs.Has(name) && !submitted[name] {
			f.Add(fsm.S9, "job %s is there again", name)
		}
	}
}

// terms checks S10: an entry decided in one term is refused in any other term.
func (j *Judge) terms(f *fsm.Findings, s *Step) {
	if s.Entry.Term == 0 || s.Entry.Term == s.Term {
		return
	}
	for _, r := range s.Results {
		if r.Refusal == nil || r.Refusal.Code != model.CodeStaleTerm {
			f.Add(fsm.S10, "entry %d was decided in term %d and taken in term %d", s.Index, s.Entry.Term, s.Term)
			return
		}
	}
}

// once checks S4 for the log: at most one entry carries out a request, however often the request was sent.
func (j *Judge) once(f *fsm.Findings, s *Step) {
	id := s.Entry.Request
	if id == "" || slices.ContainsFunc(s.Results, func(r fsm.Result) bool {
		return r.Replay || RefusedAs(r, model.CodeRequestConflict, model.CodeBusy)
	}) {
		return
	}
	if first, again := j.ids[id]; again {
		f.Add(fsm.S4, "request %s was carried out at index %d and again at %d", id, first, s.Index)
		return
	}
	j.ids[id] = s.Index
}

// RefusedAs reports whether a group of commands was refused with one of these codes.
func RefusedAs(r fsm.Result, codes ...model.Code) bool {
	return r.Refusal != nil && slices.Contains(codes, r.Refusal.Code)
}

// unknownHoldings checks S15: an entry of an agent changes only what the servers know of the agent's own node and of
// the instances on this node.
func (j *Judge) unknownHoldings(f *fsm.Findings, s *Step) {
	name, agent := strings.CutPrefix(string(s.Entry.Actor), "agent:")
	if !agent {
		return
	}
	own := func(id model.NodeID) bool {
		n, ok := s.After.Nodes.Get(id)
		return ok && (n.Name == name || string(id) == name)
	}
	for id, n := range s.After.Nodes.All() {
		was, ok := s.Before.Nodes.Get(id)
		if own(id) || ok && was == n {
			continue
		}
		if !ok || was.Health != n.Health || was.Agent.Epoch != n.Agent.Epoch || was.Agent.BootID != n.Agent.BootID ||
			was.FactsGen != n.FactsGen || was.Return != n.Return || was.Intent != n.Intent ||
			!slices.Equal(was.Self.Troubles, n.Self.Troubles) {
			f.Add(fsm.S15, "agent %s changed node %s", name, n.Name)
		}
	}
	for id, i := range s.After.Instances.All() {
		was, ok := s.Before.Instances.Get(id)
		if ok && was == i || own(i.Node) {
			continue
		}
		if !ok || was.Desired != i.Desired || was.Status.Observed != i.Status.Observed ||
			was.Status.Generation != i.Status.Generation || len(was.Status.Facts) != len(i.Status.Facts) {
			f.Add(fsm.S15, "agent %s changed instance %s on node %s", name, id, i.Node)
		}
	}
}

// preemptions checks S11. The preempting instance has a higher class than its victims, or the same class if preemption
// in that class is fair and the victim's job has the larger share. The group of commands that stops the victims places
// the preempting instance on their node. That instance waits until the victims have stopped.
func (j *Judge) preemptions(f *fsm.Findings, s *Step) {
	s.taken(func(group []fsm.Command, command fsm.Command) {
		stop, ok := command.(*fsm.InstanceStop)
		if ok && stop.Cause == model.CausePreempted && !slices.ContainsFunc(group, func(other fsm.Command) bool {
			place, ok := other.(*fsm.InstancePlace)
			return ok && string(place.ID) == stop.By && slices.Contains(place.Awaits, stop.ID)
		}) {
			f.Add(fsm.S11, "instance %s was preempted for %q, which was not placed with it", stop.ID, stop.By)
		}
	})
	s.began(func(was, now *fsm.Instance) {
		if now.Marks.StopCause != model.CausePreempted {
			return
		}
		taker, ok := s.After.Instances.Get(model.InstanceID(now.Marks.StopReason))
		switch {
		case !ok || s.Before.Instances.Has(taker.ID):
			f.Add(fsm.S11, "instance %s was preempted by %q, which was not placed in the same entry",
				now.ID, now.Marks.StopReason)
		case taker.Node != now.Node:
			f.Add(fsm.S11, "instance %s on %s was preempted for %s on %s", now.ID, now.Node, taker.ID, taker.Node)
		case Runs(was) && !slices.Contains(taker.Links.Awaits, now.ID):
			f.Add(fsm.S11, "instance %s was preempted by %s, which does not wait for its end", now.ID, taker.ID)
		}
		if ok {
			if why := s.inferior(taker.Group, now.Group); why != "" {
				f.Add(fsm.S11, "%s was preempted by %s: %s", now.ID, taker.ID, why)
			}
		}
	})
	s.placed(func(i *fsm.Instance) {
		for _, id := range i.Links.Awaits {
			victim, ok := s.After.Instances.Get(id)
			was, known := s.Before.Instances.Get(id)
			if !ok || !known || victim.Marks.StopCause != model.CausePreempted || was.Desired != model.DesiredRunning {
				f.Add(fsm.S11, "instance %s waits for %s, which does not stop for it in the same entry", i.ID, id)
			}
		}
	})
}

// inferior returns why the group taker may not preempt the group owner, or "" if preemption is allowed.
func (s *Step) inferior(taker, owner model.GroupID) string {
	a, b := classOf(s, taker), classOf(s, owner)
	if a < 0 || b < 0 {
		return "a class is unknown"
	}
	if a < b {
		return ""
	}
	class := s.Before.Classes[a]
	if a > b || class.PreemptEqual != model.PreemptFair {
		return fmt.Sprintf("class %s does not outrank %s", class.Name, s.Before.Classes[b].Name)
	}
	had, largest := shares(s.Before, s, a)
	has, _ := shares(s.After, s, a)
	from, _ := owner.Split()
	to, _ := taker.Split()
	s.began(func(_, now *fsm.Instance) { // adds the victims' memory again, which the job had before the preemption
		if name, _ := now.Group.Split(); name == from && now.Marks.StopCause == model.CausePreempted {
			has[from] += memoryOf(s, now.Group)
		}
	})
	s.placed(func(i *fsm.Instance) { // subtracts instances without victims, which may be placed after the preemption
		if name, _ := i.Group.Split(); name == to && len(i.Links.Awaits) == 0 {
			has[to] -= memoryOf(s, i.Group)
		}
	})
	largest = max(largest, has[from])
	// The limit is the largest share instead of the victim's, because other commands of the entry may change shares too.
	if from == to || has[to] > largest {
		return fmt.Sprintf("job %s had %d, and job %s has %d; the largest was %d", from, had[from], to, has[to], largest)
	}
	return ""
}

// shares returns by job the memory of the job's instances that have this class and are desired running. It also returns
// the largest share.
func shares(st *fsm.State, s *Step, class int) (by map[model.JobName]int64, largest int64) {
	by = map[model.JobName]int64{}
	for _, i := range st.Instances.All() {
		if i.Desired == model.DesiredRunning && classOf(s, i.Group) == class {
			name, _ := i.Group.Split()
			by[name] += memoryOf(s, i.Group)
			largest = max(largest, by[name])
		}
	}
	return by, largest
}

// classOf returns the position of a group's class in Before.Classes, where higher classes come first. It returns -1 if
// the class is unknown.
func classOf(s *Step, id model.GroupID) int {
	name, _ := id.Split()
	job, ok := s.Before.Jobs.Get(name)
	if !ok {
		return -1
	}
	return slices.IndexFunc(s.Before.Classes, func(c fsm.Class) bool { return c.Name == job.Class })
}

func memoryOf(s *Step, id model.GroupID) int64 {
	spec, ok := s.Before.Policy(id)
	if !ok {
		return 0
	}
	return spec.Resources.MemoryBytes + s.Before.Settings.InstanceOverhead
}
