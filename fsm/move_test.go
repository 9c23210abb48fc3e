package fsm

import (
	"fmt"
	"testing"

	"github.com/outspan/outspan/model"
)

// move draws an InstanceMove of an instance that may be moved, or of a random instance if no instance may be moved.
func (w world) move() Command {
	inst := w.instance()
	for _, i := range w.s.Instances.All() {
		if w.s.MayMove(i, model.CauseRebalance) == nil {
			if refusal, _ := w.s.MoveWaits(i, true); refusal == nil {
				inst = i
			}
		}
	}
	c := &InstanceMove{ID: inst.ID, Cause: pick(w, model.CauseRebalance, model.CauseAffinity, model.CauseUser),
		Gain: w.int(1, 90), Asked: w.bool(), GroupVersion: inst.Version}
	if n, ok := w.s.Nodes.Get(inst.Node); ok {
		c.SourceVersion = n.Version
	}
	for _, n := range w.s.Nodes.All() {
		if n.ID != inst.Node && w.s.Eligible(n) == nil {
			c.Target, c.TargetVersion = n.ID, n.Version
		}
	}
	if w.rarely(6) {
		c.TargetVersion++
	}
	return c
}

// resting returns the first groups of commands of a history. After these commands, n1 runs two jobs: one whose instance
// may be moved, and one with a local volume and an update that waits to be promoted.
func resting() [][]Command {
	node := &NodeRegister{ID: "n1", Name: "n1.local",
		Agent: model.AgentInfo{BootID: "boot1", Address: "127.0.0.1", Key: []byte("k")},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: 4 << 30}, PortMin: 8000, PortMax: 8007,
			Attributes: map[string]string{model.AttributeBackup: "/b"}}}
	group := model.GroupSpec{Name: "main", Count: 1, Exec: model.ExecSpec{Command: "/bin/app"},
		Resources: model.Resources{MemoryBytes: 1 << 20}}
	keeps := group
	keeps.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
	tries := keeps
	tries.Exec.Command, tries.Update.Canary = "/bin/app2", 1
	submit := func(name model.JobName, g model.GroupSpec) []Command {
		return []Command{&JobSubmit{Spec: model.JobSpec{Name: name, Groups: []model.GroupSpec{g}}}}
	}
	begin := func(id model.InstanceID, group model.GroupID) []Command {
		return []Command{
			&InstancePlace{ID: id, Group: group, Version: 1, Node: "n1", Cause: model.CauseScaleUp},
			&NodeReport{ID: "n1", Instances: []model.InstanceStatus{{ID: id, Generation: 1, Observed: model.ObservedReady}}},
		}
	}
	return [][]Command{
		{node}, {&NodeReport{ID: "n1", Full: true}},
		submit("rest", group), begin("rest1", "rest/main"), submit("keep", keeps), begin("keep1", "keep/main"),
		submit("keep", tries),
	}
}

// rest returns a state with the nodes n1 to n3 and a job with count instances, which have been ready on n1 and n2 for
// an hour.
func rest(t *testing.T, count int) *State {
	t.Helper()
	s := NewState().fork()
	s.begin(1, 1, Entry{At: 1000, Wall: 1})
	must := func(c Command) {
		t.Helper()
		if err := c.apply(s); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		id := model.NodeID(fmt.Sprintf("n%d", i+1))
		must(&NodeRegister{ID: id, Name: string(id),
			Agent: model.AgentInfo{BootID: "b", Incarnation: "i", Address: "127.0.0.1", Key: []byte("k")},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: 4 << 30}, PortMin: 2000, PortMax: 3000}})
		must(&NodeReport{ID: id, Epoch: 1, Full: true})
	}
	must(
		&JobSubmit{
			Spec: model.JobSpec{Name: "web",
				Groups: []model.GroupSpec{{Name: "http", Count: count, Exec: model.ExecSpec{Command: "/bin/web"},
					Resources: model.Resources{MemoryBytes: 64 << 20}}}}})
	for i := range count {
		id := model.InstanceID(fmt.Sprintf("i%d", i))
		node := model.NodeID(fmt.Sprintf("n%d", i%2+1))
		must(&InstancePlace{ID: id, Group: "web/http", Slot: i, Version: 1, Node: node, Cause: model.CauseScaleUp})
		n, _ := s.Nodes.Get(node)
		must(&NodeReport{ID: node, Epoch: n.Agent.Epoch,
			Instances: []model.InstanceStatus{{ID: id, Generation: 1, Observed: model.ObservedReady}}})
	}
	s.Now += model.Time(model.Hour)
	return s
}

