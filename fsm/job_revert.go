package fsm

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/model"
)

func (c *JobRevert) apply(s *State) error {
	job, ok := s.Jobs.Get(c.Job)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no job %s", c.Job)
	}
	if c.IfVersion != 0 && c.IfVersion != job.Version {
		return model.Refuse(model.CodeStale, "job %s is at version %d, not %d", c.Job, job.Version, c.IfVersion)
	}
	v, ok := s.Versions.Get(versionKey(c.Job, c.Version))
	if !ok {
		return model.Refuse(model.CodeNotFound, "job %s has no version %d", c.Job, c.Version).WithHint("list them with: outspan job history %s", c.Job)
	}
	if c.Version == job.Version {
		return model.Refuse(model.CodeConflict, "job %s is at version %d already", c.Job, c.Version).
			WithHint("see its versions with: outspan job history %s", c.Job)
	}
	spec := v.Spec
	if current, ok := s.JobVersion(c.Job, job.Version); ok {
		switch {
		case c.CurrentCounts:
			spec = s.withCountsOf(spec, current, true)
			if !job.Stopped && sameEncoding(spec, current.Spec) {
				return model.Refuse(model.CodeConflict, "version %d of job %s differs from the current one in counts at most, and a revert keeps those",
					c.Version, c.Job).WithHint("take its counts too with --counts, or: outspan job scale %s GROUP COUNT", c.Job)
			}
		case c.KeepCounts:
			spec = s.withCountsOf(spec, current, false)
		}
	}
	if refusal := s.checkAgainstCluster(&spec); refusal != nil {
		return refusal
	}
	message := c.Message
	if message == "" {
		message = fmt.Sprintf("revert to version %d", c.Version)
	}
	if refusal := s.checkCounts(&spec); refusal != nil {
		return refusal
	}
	// What the leader reverts was let in as a version of its own, so this at most doubles what is kept.
	if refusal := s.checkBytes(&spec, message, true); refusal != nil && s.entry.actor != model.ActorLeader {
		return refusal
	}
	s.submit(spec, message, true, "")
	return nil
}

// withCountsOf is spec with the counts of the current version: of every group, or of those that were scaled. It is spec as it was where it could
// not have them.
func (s *State) withCountsOf(spec model.JobSpec, current *JobVersion, every bool) model.JobSpec {
	counted := spec
	counted.Groups = slices.Clone(spec.Groups)
	for i := range counted.Groups {
		g := &counted.Groups[i]
		if n, ok := countOf(&current.Spec, g.Name); ok && (every || slices.Contains(current.Scaled, g.Name)) {
			g.Count = n
		}
	}
	if counted.Check() != nil || s.checkAgainstCluster(&counted) != nil || s.checkCounts(&counted) != nil {
		return spec
	}
	return counted
}

// RevertTarget is the version to which a job goes back: the newest one before the current that completed its rollout, and that differs from the
// current one in more than counts. ok is false if none is known.
func (s *State) RevertTarget(job *Job) (version uint64, ok bool) {
	current, ok := s.JobVersion(job.Name, job.Version)
	if !ok {
		return 0, false
	}
	for version := job.Version - 1; version > 0; version-- {
		v, kept := s.JobVersion(job.Name, version)
		if kept && v.Completed && (job.Stopped || !sameEncoding(s.withCountsOf(v.Spec, current, true), current.Spec)) {
			return version, true
		}
	}
	return 0, false
}

// complete notes that the rollout of a version was completed.
func (s *State) complete(job model.JobName, version uint64) {
	if v, ok := s.JobVersion(job, version); ok && !v.Completed {
		next := *v
		next.Completed = true
		s.putVersion(&next)
	}
}
