package fsm

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

// A report for which News returns false does not change the state. It changes no later state either, unless it is an
// inventory.
func TestReportWithoutNewsChangesNothing(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		h := newRandomLog(t)
		var silent []*NodeReport
		for _, seed := range seeds(40).Draw(t, "steps") {
			h.step(seed, map[string]int{})
			// a forgotten node takes no reports
			silent = slices.DeleteFunc(silent, func(c *NodeReport) bool { return !h.first.Nodes.Has(c.ID) })
			if c, ok := newWorld(seed, &h.first, &h.seq).nodeReport().(*NodeReport); ok && !c.News(&h.first) {
				silent = append(silent, c)
			}
			if c := repeated(h.first); c != nil {
				if c.News(&h.first) {
					t.Fatalf("what the state holds is news: %+v", c)
				}
				silent = append(silent, c)
			}
			found += len(silent)
			silent = silent[max(0, len(silent)-6):]
			for _, c := range silent {
				draft := h.first.NewDraft(h.first.Now)
				if draft.Try(c) == nil && !untouched(h.first, *draft.State()) {
					t.Fatalf("a report that was no news changed something at index %d: %+v", h.first.Index, c)
				}
				c.Full = false // an inventory would lack instances that are placed from now on
			}
		}
	})
	if found == 0 {
		t.Error("every report was news")
	}
}

// Reports of several agents in one entry have the same effect as in separate entries. A refused report does not affect
// the others. Events that a report causes have the reporting agent as their actor.
func TestReportsInOneEntry(t *testing.T) {
	s := bigState(t, size{nodes: 3, instances: 6})
	var entry Entry
	want := map[string]model.Actor{}
	for id, n := range s.Nodes.All() {
		c := &NodeReport{ID: id, Epoch: n.Agent.Epoch, FactsGen: n.FactsGen}
		for i := range s.InstancesOn(id) {
			if !i.WaitsForRoom() {
				status := i.Status
				status.Generation++
				status.Observed, status.Reason = model.ObservedFailed, "test"
				c.Instances = append(c.Instances, status)
				want[string(i.ID)] = model.ActorAgent(n.Name)
			}
		}
		entry.Groups = append(entry.Groups, []Command{c}, []Command{&NodeReport{ID: id, Epoch: n.Agent.Epoch + 7}})
	}
	if len(want) < 2 {
		t.Fatalf("%d instances are too few", len(want))
	}
	entry.Format, entry.At, entry.Actor = model.CurrentFormat, s.Now+1, model.ActorAgents
	after, results := s.Apply(s.Index+1, s.LogTerm, entry)
	for i, r := range results {
		if refused := r.Refusal != nil; refused != (i%2 == 1) {
			t.Errorf("group %d: %v", i, r.Refusal)
		}
	}
	got := map[string]model.Actor{}
	for _, e := range after.Events.All() {
		if id, ok := strings.CutPrefix(e.Subject, "instance/"); ok && e.Type == model.EventStatus &&
			e.Key.Index() == after.Index {
			got[id] = e.Actor
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("actors of what was reported (-want +got):\n%s", diff)
	}
}

// repeated returns a report that only repeats what the state has recorded of some node, so that News must return false.
// It returns nil if no node allows such a report.
func repeated(s State) *NodeReport {
	for id, n := range s.Nodes.All() {
		c := &NodeReport{ID: id, Epoch: n.Agent.Epoch, FactsGen: n.FactsGen, Full: !n.Return.Recovering,
			Self: &model.SelfReport{Gen: n.Self.Gen, Troubles: n.Self.Troubles, Disk: n.Self.Disk, Measured: true}}
		told := true // false if c has a status from an earlier registration or lacks an instance, so that News is true
		for i := range s.InstancesOn(id) {
			if !i.WaitsForRoom() && i.Status.Observed != model.ObservedLost {
				told = told && (i.Status.Epoch == c.Epoch || i.Terminal() || i.Status.Observed == model.ObservedPending)
				c.Instances = append(c.Instances, i.Status)
			}
		}
		told = told && len(s.missing(c)) == 0 // c lacks lost instances that the agent has not reported since
		if told && len(c.Instances) > 0 && n.TakesReport(c.Epoch) == nil {
			return c
		}
	}
	return nil
}

// untouched reports whether b, a fork of a, has the same rows of nodes, instances, groups and transfers as a, and the
// same number of events.
func untouched(a, b State) bool {
	return rowsKept(a.Nodes, b.Nodes) && rowsKept(a.Instances, b.Instances) && rowsKept(a.Groups, b.Groups) &&
		rowsKept(a.Transfers, b.Transfers) && a.Events.Len() == b.Events.Len()
}

func rowsKept[K ~string, V any](a, b Table[K, *V]) bool {
	for k, row := range a.All() {
		if now, ok := b.Get(k); !ok || now != row {
			return false
		}
	}
	return a.Len() == b.Len()
}

// S9: an older report that arrives after an inventory does not bring back an instance that the inventory lacks.
func TestLateReportBringsNothingBack(t *testing.T) {
	m := gateWorld(t, model.RoleLeaderFollower, 1)
	tells(t, m, 0, kv(model.FactLeader, "true"))
	inst, _ := m.State().Instances.Get("i0")
	late := &NodeReport{ID: "n0", Instances: []model.InstanceStatus{inst.Status}}
	mustApply(t, m, &NodeReport{ID: "n0", Full: true})
	mustApply(t, m, late)
	if inst, _ = m.State().Instances.Get("i0"); inst.Status.Observed != model.ObservedFailed ||
		inst.Status.Reason != "gone_from_node" {
		t.Errorf("it is %s again (%s)", inst.Status.Observed, inst.Status.Reason)
	}
}

// If an agent could not write its journal, its generations after a restart are lower than those that it had reported.
// The state accepts the lower generations, because they belong to a new registration. Within one registration, a report
// with a lower generation is ignored.
func TestGenerationsThatGoBack(t *testing.T) {
	m := gateWorld(t, model.RoleService, 1)
	say := func(epoch, generation uint64, observed model.Observed) {
		t.Helper()
		mustApply(t, m,
			&NodeReport{ID: "n0", Epoch: epoch, Full: true,
				Instances: []model.InstanceStatus{{ID: "i0", Generation: generation, Observed: observed, Reason: "shim_lost"}}})
	}
	status := func() model.InstanceStatus {
		s := m.State()
		i, _ := s.Instances.Get("i0")
		return i.Status
	}
	say(0, 110, model.ObservedReady)
	mustApply(t, m, register("n0"))
	say(0, 101, model.ObservedReady)
	if got := status(); got.Generation != 101 {
		t.Errorf("the inventory of the new registration has generation 101, the state %d", got.Generation)
	}
	say(0, 102, model.ObservedFailed)
	if got := status(); got.Observed != model.ObservedFailed {
		t.Errorf("S8: the new registration says failed at generation 102; the state says %s at %d",
			got.Observed, got.Generation)
	}
	say(0, 101, model.ObservedReady)
	if got := status(); got.Observed != model.ObservedFailed {
		t.Errorf("a report that came late made it %s", got.Observed)
	}
}
