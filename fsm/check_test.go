package fsm

import (
	"fmt"
	"testing"

	"github.com/outspan/outspan/model"
)

// busyState returns a small cluster with the nodes n1 and n2, a job with a service, ports and a local volume, and a
// running drain of n1. The instances i1 and i3 are ready on n1, and i2 of n2 has stopped.
func busyState(t testing.TB) State {
	t.Helper()
	m := NewMachine()
	mustApply(t, m, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	mustApply(t, m, register("n1"), register("n2"))
	mustApply(t, m, &NodeReport{ID: "n1", Full: true}, &NodeReport{ID: "n2", Full: true})
	mustApply(t, m, &JobSubmit{Spec: webSpec()})
	mustApply(t, m, placed("i1", "web/api", 0, "n1", 20000), placed("i2", "web/api", 1, "n2", 20000),
		&InstancePlace{ID: "i3", Group: "web/store", Slot: 0, Version: 1, Node: "n1", Cause: model.CauseScaleUp})
	mustApply(t, m, observed("n1", "i1", model.ObservedReady), observed("n2", "i2", model.ObservedReady),
		observed("n1", "i3", model.ObservedReady))
	mustApply(t, m, &DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
	mustApply(t, m, &InstanceStop{ID: "i2", Cause: model.CauseUser, Bypass: true})
	mustApply(t, m, observedAt("n2", "i2", model.ObservedStopped, 2))
	s := m.State()
	if err := Check(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func webSpec() model.JobSpec {
	return model.JobSpec{Name: "web", Groups: []model.GroupSpec{
		{Name: "api", Count: 2, Exec: model.ExecSpec{Command: "/bin/api"}, Ports: []model.PortSpec{{Name: "http"}},
			Services: []model.ServiceSpec{{Name: "api", Port: "http", Expose: 80}}},
		{Name: "store", Count: 1, Exec: model.ExecSpec{Command: "/bin/store"},
			Volumes: []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}},
	}}
}

func placed(id model.InstanceID, group model.GroupID, slot int, node model.NodeID, port int) *InstancePlace {
	return &InstancePlace{ID: id, Group: group, Slot: slot, Version: 1, Node: node,
		Ports: model.Ports{{Name: "http", Number: port}}, Cause: model.CauseScaleUp}
}

func observed(node model.NodeID, id model.InstanceID, o model.Observed) *NodeReport {
	return observedAt(node, id, o, 1)
}

func observedAt(node model.NodeID, id model.InstanceID, o model.Observed, generation uint64) *NodeReport {
	return &NodeReport{ID: node, Instances: []model.InstanceStatus{{ID: id, Generation: generation, Observed: o}}}
}

// edit replaces one row by a changed copy, without any checks.
func edit[K ~string, V any](t *Table[K, *V], key K, change func(*V)) {
	row, ok := t.Get(key)
	if !ok {
		panic(fmt.Sprintf("no row %v", key))
	}
	next := *row
	change(&next)
	t.put(key, &next)
}

func railOf(s *State, ticks ...Tick) { s.Rails.put(RailMoves, &Rail{Name: RailMoves, Begun: ticks}) }

// TestCheckFindsWhatIsBroken breaks one thing at a time in a good state. Check must find each of them, because other
// tests rely on Check.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	instance := func(id model.InstanceID, change func(*Instance)) func(*State) {
		return func(s *State) { edit(&s.Instances, id, change) }
	}
	onNode := func(id model.NodeID, change func(*nodeInstances)) func(*State) {
		return func(s *State) {
			h := s.copyOnNode(id)
			change(h)
			s.putOnNode(id, h)
		}
	}
	node := func(id model.NodeID, change func(*Node)) func(*State) {
		return func(s *State) { edit(&s.Nodes, id, change) }
	}
	group := func(change func(*Group)) func(*State) { return func(s *State) { edit(&s.Groups, "web/api", change) } }
	job := func(change func(*Job)) func(*State) { return func(s *State) { edit(&s.Jobs, "web", change) } }
	drain := func(change func(*Drain, *DrainNode)) func(*State) {
		return func(s *State) {
			edit(&s.Drains, "d1", func(d *Drain) {
				d.Nodes = append([]DrainNode(nil), d.Nodes...)
				change(d, &d.Nodes[0])
			})
		}
	}
	tests := []struct {
		name  string
		says  string
		spoil func(*State)
	}{
		{"departing", "is it departing?", func(s *State) { s.departing.put("i1", present{}) }},
		{"departing gone", "departing instances has 1 entries", func(s *State) { s.departing.put("gone", present{}) }},
		{"unsettled", "is it unsettled?", func(s *State) {
			mark(&s.unsettled, "web/api", s.unsettled.Has("web/api"), !s.unsettled.Has("web/api"))
		}},
		{"out of service and gone", "nodes out of service has", func(s *State) { s.outOfService.put("gone", present{}) }},
		{"out of service", "is it out of service?", func(s *State) {
			is := s.outOfService.Has("n1")
			mark(&s.outOfService, "n1", is, !is)
		}},
		{"restoring", "leave something open?", func(s *State) { mark(&s.restoring, "n1", false, true) }},
		{"unheard", "unheard since a restore?", func(s *State) { mark(&s.unheard, "n1", false, true) }},
		{"row of a group", "has another row", func(s *State) {
			row, _ := s.Instances.Get("i1")
			other := *row
			s.inGroup.put(inGroupKey(row), &other)
		}},

		{"rail of nothing", "rail moves: 0 at 1", func(s *State) { railOf(s, Tick{At: 1}) }},
		{"rail of the future", "the state is at", func(s *State) { railOf(s, Tick{At: s.Now + 1, N: 1}) }},
		{"rail out of order", "rail moves: 1 at 2 after 2", func(s *State) {
			railOf(s, Tick{At: 2, N: 1}, Tick{At: 2, N: 1})
		}},
		{"format", "format 9", func(s *State) { s.Format = 9 }},
		{"time", "cluster time is -1", func(s *State) { s.Now = -1 }},
		{"settings", "offline_after", func(s *State) { s.Settings.OfflineAfter = 0 }},
		{"quota below zero", "class ", func(s *State) {
			s.Classes = append([]Class(nil), s.Classes...)
			s.Classes[0].Quota.Instances = -1
		}},
		{"class twice", "stands twice", func(s *State) { s.Classes = []Class{s.Classes[2], s.Classes[2]} }},

		{"memory sum", "is placed", node("n1", func(n *Node) { n.Placed.MemoryBytes++ })},
		{"instance count", "is placed", node("n2", func(n *Node) { n.Placed.Instances++ })},
		{"overfull", "bytes are placed on", node("n1", func(n *Node) { n.Shape.Capacity.MemoryBytes = 1 })},
		{"intent", `intent is "idle"`, node("n1", func(n *Node) { n.Intent = "idle" })},
		{"health", `health is "well"`, node("n2", func(n *Node) { n.Health = "well" })},
		{"name", "leads to", node("n1", func(n *Node) { n.Name = "n2" })},
		{"node id", "its row says", node("n1", func(n *Node) { n.ID = "x" })},
		{"epoch", "epoch 0", node("n1", func(n *Node) { n.Agent.Epoch = 0 })},
		{"assigned", "assigned at index", node("n1", func(n *Node) { n.Assigned = 1 << 40 })},
		{"offline and not lost", "must be lost", node("n1", func(n *Node) { n.Health = model.HealthOffline })},
		{"confirmed dead", "confirmed dead", node("n2", func(n *Node) { n.Return.ConfirmedDead = true })},
		{"avoids too much", "its avoid list has 65 entries", node("n2", func(n *Node) {
			for i := range uint64(avoidLimit + 1) {
				n.Avoid = append(n.Avoid, AvoidEntry{Group: "web/api", Version: i})
			}
		})},
		{"avoids one version twice", "its avoid list has 2 entries", node("n2", func(n *Node) {
			n.Avoid = []AvoidEntry{{Group: "web/api", Version: 1}, {Group: "web/api", Version: 1}}
		})},
		{"drain of another node", "doesn't name it", node("n2", func(n *Node) { n.Drain = "d1" })},
		{"node gone", "does not exist", func(s *State) { s.Nodes.del("n1"); s.nodeNames.del("n1") }},

		{"desired", `desired is "idle"`, instance("i1", func(i *Instance) { i.Desired = "idle" })},
		{"observed", `observed is "well"`, instance("i1", func(i *Instance) { i.Status.Observed = "well" })},
		{"stopped but desired", "its end written", instance("i1", func(i *Instance) {
			i.Status.Observed = model.ObservedStopped
		})},
		{"failed for nothing", "failed without a reason", instance("i1", func(i *Instance) {
			i.Status.Observed = model.ObservedFailed
		})},
		{"draining for nothing", `for the cause ""`, instance("i1", func(i *Instance) { i.Desired = model.DesiredDraining })},
		{"eviction for nothing", "its eviction has the cause", instance("i1", func(i *Instance) {
			i.Eviction.Requested = true
		})},
		{"eviction of nobody", "nobody asked for", instance("i1", func(i *Instance) { i.Eviction.By = "alice" })},
		{"prepared without a time", "being prepared", instance("i1", func(i *Instance) {
			i.Eviction = Eviction{Requested: true, Cause: model.CauseUser, Seq: 1, Preparing: true}
		})},
		{"claims nothing", "claims", instance("i1", func(i *Instance) { i.Claims.Resources.MemoryBytes = 0 })},
		{"version gone", "its spec is gone", instance("i1", func(i *Instance) { i.Version = 7 })},
		{"moved", "missing in an index", instance("i1", func(i *Instance) { i.Node = "n2" })},
		{"another slot", "missing in an index", instance("i1", func(i *Instance) { i.Slot = 5 })},
		{"status of another", "its status", instance("i1", func(i *Instance) { i.Status.ID = "i2" })},
		{"changed in the future", "changed at", instance("i1", func(i *Instance) { i.Marks.ChangedIndex = 1 << 40 })},
		{"port of nobody", "owns it", onNode("n1", func(h *nodeInstances) { h.free(20000) })},
		{"port of the dead", "owners of ports", onNode("n2", func(h *nodeInstances) { h.own(20001, h.ids[0]) })},
		{"two holders", "neither replaces the other", func(s *State) { second(s, "i9", "i1", func(*Instance) {}) }},
		{"three holders", "3 instances are desired", func(s *State) {
			second(s, "i8", "i1", func(*Instance) {})
			second(s, "i9", "i1", func(*Instance) {})
		}},
		{"a volume shared", "single holder", func(s *State) {
			second(s, "i9", "i3", func(i *Instance) { i.Desired, i.Marks.StopCause = model.DesiredDraining, model.CauseUser })
		}},
		{"index of too much", "instances of nodes", onNode("n1", func(h *nodeInstances) { h.add("z-ghost") })},
		{"pending on a draining node", "still to be started", instance("i1", func(i *Instance) {
			i.Status.Observed = model.ObservedPending
		})},

		{"ready", "its instances sum up to", group(func(g *Group) { g.Ready++ })},
		{"running", "its instances sum up to", group(func(g *Group) { g.Running++ })},
		{"alive", "its instances sum up to", group(func(g *Group) { g.Alive++ })},
		{"budget", "by its spec it would be", group(func(g *Group) { g.Budget.MinReady = 0 })},
		{"count", "its spec 2", group(func(g *Group) { g.Count = 3; g.Budget = model.Budget{MinReady: 2, MaxDown: 1} })},
		{"group version", "its job at 1", group(func(g *Group) { g.Version = 2 })},
		{"removed", "removed true", group(func(g *Group) { g.Removed = true })},
		{"role", `role is "boss"`, group(func(g *Group) { g.Role = "boss" })},
		{"placements", "were ever placed", group(func(g *Group) { g.Placed = 0 })},
		{"stops in disorder", "out of order", group(func(g *Group) { g.Stops = []model.Time{2, 1} })},
		{"stops to come", "in the future", group(func(g *Group) { g.Stops = []model.Time{1 << 50} })},
		{"group gone", "does not exist", func(s *State) { s.Groups.del("web/api") }},

		{"class", `class "royal"`, job(func(j *Job) { j.Class = "royal" })},
		{"job version", "its version 5 is gone", job(func(j *Job) { j.Version = 5 })},
		{"stable", "stable version", job(func(j *Job) { j.Stable = 9 })},
		{"deployment gone", "deployment web-9 is gone", job(func(j *Job) { j.Deployment = "web-9" })},
		{"purged but running", "not stopped", job(func(j *Job) { j.Purge = true })},
		{"stopped but wanted", "its job stopped true", job(func(j *Job) { j.Stopped = true })},
		{"spec of another job", "spec of other", func(s *State) {
			edit(&s.Versions, versionKey("web", 1), func(v *JobVersion) { v.Spec.Name = "other" })
		}},
		{"version to come", "spec of web, index 1099511627776", func(s *State) {
			edit(&s.Versions, versionKey("web", 1), func(v *JobVersion) { v.Index = 1 << 40 })
		}},
		{"job gone", "its job does not exist", func(s *State) { s.Jobs.del("web") }},
		{"history", "there is no job that has it", func(s *State) {
			s.Versions.put(versionKey("web", 4), &JobVersion{Job: "web", Version: 4, Spec: webSpec()})
		}},
		{"two deployments", "go on at once", func(s *State) {
			s.Deployments.put("web-2", &Deployment{ID: "web-2", Job: "web", Version: 2, Status: model.DeploymentRolling})
		}},
		{"deployment status", `status is "done"`, func(s *State) {
			edit(&s.Deployments, "web-1", func(d *Deployment) { d.Status = "done" })
		}},
		{"deployment waits for nothing", "deployment web-1 is succeeded, and waits", func(s *State) {
			edit(&s.Deployments, "web-1", func(d *Deployment) { d.Status, d.Waiting = model.DeploymentSucceeded, true })
		}},
		{"deployment failed for nothing", "failed without a reason", func(s *State) {
			edit(&s.Deployments, "web-1", func(d *Deployment) { d.Status = model.DeploymentFailed })
		}},
		{"service of nobody", "does not publish it", func(s *State) {
			edit(&s.Services, "api", func(v *Service) { v.Group = "web/store" })
		}},
		{"service twice", "expose the same port", func(s *State) {
			s.Services.put("b", &Service{Name: "b", Group: "web/api", Port: "http", Expose: 80})
		}},
		{"volume elsewhere", "its instance i3 on n1", func(s *State) {
			edit(&s.Volumes, "web/store/0/data", func(v *Volume) { v.Home = "n2" })
		}},
		{"volume of nowhere", "its home x does not exist", func(s *State) {
			edit(&s.Volumes, "web/store/0/data", func(v *Volume) { v.Home = "x" })
		}},

		{"failed without last error", "without a last error", drain(func(d *Drain, p *DrainNode) {
			p.Phase, d.EndedIndex = model.PhaseFailed, 1
		})},
		{"draining with last error", "has the last error", drain(func(_ *Drain, p *DrainNode) { p.LastError = "x" })},
		{"phase", `phase is "idle"`, drain(func(_ *Drain, p *DrainNode) { p.Phase = "idle" })},
		{"ended and not", "ended at index 0", drain(func(_ *Drain, p *DrainNode) { p.Phase = model.PhaseDrained })},
		{"deadline", "deadline", drain(func(_ *Drain, p *DrainNode) { p.Deadline++ })},
		{"deadline before its turn", "its turn has not come", drain(func(_ *Drain, p *DrainNode) { p.Turn = false })},
		{"acknowledged early", "counts 1 acknowledged", drain(func(_ *Drain, p *DrainNode) { p.Acked = 1 })},
		{"too many at once", "works on 2 nodes at once", drain(func(d *Drain, p *DrainNode) {
			d.Options.MaxParallelNodes = 1
			d.Nodes = append(d.Nodes,
				DrainNode{Node: "n2", Phase: model.PhaseDraining, Turn: true, Started: p.Started, Deadline: p.Deadline})
		})},
		{"node twice", "twice", drain(func(d *Drain, p *DrainNode) { d.Nodes = append(d.Nodes, *p) })},
		{"drain of an active node", "whose intent is active", node("n1", func(n *Node) { n.Intent = model.IntentActive })},
	}
	rules := map[string]Invariant{ // the other cases break no numbered rule
		"overfull": S1, "claims nothing": S1, "port of nobody": S1,
		"two holders": S7, "three holders": S7, "a volume shared": S2,
	}
	good := busyState(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := good.fork()
			tt.spoil(s)
			wantFinding(t, Check(*s), rules[tt.name], tt.says)
		})
	}
	if err := Check(good); err != nil {
		t.Errorf("the good state was spoilt along the way: %v", err)
	}
	if err := Check(NewState()); err != nil {
		t.Errorf("a state before its first entry: %v", err)
	}
	full := good.fork()
	node("n2", func(n *Node) {
		for i := range uint64(avoidLimit) {
			n.Avoid = append(n.Avoid, AvoidEntry{Group: "web/api", Version: i})
		}
	})(full)
	if err := Check(*full); err != nil {
		t.Errorf("a full avoid list: %v", err)
	}
}

