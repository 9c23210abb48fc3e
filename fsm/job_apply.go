package fsm

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/model"
)

const (
	keptVersions    = 10 // of a job's history, besides those still in use
	keptDeployments = 5  // ended ones of a job
)

// Policy is the current spec of a group: counts, budgets, roles and limits come from it, also for instances of older versions.
func (s *State) Policy(group model.GroupID) (*model.GroupSpec, bool) {
	job, ok := s.Jobs.Get(jobOf(group))
	if !ok {
		return nil, false
	}
	if spec, ok := s.Spec(group, job.Version); ok {
		return spec, true
	}
	if g, ok := s.Groups.Get(group); ok { // the group was removed from the job: its last spec holds
		return s.Spec(group, g.Version)
	}
	return nil, false
}

func (c *JobSubmit) apply(s *State) error {
	spec := c.Spec.Expand()
	if refusal := spec.Check(); refusal != nil {
		return refusal
	}
	old, exists := s.Jobs.Get(spec.Name)
	if c.IfIndex != nil {
		have := uint64(0)
		if exists {
			have = old.Index
		}
		if have != *c.IfIndex {
			return model.Refuse(model.CodeConflict, "job %s changed: it is at index %d, not %d", spec.Name, have, *c.IfIndex).WithHint("plan again, then run with the new index")
		}
	}
	if refusal := s.checkAgainstCluster(&spec); refusal != nil {
		return refusal
	}
	if refusal := s.checkCounts(&spec); refusal != nil {
		return refusal
	}
	if refusal := s.checkBytes(&spec, c.Message, false); refusal != nil {
		return refusal
	}
	s.submit(spec, c.Message, false, "")
	return nil
}

// checkAgainstCluster refuses what can't be right in this cluster: unknown classes, services of others, memory or ports that no node has.
func (s *State) checkAgainstCluster(spec *model.JobSpec) *model.Error {
	if _, _, ok := s.Class(spec.Class); !ok {
		return model.Refuse(model.CodeUnknownClass, "job %s: class %q is unknown", spec.Name, spec.Class).WithHint("the classes are: %s", joinClasses(s.Classes))
	}
	if old, ok := s.Jobs.Get(spec.Name); ok && old.Purge {
		return model.Refuse(model.CodeConflict, "job %s is being purged", spec.Name).WithHint("wait until its instances have stopped, then run it again")
	}
	for i := range spec.Groups {
		g := &spec.Groups[i]
		id := model.NewGroupID(spec.Name, g.Name)
		for _, svc := range g.Services {
			if row, ok := s.Services.Get(model.ServiceName(svc.Name)); ok && jobOf(row.Group) != spec.Name {
				return model.Refuse(model.CodeServiceTaken, "the service %s belongs to %s", svc.Name, row.Group).WithHint("choose another name for the service of %s", id)
			}
			if row := s.exposes(svc.Expose, spec.Name); row != nil {
				return model.Refuse(model.CodeServiceTaken, "port %d is exposed by the service %s of %s", svc.Expose, row.Name, row.Group).WithHint("expose %s on another port", svc.Name)
			}
			if holder, taken := s.staticPort(svc.Expose, spec.Name); taken {
				return model.Refuse(model.CodeServiceTaken, "service %s can't expose port %d: instances of %s have it as their static port", svc.Name, svc.Expose, holder).
					WithHint("expose %s on another port", svc.Name)
			}
		}
		for _, p := range g.Ports {
			if row := s.exposes(p.Static, spec.Name); row != nil {
				return model.Refuse(model.CodeServiceTaken, "%s can't have the static port %d: every agent listens on it for the service %s of %s", id, p.Static, row.Name, row.Group).
					WithHint("use a dynamic port (port %q {}), or another static one", p.Name)
			}
		}
		if refusal := s.keepsKinds(id, g); refusal != nil {
			return refusal
		}
		if refusal := s.knowsBudgets(id, g); refusal != nil {
			return refusal
		}
		if refusal := s.fitsSomewhere(id, g, spec.Class); refusal != nil {
			return refusal
		}
	}
	return s.checkWanted(spec)
}

// fitsSomewhere refuses a group of which not one instance could run even on an empty node, or whose static port is taken on every node by
// what it may not preempt.
func (s *State) fitsSomewhere(id model.GroupID, g *model.GroupSpec, class model.ClassName) *model.Error {
	if s.Nodes.Len() == 0 || g.Count == 0 && g.Role != model.RoleSystem {
		return nil
	}
	need := g.Resources.MemoryBytes + s.Settings.InstanceOverhead
	largest := int64(0)
	for _, n := range s.Nodes.All() {
		largest = max(largest, n.Allocatable().MemoryBytes)
	}
	if need > largest {
		return model.Refuse(model.CodeNoMemory, "%s needs %d MiB an instance (overhead included); the largest node offers %d MiB", id, need>>20, largest>>20).
			WithHint("lower resources.memory, or add a larger node")
	}
	for _, p := range g.Ports {
		if p.Static != 0 && s.portTakenEverywhere(p.Static, jobOf(id), s.ClassRank(class)) {
			return model.Refuse(model.CodeNoPorts, "%s asks for the static port %d, which another job holds on every node", id, p.Static).
				WithHint("use a dynamic port (port %q {}), or another static one", p.Name)
		}
	}
	return nil
}

