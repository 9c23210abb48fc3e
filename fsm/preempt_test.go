package fsm

import (
	"slices"
	"testing"

	"github.com/outspan/outspan/model"
)

// crowded returns a cluster whose node n1 of 1000 MiB is full. The instance i1, of class critical, takes 400 MiB and
// the port 8080. The instances i2 and i3, of class batch, take 300 MiB each. All three are ready. The node n2 is too
// small for any instance. The job new, of class production, wants an instance of 500 MiB.
func crowded(t testing.TB) State {
	t.Helper()
	m := NewMachine()
	settings := model.DefaultSettings()
	settings.InstanceOverhead = 0
	small := register("n2")
	small.Shape.Capacity.MemoryBytes = 100 << 20
	full := register("n1")
	full.Shape.Capacity.MemoryBytes = 1000 << 20
	mustApply(t, m, &ClusterInit{ID: "c1", Name: "test", Settings: settings}, full, small)
	mustApply(t, m, &NodeReport{ID: "n1", Full: true}, &NodeReport{ID: "n2", Full: true})
	mustApply(t, m, &JobSubmit{Spec: sized("high", model.ClassCritical, 1, 400)},
		&JobSubmit{Spec: sized("low", model.ClassBatch, 2, 300)})
	mustApply(t, m, &InstancePlace{ID: "i1", Group: "high/g", Version: 1, Node: "n1", Cause: model.CauseScaleUp,
		Ports: model.Ports{{Name: "p", Number: 8080}}})
	for slot, id := range []model.InstanceID{"i2", "i3"} {
		mustApply(t, m, &InstancePlace{ID: id, Group: "low/g", Slot: slot, Version: 1, Node: "n1", Cause: model.CauseScaleUp,
			Ports: model.Ports{{Name: "p", Number: 8081 + slot}}})
	}
	for _, id := range []model.InstanceID{"i1", "i2", "i3"} {
		mustApply(t, m, observed("n1", id, model.ObservedReady))
	}
	mustApply(t, m, &JobSubmit{Spec: sized("new", model.ClassProduction, 1, 500)})
	return checkedState(t, m.State())
}

// sized returns a job with one group g, which has a dynamic port and count instances of the given MiB. The group's
// budget lets all instances be down, so only the order of classes limits what may be stopped.
func sized(name model.JobName, class model.ClassName, count int, mib int64) model.JobSpec {
	return model.JobSpec{Name: name, Class: class, Groups: []model.GroupSpec{{
		Name: "g", Count: count, Exec: model.ExecSpec{Command: "/bin/app"},
		Resources: model.Resources{MemoryBytes: mib << 20},
		Ports:     []model.PortSpec{{Name: "p"}}, Budget: &model.BudgetSpec{MinReady: &model.Amount{}},
	}}}
}

