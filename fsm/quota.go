package fsm

import "github.com/outspan/outspan/model"

// Dimensions of a quota, as written in its codes.
const (
	dimMemory    = "memory"
	dimInstances = "instances"
	dimJobBytes  = "job_bytes" // of all jobs; see checkBytes
)

// counted reports whether an instance counts toward its class's quota. A stopped instance does not. A lost instance
// does not either, because its replacement must not wait for it. Nor does a failed instance that is to stop, because
// only the report of its agent is missing.
func (i *Instance) counted() bool {
	switch {
	case i == nil, !i.holdsClaims(), i.Status.Observed == model.ObservedLost:
		return false
	}
	return i.Status.Observed != model.ObservedFailed || i.Desired == model.DesiredRunning
}

func (u Usage) plus(r model.Resources, instances int) Usage {
	return Usage{CPU: u.CPU + int64(instances)*r.CPU, MemoryBytes: u.MemoryBytes + int64(instances)*r.MemoryBytes,
		Instances: u.Instances + instances}
}

// ClassUsage returns what the instances that count toward a class's quota take, the overhead included.
func (s *instances) ClassUsage(name model.ClassName) Usage {
	u, _ := s.classUse.Get(name)
	return u
}

// accountClass updates the usage of the instance's class.
func (s *State) accountClass(row, before, after *Instance) {
	delta := count(after.counted()) - count(before.counted())
	job, ok := s.Jobs.Get(jobOf(row.Group))
	if delta != 0 && ok {
		s.addClassUse(job.Class, row.Claims.Resources, delta)
	}
}

// moveUsage moves the usage of a job's instances from one class to another.
func (s *State) moveUsage(job model.JobName, from, to model.ClassName) {
	if from == to {
		return
	}
	for id := range s.groupsOf(job) {
		for inst := range s.InstancesOf(id) {
			if inst.counted() {
				s.addClassUse(from, inst.Claims.Resources, -1)
				s.addClassUse(to, inst.Claims.Resources, 1)
			}
		}
	}
}

// CheckQuota returns nil if the quota of a job's class has room now for one more instance, which takes r. If gone is
// not nil, the new instance replaces gone, so gone does not count. Codes: quota_exceeded:memory,
// quota_exceeded:instances.
func (s *State) CheckQuota(job model.JobName, r model.Resources, gone *Instance) *model.Error {
	row, ok := s.Jobs.Get(job)
	if !ok {
		return nil
	}
	class, _, ok := s.Class(row.Class)
	if !ok || class.Quota == (model.Quota{}) {
		return nil
	}
	used := s.ClassUsage(class.Name)
	if gone.counted() {
		used = used.plus(gone.Claims.Resources, -1)
	}
	return exceeded(class, used, used.plus(r, 1))
}

// exceeded refuses a change of a class's usage if the new usage is above the class's quota and higher than the old one.
func exceeded(c Class, before, after Usage) *model.Error {
	hint := func(e *model.Error) *model.Error {
		return e.WithHint("scale something of the class down, or raise the quota; see: outspan class ls")
	}
	if limit := c.Quota.Instances; limit > 0 && after.Instances > limit && after.Instances > before.Instances {
		return hint(model.Refuse(model.QuotaExceeded(dimInstances),
			"the quota of class %s is %d instances; %d are in use, %d more are asked for",
			c.Name, limit, before.Instances, after.Instances-before.Instances))
	}
	if limit := c.Quota.MemoryBytes; limit > 0 && after.MemoryBytes > limit && after.MemoryBytes > before.MemoryBytes {
		return hint(model.Refuse(model.QuotaExceeded(dimMemory),
			"the quota of class %s is %d MiB; %d MiB are in use, %d MiB more are asked for (overhead included)",
			c.Name, limit>>20, before.MemoryBytes>>20, mebibytes(after.MemoryBytes-before.MemoryBytes)))
	}
	return nil
}

// mebibytes rounds up, so that a small number is not shown as 0.
func mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

// IsQuota reports whether a code says that a class's quota is used up.
func IsQuota(c model.Code) bool {
	return c == model.QuotaExceeded(dimMemory) || c == model.QuotaExceeded(dimInstances)
}

// checkWanted refuses a spec with which the jobs of its class would want more than the class's quota, whatever runs
// now. If only one of two changes fits, the first one in the log is accepted. A spec that wants no more than before is
// never refused.
func (s *State) checkWanted(spec *model.JobSpec) *model.Error {
	return s.around(spec.Name).checkWanted(spec)
}

// wanted returns how many instances a spec asks for. A system group asks for one on each node that meets its
// constraints.
func (s *fleet) wanted(spec *model.GroupSpec) int {
	if spec.Role != model.RoleSystem {
		return spec.Count
	}
	n := 0
	for _, node := range s.Nodes.All() {
		n += count(suits(spec, node))
	}
	return n
}

func suits(spec *model.GroupSpec, node *Node) bool {
	for i := range spec.Constraints {
		if !node.Meets(&spec.Constraints[i]) {
			return false
		}
	}
	return true
}

// MustStopFirst returns a refusal if the quota of an instance's class has room for the replacement only after the
// instance has stopped. A drain or rollout that waited for the replacement would never end. The stop still needs the
// instance's budget. MustStopFirst returns nil for an instance of a system group, if there is a replacement already,
// and if another surge of the group is running, because its room will be free again.
func (s *State) MustStopFirst(inst *Instance) *model.Error {
	g, ok := s.Groups.Get(inst.Group)
	if !ok || g.Role == model.RoleSystem || g.Running > g.Count {
		return nil
	}
	if _, there := s.Successor(inst); there {
		return nil
	}
	spec, ok := s.Spec(inst.Group, g.Version)
	if !ok {
		return nil
	}
	job, claims := jobOf(inst.Group), s.ClaimsOf(spec, nil).Resources
	if s.CheckQuota(job, claims, inst) != nil {
		return nil
	}
	return s.CheckQuota(job, claims, nil)
}

// surgeGivenUp returns the remark for a stop that did not wait for its replacement because of a quota. It returns an
// empty string for any other stop.
func (s *State) surgeGivenUp(inst *Instance, cause model.Cause) string {
	policy, ok := s.Policy(inst.Group)
	order := model.OrderStopFirst
	switch {
	case !ok:
	case cause == model.CauseNodeDraining || cause == model.CauseNodeNotReady:
		order = policy.Eviction.Order
	case cause == model.CauseRollout:
		order = policy.Update.Order
	}
	if order != model.OrderSurge {
		return ""
	}
	if refusal := s.MustStopFirst(inst); refusal != nil {
		return "stopped before it is replaced: " + refusal.Message
	}
	return ""
}

// noteSurge records in the running deployment of a group's job why it continues without surge, unless the deployment
// has a reason already.
func (s *State) noteSurge(group model.GroupID, why string) {
	job, ok := s.Jobs.Get(jobOf(group))
	if !ok {
		return
	}
	if d, ok := s.Deployments.Get(job.Deployment); ok && !d.Status.Ended() && d.Reason == "" {
		next := *d
		next.Reason = why
		s.putDeployment(&next)
		s.touch("deployments", Topic("deployment/"+d.ID))
	}
}
