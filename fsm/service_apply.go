package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// publishServices makes the services that a spec names the only ones of its job.
func (s *State) publishServices(job *Job, spec *model.JobSpec) {
	want := map[model.ServiceName]*Service{}
	for i := range spec.Groups {
		for _, svc := range spec.Groups[i].Services {
			want[model.ServiceName(svc.Name)] = &Service{Name: model.ServiceName(svc.Name), Group: model.NewGroupID(job.Name, spec.Groups[i].Name), Port: svc.Port, Expose: svc.Expose, Generation: s.Index}
		}
	}
	s.dropServices(job.Name, func(name model.ServiceName) bool { return want[name] == nil })
	for _, name := range sortedKeys(want) {
		row := want[name]
		if old, ok := s.Services.Get(row.Name); ok && old.Group == row.Group && old.Port == row.Port && old.Expose == row.Expose {
			continue
		}
		s.Services.put(row.Name, row)
		s.touch("services")
	}
}

// dropServices removes those services of a job that are gone.
func (s *State) dropServices(job model.JobName, gone func(model.ServiceName) bool) {
	var names []model.ServiceName
	for name, svc := range s.Services.All() {
		if jobOf(svc.Group) == job && gone(name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		s.Services.del(name)
		s.touch("services")
	}
}

// exposes returns the service of another job that exposes a port; nil if none does. No service exposes port 0.
func (s *State) exposes(port int, job model.JobName) *Service {
	if port == 0 {
		return nil
	}
	for _, row := range s.Services.All() {
		if row.Expose == port && jobOf(row.Group) != job {
			return row
		}
	}
	return nil
}

// staticPort returns the group of another job whose instances have a static port.
func (s *State) staticPort(port int, job model.JobName) (model.GroupID, bool) {
	if port == 0 {
		return "", false
	}
	for id, g := range s.Groups.All() {
		policy, ok := s.Policy(id)
		owner, known := s.Jobs.Get(jobOf(id))
		if !ok || !known || owner.Stopped || owner.Name == job || g.Removed {
			continue
		}
		if slices.ContainsFunc(policy.Ports, func(p model.PortSpec) bool { return p.Static == port }) {
			return id, true
		}
	}
	return "", false
}
