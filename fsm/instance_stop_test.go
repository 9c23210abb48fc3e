package fsm

import (
	"slices"
	"strconv"
	"testing"

	"github.com/outspan/outspan/model"
)

// A stop with Bypass skips budgets, but its reason must still be valid when the stop is applied. A stop for a drain is
// refused if the drain is canceled, paused or missing, or if the drained node is disabled. The stop is also refused if
// the drain's options don't allow stops that skip budgets, or allow them only after a deadline that has not passed.
//
// proves S6
func TestBypassKeepsTheReason(t *testing.T) {
	world := func(options model.DrainOptions) *Machine {
		m := NewMachine()
		mustApply(t, m, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
		mustApply(t, m, register("n1"), &NodeReport{ID: "n1", Full: true}, &JobSubmit{Spec: webSpec()})
		mustApply(t, m, placed("i1", "web/api", 0, "n1", 20000))
		mustApply(t, m, observed("n1", "i1", model.ObservedReady))
		mustApply(t, m, &DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: options})
		return m
	}
	downtime := model.DrainOptions{Deadline: model.Hour, AcceptDowntime: []string{"*"}}
	forcing := model.DrainOptions{Deadline: 1, ForceAtDeadline: true}
	accepted := &InstanceStop{ID: "i1", Cause: model.CauseNodeDraining, By: "d1", Bypass: true}
	timeout := &InstanceStop{ID: "i1", Cause: model.CauseDrainTimeout, By: "d1", Bypass: true}
	for _, c := range []struct {
		name    string
		options model.DrainOptions
		first   []Command
		stop    *InstanceStop
		want    model.Code
	}{
		{"downtime accepted", downtime, nil, accepted, ""},
		{"downtime not accepted", model.DrainOptions{Deadline: model.Hour}, nil, accepted, model.CodeInvalid},
		{"drain canceled", downtime, []Command{&DrainCancel{ID: "d1"}}, accepted, model.CodeStale},
		{"drain paused", downtime, []Command{&DrainPause{ID: "d1", Paused: true}}, accepted, model.CodeStale},
		{"node disabled", downtime, []Command{&NodeIntent{ID: "n1", Intent: model.IntentDisabled}},
			accepted, model.CodeStale},
		{"no such drain", downtime, nil, &InstanceStop{ID: "i1", Cause: model.CauseNodeDraining, By: "d2", Bypass: true},
			model.CodeStale},
		{"out of time", forcing, nil, timeout, ""},
		{"time left", model.DrainOptions{Deadline: model.Hour, ForceAtDeadline: true}, nil, timeout, model.CodeStale},
		{"never by force", model.DrainOptions{Deadline: 1}, nil, timeout, model.CodeStale},
		{"out of time and canceled", forcing, []Command{&DrainCancel{ID: "d1"}}, timeout, model.CodeStale},
	} {
		m := world(c.options)
		mustApply(t, m, c.first...)
		s, results := m.State().
			Apply(m.State().Index+1, 1,
				Entry{Format: model.CurrentFormat, At: m.State().Now + 10, Actor: "leader", Groups: [][]Command{{c.stop}}})
		if got := refusedAs(results[0].Refusal); got != c.want {
			t.Errorf("%s: %v, want %q", c.name, results[0].Refusal, c.want)
		}
		if i, _ := s.Instances.Get("i1"); (i.Desired == model.DesiredRunning) != (c.want != "") {
			t.Errorf("%s: it is %s", c.name, i.Desired)
		}
	}
}

