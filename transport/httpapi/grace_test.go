package httpapi_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// An instance that was replaced while its node was offline stops with its grace when the node is back. Meanwhile an
// ordinary stop is refused, because the instance already stops. A stop with a grace of zero makes the agent kill the
// instance.
func TestGraceIsTakenAway(t *testing.T) {
	r := newRig(t)
	r.world()
	n, _ := r.machine.State().Nodes.Get("01N1")
	r.apply(&fsm.NodeHealth{ID: "01N1", Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch})
	r.apply(&fsm.InstancePlace{ID: "inst-z", Group: "web/http", Version: 1, Node: "01N2", Replaces: "inst-a",
		Ports: model.Ports{{Name: "http", Number: 20009}}, Cause: model.CauseNodeOffline})
	r.apply(&fsm.NodeReport{ID: "01N2", Epoch: r.epoch("01N2"),
		Instances: []model.InstanceStatus{{ID: "inst-z", Generation: 1, Observed: model.ObservedReady}}})
	r.apply(&fsm.InstanceStop{ID: "inst-a", Cause: model.CauseNodeOffline})
	r.apply(&fsm.NodeRegister{ID: "01N1", Name: "n1", Agent: n.Agent, Shape: n.Shape})
	r.apply(&fsm.NodeReport{ID: "01N1", Epoch: r.epoch("01N1"), Full: true,
		Instances: []model.InstanceStatus{{ID: "inst-a", Generation: 9, Observed: model.ObservedReady}}})

	agent := r.client(pki.RoleAgent, "n1")
	index := uint64(0)
	told := func(want model.Desired) {
		t.Helper()
		got := must(agent.Assignments(t.Context(),
			transport.AssignmentsRequest{Node: "01N1", Epoch: r.epoch("01N1"), Index: index, Wait: 30 * model.Second}))(t)
		i := slices.IndexFunc(got.Instances, func(one transport.Assignment) bool { return one.ID == "inst-a" })
		if i < 0 || got.Instances[i].Desired != want {
			t.Errorf("its agent is told %+v, want inst-a %s", got.Instances, want)
		}
		if got.Index <= index {
			t.Errorf("the agent was not called: index %d after %d", got.Index, index)
		}
		index = got.Index
	}
	told(model.DesiredDraining)
	c := r.cli()
	_, _, err := c.Do(t.Context(), "POST", "/v1/instances/inst-a/stop", nil, map[string]any{})
	wantCode(t, err, model.CodeStopping)
	if _, _, err := c.Do(t.Context(), "POST", "/v1/instances/inst-a/stop", nil,
		map[string]any{"grace": "0s"}); err != nil {
		t.Fatal(err)
	}
	told(model.DesiredStopped)
}

// A stop is not an eviction: it refuses the options of an eviction that would take it back, or make it wait.
func TestStopRefusesOptionsOfAnEviction(t *testing.T) {
	r := newRig(t)
	r.world()
	for option, hint := range map[string]string{
		"cancel": "outspan instance evict inst-a --cancel", "surge": "evict the instance",
	} {
		_, _, err := r.cli().Do(t.Context(), "POST", "/v1/instances/inst-a/stop", nil, map[string]any{option: true})
		wantCode(t, err, model.CodeInvalid)
		if e, _ := errors.AsType[*model.Error](err); !strings.Contains(e.Hint, hint) {
			t.Errorf("%s: the hint is %q, want %q in it", option, e.Hint, hint)
		}
		s := r.machine.State()
		if i, _ := s.Finder(nil).FindInstance("inst-a"); i.Desired != model.DesiredRunning {
			t.Errorf("%s: the instance is to be %s", option, i.Desired)
		}
	}
}
