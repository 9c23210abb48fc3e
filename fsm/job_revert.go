package fsm

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/model"
)

// maxRevertMessage bounds the message that withOwnCounts makes, in bytes.
const maxRevertMessage = 512

func (c *JobRevert) apply(s *State) error {
	job, ok := s.Jobs.Get(c.Job)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no job %s", c.Job)
	}
	if refusal := job.judgedAs(c.IfClass); refusal != nil {
		return refusal
	}
	if c.IfVersion != 0 && c.IfVersion != job.Version {
		return model.Refuse(model.CodeStale, "job %s is at version %d, not %d", c.Job, job.Version, c.IfVersion)
	}
	v, ok := s.Versions.Get(versionKey(c.Job, c.Version))
	if !ok {
		return model.Refuse(model.CodeNotFound, "job %s has no version %d", c.Job, c.Version).
			WithHint("list them with: outspan job history %s", c.Job)
	}
	if c.IfTarget != 0 && c.IfTarget != v.Index {
		return model.Refuse(model.CodeStale, "version %d of job %s was made again meanwhile", c.Version, c.Job).
			WithHint("try again")
	}
	if c.Version == job.Version {
		return model.Refuse(model.CodeConflict, "job %s is at version %d already", c.Job, c.Version).
			WithHint("see its versions with: outspan job history %s", c.Job)
	}
	around, spec, message := s.around(c.Job), v.Spec, c.Message
	if message == "" {
		message = fmt.Sprintf("revert to version %d", c.Version)
	}
	if current, ok := s.JobVersion(c.Job, job.Version); ok && (c.CurrentCounts || c.KeepCounts) {
		var why *model.Error
		spec, why = around.withCountsOf(spec, current, c.CurrentCounts)
		switch {
		case why != nil:
			message = withOwnCounts(message, c.Version, why)
		case c.CurrentCounts && !job.Stopped && sameEncoding(spec, current.Spec):
			return model.Refuse(model.CodeConflict,
				"version %d of job %s differs from the current one in counts at most, and a revert keeps those",
				c.Version, c.Job).WithHint("take its counts too with --counts, or: outspan job scale %s GROUP COUNT", c.Job)
		}
	}
	if refusal := around.check(&spec); refusal != nil {
		return refusal
	}
	if refusal := s.checkCounts(&spec); refusal != nil {
		return refusal
	}
	// The leader's automatic reverts are not bounded, because each repeats an accepted version. So a revert at most
	// doubles the bytes that are kept.
	if refusal := s.checkBytes(&spec, message, true); refusal != nil && s.entry.actor != model.ActorLeader {
		return refusal
	}
	s.submit(spec, submission{message: message, forced: true, reverts: c.Version})
	return nil
}

// withOwnCounts adds to the message of a revert which version the counts are from, and why the current counts are not
// kept.
func withOwnCounts(message string, version uint64, why *model.Error) string {
	return model.ClipText(fmt.Sprintf("%s; with the counts of version %d: %s", message, version, why.Message),
		maxRevertMessage)
}

// withCountsOf returns spec with the counts that its groups have in the current version. If every is false, it changes
// only the counts of groups that were scaled. If spec would be refused with these counts, it returns spec unchanged,
// and the refusal.
func (a *surroundings) withCountsOf(spec model.JobSpec, current *JobVersion, every bool) (model.JobSpec, *model.Error) {
	counted := spec
	counted.Groups = slices.Clone(spec.Groups)
	for i := range counted.Groups {
		g := &counted.Groups[i]
		if n, ok := countOf(&current.Spec, g.Name); ok && (every || slices.Contains(current.Scaled, g.Name)) {
			g.Count = n
		}
	}
	if why := checkScaled(&counted); why != nil {
		return spec, why
	}
	if why := a.check(&counted); why != nil {
		return spec, why
	}
	if why := a.s.checkCounts(&counted); why != nil {
		return spec, why
	}
	return counted, nil
}

