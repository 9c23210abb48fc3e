package reconcile_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// TestFieldsAgree compares two fields (the nodes where a group's instances could run). One field scores every node at
// the start. The other field uses a ranking that it shares with other groups. Both must give the same nodes in the same
// order, and the same reasons for excluded nodes, while nodes change.
func TestFieldsAgree(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(t)
		w.quiet = true
		w.run("settings algorithm=" + []string{"spread", "binpack"}[r.IntN(2)])
		for i := range 8 + r.IntN(60) {
			id := model.NodeID(fmt.Sprintf("node%03d", i))
			w.nodes = append(w.nodes, id)
			w.agents[id] = &agentSim{running: map[model.InstanceID]model.InstanceStatus{}}
			w.live[id] = fsm.Liveness{Age: 1000, Gossip: fsm.GossipAlive}
			w.register(id, model.NodeShape{
				Capacity: model.Resources{CPU: 4000 << r.IntN(2), MemoryBytes: 1 << 30 << r.IntN(2)},
				PortMin:  20000, PortMax: 29999,
				Attributes: map[string]string{"kernel": fmt.Sprint(r.IntN(2))},
				Labels:     map[string]string{"rack": fmt.Sprint(r.IntN(5)), "row": fmt.Sprint(r.IntN(2))},
			})
			if r.IntN(10) == 0 {
				w.apply("cli:ann", &fsm.NodeIntent{ID: id, Intent: model.IntentCordoned})
			}
		}
		for i := range 2 + r.IntN(6) {
			spec := bigJob(fmt.Sprintf("job%d", i), 1+r.IntN(40))
			g := &spec.Groups[0]
			g.Resources.MemoryBytes = 64 << 20 << r.IntN(3)
			if r.IntN(3) == 0 {
				g.Constraints = []model.Constraint{{Attribute: "node.attr.kernel", Operator: "=", Value: "1"}}
			}
			for _, attribute := range []string{"node.label.rack", "node.label.row"}[:r.IntN(3)] {
				g.Spreads = append(g.Spreads, model.Spread{Attribute: attribute})
			}
			if refusal := w.apply("cli:ann", &fsm.JobSubmit{Spec: spec}); refusal != nil {
				t.Fatal(refusal)
			}
			if r.IntN(2) == 0 {
				w.decide()
			}
		}
		if text := reconcile.FieldsDiffer(w.input(), r, 400); text != "" {
			t.Fatalf("seed %d: %s", seed, text)
		}
	}
}
