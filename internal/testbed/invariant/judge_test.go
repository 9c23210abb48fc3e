package invariant

import (
	"slices"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// historyFixture has a cluster with two nodes and three jobs, made by the product's own commands, and the judge of the
// cluster's history.
type historyFixture struct {
	t     *testing.T
	judge *Judge
	state fsm.State
}

const nodeMemory = 8 << 30

func newHistoryFixture(t *testing.T) *historyFixture {
	d := &historyFixture{t: t, judge: New(), state: fsm.NewState()}
	d.apply(model.ActorLeader, &fsm.ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	for _, id := range []model.NodeID{"n1", "n2"} {
		d.apply("agent:"+model.Actor(id), &fsm.NodeRegister{
			ID: id, Name: string(id), Agent: model.AgentInfo{BootID: "b", Address: "127.0.0.1", Key: []byte("k")},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: nodeMemory},
				PortMin: 20000, PortMax: 20999},
		})
		d.apply("agent:"+model.Actor(id), &fsm.NodeReport{ID: id, Full: true})
	}
	web := group("http", 2, 64<<20)
	web.Budget = &model.BudgetSpec{MinReady: &model.Amount{N: 1}, Rate: &model.RateSpec{Max: 1, Window: model.Minute}}
	local := group("g", 1, 64<<20)
	local.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
	d.apply("cli:x", &fsm.JobSubmit{Spec: job("web", "", web)})
	d.apply("cli:x", &fsm.JobSubmit{Spec: job("disk", "", local)})
	d.apply("cli:x", &fsm.JobSubmit{Spec: job("low", model.ClassBatch, group("g", 1, 64<<20))})
	d.place("w0", "web/http", 0, "n1")
	d.place("w1", "web/http", 1, "n2")
	d.place("d0", "disk/g", 0, "n1")
	d.place("l0", "low/g", 0, "n2")
	return d
}

// apply commits one entry and fails the test if the judge finds anything wrong with the entry.
func (d *historyFixture) apply(actor model.Actor, commands ...fsm.Command) *Step {
	d.t.Helper()
	s := d.entry(actor, commands...)
	for _, finding := range d.judge.Step(s) {
		d.t.Errorf("a good step: %v", finding)
	}
	return s
}

// entry commits one entry and does not show the entry to the judge. It sets the epoch of each NodeReport to the current
// epoch of the node.
func (d *historyFixture) entry(actor model.Actor, commands ...fsm.Command) *Step {
	d.t.Helper()
	for _, c := range commands {
		if r, ok := c.(*fsm.NodeReport); ok {
			n, _ := d.state.Nodes.Get(r.ID)
			r.Epoch = n.Agent.Epoch
		}
	}
	e := fsm.Entry{Format: model.CurrentFormat, At: d.state.Now + 10, Actor: actor, Groups: [][]fsm.Command{commands}}
	before, index := d.state, d.state.Index+1
	after, results := before.Apply(index, 1, e)
	if results[0].Refusal != nil {
		d.t.Fatal(results[0].Refusal)
	}
	d.state = after
	return &Step{Before: &before, After: &after, Index: index, Term: 1, Entry: e, Results: results}
}

// unsaid commits an entry with the given command. The returned step contains another command instead, so the judge sees
// a change that no command explains.
func (d *historyFixture) unsaid(command fsm.Command) *Step {
	s := d.entry(model.ActorLeader, command)
	s.Entry.Groups = [][]fsm.Command{{&fsm.HoldSet{}}}
	return s
}

func (d *historyFixture) place(id model.InstanceID, g model.GroupID, slot int, node model.NodeID) {
	d.t.Helper()
	d.apply(model.ActorLeader,
		&fsm.InstancePlace{ID: id, Group: g, Slot: slot, Version: 1, Node: node, Cause: model.CauseScaleUp})
	d.apply("agent:"+model.Actor(node), report(node, id, 1, model.ObservedReady))
}

func report(node model.NodeID, id model.InstanceID, generation uint64, o model.Observed) *fsm.NodeReport {
	return &fsm.NodeReport{ID: node, Instances: []model.InstanceStatus{{ID: id, Generation: generation, Observed: o}}}
}

// stop commits a stop that bypasses every budget. It then overwrites the reason in the instance's row, so that the
// judge does not see the bypass.
func (d *historyFixture) stop(id model.InstanceID) (*Step, *fsm.Instance) {
	s := d.entry(model.ActorLeader, &fsm.InstanceStop{ID: id, Cause: model.CauseUser, Bypass: true})
	i, _ := s.After.Instances.Get(id)
	i.Marks.StopReason = "changed by the test"
	return s, i
}

func (d *historyFixture) row(id model.InstanceID) *fsm.Instance {
	i, _ := d.state.Instances.Get(id)
	return i
}

