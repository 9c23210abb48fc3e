package fsm

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

type size struct{ nodes, instances int }

func (s size) String() string { return fmt.Sprintf("nodes=%d/instances=%d", s.nodes, s.instances) }

var sizes = []size{{1000, 10_000}, {5000, 100_000}}

// atSizes runs a benchmark on a bigState of each of the sizes.
func atSizes(b *testing.B, run func(b *testing.B, s State)) {
	for _, n := range sizes {
		b.Run(n.String(), func(b *testing.B) { run(b, bigState(b, n)) })
	}
}

// measure runs f as often as the benchmark wants, and reports the process's CPU time for each item, including garbage
// collection. The parameter per is the number of items that one call of f handles. On a busy machine, CPU time is more
// reliable than elapsed time.
func measure(b *testing.B, per int, f func()) {
	b.ReportAllocs()
	runtime.GC()
	began := processorTime(b)
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(processorTime(b)-began)/float64(b.N*per), "cpu-ns/item")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// applyAll applies the groups as one entry. It fails the test if a group is refused.
func applyAll(b testing.TB, s State, groups ...[]Command) State {
	b.Helper()
	after, results := s.Apply(s.Index+1,
		1, Entry{Format: 1, At: s.Now + 1, Term: 1, Actor: model.ActorLeader, Groups: atEpochs(s, groups...)})
	for _, r := range results {
		if r.Refusal != nil {
			b.Fatal(r.Refusal)
		}
	}
	return after
}

func benchNode(n int) model.NodeID { return model.NodeID(fmt.Sprintf("01K9ZX4Q8B2M7V5T%010d", n)) }

// bigState returns a state of the given size, whose instances are ready and spread evenly over its nodes. Its entries
// have up to 2000 groups.
func bigState(b testing.TB, n size) State {
	b.Helper()
	spec := webSpec()
	spec.Groups = spec.Groups[:1]
	spec.Groups[0].Count, spec.Groups[0].Resources = n.instances, model.Resources{CPU: 100, MemoryBytes: 16 << 20}
	s := applyAll(b, NewState(), []Command{&JobSubmit{Spec: spec}})
	var groups [][]Command
	add := func(g ...Command) {
		if groups = append(groups, g); len(groups) == 2000 {
			s, groups = applyAll(b, s, groups...), nil
		}
	}
	for i := range n.nodes {
		node := register(benchNode(i))
		node.Shape.Capacity.MemoryBytes = 64 << 30
		node.Shape.Attributes = map[string]string{"kernel": "6.1.0", "arch": "amd64", "os": "linux"}
		add(node)
		add(&NodeReport{ID: node.ID, Full: true})
	}
	for i := range n.instances {
		add(benchPlacement(n, i))
	}
	for i := range n.nodes {
		ready := &NodeReport{ID: benchNode(i)}
		for slot := i; slot < n.instances; slot += n.nodes {
			ready.Instances = append(ready.Instances,
				model.InstanceStatus{ID: benchInstance(slot), Generation: 1, Observed: model.ObservedReady})
		}
		add(ready)
	}
	s = applyAll(b, s, groups...)
	for s.Events.Len() > s.Settings.EventLimit { // each entry drops some of the events beyond the limit
		s = applyAll(b, s)
	}
	return s
}

func benchInstance(slot int) model.InstanceID {
	return DeriveInstanceID(model.Seen{Index: 1}, "", "web/api", slot, 0)
}

func benchPlacement(n size, slot int) *InstancePlace {
	return placed(benchInstance(slot), "web/api", slot, benchNode(slot%n.nodes), 20000+slot/n.nodes)
}

// placements adds a second job to a bigState. It returns this state and an entry that places n instances of the job,
// each in its own group of commands.
func placements(b testing.TB, s State, n int) (State, Entry) {
	b.Helper()
	spec := webSpec()
	spec.Name, spec.Groups = "more", spec.Groups[:1]
	spec.Groups[0].Services = nil
	spec.Groups[0].Count, spec.Groups[0].Resources = n, model.Resources{CPU: 100, MemoryBytes: 16 << 20}
	s = applyAll(b, s, []Command{&JobSubmit{Spec: spec}})
	e := Entry{Format: 1, At: s.Now, Wall: 1, Term: 1, Actor: model.ActorLeader}
	for i := range n {
		id, nodes := DeriveInstanceID(model.Seen{Index: 2}, "", "more/api", i, 0), s.Nodes.Len()
		e.Groups = append(e.Groups, []Command{placed(id, "more/api", i, benchNode(i%nodes), 30000+i/nodes)})
	}
	return s, e
}

func benchApply(b *testing.B, s State, e Entry) {
	measure(b, len(e.Groups), func() {
		_, results := s.Apply(s.Index+1, 1, e)
		if last := results[len(results)-1]; last.Refusal != nil {
			b.Fatal(last.Refusal)
		}
	})
}

func BenchmarkApplyPlacements(b *testing.B) {
	for _, n := range []int{1, 100, 2000} {
		b.Run(fmt.Sprintf("entry=%d", n), func(b *testing.B) {
			atSizes(b, func(b *testing.B, s State) {
				s, e := placements(b, s, n)
				benchApply(b, s, e)
			})
		})
	}
}

