package fsm_test

import (
	"testing"

	"github.com/outspan/outspan/fsm"
)

// A new offline_after reaches every agent at once: their heartbeats must follow it, or the cluster would take them for silent.
func TestOfflineAfterCallsEveryAgent(t *testing.T) {
	s := fsm.NewState()
	apply := func(c fsm.Command) {
		t.Helper()
		var results []fsm.Result
		s, results = s.Apply(s.Index+1, 1, fsm.Entry{Format: fsm.CurrentFormat, Actor: "test", Groups: [][]fsm.Command{{c}}})
		if results[0].Refusal != nil {
			t.Fatal(results[0].Refusal)
		}
	}
	for _, name := range []string{"n1", "n2"} {
		apply(&fsm.NodeRegister{
			ID: fsm.NodeID(name), Name: name, Agent: fsm.AgentInfo{BootID: "b", Incarnation: "i", Address: "127.0.0.1", Key: []byte("k")},
			Shape: fsm.NodeShape{Capacity: fsm.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 2000, PortMax: 3000},
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
	settings.OfflineAfter = 2 * fsm.Second
	apply(&fsm.SettingsSet{Settings: settings})
	for id, n := range s.Nodes.All() {
		if n.Assigned != s.Index {
			t.Errorf("node %s was not called: it would go on with the old interval", id)
		}
	}
}
