package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// An agent is woken by a new offline_after, a change of its node's health, and a new registration of its node. A label,
// a cordon, a report without changes, and a change of another node don't wake the agent.
func TestAgentsAreWokenByWhatConcernsThem(t *testing.T) {
	m := NewMachine()
	mustApply(t, m, register("n1"), register("n2"))
	cases := []struct {
		name  string
		do    func(n *Node) Command
		wakes bool
	}{
		{"a label", func(*Node) Command { return &NodeLabel{ID: "n1", Labels: map[string]string{"rack": "r1"}} }, false},
		{"cordoned", func(*Node) Command { return &NodeIntent{ID: "n1", Intent: model.IntentCordoned} }, false},
		{"a report without news", func(n *Node) Command {
			return &NodeReport{ID: "n1", Epoch: n.Agent.Epoch, Full: true}
		}, false},
		{"another node", func(*Node) Command { return &NodeIntent{ID: "n2", Intent: model.IntentCordoned} }, false},
		{"settings", func(*Node) Command {
			s := model.DefaultSettings()
			s.OfflineAfter = 7 * model.Second
			return &SettingsSet{Settings: s}
		}, true},
		{"offline", func(n *Node) Command {
			return &NodeHealth{ID: "n1", Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch}
		}, true},
		{"registered again", func(*Node) Command { return register("n1") }, true},
	}
	for _, c := range cases {
		n, _ := m.State().Nodes.Get("n1")
		woken, cancel := m.WatchTopic("assigned/n1")
		node, stop := m.WatchTopic("node/n1")
		mustApply(t, m, c.do(n))
		if closed(woken) != c.wakes {
			t.Errorf("%s: the agent was woken: %v, want %v", c.name, closed(woken), c.wakes)
		}
		if row, _ := m.State().Nodes.Get("n1"); row.Version != n.Version && !closed(node) {
			t.Errorf("%s: who waits for the node was not woken", c.name)
		}
		cancel()
		stop()
	}
}
