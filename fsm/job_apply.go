package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outspan/outspan/model"
)

const (
	keptVersions    = 10 // newest versions of a job that are kept; older versions are kept only while they are in use
	keptDeployments = 5  // ended deployments of a job that are kept
)

// Policy returns the current spec of a group, or the last spec of a group that was removed from its job. Counts,
// budgets, roles and limits come from that spec, even for instances of older versions.
func (s *jobs) Policy(group model.GroupID) (*model.GroupSpec, bool) {
	job, ok := s.Jobs.Get(jobOf(group))
	if !ok {
		return nil, false
	}
	if spec, ok := s.Spec(group, job.Version); ok {
		return spec, true
	}
	if g, ok := s.Groups.Get(group); ok {
		return s.Spec(group, g.Version)
	}
	return nil, false
}

func (c *JobSubmit) apply(s *State) error {
	spec := c.Spec.Expand()
	if refusal := cmp.Or(spec.Check(), spec.CheckResolved()); refusal != nil {
		return refusal
	}
	old, exists := s.Jobs.Get(spec.Name)
	if c.IfIndex != nil {
		have := uint64(0)
		if exists {
			have = old.Index
		}
		if have != *c.IfIndex {
			return model.Refuse(model.CodeConflict, "job %s changed: it is at index %d, not %d", spec.Name, have, *c.IfIndex).
				WithHint("plan again, then run with the new index")
		}
	}
	if exists {
		if refusal := old.judgedAs(c.IfClass); refusal != nil {
			return refusal
		}
	}
	if refusal := s.around(spec.Name).check(&spec); refusal != nil {
		return refusal
	}
	if refusal := s.checkCounts(&spec); refusal != nil {
		return refusal
	}
	if refusal := s.checkBytes(&spec, c.Message, false); refusal != nil {
		return refusal
	}
	s.submit(spec, submission{message: c.Message})
	return nil
}

// submission has the options of submit.
type submission struct {
	message string
	forced  bool   // make a new version even if nothing changes
	restart string // with forced, the group to replace although its template is the same; "*" means all groups
	reverts uint64 // for a revert, the version that the spec is from; otherwise 0
}

// submit makes spec the wanted state of its job, as a new version. It does nothing if the job runs the same spec
// already, unless how.forced is true.
func (s *State) submit(spec model.JobSpec, how submission) {
	old, exists := s.Jobs.Get(spec.Name)
	job := Job{Name: spec.Name}
	var scaled []string
	if exists {
		job = *old
		current, ok := s.Versions.Get(versionKey(job.Name, job.Version))
		if ok {
			scaled = current.stillScaled(&spec)
		}
		if ok && !how.forced && !job.Stopped && sameEncoding(current.Spec, spec) {
			return
		}
	}
	job.Version++
	job.Class, job.Stopped, job.Index = spec.Class, false, s.Index
	s.putVersion(&JobVersion{
		Job: job.Name, Version: job.Version, Spec: spec, Actor: s.entry.actor, Message: how.message,
		Index: s.Index, Wall: s.Wall,
		Scaled: scaled, Reverts: how.reverts,
	})
	s.putJob(&job)
	if exists {
		s.moveUsage(job.Name, old.Class, job.Class)
	}
	rolls, tried := false, exists && s.triedBefore(old)
	for i := range spec.Groups {
		forcedGroup := how.forced && (how.restart == "*" || how.restart == spec.Groups[i].Name)
		rolls = s.submitGroup(&job, &spec.Groups[i], forcedGroup) || rolls
	}
	s.removeGroups(&job, &spec)
	s.publishServices(&job, &spec)
	switch {
	case rolls:
		s.deploy(&job, &spec, exists && !old.Stopped)
	case tried:
		s.deploy(&job, &spec, false)
	case exists && old.Stable == old.Version:
		s.keepStable(&job)
	}
	s.forgetVersions(job.Name)
	s.touchJob(job.Name)
	s.emit(Event{Type: model.EventJob, Subject: "job/" + string(job.Name), Before: fmt.Sprint(job.Version - 1),
		After: fmt.Sprint(job.Version), Data: map[string]string{"message": how.message}})
}

