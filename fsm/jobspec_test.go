package fsm

import (
	"strings"
	"testing"
)

// TestSingleHolderOrder: where a slot may never have two instances, the order is stop-first, and asking for surge is refused.
// proves X8
func TestSingleHolderOrder(t *testing.T) {
	volumes := []VolumeSpec{{Name: "data", Kind: VolumeLocal, Path: "/data"}}
	tests := []struct {
		name  string
		group GroupSpec
		says  string // of the refusal; "" for none
	}{
		{"a volume", GroupSpec{Volumes: volumes}, ""},
		{"a volume and stop-first", GroupSpec{Volumes: volumes, Update: UpdateSpec{Order: OrderStopFirst}, Eviction: EvictionSpec{Order: OrderStopFirst}}, ""},
		{"a volume and a surge of updates", GroupSpec{Volumes: volumes, Update: UpdateSpec{Order: OrderSurge}}, `update.order is "surge", but the group has the volume "data"`},
		{"a volume and a surge of evictions", GroupSpec{Volumes: volumes, Eviction: EvictionSpec{Order: OrderSurge}}, `eviction.order is "surge", but the group has the volume "data"`},
		{"exclusive", GroupSpec{Exclusive: &ExclusiveSpec{}}, ""},
		{"exclusive and a surge of updates", GroupSpec{Exclusive: &ExclusiveSpec{}, Update: UpdateSpec{Order: OrderSurge}}, "is exclusive"},
		{"same identity and a surge of evictions", GroupSpec{Replacement: ReplacementSpec{Identity: "same"}, Eviction: EvictionSpec{Order: OrderSurge}}, "keeps the identity"},
		{"neither", GroupSpec{Update: UpdateSpec{Order: OrderSurge}, Eviction: EvictionSpec{Order: OrderSurge}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.group.Name, tt.group.Count, tt.group.Exec.Command = "g", 1, "/bin/x"
			spec := JobSpec{Name: "j", Groups: []GroupSpec{tt.group}}.Expand()
			refusal := spec.Check()
			switch {
			case tt.says == "" && refusal != nil:
				t.Fatalf("refused: %v", refusal)
			case tt.says != "" && (refusal == nil || refusal.Code != CodeInvalid || !strings.Contains(refusal.Message, tt.says) || !strings.Contains(refusal.Hint, "stop_first")):
				t.Fatalf("got %v, want a refusal that says %s", refusal, tt.says)
			}
			g := spec.Groups[0]
			if single := g.OneHolder(); tt.says == "" && single && (g.Eviction.Order != OrderStopFirst || g.Update.Order != OrderStopFirst) {
				t.Errorf("orders are %s and %s, want stop_first", g.Eviction.Order, g.Update.Order)
			}
		})
	}
}

// TestCanceledDrain: a cancelled drain leaves the node out of use until it is uncordoned, and what stops late for it is not counted.
func TestCanceledDrain(t *testing.T) {
	m := NewMachine()
	mustApply(t, m, &ClusterInit{ID: "c1", Name: "test", Settings: DefaultSettings()})
	mustApply(t, m, register("n1"), register("n2"))
	mustApply(t, m, &NodeReport{ID: "n1", Full: true}, &NodeReport{ID: "n2", Full: true})
	mustApply(t, m, &JobSubmit{Spec: webSpec()})
	mustApply(t, m, placed("i1", "web/api", 0, "n1", 20000), placed("i2", "web/api", 1, "n1", 20001))
	mustApply(t, m, observed("n1", "i1", ObservedFailed), observed("n1", "i2", ObservedFailed))
	mustApply(t, m, &DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: DrainOptions{Deadline: Hour}})
	mustApply(t, m, &InstanceStop{ID: "i1", Cause: CauseNodeDraining, By: "d1"})
	mustApply(t, m, &DrainCancel{ID: "d1"})
	mustApply(t, m, &InstanceStop{ID: "i2", Cause: CauseNodeDraining, By: "d1"})
	s := m.State()
	d, _ := s.Drains.Get("d1")
	if part := d.Nodes[0]; part.Phase != PhaseCanceled || part.Moved != 1 {
		t.Errorf("the part is %s with %d moved, want canceled with the 1 that stopped before", part.Phase, part.Moved)
	}
	n, _ := s.Nodes.Get("n1")
	if n.Intent != IntentDraining {
		t.Errorf("the node is %s, want draining until it is uncordoned", n.Intent)
	}
	mustApply(t, m, &NodeIntent{ID: "n1", Intent: IntentActive})
	s = m.State()
	if n, _ = s.Nodes.Get("n1"); n.Intent != IntentActive {
		t.Errorf("after uncordon the node is %s", n.Intent)
	}
}