// BenchmarkApplyMoves applies groups of two commands. Apply must be prepared to undo the first command, in case the
// second is refused.
func BenchmarkApplyMoves(b *testing.B) {
	atSizes(b, func(b *testing.B, s State) {
		s, e := placements(b, s, 100)
		for i := range e.Groups {
			e.Groups[i] = append(e.Groups[i], &InstanceMark{ID: benchInstance(i), Requested: true, Cause: model.CauseUser})
		}
		benchApply(b, s, e)
	})
}

// BenchmarkApplyReports applies a report of each of 100 nodes. In each report one instance has become unready.
func BenchmarkApplyReports(b *testing.B) {
	atSizes(b, func(b *testing.B, s State) {
		e := Entry{Format: 1, At: s.Now, Wall: 1}
		for i := range 100 {
			status := model.InstanceStatus{ID: benchInstance(i), Generation: 2, Observed: model.ObservedUnready}
			e.Groups = append(e.Groups, []Command{&NodeReport{ID: benchNode(i), Instances: []model.InstanceStatus{status}}})
		}
		e.Groups = atEpochs(s, e.Groups...)
		benchApply(b, s, e)
	})
}

// BenchmarkApplyLabel applies one small write of a client.
func BenchmarkApplyLabel(b *testing.B) {
	atSizes(b, func(b *testing.B, s State) {
		e := Entry{Format: 1, At: s.Now, Wall: 1, Actor: "cli:bench", Request: "01K9ZX4Q8B2M7V5T9ABCDEFGHJ", Body: "body"}
		e.Groups = [][]Command{{&NodeLabel{ID: benchNode(1), Labels: map[string]string{"rack": "r7"}}}}
		benchApply(b, s, e)
	})
}

// BenchmarkTry measures trying the commands of a decision on a draft.
func BenchmarkTry(b *testing.B) {
	atSizes(b, func(b *testing.B, s State) {
		s, e := placements(b, s, 2000)
		measure(b, len(e.Groups), func() {
			d := s.NewDraft(s.Now)
			for _, g := range e.Groups {
				if refusal := d.Try(g...); refusal != nil {
					b.Fatal(refusal)
				}
			}
		})
	})
}

// BenchmarkMachine measures all that Machine.Apply does for one entry of the log: decoding, applying and publishing.
func BenchmarkMachine(b *testing.B) {
	atSizes(b, func(b *testing.B, s State) {
		s, e := placements(b, s, 2000)
		data, err := EncodeEntry(e)
		if err != nil {
			b.Fatal(err)
		}
		m := NewMachine()
		measure(b, len(e.Groups), func() {
			m.publish(s, touchedTopics{}, true)
			if _, err := m.Apply(s.Index+1, 1, data); err != nil {
				b.Fatal(err)
			}
		})
	})
}

func BenchmarkEncodePlacements(b *testing.B) {
	_, e := placements(b, bigState(b, size{100, 1000}), 1000)
	measure(b, len(e.Groups), func() {
		data, err := EncodeEntry(e)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(data)))
	})
}

func BenchmarkDecodePlacements(b *testing.B) {
	_, e := placements(b, bigState(b, size{100, 1000}), 1000)
	data, err := EncodeEntry(e)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	measure(b, len(e.Groups), func() {
		if _, err := DecodeEntry(data); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkSnapshotWrite(b *testing.B) {
	atSizes(b, func(b *testing.B, s State) {
		b.SetBytes(int64(len(snapshotOf(b, s))))
		measure(b, 1, func() {
			if err := WriteSnapshot(io.Discard, s); err != nil {
				b.Fatal(err)
			}
		})
	})
}

func BenchmarkSnapshotRead(b *testing.B) {
	atSizes(b, func(b *testing.B, s State) {
		data := snapshotOf(b, s)
		b.SetBytes(int64(len(data)))
		measure(b, 1, func() {
			if _, err := ReadSnapshot(bytes.NewReader(data)); err != nil {
				b.Fatal(err)
			}
		})
	})
}

func BenchmarkSnapshotInspect(b *testing.B) {
	data := snapshotOf(b, bigState(b, sizes[0]))
	b.SetBytes(int64(len(data)))
	measure(b, 1, func() {
		if _, err := InspectSnapshot(bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkDigest(b *testing.B) {
	atSizes(b, func(b *testing.B, s State) { measure(b, 1, func() { Digest(s) }) })
}

func BenchmarkDigests(b *testing.B) {
	atSizes(b, func(b *testing.B, s State) { measure(b, 1, func() { Digests(s) }) })
}

func BenchmarkCheck(b *testing.B) {
	s := bigState(b, sizes[0])
	measure(b, 1, func() {
		if err := Check(s); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkFork(b *testing.B) {
	s := bigState(b, sizes[0])
	measure(b, 1, func() { s.fork() })
}

// BenchmarkMemory reports the heap that a state takes after entries have built it, the heap that the same state takes
// after it was read from a snapshot, and the size of the snapshot.
func BenchmarkMemory(b *testing.B) {
	for _, n := range sizes {
		b.Run(n.String(), func(b *testing.B) {
			for b.Loop() {
				empty := heap()
				data, grown := func() ([]byte, int64) { // when this function returns, its state is garbage
					s := bigState(b, n)
					grown := heap()
					return snapshotOf(b, s), grown
				}()
				before := heap()
				s, err := ReadSnapshot(bytes.NewReader(data))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(grown-empty)/1e6, "grown-MB")
				b.ReportMetric(float64(heap()-before)/1e6, "restored-MB")
				b.ReportMetric(float64(len(data))/1e6, "snapshot-MB")
				runtime.KeepAlive(s)
			}
		})
	}
}