func (s *State) touchJob(name model.JobName) { s.touch("jobs", Topic("job/"+name)) }

// submitGroup updates a group's row to the new job version, and reports whether its instances must be replaced.
func (s *State) submitGroup(job *Job, spec *model.GroupSpec, forced bool) bool {
	id := model.NewGroupID(job.Name, spec.Name)
	g := Group{ID: id}
	if old, ok := s.Groups.Get(id); ok {
		g = *old
	}
	before := g.Version
	if v, ok := s.templateVersion(id, job.Version, spec); ok && !forced {
		g.Version = v
	} else {
		g.Version = job.Version
	}
	g.Count, g.Role, g.Removed = spec.Count, spec.Role, false
	if g.Role == model.RoleSystem {
		g.Count = max(g.Count, 1) // a system group has an instance on each eligible node unless its count is 0
	}
	if before != g.Version {
		g.Failures = nil
	}
	s.putGroup(&g)
	s.setSharedBudgets(id, spec.Budgets)
	s.resolveBudget(id)
	return before != g.Version
}

// templateVersion finds a version in which the group has the same template as in spec, so that instances of that
// version need no replacement. It tries the group's current version first. Then it tries the versions of instances that
// should run, if they are lower than the parameter below: after a revert, instances that still run the old version are
// current again.
func (s *State) templateVersion(id model.GroupID, below uint64, spec *model.GroupSpec) (uint64, bool) {
	g, ok := s.Groups.Get(id)
	if !ok {
		return 0, false
	}
	want := spec.Template()
	if current, ok := s.Spec(id, g.Version); ok && sameEncoding(current.Template(), want) {
		return g.Version, true
	}
	for inst := range s.InstancesOf(id) {
		if old, ok := s.Spec(id, inst.Version); ok && inst.Version < below && inst.Desired == model.DesiredRunning &&
			sameEncoding(old.Template(), want) {
			return inst.Version, true
		}
	}
	return 0, false
}

// StableVersion returns a version in which the group has the template of the job's stable version (Job.Stable). It
// prefers the group's current version, then a version that instances run. ok is false if the job has no stable version,
// or if that version does not have the group.
func (s *State) StableVersion(id model.GroupID) (version uint64, ok bool) {
	job, ok := s.Jobs.Get(jobOf(id))
	if !ok || job.Stable == 0 {
		return 0, false
	}
	spec, ok := s.Spec(id, job.Stable)
	if !ok {
		return 0, false
	}
	if v, running := s.templateVersion(id, job.Version+1, spec); running {
		return v, true
	}
	return job.Stable, true
}

func (s *State) removeGroups(job *Job, spec *model.JobSpec) {
	var gone []*Group
	for id, g := range s.groupsOf(job.Name) {
		_, name := id.Split()
		if !slices.ContainsFunc(spec.Groups, func(x model.GroupSpec) bool { return x.Name == name }) {
			gone = append(gone, g)
		}
	}
	for _, g := range gone {
		next := *g
		next.Removed, next.Count = true, 0
		s.putGroup(&next)
		s.setSharedBudgets(g.ID, nil)
		s.resolveBudget(g.ID)
	}
}

func (s *jobs) groupsOf(job model.JobName) func(func(model.GroupID, *Group) bool) {
	return func(yield func(model.GroupID, *Group) bool) {
		for id, g := range s.Groups.From(model.NewGroupID(job, "")) {
			if jobOf(id) != job || !yield(id, g) {
				return
			}
		}
	}
}

// GroupsOf iterates over a job's groups, including removed ones.
func (s *jobs) GroupsOf(job model.JobName) func(func(model.GroupID, *Group) bool) {
	return s.groupsOf(job)
}

