package reconcile_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// spreadWorld returns a cluster in which all count instances of web/main are placed. All nodes have the label system,
// and most nodes have the label zone.
func spreadWorld(t *testing.T, r *rand.Rand, algorithm string, nodes, count int, spreads []string) *world {
	w := newWorld(t)
	w.quiet = true
	w.run("settings algorithm=" + algorithm)
	for i := range nodes {
		id := model.NodeID(fmt.Sprintf("node%04d", i))
		w.nodes = append(w.nodes, id)
		w.agents[id] = &agentSim{running: map[model.InstanceID]model.InstanceStatus{}}
		w.live[id] = fsm.Liveness{Age: 1000, Gossip: fsm.GossipAlive}
		labels := map[string]string{"zone": fmt.Sprint(r.IntN(3)), "system": fmt.Sprint(r.IntN(4))}
		if r.IntN(8) == 0 {
			delete(labels, "zone")
		}
		w.register(id, model.NodeShape{
			Capacity: model.Resources{CPU: 64000, MemoryBytes: 4 << 30 << r.IntN(4)}, PortMin: 20000, PortMax: 29999,
			Labels: labels,
		})
	}
	spec := bigJob("web", count)
	for _, attribute := range spreads {
		spec.Groups[0].Spreads = append(spec.Groups[0].Spreads, model.Spread{Attribute: attribute})
	}
	if refusal := w.apply("cli:ann", &fsm.JobSubmit{Spec: spec}); refusal != nil {
		t.Fatal(refusal)
	}
	w.decide()
	return w
}

// A scale-down stops the same instances as a plain search, which compares all remaining instances before each choice.
func TestScaleDownTakesTheMostCrowded(t *testing.T) {
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 3))
		attributes := []string{"node.label.zone", "node.label.system", "node.name"}
		r.Shuffle(3, func(i, j int) { attributes[i], attributes[j] = attributes[j], attributes[i] })
		spreads, algorithm := attributes[:r.IntN(4)], []string{"spread", "binpack"}[r.IntN(2)]
		count := 10 + r.IntN(50)
		w := spreadWorld(t, r, algorithm, 3+r.IntN(20), count, spreads)
		taken, _ := reconcile.Leaving(w.input(), "web/main", count-2)
		if plain := reconcile.LeavingPlainly(w.input(), "web/main", count-2); !slices.Equal(taken, plain) {
			t.Fatalf("seed %d, %s over %v: taken are\n%v\nand in plain words\n%v", seed, algorithm, spreads, taken, plain)
		}
	}
}

// A scale-down makes a limited number of comparisons for each stopped instance, far fewer than there are nodes.
func TestScaleDownOfManyIsCheap(t *testing.T) {
	const nodes, count = 300, 600
	for _, c := range []struct {
		spreads []string
		each    int // limit for the number of comparisons for each stopped instance
	}{
		{nil, 50},
		{[]string{"node.label.zone"}, 50},
		{[]string{"node.name"}, 50},
		{[]string{"node.label.zone", "node.label.system"}, 100},
	} {
		w := spreadWorld(t, rand.New(rand.NewPCG(1, 1)), "spread", nodes, count, c.spreads)
		_, compared := reconcile.Leaving(w.input(), "web/main", count/2)
		t.Logf("spread over %v: %d comparisons for each", c.spreads, compared/(count/2))
		if compared > c.each*count/2 {
			t.Errorf("spread over %v: %d comparisons for %d instances, want at most %d for each",
				c.spreads, compared, count/2, c.each)
		}
	}
}
