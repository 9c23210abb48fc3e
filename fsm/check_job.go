package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

func (c *checker) groups() {
	s := c.s
	for id, g := range s.Groups.All() {
		sum := c.sums[id]
		c.want(g.ID == id, "group %s: its row says %s", id, g.ID)
		c.want(g.Ready == sum.ready && g.Running == sum.running && g.Lost == sum.lost && g.Alive == sum.alive &&
			g.Held == sum.held && g.Replaced == sum.replaced,
			"group %s says %d ready, %d running, %d lost, %d alive, %d held, %d replaced; its instances sum up to %+v", id,
			g.Ready, g.Running, g.Lost, g.Alive, g.Held, g.Replaced, sum)
		job, ok := s.Jobs.Get(jobOf(id))
		if c.want(ok, "group %s: its job does not exist", id); !ok {
			continue
		}
		c.want(g.Version >= 1 && g.Version <= job.Version, "group %s is at version %d, its job at %d",
			id, g.Version, job.Version)
		_, known := s.Spec(id, g.Version)
		c.want(known, "group %s: its version %d is gone", id, g.Version)
		_, current := s.Spec(id, job.Version)
		c.want(current != g.Removed, "group %s: in the job's spec %v, removed %v", id, current, g.Removed)
		c.want(g.Role.Valid(), "group %s: role is %q", id, g.Role)
		c.want(g.Count >= 0 && (g.Count == 0 || !g.Removed && !job.Stopped),
			"group %s wants %d; removed %v, its job stopped %v", id, g.Count, g.Removed, job.Stopped)
		c.want(int(g.Placed) >= g.Alive, "group %s: %d were ever placed, %d are alive", id, g.Placed, g.Alive)
		c.budget(g, job)
		c.want(slices.IsSorted(g.Stops), "group %s: its stops are out of order", id)
		c.want(len(g.Stops) == 0 || g.Stops[len(g.Stops)-1] <= s.Now, "group %s: a stop in the future", id)
	}
}

func (c *checker) budget(g *Group, job *Job) {
	policy, ok := c.s.Policy(g.ID)
	if !ok || g.Removed {
		return
	}
	want := c.s.ResolveGroup(policy, job.Class, g.Want())
	c.want(g.Budget == want, "group %s: its budget is %+v, by its spec it would be %+v", g.ID, g.Budget, want)
	c.want(g.Budget.MinReady >= 0 && g.Budget.MinReady+g.Budget.MaxDown == g.Want(),
		"group %s: its budget %+v does not add up to %d", g.ID, g.Budget, g.Want())
	if g.Role != model.RoleSystem && !job.Stopped {
		c.want(g.Count == policy.Count, "group %s wants %d, its spec %d", g.ID, g.Count, policy.Count)
	}
}

func (c *checker) jobs() {
	s := c.s
	for name, j := range s.Jobs.All() {
		c.want(j.Name == name && model.ValidName(string(name)), "job %s: its row says %q", name, j.Name)
		_, _, known := s.Class(j.Class)
		c.want(known, "job %s: its class %q is unknown", name, j.Class)
		c.want(j.Index <= s.Index && j.Stable <= j.Version, "job %s: index %d of %d, stable version %d of %d", name, j.Index,
			s.Index, j.Stable, j.Version)
		c.want(!j.Purge || j.Stopped, "job %s is to be purged and not stopped", name)
		v, ok := s.Versions.Get(versionKey(name, j.Version))
		if c.want(ok, "job %s: its version %d is gone", name, j.Version); !ok {
			continue
		}
		for i := range v.Spec.Groups {
			c.want(s.Groups.Has(model.NewGroupID(name, v.Spec.Groups[i].Name)), "job %s: its group %s has no row",
				name, v.Spec.Groups[i].Name)
		}
		if j.Stable != 0 {
			c.want(s.Versions.Has(versionKey(name, j.Stable)), "job %s: its stable version %d is gone", name, j.Stable)
		}
		if j.Deployment != "" {
			c.want(s.Deployments.Has(j.Deployment), "job %s: its deployment %s is gone", name, j.Deployment)
		}
	}
}

func (c *checker) versions() {
	for key, v := range c.s.Versions.All() {
		c.want(key == versionKey(v.Job, v.Version), "version %s: its row says %d of %s", key, v.Version, v.Job)
		job, ok := c.s.Jobs.Get(v.Job)
		c.want(ok && v.Version >= 1 && v.Version <= job.Version, "version %s: there is no job that has it", key)
		c.want(v.Reverts == 0 || v.Reverts < v.Version, "version %s is a revert of version %d", key, v.Reverts)
		c.want(v.Spec.Name == v.Job && v.Index <= c.s.Index, "version %s: spec of %s, index %d", key, v.Spec.Name, v.Index)
	}
}

