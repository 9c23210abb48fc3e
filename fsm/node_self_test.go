package fsm

import (
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// troubled returns an agent's report of the troubles of its machine.
func troubled(id model.NodeID, gen uint64, troubles ...model.Trouble) *NodeReport {
	return &NodeReport{ID: id, Self: &model.SelfReport{Gen: gen, Troubles: troubles}}
}

// oneNode returns a state with the node n1.
func oneNode(t *testing.T, settings model.Settings) State {
	t.Helper()
	return run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: settings},
		register("n1"), &NodeReport{ID: "n1", Full: true})
}

// A node is degraded, with reasons, while its agent reports troubles. Unknown and repeated troubles are ignored.
func TestNodeDegradedByItsOwnWord(t *testing.T) {
	full, slow := model.Trouble{Check: model.SelfDiskFull, Reason: "no room"},
		model.Trouble{Check: model.SelfDiskSlow, Reason: "too slow"}
	s := oneNode(t, model.DefaultSettings())
	for _, step := range []struct {
		name     string
		at       model.Time
		does     Command
		troubles []model.Trouble
		since    model.Time
		state    model.NodeState
	}{
		{"the first trouble", 2000, troubled("n1", 1, full, model.Trouble{Check: "odd", Reason: "?"}, full),
			[]model.Trouble{full}, 2000, model.NodeDegraded},
		{"another one", 3000, troubled("n1", 2, slow, full), []model.Trouble{full, slow}, 2000, model.NodeDegraded},
		{"a report of something else", 3500, &NodeReport{ID: "n1"}, []model.Trouble{full, slow}, 2000, model.NodeDegraded},
		{"its agent registers again", 4000, register("n1"), []model.Trouble{full, slow}, 2000, model.NodeDegraded},
		{"a late report of before", 4500, troubled("n1", 0), []model.Trouble{full, slow}, 2000, model.NodeDegraded},
		{"one is over", 5000, troubled("n1", 1, slow), []model.Trouble{slow}, 2000, model.NodeDegraded},
		{"all are over", 6000, troubled("n1", 2), nil, 0, model.NodeActive},
		{"it begins again", 7000, troubled("n1", 3, full), []model.Trouble{full}, 7000, model.NodeDegraded},
		{"an agent that checks nothing", 8000, &NodeReport{ID: "n1", Full: true}, nil, 0, model.NodeActive},
	} {
		if c, ok := step.does.(*NodeReport); ok {
			n, _ := s.Nodes.Get("n1")
			c.Epoch = n.Agent.Epoch
		}
		s = run(t, s, step.at, step.does)
		n, _ := s.Nodes.Get("n1")
		same := slices.Equal(n.Self.Troubles, step.troubles) && n.Self.Since == step.since
		if !same || n.State() != step.state || n.Health != model.HealthOnline {
			t.Errorf("%s: %+v, state %s, health %s", step.name, n.Self, n.State(), n.Health)
		}
		if c, ok := step.does.(*NodeReport); ok && c.News(&s) {
			t.Errorf("%s: told twice it is news", step.name)
		}
		refusal := s.Eligible(n)
		if n.Return.Recovering {
			continue
		}
		takes := step.state == model.NodeActive
		if (refusal == nil) != takes || !takes && !strings.Contains(refusal.Message, step.troubles[0].Reason) {
			t.Errorf("%s: it takes instances: %v", step.name, refusal)
		}
	}
	var told []string
	for _, e := range s.Events.All() {
		if e.Type == model.EventNodeChecks {
			told = append(told, e.Before+" -> "+e.After+" "+e.Data["reason"])
		}
		if e.Type == model.EventNodeState && e.After == string(model.NodeDegraded) && e.Data["reason"] != "no room" {
			t.Errorf("the event of the state tells %q", e.Data)
		}
	}
	want := []string{
		"ok -> disk_full no room", "disk_full -> disk_full, disk_slow no room; too slow",
		"disk_full, disk_slow -> disk_slow too slow", "disk_slow -> ok ",
		"ok -> disk_full no room", "disk_full -> ok ",
	}
	if !slices.Equal(told, want) {
		t.Errorf("events: %q, want %q", told, want)
	}
}

