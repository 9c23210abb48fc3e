package fsm

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

// TestPreemptionProperties checks random histories of a cluster that is too small for its jobs. After each step, Check
// finds nothing, in particular no node with more memory placed and promised than it has. Preemptions have the
// properties that preemptionHolds and toldInTime check. A snapshot is read back as the same state.
func TestPreemptionProperties(t *testing.T) {
	preempted, told, histories := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		histories++
		seq := 0
		s := NewState()
		for step, seed := range seeds(100).Draw(t, "steps") {
			w := newWorld(seed, &s, &seq)
			e := Entry{Format: model.CurrentFormat, At: s.Now + model.Time(w.int(0, 4000)), Actor: model.ActorLeader,
				Groups: [][]Command{w.crowdedCommand()}}
			if step == 0 {
				e.Groups = atEpochs(s, crowdedBeginning()...)
			}
			before := s
			after, results := before.Apply(before.Index+1, 1, e)
			if err := Check(after); err != nil {
				t.Fatalf("after %v:\n%v", e.names(), err)
			}
			if err := CheckStep(before, after); err != nil {
				t.Fatalf("after %v:\n%v", e.names(), err)
			}
			preempted += preemptionHolds(t, before, after, e, results)
			told += toldInTime(t, before, after)
			again, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, after)))
			if err != nil || Digest(again) != Digest(after) || Check(again) != nil {
				t.Fatalf("after %v: from its snapshot it is another state: %v, %v", e.names(), err, Check(again))
			}
			s = after
		}
	})
	t.Logf("in %d histories %d preemptions, %d preemptors that got their room", histories, preempted, told)
	if histories >= 100 && (preempted < histories || told < histories/4) {
		t.Error("that is too few to prove anything")
	}
}

type fatal interface {
	Fatalf(format string, args ...any)
}

// toldInTime returns how many preemptors stopped waiting between the two states. For each of them, it checks that the
// memory and ports of its victims are free, and that the agent of its node is woken.
func toldInTime(t fatal, before, after State) int {
	n := 0
	for id, a := range before.Instances.All() {
		b, ok := after.Instances.Get(id)
		if !a.WaitsForRoom() || !ok || b.WaitsForRoom() || b.Desired != model.DesiredRunning {
			continue
		}
		n++
		for _, victim := range a.Links.Awaits {
			if v, ok := after.Instances.Get(victim); ok && v.holdsClaims() {
				t.Fatalf("%s is told to its agent, and %s has not stopped: %s, %s", id, victim, v.Desired, v.Status.Observed)
			}
		}
		if node, _ := after.Nodes.Get(b.Node); node.Assigned != after.Index {
			t.Fatalf("%s got its room at index %d, and its agent is not woken", id, after.Index)
		}
	}
	return n
}

// crowdedBeginning returns commands that make three nodes of 1000 MiB each, and jobs of several classes that want 5700
// MiB in all. Jobs of the class batch may preempt each other fairly.
func crowdedBeginning() [][]Command {
	settings := model.DefaultSettings()
	settings.InstanceOverhead = 0
	groups := [][]Command{{&ClusterInit{ID: "c1", Name: "test", Settings: settings}}}
	for _, id := range []model.NodeID{"n1", "n2", "n3"} {
		n := register(id)
		n.Shape.Capacity.MemoryBytes, n.Shape.PortMin, n.Shape.PortMax = 1000<<20, 8000, 8007
		groups = append(groups, []Command{n}, []Command{&NodeReport{ID: id, Full: true}})
	}
	groups = append(groups, []Command{&ClassSet{Name: model.ClassBatch, PreemptEqual: model.PreemptFair}})
	for _, spec := range []model.JobSpec{
		sized("top", model.ClassCritical, 3, 400), sized("mid", model.ClassProduction, 4, 500),
		sized("low", model.ClassBatch, 5, 300), sized("less", model.ClassBatch, 5, 200),
	} {
		if spec.Name == "mid" {
			spec.Groups[0].Budget = &model.BudgetSpec{MinReady: &model.Amount{N: 1}}
		}
		groups = append(groups, []Command{&JobSubmit{Spec: spec}})
	}
	return groups
}