func (c *checker) deployments() {
	going := map[model.JobName]model.DeploymentID{}
	for id, d := range c.s.Deployments.All() {
		c.want(d.ID == id && id == model.NewDeploymentID(d.Job, d.Version),
			"deployment %s: its row says %s, version %d of %s", id, d.ID, d.Version, d.Job)
		c.want(oneOf(d.Status, model.DeploymentQueued, model.DeploymentRolling) || d.Status.Ended(),
			"deployment %s: status is %q", id, d.Status)
		c.want(d.Status != model.DeploymentFailed || d.Reason != "", "deployment %s failed without a reason", id)
		c.want(!d.Waiting || !d.Status.Ended(), "deployment %s is %s, and waits", id, d.Status)
		c.want(d.Index <= c.s.Index && d.Progress <= c.s.Now, "deployment %s is of index %d and time %d",
			id, d.Index, d.Progress)
		job, ok := c.s.Jobs.Get(d.Job)
		c.want(ok, "deployment %s: there is no such job", id)
		if d.Status.Ended() {
			continue
		}
		c.want(going[d.Job] == "", "deployments %s and %s of one job go on at once", going[d.Job], id)
		c.want(!ok || job.Deployment == id, "deployment %s goes on, and is not the latest of its job", id)
		going[d.Job] = id
	}
}

func (c *checker) services() {
	exposed := map[int]model.ServiceName{}
	for name, v := range c.s.Services.All() {
		c.want(v.Name == name, "service %s: its row says %s", name, v.Name)
		c.want(v.Generation <= c.s.Index, "service %s: generation %d, the state is at %d", name, v.Generation, c.s.Index)
		policy, ok := c.s.Policy(v.Group)
		c.want(ok && slices.ContainsFunc(policy.Services, func(x model.ServiceSpec) bool {
			return x.Name == string(name) && x.Port == v.Port && x.Expose == v.Expose
		}), "service %s: %s does not publish it like that", name, v.Group)
		if job, ok := c.s.Jobs.Get(jobOf(v.Group)); ok {
			c.want(!job.Stopped, "service %s: its job %s is stopped", name, job.Name)
		}
		if v.Expose != 0 {
			c.want(exposed[v.Expose] == "", "services %s and %s expose the same port %d", exposed[v.Expose], name, v.Expose)
			exposed[v.Expose] = name
		}
	}
}

func (c *checker) volumes() {
	for id, v := range c.s.Volumes.All() {
		if v.Copy != "" {
			c.detached(id, v)
			continue
		}
		c.want(c.s.Nodes.Has(v.Home) || v.Home == "" && v.Lost != nil && v.Kind == model.VolumeLocal,
			"volume %s: its home %s does not exist", id, v.Home)
		c.want(c.s.Groups.Has(v.Group), "volume %s: its group does not exist", id)
		if v.Kind == model.VolumeReplicated {
			c.copyRow(id, v)
			continue
		}
		c.want(id == model.NewVolumeID(v.Group, v.Slot, v.Name) && v.ID == id, "volume %s: its row says %+v", id, *v)
		c.want(v.Kind == model.VolumeLocal, "volume %s: kind is %q", id, v.Kind)
		for _, a := range v.Aside {
			c.want(c.s.Nodes.Has(a.Node), "volume %s left data on node %s, which does not exist", id, a.Node)
		}
		for i := range c.s.InstancesInSlot(v.Group, v.Slot) {
			spec, ok := c.s.Spec(i.Group, i.Version)
			c.want(i.Node == v.Home || !ok || !spec.HasVolume(model.VolumeLocal) || !i.holdsClaims(),
				"volume %s is on %s, its instance %s on %s", id, v.Home, i.ID, i.Node)
		}
	}
}

func (c *checker) copyRow(id model.VolumeID, v *Volume) {
	c.want(id == NewCopyID(v.Group, v.Slot, v.Name, v.Home) && v.ID == id, "copy %s: its row says %+v", id, *v)
	c.want(v.Made > 0 && v.Made>>mintBits <= c.s.Incarnation, "copy %s: made in incarnation %d, the state is of %d", id,
		v.Made>>mintBits, c.s.Incarnation)
	c.want(c.s.copiesOn.Has(copyKey(v)), "copy %s is missing in the index of copies", id)
}

// copies returns the number of replicated volumes. The index of copies must have as many entries.
func (c *checker) copies() int {
	n := 0
	for _, v := range c.s.Volumes.All() {
		n += count(v.Kind == model.VolumeReplicated)
	}
	return n
}

// members checks an instance of a replicated group that is not confirmed stopped. The instance's copy must have a row.
// No other instance of the group that is not confirmed stopped may be on the same node.
func (c *checker) members(i *Instance) {
	m, ok := c.s.MemberOf(i)
	if !ok || !i.holdsClaims() {
		return
	}
	c.want(c.s.Volumes.Has(m.Volume), "instance %s has no row of its copy %s", i.ID, m.Volume)
	for other := range c.s.InstancesOn(i.Node) {
		if _, also := c.s.MemberOf(other); also && other.ID != i.ID && other.Group == i.Group && other.holdsClaims() {
			c.want(false, "instances %s and %s of one replicated group are both on node %s", i.ID, other.ID, i.Node)
		}
	}
}
