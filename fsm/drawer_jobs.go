package fsm

import (
	"cmp"
	"iter"
	"strconv"

	"github.com/outspan/outspan/model"
)

// jobs is the drawer of what people asked for: jobs with their versions, groups, deployments, services and shared
// budgets, with their indexes and sums. It only stores rows. Each table is written only by its put and del methods.
type jobs struct {
	Jobs        Table[model.JobName, *Job]
	Versions    Table[string, *JobVersion] // by versionKey
	Groups      Table[model.GroupID, *Group]
	Deployments Table[model.DeploymentID, *Deployment]
	Services    Table[model.ServiceName, *Service]
	Budgets     Table[model.BudgetName, *SharedBudget]

	jobSums         Table[model.JobName, jobSum]  // the sum over all jobs has the key everyJob
	unsettled       Table[model.GroupID, present] // see Group.unsettled
	openDeployments Table[model.DeploymentID, present]
}

func (s *jobs) fork(undo *undoLog) {
	s.Jobs, s.Versions, s.Groups = s.Jobs.fork(undo), s.Versions.fork(undo), s.Groups.fork(undo)
	s.Deployments, s.Services, s.Budgets = s.Deployments.fork(undo), s.Services.fork(undo), s.Budgets.fork(undo)
	s.jobSums, s.unsettled, s.openDeployments = s.jobSums.fork(undo), s.unsettled.fork(undo), s.openDeployments.fork(undo)
}

func (s *jobs) putJob(j *Job) { s.Jobs.put(j.Name, j) }

func (s *jobs) delJob(name model.JobName) { s.Jobs.del(name) }

func (s *jobs) putVersion(v *JobVersion) {
	before, _ := s.Versions.put(versionKey(v.Job, v.Version), v)
	s.addSum(v.Job, jobSum{bytes: before.keptBytes()}, jobSum{bytes: v.keptBytes()})
}

func (s *jobs) delVersion(v *JobVersion) {
	s.Versions.del(versionKey(v.Job, v.Version))
	s.addSum(v.Job, jobSum{bytes: v.keptBytes()}, jobSum{})
}

func (s *jobs) putGroup(g *Group) {
	before, _ := s.Groups.put(g.ID, g)
	s.indexGroup(before, g)
}

func (s *jobs) delGroup(id model.GroupID) {
	if before, had := s.Groups.del(id); had {
		s.indexGroup(before, nil)
	}
}

// indexGroup updates the sums of jobs and the index of unsettled groups after a group's row was replaced. before or
// after may be nil.
func (s *jobs) indexGroup(before, after *Group) {
	id := cmp.Or(after, before).ID
	s.addSum(jobOf(id), before.sum(), after.sum())
	mark(&s.unsettled, id, before.unsettled(), after.unsettled())
}

func (s *jobs) putDeployment(d *Deployment) {
	before, _ := s.Deployments.put(d.ID, d)
	mark(&s.openDeployments, d.ID, before.open(), d.open())
}

func (s *jobs) delDeployment(id model.DeploymentID) {
	before, _ := s.Deployments.del(id)
	mark(&s.openDeployments, id, before.open(), false)
}

func (s *jobs) putService(v *Service) { s.Services.put(v.Name, v) }

func (s *jobs) delService(name model.ServiceName) { s.Services.del(name) }

func (s *jobs) putBudget(b *SharedBudget) { s.Budgets.put(b.Name, b) }

func (s *jobs) delBudget(name model.BudgetName) { s.Budgets.del(name) }

// addSum adds after-before to the sum of a job and to the sum over all jobs.
func (s *jobs) addSum(job model.JobName, before, after jobSum) {
	if before == after {
		return
	}
	for _, key := range [...]model.JobName{job, everyJob} {
		if sum := s.jobSum(key).plus(after).minus(before); sum == (jobSum{}) {
			s.jobSums.del(key)
		} else {
			s.jobSums.put(key, sum)
		}
	}
}

func (s *jobs) jobSum(job model.JobName) jobSum {
	sum, _ := s.jobSums.Get(job)
	return sum
}

// index builds the indexes and sums after the rows were read from a snapshot.
func (s *jobs) index() {
	for _, g := range s.Groups.All() {
		s.indexGroup(nil, g)
	}
	for _, v := range s.Versions.All() {
		s.addSum(v.Job, jobSum{}, jobSum{bytes: v.keptBytes()})
	}
	for id, d := range s.Deployments.All() {
		mark(&s.openDeployments, id, false, d.open())
	}
}

func (d *Deployment) open() bool { return d != nil && !d.Status.Ended() }

// Spec returns a group's spec in one version of its job. It returns false if this version is not kept or has no such
// group.
func (s *jobs) Spec(group model.GroupID, version uint64) (*model.GroupSpec, bool) {
	job, name := group.Split()
	v, ok := s.Versions.Get(versionKey(job, version))
	if !ok {
		return nil, false
	}
	for i := range v.Spec.Groups {
		if v.Spec.Groups[i].Name == name {
			return &v.Spec.Groups[i], true
		}
	}
	return nil, false
}

// JobVersion returns one version of a job, or false if that version is not kept.
func (s *jobs) JobVersion(job model.JobName, version uint64) (*JobVersion, bool) {
	return s.Versions.Get(versionKey(job, version))
}

// versionKey returns "job/version", with the version in ten digits. It avoids the slower Sprintf, because every
// placement needs two keys.
func versionKey(job model.JobName, version uint64) string {
	digits := strconv.FormatUint(version, 10)
	return string(job) + "/" + "0000000000"[min(len(digits), 10):] + digits
}

// Unsettled iterates in order of id over the groups in which an instance is missing, not ready, stopping or too many,
// and over all system groups whose job is not stopped.
func (s *jobs) Unsettled() iter.Seq2[model.GroupID, *Group] {
	return func(yield func(model.GroupID, *Group) bool) {
		for id := range s.unsettled.All() {
			if g, ok := s.Groups.Get(id); ok && !yield(id, g) {
				return
			}
		}
	}
}

// OpenDeployments iterates over the deployments that have not ended, in order of id.
func (s *jobs) OpenDeployments() iter.Seq[*Deployment] {
	return func(yield func(*Deployment) bool) {
		for id := range s.openDeployments.All() {
			if d, ok := s.Deployments.Get(id); ok && !yield(d) {
				return
			}
		}
	}
}

func (s *jobs) isSystem(inst *Instance) bool {
	g, ok := s.Groups.Get(inst.Group)
	return ok && g.Role == model.RoleSystem
}
