package fsm_test

import (
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A new offline_after wakes every agent at once, because the interval of heartbeats depends on this setting. A setting
// that does not concern agents wakes no agent.
func TestOfflineAfterCallsEveryAgent(t *testing.T) {
	s := fsm.NewState()
	apply := func(c fsm.Command) {
		t.Helper()
		var results []fsm.Result
		s, results = s.Apply(s.Index+1,
			1, fsm.Entry{Format: model.CurrentFormat, Actor: "test", Groups: [][]fsm.Command{{c}}})
		if results[0].Refusal != nil {
			t.Fatal(results[0].Refusal)
		}
	}
	for _, name := range []string{"n1", "n2"} {
		apply(&fsm.NodeRegister{
			ID: model.NodeID(name), Name: name,
			Agent: model.AgentInfo{BootID: "b", Incarnation: "i", Address: "127.0.0.1", Key: []byte("k")},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 2000, PortMax: 3000},
		})
	}
	settings := s.Settings
	settings.PlaceOnDegraded = true
	apply(&fsm.SettingsSet{Settings: settings})
	for id, n := range s.Nodes.All() {
		if n.Assigned == s.Index {
			t.Errorf("node %s was called for a setting that does not concern it", id)
		}
	}
	settings.OfflineAfter = 2 * model.Second
	apply(&fsm.SettingsSet{Settings: settings})
	for id, n := range s.Nodes.All() {
		if n.Assigned != s.Index {
			t.Errorf("node %s was not called: it would go on with the old interval", id)
		}
	}
}

// Each entry drops the events that are older than event_age. An event_age that is too short is refused.
func TestEventAge(t *testing.T) {
	s := fsm.NewState()
	apply := func(at model.Time, c fsm.Command) {
		t.Helper()
		var results []fsm.Result
		s, results = s.Apply(s.Index+1,
			1, fsm.Entry{Format: model.CurrentFormat, At: at, Actor: "test", Groups: [][]fsm.Command{{c}}})
		if results[0].Refusal != nil {
			t.Fatal(results[0].Refusal)
		}
	}
	settings := model.DefaultSettings()
	settings.EventAge = model.Hour
	apply(1000, &fsm.ClusterInit{ID: "c1", Name: "test", Settings: settings})
	settings.DrainDeadline = 2 * model.Hour
	apply(2000, &fsm.SettingsSet{Settings: settings})
	kept := s.Events.Len()
	settings.DrainDeadline = 3 * model.Hour
	apply(2000+model.Time(model.Hour), &fsm.SettingsSet{Settings: settings})
	if s.Events.Len() != kept+1 {
		t.Errorf("%d events after an hour, want %d: none is older than event_age", s.Events.Len(), kept+1)
	}
	settings.DrainDeadline = 4 * model.Hour
	apply(2001+model.Time(model.Hour), &fsm.SettingsSet{Settings: settings})
	if key, e, _ := s.Events.Min(); e.At <= 2000 {
		t.Errorf("event %s is older than event_age and still kept", key)
	}
	settings.EventAge = model.Second
	_, results := s.Apply(s.Index+1,
		1,
		fsm.Entry{Format: model.CurrentFormat, Actor: "test",
			Groups: [][]fsm.Command{{&fsm.SettingsSet{Settings: settings}}}})
	if results[0].Refusal == nil || results[0].Refusal.Code != model.CodeInvalid {
		t.Errorf("event_age = 1s: %v, want a refusal", results[0].Refusal)
	}
}

// The format can't be raised while an agent can't read the new format, unless the agent's node is offline or disabled.
// An agent that can't read the cluster's format may not register, because it could not read which instances to stop.
func TestFormatWaitsForAgents(t *testing.T) {
	s := fsm.NewState()
	apply := func(c fsm.Command) *model.Error {
		t.Helper()
		var results []fsm.Result
		s, results = s.Apply(s.Index+1,
			1, fsm.Entry{Format: model.CurrentFormat, Actor: "test", Groups: [][]fsm.Command{{c}}})
		return results[0].Refusal
	}
	agent := model.AgentInfo{BootID: "b", Incarnation: "i", Address: "127.0.0.1", Key: []byte("k")}
	register := func(name string, format uint16) *model.Error {
		agent.Format = format
		return apply(&fsm.NodeRegister{ID: model.NodeID(name), Name: name, Agent: agent, Shape: model.NodeShape{
			Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 2000, PortMax: 3000,
		}})
	}
	next := model.CurrentFormat + 1
	if register("new", next) != nil || register("old", 0) != nil {
		t.Fatal("an agent was refused")
	}
	if refusal := apply(&fsm.FormatRaise{Format: next}); refusal == nil || refusal.Code != model.CodeConflict ||
		s.CantRead(next).Name != "old" {
		t.Errorf("with an old agent: %v", refusal)
	}
	// A person who can't upgrade the agent may disable its node. The node can't be enabled again before the upgrade.
	without := s
	if refusal := apply(&fsm.NodeIntent{ID: "old", Intent: model.IntentDisabled}); refusal != nil ||
		s.CantRead(next) != nil {
		t.Errorf("with the old agent's node disabled: %v, %v", refusal, s.CantRead(next))
	}
	s.Format = next
	if refusal := apply(&fsm.NodeIntent{ID: "old", Intent: model.IntentActive}); refusal == nil ||
		refusal.Code != model.CodeNeedsFormat {
		t.Errorf("enabled again: %v", refusal)
	}
	s = without
	old, _ := s.Nodes.Get("old")
	offline := &fsm.NodeHealth{ID: "old", Health: model.HealthOffline, BootID: "b", Epoch: old.Agent.Epoch}
	if refusal := apply(offline); refusal != nil {
		t.Fatal(refusal)
	}
	// No agent prevents the raise now, but this program can't read the next format itself.
	if refusal := apply(&fsm.FormatRaise{Format: next}); refusal == nil || refusal.Code != model.CodeNeedsFormat {
		t.Errorf("with the old agent offline: %v", refusal)
	}
	s.Format = next
	if refusal := register("old", model.CurrentFormat); refusal == nil || refusal.Code != model.CodeNeedsFormat {
		t.Errorf("an agent of an older format: %v", refusal)
	}
	if refusal := register("new", next); refusal != nil {
		t.Error(refusal)
	}
}
