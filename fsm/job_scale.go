package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// countOf returns a group's count. ok is false if the job has no such group.
func countOf(j *model.JobSpec, group string) (n int, ok bool) {
	for i := range j.Groups {
		if j.Groups[i].Name == group {
			return j.Groups[i].Count, true
		}
	}
	return 0, false
}

// stillScaled lists the groups of v that were scaled and have the same count in next.
func (v *JobVersion) stillScaled(next *model.JobSpec) []string {
	return slices.DeleteFunc(slices.Clone(v.Scaled), func(group string) bool {
		before, _ := countOf(&v.Spec, group)
		after, ok := countOf(next, group)
		return !ok || before != after
	})
}

func (c *JobScale) apply(s *State) error {
	job, row, refusal := s.runningJob(c.Job, c.IfClass)
	if refusal != nil {
		return refusal
	}
	v := *row
	v.Spec.Groups = slices.Clone(row.Spec.Groups)
	i := slices.IndexFunc(v.Spec.Groups, func(g model.GroupSpec) bool { return g.Name == c.Group })
	if i < 0 {
		return model.Refuse(model.CodeNotFound, "job %s has no group %s", c.Job, c.Group).
			WithHint("its groups are: %s", groupNamesOf(&v.Spec))
	}
	if v.Spec.Groups[i].Role == model.RoleSystem {
		return model.Refuse(model.CodeInvalid, "group %s runs once on every node: it has no count",
			model.NewGroupID(c.Job, c.Group))
	}
	before := v.Spec.Groups[i].Count
	if before == c.Count {
		return nil
	}
	v.Spec.Groups[i].Count = c.Count
	if !slices.Contains(v.Scaled, c.Group) {
		v.Scaled = append(slices.Clone(v.Scaled), c.Group)
	}
	if refusal := checkScaled(&v.Spec); refusal != nil {
		return refusal
	}
	if refusal := s.checkSharedBudgets(model.NewGroupID(c.Job, c.Group), &v.Spec.Groups[i]); refusal != nil {
		return refusal
	}
	if refusal := s.checkCounts(&v.Spec); refusal != nil {
		return refusal
	}
	if refusal := s.checkWanted(&v.Spec); refusal != nil {
		return refusal
	}
	s.putVersion(&v)
	g, _ := s.Groups.Get(model.NewGroupID(c.Job, c.Group))
	next := *g
	next.Count = c.Count
	s.putGroup(&next)
	s.resolveBudget(next.ID)
	changed := *job
	changed.Index = s.Index
	s.putJob(&changed)
	s.touchJob(job.Name)
	s.emit(Event{Type: model.EventJob, Subject: "job/" + string(job.Name), Cause: scaleCause(before, c.Count),
		Before: fmt.Sprint(before), After: fmt.Sprint(c.Count), Data: map[string]string{"group": c.Group}})
	return nil
}

// checkScaled checks the counts of a spec that differs from a stored one only in counts. It checks nothing else: an
// older program may have accepted a spec that today's checks refuse.
func checkScaled(next *model.JobSpec) *model.Error {
	for i := range next.Groups {
		g := &next.Groups[i]
		if refusal := g.CheckCount(); refusal != nil {
			refusal.Message = fmt.Sprintf("job %s, group %s: %s", next.Name, g.Name, refusal.Message)
			return refusal
		}
	}
	return nil
}

func scaleCause(before, after int) model.Cause {
	if after < before {
		return model.CauseScaleDown
	}
	return model.CauseScaleUp
}

// groupNamesOf lists the names of a job's groups for people.
func groupNamesOf(j *model.JobSpec) string {
	var names []string
	for i := range j.Groups {
		names = append(names, j.Groups[i].Name)
	}
	return strings.Join(names, ", ")
}
