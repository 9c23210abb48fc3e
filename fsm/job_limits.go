package fsm

import (
	"bytes"

	"github.com/outspan/outspan/model"
)

// Bounds of the instances that jobs want, and of the versions that are kept of jobs. The product promises 100,000
// instances. One job may want twice as many, and all jobs together five times as many.
const (
	maxJobWanted = 200_000   // instances that one job wants
	maxWanted    = 500_000   // instances that all jobs want
	maxJobBytes  = 16 << 20  // bytes of one job's kept versions, encoded
	maxJobsBytes = 128 << 20 // bytes of all kept versions, encoded
)

// jobSum is what a job wants and how many bytes are kept of it, or the sum over all jobs.
type jobSum struct {
	counts  int // sum of the counts of all groups other than system groups
	systems int // number of system groups, which have an instance on each node
	bytes   int // length of the kept versions, encoded
}

// everyJob is the key of the sum over all jobs. No job has this name.
const everyJob model.JobName = ""

func (a jobSum) plus(b jobSum) jobSum {
	return jobSum{a.counts + b.counts, a.systems + b.systems, a.bytes + b.bytes}
}

func (a jobSum) minus(b jobSum) jobSum {
	return jobSum{a.counts - b.counts, a.systems - b.systems, a.bytes - b.bytes}
}

// wanted returns how many instances are wanted in a cluster with this many nodes. A system group counts once for each
// node, even if its constraints exclude the node, because a new label may change that.
func (a jobSum) wanted(nodes int) int { return a.counts + a.systems*nodes }

// sum returns what a group's row adds to the sum of its job.
func (g *Group) sum() jobSum {
	switch {
	case g == nil:
		return jobSum{}
	case g.Role == model.RoleSystem:
		return jobSum{systems: count(g.Count > 0)}
	}
	return jobSum{counts: g.Count}
}

// sumOf returns what the groups of a spec want.
func sumOf(j *model.JobSpec) jobSum {
	var all jobSum
	for i := range j.Groups {
		if g := &j.Groups[i]; g.Role == model.RoleSystem {
			all.systems++
		} else {
			all.counts += g.Count
		}
	}
	return all
}

// keptBytes returns the length of the version's row in a snapshot. It returns 0 if v is nil.
func (v *JobVersion) keptBytes() int {
	var buf bytes.Buffer
	if v == nil || wire.enc.MarshalToBuffer(v, &buf) != nil {
		return 0
	}
	return buf.Len()
}

// checkCounts refuses a spec with which its job, or all jobs together, would want too many instances. A spec that wants
// no more than the job wants now is always allowed, because the sums may already be above their bounds. Codes: invalid,
// quota_exceeded:instances.
func (s *State) checkCounts(spec *model.JobSpec) *model.Error {
	nodes := s.Nodes.Len()
	before, after := s.jobSum(spec.Name).wanted(nodes), sumOf(spec).wanted(nodes)
	others := s.jobSum(everyJob).wanted(nodes) - before
	switch {
	case after <= before:
	case after > maxJobWanted:
		return model.Refuse(model.CodeInvalid, "job %s would want %d instances in all its groups; a job may want %d",
			spec.Name, after, maxJobWanted).WithHint("lower the counts of its groups, or leave out groups")
	case others+after > maxWanted:
		return model.Refuse(model.QuotaExceeded(dimInstances),
			"all jobs together may want %d instances; they want %d, and job %s asks for %d more",
			maxWanted, others+before, spec.Name, after-before).
			WithHint("scale another job down or stop it first: outspan job ls")
	}
	return nil
}

// checkBytes refuses a spec whose new version would make the kept versions of its job, or of all jobs, too large. A
// version no larger than the old versions that are dropped for it is always allowed. The spec that the job runs already
// is allowed if forced is false, because no version is made then. Codes: too_large, quota_exceeded:job_bytes.
func (s *State) checkBytes(spec *model.JobSpec, message string, forced bool) *model.Error {
	next := JobVersion{
		Job: spec.Name, Version: 1, Spec: *spec, Actor: s.entry.actor, Message: message, Index: s.Index, Wall: s.Wall,
	}
	job, exists := s.Jobs.Get(spec.Name)
	if exists {
		next.Version = job.Version + 1
	}
	mine, all := s.jobSum(spec.Name).bytes, s.jobSum(everyJob).bytes
	more := next.keptBytes()
	if mine+more <= maxJobBytes && all+more <= maxJobsBytes {
		return nil
	}
	if exists {
		current, ok := s.Versions.Get(versionKey(job.Name, job.Version))
		if ok && !forced && !job.Stopped && sameEncoding(current.Spec, *spec) {
			return nil
		}
		for _, v := range s.unusedVersions(job, next.Version) {
			more -= v.keptBytes()
		}
	}
	switch {
	case more <= 0:
	case mine+more > maxJobBytes:
		return model.Refuse(model.CodeTooLarge,
			"the versions of job %s that are kept have %d bytes, and the new one adds %d; a job may have %d",
			spec.Name, mine, more, maxJobBytes).
			WithHint("make its file smaller; or remove the job with its history: outspan job stop %s --purge", spec.Name)
	case all+more > maxJobsBytes:
		return model.Refuse(model.QuotaExceeded(dimJobBytes),
			"the kept versions of all jobs have %d bytes, and job %s adds %d; all may have %d",
			all, spec.Name, more, maxJobsBytes).
			WithHint("remove a job that nobody needs: outspan job stop JOB --purge; or make the file of %s smaller", spec.Name)
	}
	return nil
}

// jobSums checks that the stored sums of jobs equal the sums over the rows of groups and versions.
func (c *checker) jobSums() {
	want := map[model.JobName]jobSum{}
	add := func(job model.JobName, sum jobSum) {
		want[job], want[everyJob] = want[job].plus(sum), want[everyJob].plus(sum)
	}
	for id, g := range c.s.Groups.All() {
		add(jobOf(id), g.sum())
	}
	for _, v := range c.s.Versions.All() {
		add(v.Job, jobSum{bytes: v.keptBytes()})
	}
	for name, sum := range c.s.jobSums.All() {
		c.want(sum == want[name], "job %q has the sums %+v, its groups and versions sum up to %+v", name, sum, want[name])
		delete(want, name)
	}
	for _, name := range sortedKeys(want) {
		c.want(want[name] == jobSum{}, "job %q has no sums, its groups and versions sum up to %+v", name, want[name])
	}
}