// judgedAs refuses a command whose caller was judged by another class than the job has now. It accepts an empty class,
// by which nobody was judged. Code: stale.
func (j *Job) judgedAs(class model.ClassName) *model.Error {
	if class == "" || j.Class == class {
		return nil
	}
	return model.Refuse(model.CodeStale, "job %s has the class %s, and no longer %s", j.Name, j.Class, class).
		WithHint("try again; nothing was changed")
}

func (c *JobStop) apply(s *State) error {
	job, ok := s.Jobs.Get(c.Job)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no job %s", c.Job)
	}
	if refusal := job.judgedAs(c.IfClass); refusal != nil {
		return refusal
	}
	next := *job
	next.Stopped, next.Purge, next.Index = true, job.Purge || c.Purge, s.Index
	s.putJob(&next)
	var groups []*Group
	for _, g := range s.groupsOf(job.Name) {
		groups = append(groups, g)
	}
	for _, g := range groups {
		empty := *g
		empty.Count, empty.Failures = 0, nil
		s.putGroup(&empty)
		s.resolveBudget(g.ID)
	}
	s.supersede(&next)
	s.dropServices(job.Name, func(model.ServiceName) bool { return true })
	s.touchJob(job.Name)
	s.emit(Event{Type: model.EventJob, Subject: "job/" + string(job.Name), Cause: model.CauseJobStopped,
		Before: "running", After: "stopped"})
	for _, g := range groups {
		s.maybePurge(g.ID)
	}
	return nil
}

// maybePurge removes the job of a group if the job is to be purged and all instances of the job are confirmed stopped.
func (s *State) maybePurge(group model.GroupID) {
	job, ok := s.Jobs.Get(jobOf(group))
	if !ok || !job.Purge {
		return
	}
	var groups []model.GroupID
	for id, g := range s.groupsOf(job.Name) {
		if g.Alive > 0 {
			return
		}
		groups = append(groups, id)
	}
	for _, id := range groups {
		var rows []*Instance
		for inst := range s.InstancesOf(id) {
			rows = append(rows, inst)
		}
		for _, inst := range rows {
			s.setInstance(inst, nil)
		}
		s.dropPulls(s.PullsOf(id), func(*Pull) bool { return true })
		s.setSharedBudgets(id, nil)
		s.delGroup(id)
	}
	s.forgetJob(job.Name)
	s.forgetAvoided(job.Name)
}

// runningJob returns a job that is not stopped, and its present version, for a command whose caller was judged by
// class. Codes: not_found, stale, conflict.
func (s *State) runningJob(name model.JobName, class model.ClassName) (*Job, *JobVersion, *model.Error) {
	job, ok := s.Jobs.Get(name)
	if !ok {
		return nil, nil, model.Refuse(model.CodeNotFound, "there is no job %s", name)
	}
	if refusal := job.judgedAs(class); refusal != nil {
		return nil, nil, refusal
	}
	v, ok := s.Versions.Get(versionKey(name, job.Version))
	if !ok || job.Stopped {
		return nil, nil, model.Refuse(model.CodeConflict, "job %s is stopped", name).
			WithHint("run it again with: outspan job run FILE")
	}
	return job, v, nil
}

func (c *JobRestart) apply(s *State) error {
	_, v, refusal := s.runningJob(c.Job, c.IfClass)
	if refusal != nil {
		return refusal
	}
	group := "*"
	if c.Group != "" {
		if group = c.Group; !slices.ContainsFunc(v.Spec.Groups, func(g model.GroupSpec) bool { return g.Name == group }) {
			return model.Refuse(model.CodeNotFound, "job %s has no group %s", c.Job, group).
				WithHint("its groups are: %s", groupNamesOf(&v.Spec))
		}
	}
	if refusal := s.checkBytes(&v.Spec, "restart", true); refusal != nil {
		return refusal
	}
	pullAtOnce(s, &v.Spec, group)
	s.submit(v.Spec, submission{message: "restart", forced: true, restart: group})
	return nil
}