// crowdedCommand draws a group of commands for a cluster that began with crowdedBeginning.
func (w world) crowdedCommand() []Command {
	switch at := w.int(0, 99); {
	case at < 25:
		return []Command{w.place()}
	case at < 50:
		return w.preemption()
	case at < 80:
		return []Command{w.agentWorks()}
	case at < 88:
		return []Command{w.stop()}
	case at < 91:
		n := w.node()
		return []Command{&NodeHealth{ID: n.ID, Health: pick(w, model.HealthOffline, model.HealthOnline),
			BootID: n.Agent.BootID, Epoch: n.Agent.Epoch}}
	case at < 96:
		id := w.offline()
		if w.rarely(3) {
			return []Command{&NodeConfirmDead{ID: id, Force: true}}
		}
		n := register(id)
		n.Shape.Capacity.MemoryBytes, n.Shape.PortMin, n.Shape.PortMax = pick[int64](w, 1000, 1000, 700)<<20, 8000, 8007
		next, _ := w.s.Nodes.Get(id)
		if next == nil {
			return []Command{n}
		}
		return []Command{n, &NodeReport{ID: id, Epoch: next.Agent.Epoch + 1, Full: true}}
	}
	return []Command{pick[Command](w,
		&NodeIntent{ID: w.node().ID, Intent: pick(w, model.IntentActive, model.IntentCordoned)},
		&DrainStart{ID: model.DrainID(w.fresh("d")), Nodes: []string{string(w.node().ID)},
			Options: model.DrainOptions{Deadline: model.Hour}},
		&NodeIntent{ID: w.node().ID, Intent: model.IntentActive},
		&JobScale{Job: key(w, w.s.Jobs), Group: "g", Count: w.int(1, 5)})}
}

// agentWorks draws an agent's report about some of its instances. Instances that should run are reported as ready, and
// the others as stopped.
func (w world) agentWorks() Command {
	n := w.node()
	c := &NodeReport{ID: n.ID, Epoch: n.Agent.Epoch}
	for i := range w.s.InstancesOn(n.ID) {
		if i.Terminal() || w.rarely(3) {
			continue
		}
		status := model.InstanceStatus{ID: i.ID, Generation: i.Status.Generation + 1, Observed: model.ObservedReady}
		if i.Desired != model.DesiredRunning {
			status.Observed = model.ObservedStopped
		}
		c.Instances = append(c.Instances, status)
	}
	return c
}

// preemption draws a preemption that the state accepts. After 40 tries without success, it returns the last try.
func (w world) preemption() []Command {
	var group []Command
	for range 40 {
		place := w.place().(*InstancePlace)
		n, ok := w.s.Nodes.Get(place.Node)
		if !ok {
			continue
		}
		place.NodeVersion = n.Version
		group = nil
		all := w.bool()
		for i := range w.s.InstancesOn(n.ID) {
			lower := w.s.MayTakeFrom(place.Group, i.Group) == nil || w.rarely(20)
			if lower && i.Desired == model.DesiredRunning && i.ID != place.Replaces && (all || w.bool()) {
				place.Awaits = append(place.Awaits, i.ID)
				group = append(group, &InstanceStop{ID: i.ID, Cause: model.CausePreempted, By: string(place.ID)})
			}
		}
		if w.rarely(20) {
			place.NodeVersion--
		}
		if group = append(group, place); len(place.Awaits) > 0 && w.s.NewDraft(w.s.Now).Try(group...) == nil {
			return group
		}
	}
	return group
}

// preemptionHolds checks an entry of one group of commands, and returns how many preemptors the group placed. The group
// must place each preemptor for which it stops instances, and the preemptor must await them. The stopped instances must
// be of a lower class, or of the same class if instances of this class may preempt each other fairly.
func preemptionHolds(t fatal, before, after State, e Entry, results []Result) int {
	if len(e.Groups) != 1 || results[0].Refusal != nil || results[0].Replay {
		return 0
	}
	stopped := map[model.InstanceID][]model.InstanceID{}
	for _, c := range e.Groups[0] {
		if stop, ok := c.(*InstanceStop); ok && stop.Cause == model.CausePreempted {
			stopped[model.InstanceID(stop.By)] = append(stopped[model.InstanceID(stop.By)], stop.ID)
		}
	}
	for by, victims := range stopped {
		p, ok := after.Instances.Get(by)
		if !ok || before.Instances.Has(by) || !p.WaitsForRoom() && p.Desired == model.DesiredRunning {
			t.Fatalf("%v were stopped for %s, which does not wait: %+v", victims, by, p)
		}
		taker, _ := before.Jobs.Get(jobOf(p.Group))
		for _, id := range victims {
			i, _ := before.Instances.Get(id)
			owner, _ := before.Jobs.Get(jobOf(i.Group))
			class, rank, _ := before.Class(taker.Class)
			if other := before.ClassRank(owner.Class); other < rank || other == rank && class.PreemptEqual != model.PreemptFair {
				t.Fatalf("%s of class %s was stopped for one of class %s", id, owner.Class, taker.Class)
			}
			if p.Desired == model.DesiredRunning && !slices.Contains(p.Links.Awaits, id) {
				t.Fatalf("%s was stopped for %s, which awaits %v", id, by, p.Links.Awaits)
			}
		}
	}
	return len(stopped)
}
