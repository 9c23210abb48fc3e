package fsm

import "github.com/outspan/outspan/model"

// surroundings contains what the specs of one job are checked against: the nodes, and the services, ports and demand of
// other jobs. Each part is read only once, when it is first needed. The state must not change while a surroundings is
// in use.
type surroundings struct {
	s       *State
	job     model.JobName
	exposed map[int]*Service      // by port: the service of another job that exposes the port
	statics map[int]model.GroupID // by port: a group of another job with this static port
	largest *int64                // the most memory that a node offers; nil until it is read
	full    map[rankedPort]bool   // the results of takenEverywhere
	free    model.NodeID          // the last node on which freeSomewhere found a free port
	wanted  map[model.ClassName]demand

	read int // number of rows that were read; only tests use it
}

// rankedPort is a static port that a class with this rank asks for.
type rankedPort struct{ port, rank int }

// demand is what the jobs of a class ask for: mine for the checked job, others for the sum of all other jobs.
type demand struct{ mine, others Usage }

// around returns surroundings for checks of a job's specs, in which nothing has been read yet.
func (s *State) around(job model.JobName) *surroundings {
	return &surroundings{s: s, job: job, full: map[rankedPort]bool{}, wanted: map[model.ClassName]demand{}}
}

// check refuses a spec that can't work in this cluster. Codes: unknown_class, conflict, service_taken, unknown_budget,
// invalid, no_capacity_memory, no_capacity_ports, quota_exceeded:<what>.
func (a *surroundings) check(spec *model.JobSpec) *model.Error {
	if _, _, ok := a.s.Class(spec.Class); !ok {
		return model.Refuse(model.CodeUnknownClass, "job %s: class %q is unknown", spec.Name, spec.Class).
			WithHint("the classes are: %s", joinClasses(a.s.Classes))
	}
	if old, ok := a.s.Jobs.Get(spec.Name); ok && old.Purge {
		return model.Refuse(model.CodeConflict, "job %s is being purged", spec.Name).
			WithHint("wait until its instances have stopped, then run it again")
	}
	for i := range spec.Groups {
		g := &spec.Groups[i]
		id := model.NewGroupID(spec.Name, g.Name)
		if refusal := a.checkExposed(id, g); refusal != nil {
			return refusal
		}
		if refusal := a.s.keepsKinds(id, g); refusal != nil {
			return refusal
		}
		if refusal := a.s.checkSharedBudgets(id, g); refusal != nil {
			return refusal
		}
		if refusal := a.fitsSomewhere(id, g, spec.Class); refusal != nil {
			return refusal
		}
	}
	return a.checkWanted(spec)
}

// checkExposed refuses a group if one of its services has a name that belongs to another job, or exposes a port that
// another job exposes. It also refuses if an agent would have to listen on the static port of an instance of another
// job. Code: service_taken.
func (a *surroundings) checkExposed(id model.GroupID, g *model.GroupSpec) *model.Error {
	for _, svc := range g.Services {
		if row, ok := a.s.Services.Get(model.ServiceName(svc.Name)); ok && jobOf(row.Group) != a.job {
			return model.Refuse(model.CodeServiceTaken, "the service %s belongs to %s", svc.Name, row.Group).
				WithHint("choose another name for the service of %s", id)
		}
		if row := a.exposes(svc.Expose); row != nil {
			return model.Refuse(model.CodeServiceTaken, "port %d is exposed by the service %s of %s", svc.Expose, row.Name,
				row.Group).WithHint("expose %s on another port", svc.Name)
		}
		if holder, taken := a.staticPort(svc.Expose); taken {
			return model.Refuse(model.CodeServiceTaken,
				"service %s can't expose port %d: instances of %s have it as their static port", svc.Name, svc.Expose, holder).
				WithHint("expose %s on another port", svc.Name)
		}
	}
	for _, p := range g.Ports {
		if row := a.exposes(p.Static); row != nil {
			return model.Refuse(model.CodeServiceTaken,
				"%s can't have the static port %d: every agent listens on it for the service %s of %s", id,
				p.Static, row.Name, row.Group).
				WithHint("use a dynamic port (port %q {}), or another static one", p.Name)
		}
	}
	return nil
}

// exposes returns the service of another job that exposes a port. It returns nil if no service does, and for port 0,
// which means no port.
func (a *surroundings) exposes(port int) *Service {
	if port == 0 {
		return nil
	}
	if a.exposed == nil {
		a.exposed = map[int]*Service{}
		for _, row := range a.s.Services.All() {
			a.read++
			if a.exposed[row.Expose] == nil && jobOf(row.Group) != a.job {
				a.exposed[row.Expose] = row
			}
		}
	}
	return a.exposed[port]
}

// staticPort returns a group of another job with this static port. Stopped jobs and removed groups are ignored. It
// returns false if it finds no group, and for port 0, which means no port.
func (a *surroundings) staticPort(port int) (model.GroupID, bool) {
	if port == 0 {
		return "", false
	}
	if a.statics == nil {
		a.readStatics()
	}
	id, taken := a.statics[port]
	return id, taken
}