func moveOf(s *State, id model.InstanceID, to model.NodeID) *InstanceMove {
	inst, _ := s.Instances.Get(id)
	source, _ := s.Nodes.Get(inst.Node)
	target, _ := s.Nodes.Get(to)
	return &InstanceMove{ID: id, Cause: model.CauseRebalance, SourceVersion: source.Version, Target: to,
		TargetVersion: target.Version, GroupVersion: inst.Version, Gain: 20}
}

func codeOf(err error) model.Code {
	if refusal := asRefusal(err); refusal != nil {
		return refusal.Code
	}
	return ""
}

// proves R49, R55, R57: a move is refused if anything that its plan relied on has changed.
func TestMoveIsRefused(t *testing.T) {
	edit := func(s *State, id model.NodeID, change func(*Node)) {
		n, _ := s.Nodes.Get(id)
		next := *n
		change(&next)
		s.Nodes.put(id, &next)
	}
	for _, tt := range []struct {
		name string
		with func(*State, *InstanceMove)
		want model.Code
	}{
		{"as planned", func(*State, *InstanceMove) {}, ""},
		{"the source changed", func(s *State, _ *InstanceMove) {
			edit(s, "n1", func(n *Node) { n.Version++ })
		}, model.CodeStale},
		{"the target changed", func(s *State, _ *InstanceMove) {
			edit(s, "n3", func(n *Node) { n.Version++ })
		}, model.CodeStale},
		{"the target is cordoned", func(s *State, _ *InstanceMove) {
			edit(s, "n3", func(n *Node) { n.Intent = model.IntentCordoned })
		}, model.CodeNodeNotEligible},
		{"the source is cordoned", func(s *State, _ *InstanceMove) {
			edit(s, "n1", func(n *Node) { n.Intent = model.IntentCordoned })
		}, model.CodeStale},
		{"the target is avoided", func(s *State, _ *InstanceMove) {
			edit(s, "n3", func(n *Node) { n.Avoid = []AvoidEntry{{Group: "web/http", Until: s.Now + 1}} })
		}, model.CodeStale},
		{"avoided until a moment ago", func(s *State, _ *InstanceMove) {
			edit(s, "n3", func(n *Node) { n.Avoid = []AvoidEntry{{Group: "web/http", Until: s.Now}} })
		}, ""},
		{"another version of the group", func(_ *State, c *InstanceMove) { c.GroupVersion++ }, model.CodeStale},
		{"too young", func(s *State, _ *InstanceMove) { s.Settings.MoveMinAge = 2 * model.Hour }, model.CodeActorRate},
		{"in the cool-down", func(s *State, _ *InstanceMove) {
			g, _ := s.Groups.Get("web/http")
			next := *g
			next.MovedAt = s.Now - model.Time(29*model.Minute)
			s.Groups.put(g.ID, &next)
		}, model.CodeActorRate},
		{"the cycle is full", func(s *State, _ *InstanceMove) {
			s.Rails.put(RailMoves, &Rail{Name: RailMoves, Begun: []Tick{{At: s.Now - 1, N: 5}}})
		}, model.CodeActorRate},
		{"the cycle is full, and an operator asks", func(s *State, c *InstanceMove) {
			s.Rails.put(RailMoves, &Rail{Name: RailMoves, Begun: []Tick{{At: s.Now - 1, N: 5}}})
			c.Asked = true
		}, ""},
		{"during a hold", func(s *State, _ *InstanceMove) { s.Hold.Active = true }, model.CodeHold},
		{"another instance is not ready", func(s *State, _ *InstanceMove) {
			inst, _ := s.Instances.Get("i1")
			s.observe(inst, model.InstanceStatus{ID: "i1", Generation: 2, Observed: model.ObservedUnready})
		}, model.CodeReplacementPending},
		{"marked already", func(s *State, _ *InstanceMove) {
			_ = (&InstanceMark{ID: "i0", Requested: true, Cause: model.CauseNodeDraining, By: "d1"}).apply(s)
		}, model.CodeConflict},
		{"no cause of a move", func(_ *State, c *InstanceMove) { c.Cause = model.CauseUser }, model.CodeInvalid},
		{"to where it is", func(s *State, c *InstanceMove) {
			c.Target = "n1"
		}, model.CodeInvalid},
	} {
		s := rest(t, 4)
		c := moveOf(s, "i0", "n3")
		tt.with(s, c)
		if got := codeOf(c.apply(s)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// proves R57: while other instances of a group are down, the stop of a moved instance is refused if it would use the
// part of the budget that the rescheduler must leave unused.
func TestMoveLeavesReserve(t *testing.T) {
	for _, tt := range []struct {
		preset string
		down   int // unready instances, in addition to the one that is moved
		want   model.Code
	}{
		{"careful", 0, ""}, {"careful", 1, model.CodeBudgetMinReady},
		{"balanced", 1, ""}, {"balanced", 2, model.CodeBudgetMinReady},
		{"eager", 2, ""}, {"eager", 3, model.CodeBudgetMinReady},
	} {
		s := rest(t, 8) // max_down is 2
		s.Settings.Rescheduler = tt.preset
		s.Now += model.Time(model.Hour)
		if refusal := s.applyGroup([]Command{moveOf(s, "i0", "n3"),
			&InstancePlace{ID: "j0", Group: "web/http", Slot: 0, Version: 1, Node: "n3", Replaces: "i0",
				Cause: model.CauseRebalance}}); refusal != nil {
			t.Fatalf("%s: %v", tt.preset, refusal)
		}
		stop := &InstanceStop{ID: "i0", Cause: model.CauseRebalance, By: string(model.ByRescheduler)}
		if got := codeOf(stop.apply(s)); got != model.CodeReplacementPending {
			t.Errorf("%s: before its successor is ready: %q", tt.preset, got)
		}
		for i, id := range []model.InstanceID{"j0", "i1", "i2", "i3"}[:1+tt.down] {
			observed := model.ObservedUnready
			if i == 0 {
				observed = model.ObservedReady
			}
			inst, _ := s.Instances.Get(id)
			s.observe(inst, model.InstanceStatus{ID: id, Generation: 2, Observed: observed})
		}
		if got := codeOf(stop.apply(s)); got != tt.want {
			t.Errorf("%s: with %d of 8 down, 2 allowed: %q, want %q", tt.preset, tt.down, got, tt.want)
		}
	}
}

// Within a minute of cluster time, at most 5 % of the instances that should run are stopped without a person's order.
// One stop is always allowed. The state counts these stops, so a change of leader does not reset the count.
func TestRail(t *testing.T) {
	s := rest(t, 4)
	for i := range 3 {
		s.mark2(t, model.InstanceID(fmt.Sprintf("i%d", i)))
	}
	stop := func(i int, by string) model.Code {
		return codeOf((&InstanceStop{ID: model.InstanceID(fmt.Sprintf("i%d", i)), Cause: model.CauseUser, By: by}).apply(s))
	}
	if got := stop(0, ByPolicy); got != "" {
		t.Fatalf("the first stop: %q", got)
	}
	s.revive(t)
	if got := stop(1, ByPolicy); got != model.CodeActorRate {
		t.Errorf("the second stop within a minute: %q", got)
	}
	if got := stop(1, "ann"); got == model.CodeActorRate {
		t.Errorf("a person's stop is held by the rail: %q", got)
	}
	s.revive(t)
	s.Now += model.Time(railWindow)
	if got := stop(2, ByPolicy); got != "" {
		t.Errorf("a minute later: %q", got)
	}
	if rail, _ := s.Rails.Get(RailStops); len(rail.Begun) != 1 {
		t.Errorf("the stop of a minute ago is still on record: %+v", rail.Begun)
	}
}

// UsedBy returns how many of an actor's stops are still within the window of the actor's rate.
func TestUsedBy(t *testing.T) {
	s := rest(t, 1)
	s.Settings.RateOperator = model.ActorRate{Max: 5, Window: model.Minute}
	want := func(when string, want int) {
		t.Helper()
		if got := s.UsedBy(model.ByOperator); got != want {
			t.Errorf("%s: %d stops are counted, want %d", when, got, want)
		}
	}
	want("at first", 0)
	s.spendActor(model.ByOperator)
	s.Now += 1000
	s.spendActor(model.ByOperator)
	want("after two stops", 2)
	s.Now += model.Time(model.Minute) - 1000
	want("a minute after the first", 1)
}

// mark2 requests the eviction of an instance as the policy of a cordon would.
func (s *State) mark2(t *testing.T, id model.InstanceID) {
	t.Helper()
	if err := (&InstanceMark{ID: id, Requested: true, Cause: model.CauseNodeDraining, By: ByPolicy}).apply(s); err != nil {
		t.Fatal(err)
	}
}

// revive fills the slots whose instances are to stop with ready instances, so that no budget prevents further stops.
func (s *State) revive(t *testing.T) {
	t.Helper()
	for slot := range 4 {
		held := false
		for inst := range s.InstancesInSlot("web/http", slot) {
			held = held || inst.Desired == model.DesiredRunning
		}
		if held {
			continue
		}
		id := model.InstanceID(fmt.Sprintf("r%d", slot))
		if err := (&InstancePlace{ID: id, Group: "web/http", Slot: slot, Version: 1, Node: "n3", Cause: model.CauseScaleUp}).
			apply(s); err != nil {
			t.Fatal(err)
		}
		inst, _ := s.Instances.Get(id)
		s.observe(inst, model.InstanceStatus{ID: id, Generation: 1, Observed: model.ObservedReady})
	}
}

// proves R37, R39: a node's avoid list is bounded, with one entry for each group. An expired entry is ignored at once.
// It is removed when another entry is added.
func TestAvoidList(t *testing.T) {
	s := rest(t, 2)
	fail := func(group model.GroupID) {
		s.avoid(&Instance{ID: "x", Group: group, Node: "n1"}, 3, "crash_loop")
	}
	node := func() *Node { n, _ := s.Nodes.Get("n1"); return n }
	for i := range avoidLimit + 10 {
		id := model.GroupID(fmt.Sprintf("web/g%03d", i))
		s.Groups.put(id, &Group{ID: id})
		s.Now++
		fail(id)
	}
	if n := len(node().Avoid); n != avoidLimit {
		t.Errorf("%d entries, want %d", n, avoidLimit)
	}
	if _, ok := node().Avoids("web/g000", 3, s.Now); ok {
		t.Error("the oldest entry is still there")
	}
	if _, ok := node().Avoids("web/g073", 3, s.Now); !ok {
		t.Error("the newest entry is missing")
	}
	fail("web/g073")
	if n := len(node().Avoiding(s.Now)); n != avoidLimit {
		t.Errorf("%d entries after one was renewed, want %d", n, avoidLimit)
	}
	s.Now += model.Time(avoidFor)
	if n := len(node().Avoiding(s.Now)); n != 0 {
		t.Errorf("%d entries hold after an hour", n)
	}
	fail("web/g001")
	if n := len(node().Avoid); n != 1 {
		t.Errorf("%d entries after the next write, want 1", n)
	}
}

// A group avoids a node after a crash loop there, or after an operator's eviction with avoid. An eviction without avoid
// or a restart of the machine has no such effect.
func TestAvoidIsNoted(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*State) error
		want bool
	}{
		{"evict with avoid", func(s *State) error {
			return (&InstanceStop{ID: "i0", Cause: model.CauseUser, By: "ann", Avoid: true}).apply(s)
		}, true},
		{"evict", func(s *State) error {
			return (&InstanceStop{ID: "i0", Cause: model.CauseUser, By: "ann"}).apply(s)
		}, false},
		{"crash loop", func(s *State) error {
			return (&NodeReport{ID: "n1", Epoch: 1,
				Instances: []model.InstanceStatus{
					{ID: "i0", Generation: 2, Observed: model.ObservedFailed, Reason: "crash_loop"}}}).apply(s)
		}, true},
		{"the machine restarted", func(s *State) error {
			return (&NodeReport{ID: "n1", Epoch: 1, Full: true}).apply(s)
		}, false},
	} {
		s := rest(t, 4)
		if err := tt.do(s); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		n, _ := s.Nodes.Get("n1")
		if _, got := n.Avoids("web/http", 1, s.Now); got != tt.want {
			t.Errorf("%s: avoided %v, want %v", tt.name, got, tt.want)
		}
	}
}

// For an eviction with avoid, the reason in the avoid list is the person's message. Without a message, the reason names
// the actor.
func TestAvoidNamesTheActor(t *testing.T) {
	for _, c := range []struct{ by, want string }{{"", "evicted: cli:ann"}, {"bad disk", "evicted: bad disk"}} {
		s := rest(t, 4)
		s.entry.actor = "cli:ann"
		if err := (&InstanceStop{ID: "i0", Cause: model.CauseUser, By: c.by, Avoid: true}).apply(s); err != nil {
			t.Fatal(err)
		}
		n, _ := s.Nodes.Get("n1")
		if got, _ := n.Avoids("web/http", 1, s.Now); got.Reason != c.want {
			t.Errorf("avoided for %q, want %q", got.Reason, c.want)
		}
	}
}
