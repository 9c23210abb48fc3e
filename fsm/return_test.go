package fsm

import (
	"errors"
	"testing"

	"github.com/outspan/outspan/model"
)

// S7: a replacement that was decided before a node returned is refused after the return, because the instance that it
// would replace runs.
func TestReturnedInstanceIsNotReplaced(t *testing.T) {
	m := NewMachine()
	mustApply(t, m, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	for _, id := range []model.NodeID{"n1", "n2"} {
		mustApply(t, m, register(id), &NodeReport{ID: id, Full: true})
	}
	mustApply(t, m, &JobSubmit{Spec: webSpec()})
	mustApply(t, m, placed("i1", "web/api", 0, "n1", 20000))
	mustApply(t, m, observed("n1", "i1", model.ObservedReady))
	n, _ := m.State().Nodes.Get("n1")
	mustApply(t, m, &NodeHealth{ID: "n1", Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch})
	late := placed("i2", "web/api", 0, "n2", 20000)
	late.Replaces, late.Cause = "i1", model.CauseNodeOffline
	try := func() error {
		s := m.State()
		_, results := s.Apply(s.Index+1, 1, Entry{Format: model.CurrentFormat, At: s.Now, Groups: [][]Command{{late}}})
		if results[0].Refusal == nil {
			return nil
		}
		return results[0].Refusal
	}
	if err := try(); err != nil {
		t.Fatalf("while it is lost: %v", err)
	}
	mustApply(t, m, register("n1"))
	mustApply(t,
		m,
		&NodeReport{ID: "n1", Full: true,
			Instances: []model.InstanceStatus{{ID: "i1", Generation: 2, Observed: model.ObservedUnready}}})
	if err := try(); !errors.Is(err, &model.Error{Code: model.CodeStale}) {
		t.Errorf("after it returned: %v, want stale", err)
	}
}

// L4: a verdict on a node's health is applied even if the node's labels or intent have changed since the decision. The
// verdict is refused if the node has registered again.
func TestHealthIsOfARegistration(t *testing.T) {
	for _, tt := range []struct {
		name      string
		meanwhile Command
		want      error
	}{
		{"a label", &NodeLabel{ID: "n1", Labels: map[string]string{"rack": "r1"}}, nil},
		{"an intent", &NodeIntent{ID: "n1", Intent: model.IntentCordoned}, nil},
		{"its registration", register("n1"), &model.Error{Code: model.CodeStale}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMachine()
			mustApply(t, m, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()}, register("n1"))
			n, _ := m.State().Nodes.Get("n1")
			judged := &NodeHealth{ID: n.ID, Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch}
			mustApply(t, m, tt.meanwhile)
			s := m.State()
			_, results := s.Apply(s.Index+1, 1, Entry{Format: model.CurrentFormat, At: s.Now, Groups: [][]Command{{judged}}})
			switch refusal := results[0].Refusal; {
			case tt.want == nil && refusal != nil:
				t.Errorf("refused: %v", refusal)
			case tt.want != nil && (refusal == nil || !errors.Is(refusal, tt.want)):
				t.Errorf("%v, want %v", refusal, tt.want)
			}
		})
	}
}

// The preparation of an instance ends if its drain is canceled, or if its node is uncordoned or disabled. The node's
// agent is woken at once.
func TestCancelledPreparationIsTold(t *testing.T) {
	spec := webSpec()
	spec.Groups = spec.Groups[:1]
	spec.Groups[0].Eviction.Order = model.OrderStopFirst
	spec.Groups[0].Hooks = []model.HookSpec{{Name: model.HookBeforeStop, Exec: []string{"/bin/h"}}}
	start := run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()},
		register("n1"), &NodeReport{ID: "n1", Full: true},
		&JobSubmit{Spec: spec}, placed("i1", "web/api", 0, "n1", 20000), placed("i2", "web/api", 1, "n1", 20001),
		observed("n1", "i1", model.ObservedReady), observed("n1", "i2", model.ObservedReady),
		&DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}},
		&InstancePrepare{ID: "i1", Cause: model.CauseNodeDraining, By: "d1"})
	for name, end := range map[string]Command{
		"drain cancelled": &DrainCancel{ID: "d1", Uncordon: true},
		"node uncordoned": &NodeIntent{ID: "n1", Intent: model.IntentActive},
		"node disabled":   &NodeIntent{ID: "n1", Intent: model.IntentDisabled},
	} {
		s := run(t, start, 2000, end)
		inst, _ := s.Instances.Get("i1")
		n, _ := s.Nodes.Get("n1")
		if inst.Preparation() != 0 || n.Assigned != s.Index {
			t.Errorf("%s at index %d: preparation %d, the agent was told at %d", name, s.Index, inst.Preparation(), n.Assigned)
		}
	}
}
