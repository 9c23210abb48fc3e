package fsm

import "github.com/outspan/outspan/model"

// jobs is the drawer of what people asked for: jobs with their versions, groups, deployments, services and shared
// budgets, and the indexes and sums of them. It only stores rows. Its methods put and del of each table are its only
// writers.
type jobs struct {
	Jobs        Table[model.JobName, *Job]
	Versions    Table[string, *JobVersion] // versionKey
	Groups      Table[model.GroupID, *Group]
	Deployments Table[model.DeploymentID, *Deployment]
	Services    Table[model.ServiceName, *Service]
	Budgets     Table[model.BudgetName, *SharedBudget]

	jobSums         Table[model.JobName, jobSum]  // of each job, and under everyJob of all
	unsettled       Table[model.GroupID, present] // whose sums say that they have not what they want
	openDeployments Table[model.DeploymentID, present]
}

func (s *jobs) fork(undo *undoLog) {
	s.Jobs, s.Versions, s.Groups = s.Jobs.fork(undo), s.Versions.fork(undo), s.Groups.fork(undo)
	s.Deployments, s.Services, s.Budgets = s.Deployments.fork(undo), s.Services.fork(undo), s.Budgets.fork(undo)
	s.jobSums, s.unsettled, s.openDeployments = s.jobSums.fork(undo), s.unsettled.fork(undo), s.openDeployments.fork(undo)
}