// second adds another instance to the slot of an existing one: a copy with its own id and without ports. The function
// change may modify the copy before it is added.
func second(s *State, id, of model.InstanceID, change func(*Instance)) {
	first, _ := s.Instances.Get(of)
	next := *first
	next.ID, next.Status.ID, next.Claims.Ports = id, id, nil
	change(&next)
	s.setInstance(nil, &next)
}

// TestCheckOfCopies: the row of a copy of a replicated volume must agree with the copy's id.
func TestCheckOfCopies(t *testing.T) {
	s, _ := membersWorld(t)
	for id, wrong := range map[model.VolumeID]func(*Volume){
		"db/main/0/data@n1": func(v *Volume) { v.ID = "db/main/9/data@n1" },
		"db/main/1/data@n2": func(v *Volume) { v.Slot = 9 },
	} {
		broken := s.fork()
		edit(&broken.Volumes, id, wrong)
		wantFinding(t, Check(*broken), "", "copy "+string(id)+": its row says")
	}
}

// TestCheckOfWhatWaits: Check reports an instance that starts although it still awaits the stop of others.
func TestCheckOfWhatWaits(t *testing.T) {
	s := must(t, crowded(t), preemption(crowded(t), 8081, "i2", "i3")...)
	broken := s.fork()
	edit(&broken.Instances, "p1", func(i *Instance) { i.Status.Observed = model.ObservedBooting })
	wantFinding(t, Check(*broken), S11, "awaits [i2 i3] and is booting")
}