func (s *State) portTakenEverywhere(port int, job model.JobName, rank int) bool {
	for id := range s.Nodes.All() {
		owner, taken := s.PortOwner(id, port)
		if !taken {
			return false
		}
		inst, ok := s.Instances.Get(owner)
		if !ok {
			continue
		}
		if holder, ok := s.Jobs.Get(jobOf(inst.Group)); ok && (holder.Name == job || s.ClassRank(holder.Class) > rank) {
			return false
		}
	}
	return true
}

// submit makes spec the wanted state. restart names a group to roll although its template is the same ("*" for all).
func (s *State) submit(spec model.JobSpec, message string, forced bool, restart string) {
	old, exists := s.Jobs.Get(spec.Name)
	job := Job{Name: spec.Name}
	var scaled []string
	if exists {
		job = *old
		current, ok := s.Versions.Get(versionKey(job.Name, job.Version))
		if ok {
			scaled = current.stillScaled(&spec)
		}
		if ok && !forced && !job.Stopped && sameEncoding(current.Spec, spec) {
			return
		}
	}
	job.Version++
	job.Class, job.Stopped, job.Index = spec.Class, false, s.Index
	s.putVersion(&JobVersion{
		Job: job.Name, Version: job.Version, Spec: spec, Actor: s.entry.actor, Message: message, Index: s.Index, Wall: s.Wall,
		Scaled: scaled,
	})
	s.Jobs.put(job.Name, &job)
	if exists {
		s.moveUsage(job.Name, old.Class, job.Class)
	}
	rolls, tried := false, exists && s.triedBefore(old)
	for i := range spec.Groups {
		forcedGroup := forced && (restart == "*" || restart == spec.Groups[i].Name)
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
	s.emit(Event{Type: EventJob, Subject: "job/" + string(job.Name), Before: fmt.Sprint(job.Version - 1), After: fmt.Sprint(job.Version), Data: map[string]string{"message": message}})
}

func (s *State) touchJob(name model.JobName) { s.touch("jobs", Topic("job/"+name)) }

// submitGroup brings a group's row up to the new job version, and reports whether its instances must be replaced.
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
		g.Count = max(g.Count, 1) // it has one per eligible node, whatever the count says
	}
	if before != g.Version {
		g.Failures = nil
	}
	s.putGroup(&g)
	s.enlist(id, spec.Budgets)
	s.resolveBudget(id)
	return before != g.Version
}

// templateVersion finds the newest kept version whose template of the group equals spec: its instances need no replacement, and after a revert
// those that still run the old version are current again.
func (s *State) templateVersion(id model.GroupID, below uint64, spec *model.GroupSpec) (uint64, bool) {
	g, ok := s.Groups.Get(id)
	if !ok {
		return 0, false
	}
	want := spec.Template()
	if current, ok := s.Spec(id, g.Version); ok && sameEncoding(current.Template(), want) {
		return g.Version, true
	}
	for inst := range s.InstancesOf(id) { // versions that something still runs
		if old, ok := s.Spec(id, inst.Version); ok && inst.Version < below && inst.Desired == model.DesiredRunning && sameEncoding(old.Template(), want) {
			return inst.Version, true
		}
	}
	return 0, false
}

// StableVersion is the version of a group's instances in the last job version that succeeded; ok is false if none did, or the group is newer.
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
		s.enlist(g.ID, nil)
		s.resolveBudget(g.ID)
	}
}

// groupsOf iterates over a job's groups.
func (s *State) groupsOf(job model.JobName) func(func(model.GroupID, *Group) bool) {
	return func(yield func(model.GroupID, *Group) bool) {
		for id, g := range s.Groups.From(model.NewGroupID(job, "")) {
			if jobOf(id) != job || !yield(id, g) {
				return
			}
		}
	}
}

// GroupsOf iterates over a job's groups, removed ones included.
func (s *State) GroupsOf(job model.JobName) func(func(model.GroupID, *Group) bool) {
	return s.groupsOf(job)
}

func (c *JobStop) apply(s *State) error {
	job, ok := s.Jobs.Get(c.Job)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no job %s", c.Job)
	}
	next := *job
	next.Stopped, next.Purge, next.Index = true, job.Purge || c.Purge, s.Index
	s.Jobs.put(job.Name, &next)
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
	s.emit(Event{Type: EventJob, Subject: "job/" + string(job.Name), Cause: model.CauseJobStopped, Before: "running", After: "stopped"})
	for _, g := range groups {
		s.maybePurge(g.ID)
	}
	return nil
}

// maybePurge removes a job that is to be purged once nothing of it is left.
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
		s.enlist(id, nil)
		s.delGroup(id)
	}
	s.forgetJob(job.Name)
	s.forgetAvoided(job.Name)
}

func (c *JobRestart) apply(s *State) error {
	job, ok := s.Jobs.Get(c.Job)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no job %s", c.Job)
	}
	v, ok := s.Versions.Get(versionKey(c.Job, job.Version))
	if !ok || job.Stopped {
		return model.Refuse(model.CodeConflict, "job %s is stopped", c.Job).WithHint("run it again with: outspan job run FILE")
	}
	group := "*"
	if c.Group != "" {
		if group = c.Group; !slices.ContainsFunc(v.Spec.Groups, func(g model.GroupSpec) bool { return g.Name == group }) {
			return model.Refuse(model.CodeNotFound, "job %s has no group %s", c.Job, group).WithHint("its groups are: %s", groupNamesOf(&v.Spec))
		}
	}
	if refusal := s.checkBytes(&v.Spec, "restart", true); refusal != nil {
		return refusal
	}
	s.submit(v.Spec, "restart", true, group)
	return nil
}
