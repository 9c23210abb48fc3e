package reconcile_test

import (
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// BenchmarkPreempt measures one decision in which one instance preempts another. The cluster has 1,000 full nodes and
// 20,000 instances.
func BenchmarkPreempt(b *testing.B) {
	w := bigWorld(b, 1000)
	low := bigJob("low", 20_000)
	low.Class = model.ClassBatch
	low.Groups[0].Resources.MemoryBytes = 3200 << 20
	w.apply("cli:ann", &fsm.JobSubmit{Spec: low})
	for w.decideQuietly(b) > 0 {
		w.allReady()
	}
	top := bigJob("top", 1)
	top.Groups[0].Resources.MemoryBytes = 3200 << 20
	w.apply("cli:ann", &fsm.JobSubmit{Spec: top})
	in := w.input()
	b.ReportAllocs()
	for b.Loop() {
		preempts := false
		for _, e := range reconcile.Decide(in).Entries {
			for _, group := range e.Groups {
				place, ok := group[len(group)-1].(*fsm.InstancePlace)
				preempts = preempts || ok && len(place.Awaits) == 1
			}
		}
		if !preempts {
			b.Fatal("nothing is preempted")
		}
	}
}