// TestCheckOfWhatIsCopied: while the volumes of a slot are copied, an instance of that slot must not have volumes. An
// instance of a newer version without volumes may run meanwhile.
func TestCheckOfWhatIsCopied(t *testing.T) {
	m := NewMachine()
	mustApply(t, m, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	for _, id := range []model.NodeID{"n1", "n2"} {
		mustApply(t, m, register(id), &NodeReport{ID: id, Full: true})
	}
	spec := webSpec()
	mustApply(t, m, &JobSubmit{Spec: spec})
	mustApply(t, m, &InstancePlace{ID: "i3", Group: "web/store", Version: 1, Node: "n1", Cause: model.CauseScaleUp})
	mustApply(t, m, observed("n1", "i3", model.ObservedReady))
	mustApply(t, m, &InstanceStop{ID: "i3", Cause: model.CauseUser, Bypass: true},
		observedAt("n1", "i3", model.ObservedStopped, 2))
	mustApply(t,
		m, &TransferStart{ID: "t1", Work: model.TransferMigrate, Volume: "web/store/0/data", To: "n2", Token: "k"})
	mustApply(t, m, &TransferStep{ID: "t1", Phase: model.TransferStopping},
		&TransferStep{ID: "t1", Phase: model.TransferCopying})
	spec.Groups[1].Volumes = nil
	mustApply(t, m, &JobSubmit{Spec: spec})
	mustApply(t, m, &InstancePlace{ID: "i4", Group: "web/store", Version: 2, Node: "n2", Cause: model.CauseScaleUp})
	s := m.State()
	if err := Check(s); err != nil {
		t.Error(err)
	}
	gone := s.fork()
	gone.Volumes.del("web/store/0/data")
	wantFinding(t, Check(*gone), "", "transfer t1 is copying and its volume web/store/0/data does not exist")
	moved := s.fork()
	edit(&moved.Volumes, "web/store/0/data", func(v *Volume) { v.Home = "n2" })
	wantFinding(t, Check(*moved), "", "volume web/store/0/data is on n2, not n1")
	broken := s.fork()
	edit(&broken.Instances, "i4", func(i *Instance) { i.Links.HasVolumes = true })
	row, _ := broken.Instances.Get("i4")
	broken.inGroup.put(inGroupKey(row), row)
	wantFinding(t, Check(*broken), S2, "may use its volumes")
}