func checkedState(t testing.TB, s State) State {
	t.Helper()
	if err := Check(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// try applies one group of commands to s and checks the invariants. It returns the new state and the refusal, if any.
func try(t testing.TB, s State, group ...Command) (State, *model.Error) {
	t.Helper()
	after, results := s.Apply(s.Index+1,
		1, Entry{Format: model.CurrentFormat, At: s.Now + 10, Actor: model.ActorLeader, Groups: atEpochs(s, group)})
	checkedState(t, after)
	if err := CheckStep(s, after); err != nil {
		t.Fatal(err)
	}
	return after, results[0].Refusal
}

func must(t testing.TB, s State, group ...Command) State {
	t.Helper()
	after, refusal := try(t, s, group...)
	if refusal != nil {
		t.Fatal(refusal)
	}
	return after
}

// preemption returns the group of commands that stops the victims and places the instance p1 of new/g on n1, with the
// given port.
func preemption(s State, port int, victims ...model.InstanceID) []Command {
	n, _ := s.Nodes.Get("n1")
	var group []Command
	for _, id := range victims {
		group = append(group, &InstanceStop{ID: id, Cause: model.CausePreempted, By: "p1"})
	}
	return append(group, &InstancePlace{
		ID: "p1", Group: "new/g", Version: 1, Node: "n1", Cause: model.CauseScaleUp,
		Ports: model.Ports{{Name: "p", Number: port}}, Awaits: victims, NodeVersion: n.Version,
	})
}

func (s State) row(t testing.TB, id model.InstanceID) *Instance {
	t.Helper()
	i, ok := s.Instances.Get(id)
	if !ok {
		t.Fatalf("there is no instance %s", id)
	}
	return i
}

func (s State) nodeRow(id model.NodeID) *Node {
	n, _ := s.Nodes.Get(id)
	return n
}

// TestPreemptorWaits: while a preemptor waits, no other instance gets its room. The preemptor takes its memory and
// ports when the last victim has stopped. Only then does the agent of its node learn of the preemptor.
//
// proves R46, R47
func TestPreemptorWaits(t *testing.T) {
	s := must(t, crowded(t), preemption(crowded(t), 8081, "i2", "i3")...)
	assigned := s.nodeRow("n1").Assigned
	if p := s.row(t, "p1"); !p.WaitsForRoom() || p.Status.Observed != model.ObservedPending ||
		s.nodeRow("n1").Placed.MemoryBytes != 1000<<20 {
		t.Fatalf("the preemptor is %+v, the node holds %d bytes", p, s.nodeRow("n1").Placed.MemoryBytes)
	}
	for _, id := range []model.InstanceID{"i2", "i3"} {
		if i := s.row(t, id); i.Desired != model.DesiredDraining || i.Marks.StopCause != model.CausePreempted ||
			i.Marks.StopGrace == 0 {
			t.Errorf("victim %s: %+v", id, i)
		}
	}
	s = must(t, s, observedAt("n1", "i3", model.ObservedStopped, 2))
	n := s.nodeRow("n1")
	if p := s.row(t, "p1"); !slices.Equal(p.Links.Awaits, []model.InstanceID{"i2"}) || n.Promised != 200<<20 ||
		n.FreeBytes() != 100<<20 {
		t.Fatalf("with one victim gone it awaits %v, %d bytes are promised, %d free", p.Links.Awaits,
			n.Promised, n.FreeBytes())
	}
	n1 := s.nodeRow("n1")
	if _, refusal := try(t, s,
		&InstancePlace{ID: "x", Group: "low/g", Slot: 0, Version: 1, Node: "n1", Cause: model.CauseScaleUp,
			Ports: model.Ports{{Name: "p", Number: 8090}}, NodeVersion: n1.Version}); refusal == nil ||
		refusal.Code != model.CodeNoMemory {
		t.Errorf("promised room was given away: %v", refusal)
	}
	before := s.Index
	s = must(t, s, observedAt("n1", "i2", model.ObservedStopped, 2))
	p, n := s.row(t, "p1"), s.nodeRow("n1")
	if p.WaitsForRoom() || n.Promised != 0 || n.Placed.MemoryBytes != 900<<20 || n.Assigned != before+1 ||
		n.Assigned <= assigned || p.Marks.UnreadySince != s.Now {
		t.Fatalf("with both gone: %+v on %+v", p, n)
	}
	if owner, _ := s.PortOwner("n1", 8081); owner != "p1" {
		t.Errorf("port 8081 belongs to %q", owner)
	}
	must(t, s, observedAt("n1", "p1", model.ObservedReady, 1))
}

// TestPreemptionRefused: a group of commands with a faulty preemption is refused as a whole and changes nothing.
//
// proves R43
func TestPreemptionRefused(t *testing.T) {
	s := crowded(t)
	good := func() []Command { return preemption(s, 8090, "i2", "i3") }
	place := func(group []Command) *InstancePlace { return group[len(group)-1].(*InstancePlace) }
	tests := []struct {
		name  string
		code  model.Code
		group func() []Command
	}{
		{"a higher class", model.CodeConflict, func() []Command { return preemption(s, 8090, "i1", "i2") }},
		{"too little", model.CodeNoMemory, func() []Command { return preemption(s, 8090, "i2") }},
		{"a stop alone", model.CodeConflict, func() []Command { return good()[:1] }},
		{"not awaited", model.CodeConflict, func() []Command {
			g := good()
			place(g).Awaits = []model.InstanceID{"i2"}
			return g
		}},
		{"not stopped", model.CodeStale, func() []Command { return good()[1:] }},
		{"stopped after the placement", model.CodeStale, func() []Command { g := good(); slices.Reverse(g); return g }},
		{"another preemptor", model.CodeConflict, func() []Command { g := good(); g[0].(*InstanceStop).By = "p2"; return g }},
		{"stopped for another cause", model.CodeStale, func() []Command {
			g := good()
			g[0].(*InstanceStop).Cause = model.CauseUser
			return g
		}},
		{"awaited twice", model.CodeInvalid, func() []Command {
			g := good()
			place(g).Awaits = []model.InstanceID{"i2", "i3", "i2"}
			return g
		}},
		{"past the budget", model.CodeInvalid, func() []Command {
			g := good()
			g[0].(*InstanceStop).Bypass = true
			return g
		}},
		{"the node changed", model.CodeStale, func() []Command { g := good(); place(g).NodeVersion--; return g }},
		{"no version", model.CodeStale, func() []Command { g := good(); place(g).NodeVersion = 0; return g }},
		{"a port of what stays", model.CodeNoPorts, func() []Command { return preemption(s, 8080, "i2", "i3") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after, refusal := try(t, s, tt.group()...)
			if refusal == nil || refusal.Code != tt.code {
				t.Fatalf("got %v, want %s", refusal, tt.code)
			}
			idle, _ := s.Apply(s.Index+1, 1, Entry{Format: model.CurrentFormat, At: s.Now + 10, Actor: model.ActorLeader})
			if Digest(after) != Digest(idle) {
				t.Error("it left a trace")
			}
		})
	}
	must(t, s, good()...)
}

// TestPreemptionNotNeeded: a preemption is refused if the node has room without it.
// proves R44
func TestPreemptionNotNeeded(t *testing.T) {
	s := must(t, crowded(t), &InstanceStop{ID: "i1", Cause: model.CauseJobStopped})
	s = must(t, s, observedAt("n1", "i1", model.ObservedStopped, 2), &JobScale{Job: "low", Group: "g", Count: 1})
	s = must(t, s, &InstanceStop{ID: "i3", Cause: model.CauseScaleDown})
	s = must(t, s, observedAt("n1", "i3", model.ObservedStopped, 2))
	if _, refusal := try(t, s, preemption(s, 8090, "i2")...); refusal == nil || refusal.Code != model.CodeStale {
		t.Errorf("got %v, want stale", refusal)
	}
}

// TestPreemptorEnds: a preemptor that is stopped while it waits for its room becomes terminal at once, and no memory is
// promised to it any more. The same happens if its node is drained, confirmed dead or becomes smaller. If its node only
// goes offline and returns, the preemptor gets its room.
func TestPreemptorEnds(t *testing.T) {
	waiting := func() State { s := crowded(t); return must(t, s, preemption(s, 8081, "i2", "i3")...) }
	halfway := func() State { return must(t, waiting(), observedAt("n1", "i2", model.ObservedStopped, 2)) }
	small := register("n1")
	small.Shape.Capacity.MemoryBytes = 800 << 20
	offline := func(s State) State {
		n := s.nodeRow("n1")
		return must(t, s, &NodeHealth{ID: "n1", Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch})
	}
	gone := func(t *testing.T, s State) {
		t.Helper()
		if p, ok := s.Instances.Get("p1"); ok && !p.Terminal() {
			t.Errorf("it is %s, %s, awaiting %v", p.Desired, p.Status.Observed, p.Links.Awaits)
		}
		if n := s.nodeRow("n1"); n.Promised != 0 {
			t.Errorf("%d bytes are still promised", n.Promised)
		}
	}
	t.Run("stopped", func(t *testing.T) {
		s := must(t, halfway(), &InstanceStop{ID: "p1", Cause: model.CauseUser})
		gone(t, s)
		if s.row(t, "i3").Desired != model.DesiredDraining {
			t.Error("its victim no longer stops")
		}
	})
	t.Run("drained", func(t *testing.T) {
		gone(t,
			must(t, halfway(), &DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}}))
	})
	t.Run("purged", func(t *testing.T) {
		s := must(t, halfway(), &JobStop{Job: "new", Purge: true})
		s = must(t, s, &InstanceStop{ID: "p1", Cause: model.CauseJobStopped})
		gone(t, s)
		if s.Jobs.Has("new") {
			t.Error("the job is still there")
		}
	})
	for name, end := range map[string]Command{
		"purged and drained": &DrainStart{ID: "d1", Nodes: []string{"n1"},
			Options: model.DrainOptions{Deadline: model.Hour}},
		"purged, and node smaller": small,
	} {
		t.Run(name, func(t *testing.T) {
			s := must(t, must(t, halfway(), &JobStop{Job: "new", Purge: true}), end)
			gone(t, s)
			if s.Jobs.Has("new") {
				t.Error("the job is still there")
			}
		})
	}
	t.Run("node offline and dead", func(t *testing.T) {
		s := offline(halfway())
		if p := s.row(t, "p1"); p.Status.Observed != model.ObservedLost || !p.WaitsForRoom() ||
			s.row(t, "i3").Desired != model.DesiredDraining {
			t.Fatalf("on an offline node it is %+v", p)
		}
		gone(t, must(t, s, &NodeConfirmDead{ID: "n1"}))
	})
	t.Run("node offline and back", func(t *testing.T) {
		s := must(t, offline(halfway()), register("n1"))
		s = must(t, s, &NodeReport{ID: "n1", Full: true})
		p := s.row(t, "p1")
		if p.WaitsForRoom() || p.Desired != model.DesiredRunning || s.row(t, "i3").Status.Observed != model.ObservedStopped ||
			s.nodeRow("n1").Promised != 0 {
			t.Errorf("with an empty inventory it is %+v", p)
		}
	})
	t.Run("node smaller", func(t *testing.T) {
		gone(t, must(t, halfway(), small))
	})
}

// TestPreemptFair: if a class has preempt_equal set to fair, its jobs may preempt each other. A job may then take room
// only from the job with the largest share, and only if its own share stays below that share.
//
// proves R11
func TestPreemptFair(t *testing.T) {
	s := crowded(t)
	s = must(t, s, &JobSubmit{Spec: sized("other", model.ClassBatch, 3, 300)})
	if refusal := s.MayTakeFrom("other/g", "low/g"); refusal == nil || refusal.Code != model.CodeConflict {
		t.Errorf("a class that does not say so preempts its own: %v", refusal)
	}
	classes := slices.Clone(s.Classes)
	classes[len(classes)-1].PreemptEqual = model.PreemptFair
	s.Classes = classes
	for _, tt := range []struct {
		running int // running instances of other/g
		ok      bool
	}{{0, true}, {1, false}, {2, false}} {
		f := s.fork()
		edit(&f.Groups, "other/g", func(g *Group) { g.Running = tt.running })
		if refusal := f.MayTakeFrom("other/g", "low/g"); (refusal == nil) != tt.ok {
			t.Errorf("with %d running against 2: %v", tt.running, refusal)
		}
	}
	if s.MayTakeFrom("low/g", "low/g") == nil {
		t.Error("a job preempts itself")
	}
}
