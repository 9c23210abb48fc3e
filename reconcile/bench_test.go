package reconcile_test

import (
	"fmt"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/reconcile"
)

// bigWorld is a cluster of so many nodes, each heard a moment ago.
func bigWorld(b *testing.B, nodes int) *world {
	w := newWorld(b)
	w.quiet = true
	w.run("settings rescheduler=balanced")
	for i := range nodes {
		id := fsm.NodeID(fmt.Sprintf("node%06d", i))
		w.nodes = append(w.nodes, id)
		w.agents[id] = &agentSim{running: map[fsm.InstanceID]fsm.InstanceStatus{}}
		w.live[id] = fsm.Liveness{Age: 1000, Gossip: fsm.GossipAlive}
		w.register(id, fsm.NodeShape{Capacity: fsm.Resources{CPU: 64000, MemoryBytes: 64 << 30}, PortMin: 20000, PortMax: 29999, Labels: map[string]string{"rack": fmt.Sprint(i % 40)}})
	}
	return w
}

func bigJob(name string, count int) fsm.JobSpec {
	return fsm.JobSpec{Name: fsm.JobName(name), Groups: []fsm.GroupSpec{{
		Name: "main", Count: count, Exec: fsm.ExecSpec{Command: "/bin/app"}, Resources: fsm.Resources{CPU: 100, MemoryBytes: 128 << 20},
	}}}
}

// allReady lets every agent report what it was given as ready, one report per node.
func (w *world) allReady() {
	for _, id := range w.nodes {
		n, _ := w.state.Nodes.Get(id)
		report := &fsm.NodeReport{ID: id, Epoch: n.Agent.Epoch}
		for inst := range w.state.InstancesOn(id) {
			if inst.Status.Observed == fsm.ObservedPending {
				report.Instances = append(report.Instances, fsm.InstanceStatus{ID: inst.ID, Generation: 1, Observed: fsm.ObservedReady})
			}
		}
		w.apply("agent", report)
	}
}

func (w *world) decideQuietly(b *testing.B) int {
	plan := reconcile.Decide(w.input())
	commands := 0
	for _, e := range plan.Entries {
		commands += len(e.Groups)
		for _, r := range w.commit(e) {
			if r.Refusal != nil {
				b.Fatal(r.Refusal)
			}
		}
	}
	return commands
}

// BenchmarkDecideSettled is one look at a cluster in which nothing is to be done: the goal is below 50 ms.
func BenchmarkDecideSettled(b *testing.B) {
	w := bigWorld(b, 5000)
	for i := range 200 {
		w.apply("cli:ann", &fsm.JobSubmit{Spec: bigJob(fmt.Sprintf("job%04d", i), 500)})
	}
	for w.decideQuietly(b) > 0 {
		w.allReady()
	}
	if n := w.state.Instances.Len(); n != 100_000 {
		b.Fatalf("%d instances", n)
	}
	in := w.input()
	b.ReportAllocs()
	for b.Loop() {
		if plan := reconcile.Decide(in); len(plan.Entries) > 0 {
			b.Fatal("not settled")
		}
	}
}

// BenchmarkDecideDrain is one look while a node is drained there.
func BenchmarkDecideDrain(b *testing.B) {
	w := bigWorld(b, 5000)
	for i := range 200 {
		w.apply("cli:ann", &fsm.JobSubmit{Spec: bigJob(fmt.Sprintf("job%04d", i), 500)})
	}
	for w.decideQuietly(b) > 0 {
		w.allReady()
	}
	w.apply("cli:ann", &fsm.DrainStart{ID: "d1", Nodes: []string{string(w.nodes[7])}, Options: fsm.DrainOptions{Deadline: fsm.Hour}})
	in := w.input()
	b.ReportAllocs()
	for b.Loop() {
		if plan := reconcile.Decide(in); len(plan.Entries) == 0 {
			b.Fatal("nothing to do")
		}
	}
}

// BenchmarkPlace is 10,000 equal instances placed at once: the goal is 50,000 a second.
func BenchmarkPlace(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			w := bigWorld(b, nodes)
			w.apply("cli:ann", &fsm.JobSubmit{Spec: bigJob("big", 10_000)})
			in := w.input()
			b.ReportAllocs()
			for b.Loop() {
				placed := 0
				for _, e := range reconcile.Decide(in).Entries {
					placed += len(e.Groups)
				}
				if placed < 10_000 {
					b.Fatalf("%d placed", placed)
				}
			}
			b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "placements/s")
		})
	}
}
