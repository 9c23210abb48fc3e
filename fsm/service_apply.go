package fsm

import "github.com/outspan/outspan/model"

// publishServices makes the services of a spec the only services of its job.
func (s *State) publishServices(job *Job, spec *model.JobSpec) {
	want := map[model.ServiceName]*Service{}
	for i := range spec.Groups {
		for _, svc := range spec.Groups[i].Services {
			want[model.ServiceName(svc.Name)] = &Service{Name: model.ServiceName(svc.Name),
				Group: model.NewGroupID(job.Name, spec.Groups[i].Name), Port: svc.Port, Expose: svc.Expose, Generation: s.Index}
		}
	}
	s.dropServices(job.Name, func(name model.ServiceName) bool { return want[name] == nil })
	for _, name := range sortedKeys(want) {
		row := want[name]
		if old, ok := s.Services.Get(row.Name); ok && old.Group == row.Group && old.Port == row.Port &&
			old.Expose == row.Expose {
			continue
		}
		s.putService(row)
		s.touch("services")
	}
}

// dropServices removes those services of a job for which gone returns true.
func (s *State) dropServices(job model.JobName, gone func(model.ServiceName) bool) {
	var names []model.ServiceName
	for name, svc := range s.Services.All() {
		if jobOf(svc.Group) == job && gone(name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		s.delService(name)
		s.touch("services")
	}
}
