package fsm

import (
	"maps"
	"testing"

	"github.com/outspan/outspan/model"
)

// At every registration, labels that operators have set win over labels from the agent's configuration. If an operator
// has removed a label of the agent, the label stays removed. An agent must not set labels that are reserved for
// operators.
func TestOperatorsLabelsWin(t *testing.T) {
	registers := func(labels ...string) *NodeRegister {
		r := register("n1")
		r.Shape.Labels = kv(labels...)
		return r
	}
	label := func(labels ...string) *NodeLabel { return &NodeLabel{ID: "n1", Labels: kv(labels...)} }
	s := run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()},
		registers("rack", "r1", "disk", "ssd"))
	for _, step := range []struct {
		name    string
		command Command
		want    map[string]string
	}{
		{"an operator sets some", label("rack", "r2", "zone", "z1"), kv("rack", "r2", "disk", "ssd", "zone", "z1")},
		{"the agent registers again", registers("rack", "r1", "disk", "ssd"), kv("rack", "r2", "disk", "ssd", "zone", "z1")},
		{"an operator removes what the agent says, and what it does not", label("disk", "", "zone", ""), kv("rack", "r2")},
		{"the agent registers again", registers("rack", "r3", "disk", "hdd"), kv("rack", "r2")},
		{"an agent that says nothing of labels", register("n1"), kv("rack", "r2")},
		{"an agent that says it no more", registers("rack", "r3", "zone", "z2"), kv("rack", "r2", "zone", "z2")},
		{"an agent that says it again", registers("rack", "r3", "disk", "hdd"), kv("rack", "r2")},
		{"a label of operators alone", label("operator.trusted", "yes", "rack", "", "disk", ""),
			kv("operator.trusted", "yes")},
	} {
		s = run(t, s, 1000, step.command)
		if n, _ := s.Nodes.Get("n1"); !maps.Equal(n.Shape.Labels, step.want) {
			t.Errorf("%s: the labels are %v, want %v", step.name, n.Shape.Labels, step.want)
		}
	}
	_, refusal := attempt(s, 1000, registers("operator.trusted", "yes"))
	wantCode(t, "an agent sets a label of operators", refusal, model.CodeInvalid)
}
