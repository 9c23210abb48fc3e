package reconcile_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/reconcile"
)

// A9: a scale-down of a group that is spread over each node costs nodes times instances.
func TestAdvScaleDownCost(t *testing.T) {
	for _, spread := range []bool{false} {
		for _, nodes := range []int{2000, 5000} {
			w := newWorld(t)
			w.quiet = true
			for i := range nodes {
				w.run(fmt.Sprintf("node n%d", i))
			}
			spec := fsm.JobSpec{Name: "web", Groups: []fsm.GroupSpec{{Name: "g", Count: 2 * nodes, Exec: fsm.ExecSpec{Command: "/bin/app"}, Resources: fsm.Resources{MemoryBytes: 16 << 20}}}}
			if spread {
				spec.Groups[0].Spreads = []fsm.Spread{{Attribute: "node.name"}}
			}
			if r := w.apply("cli:ann", &fsm.JobSubmit{Spec: spec}); r != nil {
				t.Fatal(r)
			}
			w.run("decide")
			w.run("agents")
			w.run("decide")
			w.run("agents")
			if r := w.apply("cli:ann", &fsm.JobScale{Job: "web", Group: "g", Count: nodes}); r != nil {
				t.Fatal(r)
			}
			in := w.input()
			began := time.Now()
			plan := reconcile.Decide(in)
			t.Logf("spread=%t, %d nodes, %d instances: %s (%d refused)", spread, nodes, 2*nodes, time.Since(began), len(plan.Refused))
		}
	}
}
