package fsm

import "github.com/outspan/outspan/model"

// role gives a group a random role with a role check, mostly a hook, and sometimes a gate. Some groups become invalid.
func (w world) role(g *model.GroupSpec) {
	g.Role = pick(w, model.RoleProbe, model.RoleShardedData, model.RoleQuorum, model.RoleSingleton,
		model.RoleLeaderFollower, model.RoleLeaderFollower)
	g.RoleCheck = &model.RoleCheckSpec{Exec: []string{"/bin/facts"}}
	if !w.rarely(4) {
		g.Hooks = []model.HookSpec{{Name: model.HookBeforeStop, Exec: []string{"/bin/resign"},
			OnFailure: pick[model.HookFailure](w, "", model.HookContinue)}}
	}
	if w.rarely(3) {
		g.Eviction.When = []string{pick(w, "group.ready >= 1", "self.drained", "group.healthy", "group.nothing")}
	}
	if w.rarely(10) {
		g.RoleCheck = nil
	}
}

// speak adds random facts to a status. If the instance is being prepared, it sometimes adds the result of a hook.
func (w world) speak(i *Instance, status model.InstanceStatus) model.InstanceStatus {
	for _, name := range [...]string{model.FactLeader, model.FactDrained, model.FactInSync, model.FactLeadsShards,
		"slot.0.drained", "Odd"} {
		if w.rarely(3) {
			if status.Facts == nil {
				status.Facts = map[string]string{}
			}
			status.Facts[name] = pick(w, "true", "false", "false")
			if name == model.FactInSync && i.Slot == 0 { // so that sometimes only the copy of slot 0 is in sync
				status.Facts[name] = "true"
			}
		}
	}
	if i.Eviction.Preparing && w.bool() {
		status.Hook = &model.HookResult{Seq: i.Eviction.Seq - uint64(w.int(0, 1)), OK: !w.rarely(3), Message: "done"}
	}
	return status
}

// prepared draws an instance, preferably one that is being prepared.
func (w world) prepared() *Instance {
	for _, i := range w.s.Instances.All() {
		if i.Eviction.Preparing && w.bool() {
			return i
		}
	}
	return w.instance()
}

// prepare draws the start of a preparation, or the stop that follows a finished preparation.
func (w world) prepare() Command {
	for _, i := range w.s.Instances.All() {
		if w.s.Prepared(i) && w.bool() {
			return &InstanceStop{ID: i.ID, Cause: i.Eviction.Cause, By: i.Eviction.By, Facts: w.refs(i), Asked: w.bool()}
		}
	}
	i := w.instance()
	for _, other := range w.s.Instances.All() {
		if w.s.NeedsPreparing(other, model.CauseRollout, "") && !w.rarely(4) {
			i = other
		}
	}
	c := &InstancePrepare{ID: i.ID, Cause: pick(w, w.cause(), model.CauseRollout, model.CauseUser), By: "alice",
		Facts: w.refs(i), Bypass: w.bool()}
	if n, ok := w.s.Nodes.Get(i.Node); ok && c.Cause == model.CauseNodeDraining {
		c.By = string(n.Drain)
	}
	return c
}

func (w world) refs(i *Instance) []FactsRef {
	refs := w.s.FactsRefs(i)
	if len(refs) > 0 && w.rarely(8) {
		refs[0].Gen++
	}
	return refs
}

func (w world) release() Command {
	i := w.prepared()
	return &InstanceRelease{i.ID, i.Eviction.Seq + uint64(w.int(0, 1)), pick(w, "", "the hook failed")}
}

// pushMember draws the next step of an instance with a hook or gates: the instance becomes ready, is prepared, and is
// released or stopped. Random commands alone rarely get that far. pushMember returns nil if no instance has a next
// step.
func (w world) pushMember() Command {
	var ready, rests []*Instance
	for _, i := range w.s.Instances.All() {
		_, hooked := w.s.Hook(i, model.HookBeforeStop)
		n, ok := w.s.Nodes.Get(i.Node)
		switch {
		case i.Eviction.Preparing && w.bool():
			return &InstanceRelease{i.ID, i.Eviction.Seq, pick(w, "", "the hook failed")}
		case i.Eviction.Preparing:
			return w.prepare()
		case w.s.NeedsPreparing(i, model.CauseUser, "") && i.Desired == model.DesiredRunning:
			ready = append(ready, i)
		case hooked && i.Desired == model.DesiredRunning && ok && n.Health != model.HealthOffline && !i.WaitsForRoom():
			rests = append(rests, i)
		}
	}
	switch {
	case len(ready) > 0:
		i := pick(w, ready...)
		return &InstancePrepare{ID: i.ID, Cause: model.CauseUser, By: "alice", Facts: w.refs(i), Bypass: !w.rarely(4)}
	case len(rests) > 0:
		i := pick(w, rests...)
		n, _ := w.s.Nodes.Get(i.Node)
		status := model.InstanceStatus{ID: i.ID, Generation: i.Status.Generation + 1, Observed: model.ObservedReady}
		return &NodeReport{ID: n.ID, Epoch: n.Agent.Epoch, FactsGen: n.FactsGen, Instances: []model.InstanceStatus{status}}
	}
	return nil
}

// promote draws a promotion, mostly of a deployment that is neither ended nor promoted.
func (w world) promote() Command {
	for id, d := range w.s.Deployments.All() {
		if !d.Promoted && !d.Status.Ended() && !w.rarely(8) {
			return &DeploymentPromote{id}
		}
	}
	return &DeploymentPromote{key(w, w.s.Deployments)}
}
