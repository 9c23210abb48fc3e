package fsm

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// bigState has nodes of 20 instances each, all ready.
func bigState(b testing.TB, instances int) State {
	b.Helper()
	const perNode = 20
	s := NewState()
	index := uint64(0)
	apply := func(groups ...[]Command) {
		index++
		var results []Result
		s, results = s.Apply(index, 1, Entry{Format: 1, At: Time(index), Groups: groups})
		for _, r := range results {
			if r.Refusal != nil {
				b.Fatal(r.Refusal)
			}
		}
	}
	spec := webSpec()
	spec.Groups = spec.Groups[:1]
	spec.Groups[0].Count, spec.Groups[0].Resources = instances, Resources{CPU: 100, MemoryBytes: 16 << 20}
	apply([]Command{&JobSubmit{Spec: spec}})
	var groups [][]Command
	for n := range (instances + perNode - 1) / perNode {
		node := register(NodeID(fmt.Sprintf("node-%06d", n)))
		node.Shape.Capacity.MemoryBytes = 64 << 30
		node.Shape.Attributes = map[string]string{"kernel": "6.1.0", "arch": "amd64", "os": "linux"}
		report := &NodeReport{ID: node.ID, Epoch: 1, Full: true}
		groups = append(groups, []Command{node}, []Command{report})
		ready := &NodeReport{ID: node.ID, Epoch: 1}
		for i := range min(perNode, instances-n*perNode) {
			slot := n*perNode + i
			id := DeriveInstanceID(1, "web/api", slot, 0)
			groups = append(groups, []Command{placed(id, "web/api", slot, node.ID, 20000+i)})
			ready.Instances = append(ready.Instances, InstanceStatus{ID: id, Generation: 1, Observed: ObservedReady})
		}
		if groups = append(groups, []Command{ready}); len(groups) > 1000 {
			apply(groups...)
			groups = nil
		}
	}
	apply(groups...)
	return s
}

// placements is an entry of n placements on nodes of a bigState.
func placements(s State, n int) Entry {
	e := Entry{Format: 1, At: s.Now, Term: 1, Actor: ActorLeader}
	g, _ := s.Groups.Get("web/api")
	for i := range n {
		slot := g.Alive + i
		node := NodeID(fmt.Sprintf("node-%06d", i%s.Nodes.Len()))
		c := placed(DeriveInstanceID(s.Index, "web/api", slot, g.Placed), "web/api", slot, node, 21000+i)
		e.Groups = append(e.Groups, []Command{c})
	}
	return e
}

func roomFor(b testing.TB, s State, more int) State {
	b.Helper()
	g, _ := s.Groups.Get("web/api")
	after, results := s.Apply(s.Index+1, 1, Entry{Format: 1, Groups: [][]Command{{&JobScale{Job: "web", Group: "api", Count: g.Count + more}}}})
	if results[0].Refusal != nil {
		b.Fatal(results[0].Refusal)
	}
	return after
}

func BenchmarkApply100Placements(b *testing.B) {
	for _, size := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("beside=%d", size), func(b *testing.B) {
			s := roomFor(b, bigState(b, size), 100)
			e := placements(s, 100)
			b.ReportAllocs()
			for b.Loop() {
				if _, results := s.Apply(s.Index+1, 1, e); results[99].Refusal != nil {
					b.Fatal(results[99].Refusal)
				}
			}
		})
	}
}

// BenchmarkApply100Moves has two commands a group: each group is tried on a fork of its own.
func BenchmarkApply100Moves(b *testing.B) {
	s := roomFor(b, bigState(b, 1000), 100)
	e := placements(s, 100)
	ids := keysOf(s.Instances)
	for i := range e.Groups {
		e.Groups[i] = append(e.Groups[i], &InstanceMark{ID: ids[i], Requested: true, Cause: CauseUser})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, results := s.Apply(s.Index+1, 1, e); results[99].Refusal != nil {
			b.Fatal(results[99].Refusal)
		}
	}
}

func BenchmarkEncode100Placements(b *testing.B) {
	e := placements(roomFor(b, bigState(b, 1000), 100), 100)
	b.ReportAllocs()
	for b.Loop() {
		data, err := EncodeEntry(e)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(data)))
	}
}

func BenchmarkDecode100Placements(b *testing.B) {
	data, err := EncodeEntry(placements(roomFor(b, bigState(b, 1000), 100), 100))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeEntry(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s := bigState(b, 10_000)
	data := snapshotOf(b, s)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if err := WriteSnapshot(io.Discard, s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ReadSnapshot(bytes.NewReader(data)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("inspect", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := InspectSnapshot(bytes.NewReader(data)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDigest(b *testing.B) {
	s := bigState(b, 10_000)
	for b.Loop() {
		Digest(s)
	}
}

func BenchmarkCheck(b *testing.B) {
	s := bigState(b, 10_000)
	for b.Loop() {
		if err := Check(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFork(b *testing.B) {
	s := bigState(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		s.fork()
	}
}
