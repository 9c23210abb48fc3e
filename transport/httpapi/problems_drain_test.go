package httpapi_test

import (
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A drain that waits for a person is a problem, which says what unblocks the drain. A drain that makes progress is no
// problem.
func TestProblemOfABlockedDrain(t *testing.T) {
	r := newRig(t)
	r.world()
	r.place("inst-c", 2, "01N2", model.ObservedReady)
	r.apply(&fsm.DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
	local := func(id model.InstanceID) model.Blocker {
		return model.Blocker{Code: model.CodeVolumeLocal, Instance: id,
			Message: "instance " + string(id) + " holds a local volume", Unblock: "outspan node ack-blockers n1"}
	}
	for _, c := range []struct {
		name     string
		blockers []model.Blocker
		want     string
	}{
		{"nothing", nil, ""},
		{"what passes",
			[]model.Blocker{{Code: model.CodeStopping}, {Code: model.CodeBudgetRate}, {Code: model.CodeReplacementPending}}, ""},
		{
			"one", []model.Blocker{{Code: model.CodeStopping}, local("inst-a")},
			"drain_blocked drain/d1: it waits on n1: volume_local: instance inst-a holds a local volume -> outspan node " +
				"ack-blockers n1; see: outspan drain status d1",
		},
		{
			"several",
			[]model.Blocker{local("inst-a"), local("inst-b"),
				{Code: model.Unschedulable(model.CodeNoMemory), Message: "no room"}},
			"drain_blocked drain/d1: it waits on n1: volume_local: 2 instances (inst-a, inst-b): the instance holds a local " +
				"volume (one of 2 reasons)" +
				" -> outspan node ack-blockers n1; see: outspan drain status d1",
		},
		{
			"no way out is known", []model.Blocker{{Code: model.Unschedulable(model.CodeNoMemory), Message: "no room"}},
			"drain_blocked drain/d1: it waits on n1: replacement_unschedulable:no_capacity_memory: no room -> outspan " +
				"drain status d1",
		},
	} {
		r.mu.Lock()
		r.waiting.Drains = map[model.DrainID][]model.DrainStatus{"d1": {{Node: "01N1", Blockers: c.blockers}}}
		r.mu.Unlock()
		// After a change of the state, the next read asks again why things wait.
		r.apply(&fsm.NodeLabel{ID: "01N2", Labels: map[string]string{"case": "x"}})
		if got := problemsNow(t, r, ""); c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || got[0] != c.want) {
			t.Errorf("%s: %q\nwant: %q", c.name, got, c.want)
		}
	}
	r.apply(&fsm.DrainPause{ID: "d1", Paused: true})
	wantProblem(t, r, "drain_blocked drain/d1: it is paused -> outspan drain resume d1")
}

// A node whose drain failed is a problem until somebody uncordons it or drains it again. The node's reason names the
// failed drain.
func TestProblemOfAFailedDrain(t *testing.T) {
	r := newRig(t)
	r.world()
	r.place("inst-c", 2, "01N2", model.ObservedReady)
	r.apply(&fsm.DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: 1}})
	node := func(field string) any { return get(t, r.cli(), "/v1/nodes/n1")[field] }
	if got := node("drain_phase"); got != "draining" {
		t.Errorf("drain phase: %v", got)
	}
	r.mu.Lock()
	r.born = r.born.Add(-time.Minute)
	r.mu.Unlock()
	r.apply(&fsm.DrainEnd{ID: "d1", Node: "01N1", Phase: model.PhaseFailed, LastError: "no room"})
	wantProblem(t, r, "drain_failed node/n1: drain d1 failed, and it takes no new instances: no room"+
		" -> outspan drain status d1; to try again: outspan node drain n1; to take it back: outspan node uncordon n1")
	if phase, reason := node("drain_phase"), node("reason"); phase != "failed" ||
		reason != "node n1 is draining; drain d1 failed: no room" {
		t.Errorf("drain phase %v, reason %v", phase, reason)
	}
	r.apply(&fsm.NodeIntent{ID: "01N1", Intent: model.IntentActive})
	if got := problemsNow(t, r, ""); len(got) > 0 {
		t.Errorf("taken back: %q", got)
	}
	if got := node("drain_phase"); got != "" {
		t.Errorf("taken back: drain phase %v", got)
	}
}