// A stop that skips budgets names in its event what it did not wait for. A drain with force, a drain's deadline and a
// person also override the gates.
func TestStopNamesWhatItOverrides(t *testing.T) {
	forced := model.DrainOptions{Deadline: model.Hour, Force: true}
	calm := model.DrainOptions{Deadline: model.Hour}
	late := model.DrainOptions{Deadline: 1, ForceAtDeadline: true}
	leader := "forced over " + string(model.CodeIsLeader)
	for _, c := range []struct {
		name    string
		options model.DrainOptions
		leader  int
		stop    *InstanceStop
		want    string
	}{
		{"force", forced, 0, &InstanceStop{Cause: model.CauseNodeDraining, By: "d1"}, leader},
		{"deadline", late, 0, &InstanceStop{Cause: model.CauseDrainTimeout, By: "d1", Bypass: true}, leader},
		{"person", calm, 0, &InstanceStop{Cause: model.CauseUser, By: "ann", Bypass: true}, leader},
		{"nothing to override", late, 1,
			&InstanceStop{Cause: model.CauseDrainTimeout, By: "d1", Bypass: true}, ""},
	} {
		m := gateWorld(t, model.RoleQuorum, 3)
		for i := range 3 {
			tells(t, m, i, kv(model.FactLeader, strconv.FormatBool(i == c.leader)))
		}
		mustApply(t, m, &DrainStart{ID: "d1", Nodes: []string{"n0"}, Options: c.options})
		c.stop.ID = "i0"
		s := must(t, m.State(), c.stop)
		if _, e, _ := s.Events.Max(); e.Type != model.EventDesired || e.Data["text"] != c.want {
			t.Errorf("%s: the event %s says %q, want %q", c.name, e.Type, e.Data["text"], c.want)
		}
	}
}

// If an instance becomes ready after the leader decided to stop it for a failure, the stop is refused. The placement of
// its replacement in the same group of commands is refused too, and the group's row gets no failure.
func TestFailureThatIsOver(t *testing.T) {
	for _, cause := range []model.Cause{model.CauseStartTimeout, model.CauseCrashLoop,
		model.CauseCheckFailed, model.CauseOOM} {
		s := run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()}, register("n1"),
			&NodeReport{ID: "n1", Full: true},
			&JobSubmit{Spec: webSpec()}, placed("i1", "web/api", 0, "n1", 20000), placed("i2", "web/api", 1, "n1", 20001),
			observed("n1", "i2", model.ObservedReady))
		s = run(t, s, 1000+1000*model.Time(s.Settings.StartTimeout), observed("n1", "i1", model.ObservedReady))
		before, _ := s.Groups.Get("web/api")
		next := placed("i3", "web/api", 0, "n1", 20002)
		next.Replaces, next.Cause = "i1", cause
		after, refusal := try(t, s, &InstanceStop{ID: "i1", Cause: cause, By: "failed", Bypass: true}, next)
		if refusedAs(refusal) != model.CodeStale {
			t.Errorf("%s: %v, want stale", cause, refusal)
		}
		if g, _ := after.Groups.Get("web/api"); len(g.Failures) != len(before.Failures) || g.Ready != 2 {
			t.Errorf("%s: %d failures are noted, %d of 2 are ready", cause, len(g.Failures), g.Ready)
		}
	}
}

// A drain that accepts downtime of a group that does not exist is refused. Otherwise a typo would be noticed only when
// the drain waits for the group that was meant. The groups that it may name are limited in number.
func TestDowntimeOfNoGroup(t *testing.T) {
	s := aloneState(t)
	for group, want := range map[string]model.Code{"web/api": "", "*": "", "web/no": model.CodeNotFound,
		"web": model.CodeNotFound} {
		c := &DrainStart{ID: "d1", Nodes: []string{"n1"},
			Options: model.DrainOptions{Deadline: model.Hour, AcceptDowntime: []string{group}}}
		_, refusal := attempt(s, s.Now, c)
		wantCode(t, group, refusal, want)
	}
	for n, want := range map[int]model.Code{maxDowntime: "", maxDowntime + 1: model.CodeInvalid} {
		c := &DrainStart{ID: "d1", Nodes: []string{"n1"},
			Options: model.DrainOptions{Deadline: model.Hour, AcceptDowntime: slices.Repeat([]string{"web/api"}, n)}}
		_, refusal := attempt(s, s.Now, c)
		wantCode(t, strconv.Itoa(n), refusal, want)
	}
}