// Each case spoils a step in one way, and the judge must find a violation of the case's invariant.
func TestJudgesCanFail(t *testing.T) {
	for _, test := range []struct {
		id    fsm.Invariant
		name  string
		spoil func(*historyFixture) *Step
	}{
		{fsm.S1, "memory", func(d *historyFixture) *Step {
			s := d.entry("agent:n1", report("n1", "w0", 2, model.ObservedUnready))
			i, _ := s.After.Instances.Get("w0")
			i.Claims.Resources.MemoryBytes = nodeMemory + 1
			return s
		}},
		{fsm.S2, "two holders", func(d *historyFixture) *Step {
			s := d.entry("agent:n1", report("n1", "w0", 2, model.ObservedUnready))
			i, _ := s.After.Instances.Get("w0")
			i.Group, i.Slot = "disk/g", 0
			return s
		}},
		{fsm.S3, "the last one ready", func(d *historyFixture) *Step {
			s, _ := d.stop("w0")
			g, _ := s.Before.Groups.Get("web/http")
			g.Budget.MinReady = 2
			g, _ = s.After.Groups.Get("web/http")
			g.Budget.MinReady = 2
			return s
		}},
		{fsm.S3, "the rate", func(d *historyFixture) *Step {
			d.judge.windows["group/web/http"] = &window{most: 1, per: model.Minute, stops: []model.Time{d.state.Now}}
			s, _ := d.stop("w0")
			return s
		}},
		{fsm.S4, "twice", func(d *historyFixture) *Step {
			s := d.entry("cli:x", &fsm.NodeIntent{ID: "n2", Intent: model.IntentCordoned})
			s.Entry.Request = "r1"
			d.judge.ids["r1"] = 3
			return s
		}},
		{fsm.S6, "no such drain", func(d *historyFixture) *Step {
			s, i := d.stop("w0")
			i.Marks.StopCause = model.CauseNodeDraining
			return s
		}},
		{fsm.S6, "a local volume", func(d *historyFixture) *Step {
			d.apply("cli:x", &fsm.DrainStart{ID: "dr", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
			s, i := d.stop("d0")
			i.Marks.StopCause, i.Marks.StopReason = model.CauseNodeDraining, "dr"
			return s
		}},
		{fsm.S7, "more than the count", func(d *historyFixture) *Step {
			s := d.entry(model.ActorLeader, &fsm.InstancePlace{ID: "w2", Group: "web/http", Slot: 0, Version: 1, Node: "n2",
				Replaces: "w0", Cause: model.CauseNodeDraining})
			w2, _ := s.After.Instances.Get("w2")
			w2.Links.Replaces = ""
			return s
		}},
		{fsm.S7, "a second replacement", func(d *historyFixture) *Step {
			d.row("w0").Links.ReplacedBy = "w1"
			s := d.entry(model.ActorLeader, &fsm.InstancePlace{ID: "w2", Group: "web/http", Slot: 0, Version: 1, Node: "n2",
				Replaces: "w0", Cause: model.CauseNodeDraining})
			w0, _ := s.After.Instances.Get("w0")
			w0.Links.ReplacedBy = "w1"
			return s
		}},
		{fsm.S7, "two rolled out at once", func(d *historyFixture) *Step {
			return d.entry(model.ActorLeader,
				&fsm.InstancePlace{ID: "w2", Group: "web/http", Slot: 0, Version: 1, Node: "n2", Replaces: "w0",
					Cause: model.CauseRollout},
				&fsm.InstancePlace{ID: "w3", Group: "web/http", Slot: 1, Version: 1, Node: "n1", Replaces: "w1",
					Cause: model.CauseRollout})
		}},
		{fsm.S7, "a second wave", func(d *historyFixture) *Step {
			s := d.entry(model.ActorLeader, &fsm.InstancePlace{ID: "w2", Group: "web/http", Slot: 0, Version: 1, Node: "n2",
				Replaces: "w0", Cause: model.CauseNodeDraining})
			w2, _ := s.After.Instances.Get("w2")
			w2.Cause = model.CauseNodeOffline
			return s
		}},
		{fsm.S7, "without an order", func(d *historyFixture) *Step {
			d.judge.rails = []unorderedStops{{d.state.Now, 1}}
			s, i := d.stop("w0")
			i.Marks.StopCause = model.CauseRebalance
			return s
		}},
		{fsm.S8, "back from the dead", func(d *historyFixture) *Step {
			_, _ = d.stop("l0")
			s := d.apply("agent:n2", report("n2", "l0", 2, model.ObservedStopped))
			s.Before, s.After = s.After, s.Before
			return s
		}},
		{fsm.S9, "an id again", func(d *historyFixture) *Step {
			d.judge.ended["w0"] = 3
			return d.entry("agent:n1", report("n1", "w0", 2, model.ObservedUnready))
		}},
		{fsm.S9, "an instance that nobody placed", func(d *historyFixture) *Step {
			return d.unsaid(&fsm.InstancePlace{ID: "w2", Group: "web/http", Slot: 0, Version: 1, Node: "n2", Replaces: "w0",
				Cause: model.CauseNodeDraining})
		}},
		{fsm.S9, "an instance that was deleted", func(d *historyFixture) *Step {
			d.judge.gone["w2"] = true
			return d.entry(model.ActorLeader, &fsm.InstancePlace{ID: "w2", Group: "web/http", Slot: 0, Version: 1, Node: "n2",
				Replaces: "w0", Cause: model.CauseNodeDraining})
		}},
		{fsm.S9, "a node that nobody registered", func(d *historyFixture) *Step {
			return d.unsaid(&fsm.NodeRegister{
				ID: "n3", Name: "n3", Agent: model.AgentInfo{BootID: "b", Address: "127.0.0.1", Key: []byte("k")},
				Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: nodeMemory},
					PortMin: 20000, PortMax: 20999},
			})
		}},
		{fsm.S9, "a job that nobody submitted", func(d *historyFixture) *Step {
			return d.unsaid(&fsm.JobSubmit{Spec: job("new", "", group("g", 1, 64<<20))})
		}},
		{fsm.S10, "an old term", func(d *historyFixture) *Step {
			s := d.entry(model.ActorLeader, &fsm.NodeIntent{ID: "n2", Intent: model.IntentCordoned})
			s.Entry.Term, s.Term = 1, 2
			return s
		}},
		{fsm.S11, "nobody takes it", func(d *historyFixture) *Step {
			s, i := d.stop("l0")
			i.Marks.StopCause = model.CausePreempted
			return s
		}},
		{fsm.S11, "with another entry's placement", func(d *historyFixture) *Step {
			s := d.entry("cli:x", &fsm.NodeIntent{ID: "n2", Intent: model.IntentCordoned})
			s.Entry.Groups = [][]fsm.Command{{&fsm.InstanceStop{ID: "l0", Cause: model.CausePreempted, By: "w0"}}}
			return s
		}},
		{fsm.S12, "a move during a hold", func(d *historyFixture) *Step {
			d.apply(model.ActorLeader, &fsm.HoldSet{Active: true, Reason: "test"})
			s := d.entry("cli:x", &fsm.NodeIntent{ID: "n2", Intent: model.IntentCordoned})
			s.Entry.Groups = [][]fsm.Command{{&fsm.InstanceMove{ID: "w0"}}}
			return s
		}},
		{fsm.S12, "a preemption during a hold", func(d *historyFixture) *Step {
			d.apply(model.ActorLeader, &fsm.HoldSet{Active: true, Reason: "test"})
			s := d.entry(model.ActorLeader, &fsm.InstancePlace{ID: "w2", Group: "web/http", Slot: 0, Version: 1, Node: "n2",
				Replaces: "w0", Cause: model.CauseNodeDraining})
			w2, _ := s.After.Instances.Get("w2")
			w2.Links.Awaits = []model.InstanceID{"l0"}
			return s
		}},
		{fsm.S12, "offline during a hold", func(d *historyFixture) *Step {
			d.apply(model.ActorLeader, &fsm.HoldSet{Active: true, Reason: "test"})
			n, _ := d.state.Nodes.Get("n2")
			s := d.entry(model.ActorLeader,
				&fsm.NodeHealth{ID: "n2", Health: model.HealthDegraded, BootID: "b", Epoch: n.Agent.Epoch})
			n, _ = s.After.Nodes.Get("n2")
			n.Health = model.HealthOffline // set by hand, because Apply marks no node offline during a hold
			return s
		}},
		{fsm.S15, "another node's instance", func(d *historyFixture) *Step {
			return d.entry("agent:n2", report("n1", "w0", 2, model.ObservedUnready))
		}},
		{fsm.S15, "a stop of another node's instance", func(d *historyFixture) *Step {
			return d.entry("agent:n2", &fsm.InstanceStop{ID: "w0", Cause: model.CauseUser, Bypass: true})
		}},
		{fsm.S15, "another node's troubles", func(d *historyFixture) *Step {
			said := &model.SelfReport{Gen: 1, Troubles: []model.Trouble{{Check: model.SelfDiskFull}}}
			s := d.entry("agent:n2", &fsm.NodeReport{ID: "n1", Self: said})
			was, _ := s.Before.Nodes.Get("n1")
			now, _ := s.After.Nodes.Get("n1")
			now.Health = was.Health
			return s
		}},
	} {
		t.Run(test.id.String()+" "+test.name, func(t *testing.T) {
			d := newHistoryFixture(t)
			s := test.spoil(d)
			found := d.judge.rows(s)
			if test.id == fsm.S8 { // only fsm.CheckStep checks S8, and rows does not call it
				found = d.judge.Step(s)
			}
			if !slices.ContainsFunc(found, func(f fsm.Finding) bool { return f.Invariant == test.id }) {
				t.Errorf("found %v, want one of %s", found, test.id)
			}
		})
	}
}

func group(name string, count int, memory int64) model.GroupSpec {
	return model.GroupSpec{Name: name, Count: count, Exec: model.ExecSpec{Command: "/program"},
		Resources: model.Resources{MemoryBytes: memory}}
}

func job(name model.JobName, class model.ClassName, groups ...model.GroupSpec) model.JobSpec {
	return model.JobSpec{Name: name, Class: class, Groups: groups}
}