func (a *surroundings) readStatics() {
	a.statics = map[int]model.GroupID{}
	for id, g := range a.s.Groups.All() {
		a.read++
		policy, ok := a.s.Policy(id)
		owner, known := a.s.Jobs.Get(jobOf(id))
		if !ok || !known || owner.Stopped || owner.Name == a.job || g.Removed {
			continue
		}
		for _, p := range policy.Ports {
			if _, taken := a.statics[p.Static]; !taken {
				a.statics[p.Static] = id
			}
		}
	}
}

// fitsSomewhere refuses a group if one of its instances needs more memory than the largest empty node offers. It also
// refuses if one of the group's static ports is held on every node by an instance that the group may not preempt. It
// refuses nothing if the cluster has no nodes or the group wants no instances. Codes: no_capacity_memory,
// no_capacity_ports.
func (a *surroundings) fitsSomewhere(id model.GroupID, g *model.GroupSpec, class model.ClassName) *model.Error {
	if a.s.Nodes.Len() == 0 || g.Count == 0 && g.Role != model.RoleSystem {
		return nil
	}
	need := g.Resources.MemoryBytes + a.s.Settings.InstanceOverhead
	if largest := a.largestNode(); need > largest {
		return model.Refuse(model.CodeNoMemory,
			"%s needs %d MiB an instance (overhead included); the largest node offers %d MiB", id, need>>20, largest>>20).
			WithHint("lower resources.memory, or add a larger node")
	}
	rank := a.s.ClassRank(class)
	for _, p := range g.Ports {
		if p.Static != 0 && a.takenEverywhere(p.Static, rank) {
			return model.Refuse(model.CodeNoPorts, "%s asks for the static port %d, which another job holds on every node",
				id, p.Static).
				WithHint("use a dynamic port (port %q {}), or another static one", p.Name)
		}
	}
	return nil
}

func (a *surroundings) largestNode() int64 {
	if a.largest == nil {
		most := int64(0)
		for _, n := range a.s.Nodes.All() {
			a.read++
			most = max(most, n.Allocatable().MemoryBytes)
		}
		a.largest = &most
	}
	return *a.largest
}

// takenEverywhere reports whether instances that a class of this rank may not preempt hold a static port on every node.
// It looks at a.free first, because that node may have this port free too.
func (a *surroundings) takenEverywhere(port, rank int) bool {
	key := rankedPort{port, rank}
	if full, known := a.full[key]; known {
		return full
	}
	a.full[key] = !a.freeOn(a.free, port, rank) && !a.freeSomewhere(port, rank)
	return a.full[key]
}

func (a *surroundings) freeSomewhere(port, rank int) bool {
	for id := range a.s.Nodes.All() {
		if a.freeOn(id, port, rank) {
			a.free = id
			return true
		}
	}
	return false
}

// freeOn reports whether a job of a class with this rank can get a port on a node: the port is free, or its owner
// belongs to the checked job or to a lower class. It returns false if the node does not exist.
func (a *surroundings) freeOn(node model.NodeID, port, rank int) bool {
	a.read++
	owner, taken := a.s.PortOwner(node, port)
	if !taken {
		return a.s.Nodes.Has(node)
	}
	group := model.GroupID(owner) // the name of a claim begins with that of its group
	if inst, ok := a.s.Instances.Get(owner); ok {
		group = inst.Group
	}
	holder, ok := a.s.Jobs.Get(jobOf(group))
	return ok && (holder.Name == a.job || a.s.ClassRank(holder.Class) > rank)
}

// checkWanted refuses a spec with which the jobs of its class would want more than the class's quota. It does not
// refuse a spec that wants no more than the job wants now. Code: quota_exceeded:<what>.
func (a *surroundings) checkWanted(spec *model.JobSpec) *model.Error {
	class, _, ok := a.s.Class(spec.Class)
	if !ok || class.Quota == (model.Quota{}) {
		return nil
	}
	want, asked := a.demandOf(spec.Class), Usage{}
	for i := range spec.Groups {
		asked = asked.plus(a.s.ClaimsOf(&spec.Groups[i], nil).Resources, a.s.wanted(&spec.Groups[i]))
	}
	sum := func(u Usage) Usage {
		return want.others.plus(model.Resources{CPU: u.CPU, MemoryBytes: u.MemoryBytes}, 1).
			plus(model.Resources{}, u.Instances-1)
	}
	return exceeded(class, sum(want.mine), sum(asked))
}

func (a *surroundings) demandOf(class model.ClassName) demand {
	want, known := a.wanted[class]
	if known {
		return want
	}
	for id, g := range a.s.Groups.All() {
		a.read++
		job, ok := a.s.Jobs.Get(jobOf(id))
		policy, known := a.s.Policy(id)
		if !ok || !known || job.Class != class || g.Count == 0 {
			continue
		}
		if job.Name == a.job {
			want.mine = want.mine.plus(a.s.ClaimsOf(policy, nil).Resources, a.s.wanted(policy))
		} else {
			want.others = want.others.plus(a.s.ClaimsOf(policy, nil).Resources, a.s.wanted(policy))
		}
	}
	a.wanted[class] = want
	return want
}
