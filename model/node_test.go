package model

import "testing"

// TestElsewhere: two agents of one node may run at the same time if their addresses, the ids of their machines or their
// data directories differ. What is not known of both agents proves nothing.
func TestElsewhere(t *testing.T) {
	agent := AgentInfo{Address: "10.0.0.1", Machine: "system/firmware", Born: 7}
	for name, tt := range map[string]struct {
		change func(*AgentInfo)
		want   bool
	}{
		"the same":                  {func(*AgentInfo) {}, false},
		"another address":           {func(a *AgentInfo) { a.Address = "10.0.0.2" }, true},
		"another system":            {func(a *AgentInfo) { a.Machine = "other/firmware" }, true},
		"another firmware":          {func(a *AgentInfo) { a.Machine = "system/other" }, true},
		"another firmware alone":    {func(a *AgentInfo) { a.Machine = "/other" }, true},
		"the system is not known":   {func(a *AgentInfo) { a.Machine = "/firmware" }, false},
		"no machine is known":       {func(a *AgentInfo) { a.Machine = "" }, false},
		"another data directory":    {func(a *AgentInfo) { a.Born = 8 }, true},
		"no data directory's birth": {func(a *AgentInfo) { a.Born = 0 }, false},
	} {
		other := agent
		tt.change(&other)
		if agent.Elsewhere(&other) != tt.want || other.Elsewhere(&agent) != tt.want {
			t.Errorf("%s: got %v and %v, want %v", name, agent.Elsewhere(&other), other.Elsewhere(&agent), tt.want)
		}
	}
}
