package bubble

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// docket is a small history to be judged: two nodes, jobs of a few kinds, made by the product's own commands.
type docket struct {
	t     *testing.T
	court *court
	state fsm.State
}

const docketNode = 8 << 30

func newDocket(t *testing.T) *docket {
	d := &docket{t: t, court: newCourt(), state: fsm.NewState()}
	d.apply(model.ActorLeader, &fsm.ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	for _, id := range []model.NodeID{"n1", "n2"} {
		d.apply("agent:"+model.Actor(id), &fsm.NodeRegister{
			ID: id, Name: string(id), Agent: model.AgentInfo{BootID: "b", Address: "127.0.0.1", Key: []byte("k")},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: docketNode}, PortMin: 20000, PortMax: 20999},
		})
		d.apply("agent:"+model.Actor(id), &fsm.NodeReport{ID: id, Full: true})
	}
	web := group("http", 2, 64*mib)
	web.Budget = &model.BudgetSpec{MinReady: amount(1), Rate: &model.RateSpec{Max: 1, Window: model.Minute}}
	local := group("g", 1, 64*mib)
	local.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
	d.apply("cli:x", &fsm.JobSubmit{Spec: job("web", "", web)})
	d.apply("cli:x", &fsm.JobSubmit{Spec: job("disk", "", local)})
	d.apply("cli:x", &fsm.JobSubmit{Spec: job("low", model.ClassBatch, group("g", 1, 64*mib))})
	d.place("w0", "web/http", 0, "n1")
	d.place("w1", "web/http", 1, "n2")
	d.place("d0", "disk/g", 0, "n1")
	d.place("l0", "low/g", 0, "n2")
	return d
}

// apply is one entry; the court must find nothing wrong with it.
func (d *docket) apply(actor model.Actor, commands ...fsm.Command) step {
	d.t.Helper()
	s := d.entry(actor, commands...)
	for _, err := range d.court.judge(s) {
		d.t.Errorf("a good step: %v", err)
	}
	return s
}

// entry is one entry that nobody has judged yet. Reports are of the present registration.
func (d *docket) entry(actor model.Actor, commands ...fsm.Command) step {
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
	return step{before, after, committed{index, 1, e, results}}
}

func (d *docket) place(id model.InstanceID, g model.GroupID, slot int, node model.NodeID) {
	d.t.Helper()
	d.apply(model.ActorLeader, &fsm.InstancePlace{ID: id, Group: g, Slot: slot, Version: 1, Node: node, Cause: model.CauseScaleUp})
	d.apply("agent:"+model.Actor(node), report(node, id, 1, model.ObservedReady))
}

func report(node model.NodeID, id model.InstanceID, generation uint64, o model.Observed) *fsm.NodeReport {
	return &fsm.NodeReport{ID: node, Instances: []model.InstanceStatus{{ID: id, Generation: generation, Observed: o}}}
}

// stop is a stop past every budget; the tests then make it look like one that was under them.
func (d *docket) stop(id model.InstanceID) (step, *fsm.Instance) {
	s := d.entry(model.ActorLeader, &fsm.InstanceStop{ID: id, Cause: model.CauseUser, Bypass: true})
	i, _ := s.after.Instances.Get(id)
	i.Marks.StopReason = "changed by the test"
	return s, i
}

func (d *docket) row(id model.InstanceID) *fsm.Instance {
	i, _ := d.state.Instances.Get(id)
	return i
}