// RevertTarget returns the version to which a job goes back if nobody names one. It is the newest earlier version that
// completed its rollout, that no revert has abandoned, and that differs from the current version in more than counts.
// If the current spec comes from a revert, RevertTarget refuses, so that a person chooses the version. For a stopped
// job it does not refuse for this reason, and the version may have the current spec. Codes: not_found, conflict.
func (s *State) RevertTarget(job *Job) (version uint64, refusal *model.Error) {
	none := model.Refuse(model.CodeNotFound,
		"job %s has no earlier version that completed its rollout and differs from the current one", job.Name).
		WithHint("name a version: outspan job history %s lists them", job.Name)
	current, ok := s.JobVersion(job.Name, job.Version)
	if !ok {
		return 0, none
	}
	around, left, began := s.around(job.Name), map[uint64]bool{}, true
	for _, v := range s.keptBefore(job.Name, job.Version+1) {
		if v.Reverts != 0 {
			left[v.Version-1] = true
		}
		candidate := v != current && v.Completed && !left[v.Version]
		if !candidate && (job.Stopped || !began) {
			continue
		}
		same := v == current || around.differsInCounts(v, current)
		if began = began && same; began && v.Reverts != 0 && !job.Stopped {
			return 0, model.Refuse(model.CodeConflict, "job %s is at version %d, which is a revert to version %d already",
				job.Name, job.Version, v.Reverts).
				WithHint("%s", s.furtherBack(job))
		}
		if candidate && (job.Stopped || !same) {
			return v.Version, nil
		}
	}
	return 0, none
}

// furtherBack returns a hint for a person whose current version is a revert: how to go back further.
func (s *State) furtherBack(job *Job) string {
	further := fmt.Sprintf("to go further back name the version: outspan job revert %s VERSION; outspan job "+
		"history %s lists them", job.Name, job.Name)
	if back, ok := s.BackToStable(job); ok {
		return back + "; " + further
	}
	return further
}

// RevertAdvice returns a hint about a version whose instances don't become ready. It names the command of BackToStable.
// If there is no such command, it advises to repair the job file.
func (s *State) RevertAdvice(job *Job) string {
	if back, ok := s.BackToStable(job); ok {
		return back
	}
	return "mend the job file, then: outspan job run FILE"
}

// BackToStable returns a hint with the command that goes back to the job's stable version. The command names that
// version, because RevertTarget refuses if the current version is a revert. BackToStable returns false if the job has
// no stable version, or if the current version is the stable one or differs from it only in counts.
func (s *State) BackToStable(job *Job) (string, bool) {
	stable, ok := s.JobVersion(job.Name, job.Stable)
	current, known := s.JobVersion(job.Name, job.Version)
	if !ok || !known || job.Stable == job.Version || s.around(job.Name).differsInCounts(stable, current) {
		return "", false
	}
	return fmt.Sprintf("to go back to version %d: outspan job revert %s %d", job.Stable, job.Name, job.Stable), true
}

// differsInCounts reports whether v equals the current version or differs from it only in counts.
func (a *surroundings) differsInCounts(v, current *JobVersion) bool {
	spec, _ := a.withCountsOf(v.Spec, current, true)
	return sameEncoding(spec, current.Spec)
}

// keptBefore lists the kept versions of a job that are lower than the parameter version, newest first.
func (s *jobs) keptBefore(job model.JobName, version uint64) []*JobVersion {
	var kept []*JobVersion
	for _, v := range s.Versions.From(versionKey(job, 0)) {
		if v.Job != job || v.Version >= version {
			break
		}
		kept = append(kept, v)
	}
	slices.Reverse(kept)
	return kept
}

// complete records that the rollout of a version has completed.
func (s *jobs) complete(job model.JobName, version uint64) {
	if v, ok := s.JobVersion(job, version); ok && !v.Completed {
		next := *v
		next.Completed = true
		s.putVersion(&next)
	}
}
