package httpapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// When a stop is prepared, the agent's poll returns at once. The assignment has the preparation's number and cause, and
// the gates that concern the instance alone. The API shows the instance's facts and the outcome of the preparation.
func TestPreparationOfAStop(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	r.node("01N2", "n2")
	db := spec("web", 1)
	g := &db.Groups[0]
	g.Budget, g.Role = &model.BudgetSpec{MinReady: &model.Amount{}}, model.RoleLeaderFollower
	g.Eviction = model.EvictionSpec{When: []string{"!self.leader", "group.ready >= 1"}, Order: model.OrderStopFirst}
	g.RoleCheck = &model.RoleCheckSpec{Exec: []string{"/bin/facts"}}
	g.Hooks = []model.HookSpec{{Name: model.HookBeforeStop, Exec: []string{"/bin/resign"}}}
	r.apply(&fsm.JobSubmit{Spec: db})
	r.place("inst-a", 0, "01N2", model.ObservedReady)
	report := func(generation, facts uint64, leader string, hook *model.HookResult) {
		t.Helper()
		status := model.InstanceStatus{ID: "inst-a", Generation: generation, Observed: model.ObservedReady,
			Facts: map[string]string{"leader": leader}, Hook: hook}
		must(r.client(pki.RoleAgent, "n2").
			Report(t.Context(),
				transport.ReportRequest{Node: "01N2", Epoch: r.epoch("01N2"), Instances: []model.InstanceStatus{status},
					FactsGen: facts}))(t)
	}
	report(2, 2, "true", nil)
	r.apply(&fsm.DrainStart{ID: "d1", Nodes: []string{"n2"}, Options: model.DrainOptions{Deadline: model.Hour}})
	r.apply(&fsm.DrainTurn{ID: "d1", Node: "01N2"})
	c := r.client(pki.RoleAgent, "n2")
	first := must(c.Assignments(t.Context(), transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2")}))(t)
	if one := first.Instances[0]; one.Prepare != 0 || one.Gates != nil || one.Cause != "" || one.Fencing != 0 {
		t.Errorf("before it: %+v", one)
	}
	done := r.assignmentsAfter(t, c, first.Index)
	r.apply(&fsm.InstancePrepare{ID: "inst-a", Cause: model.CauseNodeDraining, By: "d1",
		Facts: []fsm.FactsRef{{Node: "01N2", Gen: 2}}})
	got := <-done
	if one := got.Instances[0]; one.Prepare != 1 || !slices.Equal(one.Gates, []string{"!self.leader"}) ||
		one.Cause != model.CauseNodeDraining || one.Desired != model.DesiredRunning {
		t.Errorf("preparing: %+v", one)
	}
	show := func() api.Instance {
		t.Helper()
		text, _, err := r.cli().Do(t.Context(), http.MethodGet, "/v1/instances/inst-a", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var i api.Instance
		if err := json.Unmarshal(text, &i); err != nil {
			t.Fatal(err)
		}
		return i
	}
	if i := show(); !i.Eviction.Preparing || i.Facts["leader"] != "true" {
		t.Errorf("shown: %+v", i)
	}
	report(3, 2, "true", &model.HookResult{Seq: 1, Message: "hook before_stop: exit code 1"})
	done = r.assignmentsAfter(t, c, got.Index)
	r.apply(&fsm.InstanceRelease{ID: "inst-a", Seq: 1, Failure: "hook before_stop: exit code 1"})
	if got = <-done; got.Instances[0].Prepare != 0 || got.Instances[0].Gates != nil {
		t.Errorf("given up: %+v", got.Instances[0])
	}
	if i := show(); i.Eviction.Preparing || i.Eviction.Failure != "hook before_stop: exit code 1" {
		t.Errorf("shown: %+v", i.Eviction)
	}
	r.apply(&fsm.InstancePrepare{ID: "inst-a", Cause: model.CauseNodeDraining, By: "d1",
		Facts: []fsm.FactsRef{{Node: "01N2", Gen: 2}}})
	report(4, 3, "false", &model.HookResult{Seq: 2, OK: true})
	r.apply(&fsm.InstanceStop{ID: "inst-a", Cause: model.CauseNodeDraining, By: "d1",
		Facts: []fsm.FactsRef{{Node: "01N2", Gen: 3}}})
	got = must(c.Assignments(t.Context(), transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2")}))(t)
	if one := got.Instances[0]; one.Desired != model.DesiredDraining || one.Prepare != 0 ||
		!slices.Equal(one.Gates, []string{"!self.leader"}) || one.Cause != model.CauseNodeDraining {
		t.Errorf("stopping: %+v", one)
	}
}

// If a drain or a person stops an instance, the agent gets the gates to check once more, also if the stop's reason has
// further text. If the drain is forced or the stop bypasses budgets, the agent gets no gates.
func TestGatesOfAStop(t *testing.T) {
	for name, test := range map[string]struct {
		force  bool
		bypass bool
		cause  model.Cause
		by     string
		gates  []string
	}{
		"drain without surge": {cause: model.CauseNodeDraining, by: "d1", gates: []string{"!self.leader"}},
		"drain with force":    {force: true, cause: model.CauseNodeDraining, by: "d1"},
		"a person's stop":     {cause: model.CauseUser, by: "ann", gates: []string{"!self.leader"}},
		"a person's bypass":   {cause: model.CauseUser, by: "ann", bypass: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.node("01N1", "n1")
			r.node("01N2", "n2")
			r.apply(&fsm.ClassSet{Name: model.ClassProduction, Quota: &model.Quota{Instances: 1}}) // no room for a surge
			db := spec("web", 1)
			g := &db.Groups[0]
			g.Budget, g.Role, g.RoleCheck = &model.BudgetSpec{MinReady: &model.Amount{}}, model.RoleLeaderFollower,
				&model.RoleCheckSpec{Exec: []string{"/bin/facts"}}
			g.Eviction = model.EvictionSpec{When: []string{"!self.leader"}, Order: model.OrderSurge}
			r.apply(&fsm.JobSubmit{Spec: db})
			r.place("inst-a", 0, "01N2", model.ObservedReady)
			c := r.client(pki.RoleAgent, "n2")
			report := func(generation uint64, hook *model.HookResult) {
				t.Helper()
				status := model.InstanceStatus{ID: "inst-a", Generation: generation, Observed: model.ObservedReady,
					Facts: map[string]string{"leader": "false"}, Hook: hook}
				must(c.Report(t.Context(),
					transport.ReportRequest{Node: "01N2", Epoch: r.epoch("01N2"),
						Instances: []model.InstanceStatus{status}, FactsGen: 2}))(t)
			}
			report(2, nil)
			r.apply(&fsm.DrainStart{ID: "d1", Nodes: []string{"n2"},
				Options: model.DrainOptions{Deadline: model.Hour, Force: test.force}})
			r.apply(&fsm.DrainTurn{ID: "d1", Node: "01N2"})
			if test.cause == model.CauseNodeDraining {
				r.apply(&fsm.InstanceMark{ID: "inst-a", Requested: true, Cause: test.cause, By: test.by})
			}
			if test.gates != nil {
				r.apply(&fsm.InstancePrepare{ID: "inst-a", Cause: test.cause, By: test.by,
					Facts: []fsm.FactsRef{{Node: "01N2", Gen: 2}}})
				report(3, &model.HookResult{Seq: 1, OK: true})
			}
			r.apply(&fsm.InstanceStop{ID: "inst-a", Cause: test.cause, By: test.by, Bypass: test.bypass,
				Facts: []fsm.FactsRef{{Node: "01N2", Gen: 2}}})
			got := must(c.Assignments(t.Context(), transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2")}))(t)
			if one := got.Instances[0]; one.Desired != model.DesiredDraining || !slices.Equal(one.Gates, test.gates) {
				t.Errorf("it is %s, with the gates %v, want %v", one.Desired, one.Gates, test.gates)
			}
			if i, _ := r.machine.State().Instances.Get("inst-a"); test.cause == model.CauseNodeDraining &&
				i.Marks.StopReason == test.by {
				t.Errorf("the reason %q says only whose the stop is: nothing is tested", i.Marks.StopReason)
			}
		})
	}
}

// The fencing epoch of a slot grows with each new instance in the slot, even if the job is purged and submitted again.
// It also grows when a snapshot is restored.
func TestFencingEpoch(t *testing.T) {
	r := newRig(t)
	r.node("01N2", "n2")
	one := spec("web", 2)
	one.Groups[0].Exclusive, one.Groups[0].Budget = &model.ExclusiveSpec{}, &model.BudgetSpec{MinReady: &model.Amount{}}
	r.apply(&fsm.JobSubmit{Spec: one})
	epochs := func() map[model.InstanceID]uint64 {
		t.Helper()
		got := must(r.client(pki.RoleAgent, "n2").
			Assignments(t.Context(), transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2")}))(t)
		all := map[model.InstanceID]uint64{}
		for _, i := range got.Instances {
			all[i.ID] = i.Fencing
		}
		return all
	}
	r.place("inst-a", 0, "01N2", model.ObservedReady)
	first := epochs()["inst-a"]
	r.apply(&fsm.InstanceStop{ID: "inst-a", Cause: model.CauseUser, Bypass: true})
	r.apply(&fsm.NodeReport{ID: "01N2", Epoch: r.epoch("01N2"),
		Instances: []model.InstanceStatus{{ID: "inst-a", Generation: 2, Observed: model.ObservedStopped}}})
	r.place("inst-b", 0, "01N2", model.ObservedReady)
	second := epochs()["inst-b"]
	r.apply(&fsm.JobStop{Job: "web", Purge: true})
	r.apply(&fsm.InstanceStop{ID: "inst-b", Cause: model.CauseJobStopped})
	r.apply(&fsm.NodeReport{ID: "01N2", Epoch: r.epoch("01N2"),
		Instances: []model.InstanceStatus{{ID: "inst-b", Generation: 2, Observed: model.ObservedStopped}}})
	r.apply(&fsm.JobSubmit{Spec: one})
	r.place("inst-c", 0, "01N2", model.ObservedReady)
	third := epochs()["inst-c"]
	r.apply(&fsm.RestoreMark{})
	if fourth := epochs()["inst-c"]; first == 0 || second <= first || third <= second || fourth <= third {
		t.Errorf("fencing epochs %d, %d, %d of a job that was made again, and %d after a restore",
			first, second, third, fourth)
	}
}