// Every judge finds what it is there for: a step is spoiled in one way, and the finding begins with the invariant's id.
func TestJudgesCanFail(t *testing.T) {
	for _, test := range []struct {
		id, name string
		spoil    func(*docket) step
	}{
		{"S1", "memory", func(d *docket) step {
			s := d.entry("agent:n1", report("n1", "w0", 2, model.ObservedUnready))
			i, _ := s.after.Instances.Get("w0")
			i.Claims.Resources.MemoryBytes = docketNode + 1
			return s
		}},
		{"S2", "two holders", func(d *docket) step {
			s := d.entry("agent:n1", report("n1", "w0", 2, model.ObservedUnready))
			i, _ := s.after.Instances.Get("w0")
			i.Group, i.Slot = "disk/g", 0
			return s
		}},
		{"S3", "the last one ready", func(d *docket) step {
			s, _ := d.stop("w0")
			g, _ := s.before.Groups.Get("web/http")
			g.Budget.MinReady = 2
			g, _ = s.after.Groups.Get("web/http")
			g.Budget.MinReady = 2
			return s
		}},
		{"S3", "the rate", func(d *docket) step {
			d.court.windows["group/web/http"] = &window{most: 1, per: model.Minute, stops: []model.Time{d.state.Now}}
			s, _ := d.stop("w0")
			return s
		}},
		{"S4", "twice", func(d *docket) step {
			s := d.entry("cli:x", &fsm.NodeIntent{ID: "n2", Intent: model.IntentCordoned})
			s.entry.Request = "r1"
			d.court.ids["r1"] = 3
			return s
		}},
		{"S6", "no such drain", func(d *docket) step {
			s, i := d.stop("w0")
			i.Marks.StopCause = model.CauseNodeDraining
			return s
		}},
		{"S6", "a local volume", func(d *docket) step {
			d.apply("cli:x", &fsm.DrainStart{ID: "dr", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
			s, i := d.stop("d0")
			i.Marks.StopCause, i.Marks.StopReason = model.CauseNodeDraining, "dr"
			return s
		}},
		{"S7", "more than the count", func(d *docket) step {
			s := d.entry("agent:n2", report("n2", "l0", 2, model.ObservedUnready))
			i, _ := s.after.Instances.Get("l0")
			i.Group, i.Slot = "web/http", 0
			return s
		}},
		{"S7", "a second replacement", func(d *docket) step {
			d.row("w0").Links.ReplacedBy = "w1"
			s := d.entry(model.ActorLeader, &fsm.InstancePlace{ID: "w2", Group: "web/http", Slot: 0, Version: 1, Node: "n2", Replaces: "w0", Cause: model.CauseNodeDraining})
			w0, _ := s.after.Instances.Get("w0")
			w0.Links.ReplacedBy = "w1"
			return s
		}},
		{"S7", "two rolled out at once", func(d *docket) step {
			return d.entry(model.ActorLeader,
				&fsm.InstancePlace{ID: "w2", Group: "web/http", Slot: 0, Version: 1, Node: "n2", Replaces: "w0", Cause: model.CauseRollout},
				&fsm.InstancePlace{ID: "w3", Group: "web/http", Slot: 1, Version: 1, Node: "n1", Replaces: "w1", Cause: model.CauseRollout})
		}},
		{"S7", "a second wave", func(d *docket) step {
			s := d.entry(model.ActorLeader, &fsm.InstancePlace{ID: "w2", Group: "web/http", Slot: 0, Version: 1, Node: "n2", Replaces: "w0", Cause: model.CauseNodeDraining})
			w2, _ := s.after.Instances.Get("w2")
			w2.Cause = model.CauseNodeOffline
			return s
		}},
		{"S7", "without an order", func(d *docket) step {
			d.court.rails = []railed{{d.state.Now, 1}}
			s, i := d.stop("w0")
			i.Marks.StopCause = model.CauseRebalance
			return s
		}},
		{"S8", "back from the dead", func(d *docket) step {
			_, _ = d.stop("l0")
			s := d.apply("agent:n2", report("n2", "l0", 2, model.ObservedStopped))
			return step{s.after, s.before, s.entry}
		}},
		{"S9", "an id again", func(d *docket) step {
			d.court.ended["w0"] = 3
			return d.entry("agent:n1", report("n1", "w0", 2, model.ObservedUnready))
		}},
		{"S10", "an old term", func(d *docket) step {
			s := d.entry(model.ActorLeader, &fsm.NodeIntent{ID: "n2", Intent: model.IntentCordoned})
			s.entry.Term, s.entry.term = 1, 2
			return s
		}},
		{"S11", "nobody takes it", func(d *docket) step {
			s, i := d.stop("l0")
			i.Marks.StopCause = model.CausePreempted
			return s
		}},
		{"S12", "offline during a hold", func(d *docket) step {
			d.apply(model.ActorLeader, &fsm.HoldSet{Active: true, Reason: "test"})
			n, _ := d.state.Nodes.Get("n2")
			s := d.entry(model.ActorLeader, &fsm.NodeHealth{ID: "n2", Health: model.HealthDegraded, BootID: "b", Epoch: n.Agent.Epoch})
			n, _ = s.after.Nodes.Get("n2")
			n.Health = model.HealthOffline // Apply refuses it
			return s
		}},
		{"S15", "another node's instance", func(d *docket) step {
			return d.entry("agent:n2", report("n1", "w0", 2, model.ObservedUnready))
		}},
	} {
		t.Run(test.id+" "+test.name, func(t *testing.T) {
			d := newDocket(t)
			s := test.spoil(d)
			found := d.court.judge(s)
			if !slices.ContainsFunc(found, func(err error) bool { return strings.HasPrefix(err.Error(), test.id+": ") }) {
				t.Errorf("found %v, want one that begins with %s", found, test.id)
			}
		})
	}
}

// S13 is judged by what servers heard: two of three within half the threshold are a majority, one is not.
func TestSilenceCanFail(t *testing.T) {
	heard := func(ages ...time.Duration) (all []hearing) {
		for _, age := range ages {
			all = append(all, hearing{"s", age, time.Minute})
		}
		return all
	}
	if err := unfair("n1", 2*model.Second, voters, heard(100*time.Millisecond, 300*time.Millisecond, 5*time.Second)); err == nil || !strings.HasPrefix(err.Error(), "S13: ") {
		t.Errorf("two of three heard it: %v", err)
	}
	if err := unfair("n1", 2*model.Second, voters, heard(100*time.Millisecond, 3*time.Second, 5*time.Second)); err != nil {
		t.Errorf("one of three heard it: %v", err)
	}
	back := []hearing{{"s1", time.Millisecond, 2 * time.Millisecond}, {"s2", 2 * time.Millisecond, 2 * time.Millisecond}}
	if err := unfair("n1", 2*model.Second, voters, back); err != nil {
		t.Errorf("it came back while the entry was on its way: %v", err)
	}
}

// S4 over a whole history: what clients were told must be what the log did.
func TestReceiptsCanFail(t *testing.T) {
	d := newDocket(t)
	s := d.entry("cli:x", &fsm.NodeIntent{ID: "n2", Intent: model.IntentCordoned})
	s.entry.Request = "logged"
	for name, r := range map[string]receipt{
		"lost":     {"a write", answeredDone, nil},
		"logged":   {"a write", answeredRefused, nil},
		"unlogged": {"a write", answeredDone, nil},
	} {
		told := newReceipts()
		told.all[model.RequestID(name)] = r
		if err := told.durable([]committed{s.entry}, d.state); err == nil || !strings.HasPrefix(err.Error(), "S4: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	told := newReceipts()
	told.all["other"] = receipt{"a write", answeredUnknown, nil}
	if err := told.durable([]committed{s.entry}, d.state); err != nil {
		t.Errorf("an unknown outcome: %v", err)
	}
	if err := allThere([]model.RequestID{"lost"}, d.state); err == nil || !strings.HasPrefix(err.Error(), "S4: ") {
		t.Errorf("a leader without what was acknowledged: %v", err)
	}
}

// silentReasons explains nothing.
type silentReasons struct{}

func (silentReasons) Pending(model.GroupID) *model.Error       { return nil }
func (silentReasons) Waiting(model.InstanceID) []model.Blocker { return nil }

// S14: a group that lacks an instance, and an eviction that goes nowhere, must say why.
func TestReasonsCanFail(t *testing.T) {
	d := newDocket(t)
	if err := missingReasons(d.state, silentReasons{}); err != nil {
		t.Errorf("nothing is missing: %v", err)
	}
	d.apply("cli:x", &fsm.JobScale{Job: "web", Group: "http", Count: 3})
	if err := missingReasons(d.state, silentReasons{}); err == nil || !strings.HasPrefix(err.Error(), "S14: ") {
		t.Errorf("an instance is missing: %v", err)
	}
	d.apply("cli:x", &fsm.JobScale{Job: "web", Group: "http", Count: 2})
	d.row("w0").Eviction = fsm.Eviction{Requested: true, Cause: model.CauseUser}
	if err := missingReasons(d.state, silentReasons{}); err == nil || !strings.HasPrefix(err.Error(), "S14: ") {
		t.Errorf("an eviction goes nowhere: %v", err)
	}
}

// S1 and S2 by what runs: a start is judged by the other programs.
func TestTruthCanFail(t *testing.T) {
	begin := func(change func(*program)) error {
		tr := newTruth(t)
		tr.alive["a"] = &program{instance: "a", group: "db/g", slot: "0", node: "n1", fenced: true, memory: nodeMemory / 2}
		tr.epochs["db/g/0"] = 5
		p := &program{instance: "b", group: "db/g", slot: "1", node: "n1", fenced: true, memory: nodeMemory / 2, epoch: 6}
		change(p)
		return tr.mayBegin(p)
	}
	if err := begin(func(*program) {}); err != nil {
		t.Errorf("a good start: %v", err)
	}
	for name, test := range map[string]struct {
		id     string
		change func(*program)
	}{
		"memory": {"S1: ", func(p *program) { p.memory++ }},
		"holder": {"S2: ", func(p *program) { p.slot, p.node = "0", "n2" }},
		"epoch": {"S2: ", func(p *program) {
			p.slot, p.node, p.epoch, p.instance = "0", "n2", 4, "a"
		}},
	} {
		if err := begin(test.change); err == nil || !strings.HasPrefix(err.Error(), test.id) {
			t.Errorf("%s: %v, want %s", name, err, test.id)
		}
	}
}