// With the setting place_on_degraded, a node with troubles takes new instances.
func TestPlaceOnTroubledNodes(t *testing.T) {
	settings := model.DefaultSettings()
	settings.PlaceOnDegraded = true
	s := oneNode(t, settings)
	s = run(t, s, 2000, troubled("n1", 1, model.Trouble{Check: model.SelfDiskSlow, Reason: "too slow"}))
	n, _ := s.Nodes.Get("n1")
	if refusal := s.Eligible(n); refusal != nil {
		t.Error(refusal)
	}
}

// A stop because of a node's troubles is refused if the node has no troubles, the group still tolerates them, a hold is
// active, the role forbids the stop, or the node is draining or unreachable. In these cases, the request of the
// eviction is refused too. If only a missing replacement or the budget prevents the stop, the request is accepted.
func TestLeaveTroubledNode(t *testing.T) {
	for _, test := range []struct {
		name       string
		role       model.Role
		at         model.Time
		more       []Command
		mark, stop model.Code
	}{
		{"it is well", model.RoleFront, 60_000, []Command{troubled("n1", 2)}, model.CodeStale, model.CodeStale},
		{"it is tolerated", model.RoleFront, 16_999, nil, model.CodeStale, model.CodeStale},
		{"it is time", model.RoleFront, 17_000, nil, "", model.CodeReplacementPending},
		{"it goes first, under its budget", model.RoleProbe, 17_000, nil, "", model.CodeBudgetMinReady},
		{"a hold", model.RoleProbe, 17_000, []Command{&HoldSet{Active: true, Reason: "many"}},
			model.CodeHold, model.CodeHold},
		{"for ever", model.RoleSingleton, 90_000, nil, model.CodeStale, model.CodeRoleNever},
		{"a drain", model.RoleProbe, 17_000, []Command{
			&DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}},
		}, model.CodeStale, model.CodeStale},
		{"it gets no answers", model.RoleProbe, 17_000, []Command{
			&NodeHealth{ID: "n1", Health: model.HealthUnreachable},
		}, model.CodeStale, model.CodeStale},
	} {
		spec := webSpec()
		spec.Groups = spec.Groups[:1]
		spec.Groups[0].Role = test.role
		s := run(t, oneNode(t, model.DefaultSettings()), 1000, &JobSubmit{Spec: spec})
		s = run(t, s, 1000, placed("i1", "web/api", 0, "n1", 20000))
		s = run(t, s, 1000, observed("n1", "i1", model.ObservedReady))
		s = run(t, s, 2000, troubled("n1", 1, model.Trouble{Check: model.SelfDiskFull, Reason: "no room"}))
		for _, c := range test.more {
			if h, ok := c.(*NodeHealth); ok {
				n, _ := s.Nodes.Get(h.ID)
				h.BootID, h.Epoch = n.Agent.BootID, n.Agent.Epoch
			}
			s = run(t, s, test.at, c)
		}
		check := func(what string, c Command, want model.Code) {
			refusal := s.NewDraft(test.at).Try(c)
			if refusal == nil && want != "" || refusal != nil && refusal.Code != want {
				t.Errorf("%s: %s: %v, want %q", test.name, what, refusal, want)
			}
		}
		check("mark", &InstanceMark{ID: "i1", Requested: true, Cause: model.CauseNodeNotReady, By: "n1"}, test.mark)
		check("stop", &InstanceStop{ID: "i1", Cause: model.CauseNodeNotReady, By: "n1"}, test.stop)
	}
}

// A report about a machine's troubles is applied only once. A repetition is ignored, even after an inventory from an
// agent that does not check its machine has cleared the troubles.
func TestLateWordOfAMachine(t *testing.T) {
	s := aloneState(t)
	n, _ := s.Nodes.Get("n2")
	sick := &NodeReport{ID: "n2", Epoch: n.Agent.Epoch, Incarnation: s.Incarnation,
		Self: &model.SelfReport{Gen: 1, Troubles: []model.Trouble{{Check: "disk_full", Reason: "no room"}}}}
	s = run(t, s, 2000, sick)
	if n, _ := s.Nodes.Get("n2"); !n.Troubled() {
		t.Fatalf("the node says %+v", n.Self)
	}
	s = inventory(t, s, "n2", nil)
	s = run(t, s, 2000, sick)
	if n, _ := s.Nodes.Get("n2"); n.Troubled() {
		t.Errorf("an old word counts: %+v", n.Self)
	}
}
