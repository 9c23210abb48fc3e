package fsm

import "github.com/outspan/outspan/model"

func (w world) submit() Command {
	c := &JobSubmit{Spec: model.JobSpec{Name: pick[model.JobName](w, "web", "db", "every"),
		Class: pick[model.ClassName](w, "", model.ClassCritical, model.ClassBatch)}}
	if _, _, ok := w.s.Class("gold"); ok && w.rarely(3) {
		c.Spec.Class = "gold"
	}
	names := []string{"a", "b"}
	for _, name := range names[:w.int(1, 2)] {
		c.Spec.Groups = append(c.Spec.Groups, w.group(c.Spec.Name, name))
	}
	if old, ok := w.s.Jobs.Get(c.Spec.Name); ok && w.rarely(4) {
		index := old.Index + uint64(w.int(0, 1))
		c.IfIndex = &index
	}
	switch w.int(1, 20) {
	case 1:
		c.Spec.Class = "royal"
	case 2:
		c.Spec.Name = pick[model.JobName](w, "", "a/b")
	}
	return c
}

func (w world) group(job model.JobName, name string) model.GroupSpec {
	g := model.GroupSpec{Name: name, Count: w.int(0, 4),
		Exec:      model.ExecSpec{Command: pick(w, "/bin/serve", "/bin/serve2")},
		Resources: model.Resources{MemoryBytes: pick[int64](w, 16, 64, 200, 700) << 20}}
	if w.bool() {
		g.Ports = []model.PortSpec{{Name: "http"}, {Name: "admin", Static: pick(w, 0, 0, 9000)}}
		g.Services = []model.ServiceSpec{{Name: string(job) + "-" + name, Port: "http", Expose: pick(w, 0, 0, 80)}}
	}
	switch {
	case job == "every" && name == "a":
		g.Role = model.RoleSystem
	case w.rarely(4):
		g.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
	case job == "db" && !w.rarely(4):
		g.Volumes, g.RoleCheck = []model.VolumeSpec{{Name: "data", Kind: model.VolumeReplicated, Path: "/data"}},
			&model.RoleCheckSpec{Exec: []string{"/bin/facts"}}
	case job == "web" && name == "b" && w.bool(), w.rarely(6):
		g.Exclusive = &model.ExclusiveSpec{Lease: model.Duration(w.int(10, 60)) * model.Second}
	case w.rarely(20):
		g.Resources.MemoryBytes = pick[int64](w, 0, -1, 1<<62, 1<<63-1)
	}
	if w.rarely(3) {
		g.Budget = &model.BudgetSpec{MinReady: &model.Amount{N: w.int(0, 100), Percent: true}, Blocking: w.bool()}
	} else if w.rarely(3) {
		g.Budget = &model.BudgetSpec{MaxDown: &model.Amount{N: w.int(-1, 3)},
			Rate: &model.RateSpec{Max: w.int(0, 2), Window: model.Minute}, Blocking: true}
	}
	for _, b := range [...]model.BudgetName{"b1", "b2"} {
		if w.rarely(3) {
			g.Budgets = append(g.Budgets, b)
		}
	}
	if w.rarely(3) {
		g.Update.Canary = w.int(0, 1)
	}
	if g.Role == "" && w.bool() {
		w.role(&g)
	}
	return g
}
