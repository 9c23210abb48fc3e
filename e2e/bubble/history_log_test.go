package bubble

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

type memoryLog struct{ *raft.InmemStore }

func (memoryLog) Close() error { return nil }

// A server that began with a snapshot has a short log. If its state is checked before the states of other servers, the
// replay reads the missing entries from another server's log. It reads only entries that this other server has applied,
// because a later entry in that log may never be committed.
func TestHistoryReadsAnotherLog(t *testing.T) {
	var entries []raft.Log
	for i := range uint64(4) {
		data, err := fsm.EncodeEntry(fsm.Entry{Format: fsm.NewState().Format, Actor: model.ActorLeader,
			Groups: [][]fsm.Command{{&fsm.HoldSet{}}}})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, raft.Log{Index: i + 1, Term: 1, Type: raft.LogCommand, Data: data})
	}
	server := func(applied uint64, logs ...raft.Log) *serverProcess {
		p := &serverProcess{machine: fsm.NewMachine(), store: memoryLog{raft.NewInmemStore()}}
		for _, l := range entries[:applied] {
			if _, err := p.machine.Apply(l.Index, l.Term, l.Data); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range logs {
			if err := p.store.StoreLog(&l); err != nil {
				t.Fatal(err)
			}
		}
		return p
	}
	stale := entries[1]
	stale.Data = []byte("never committed")
	fresh := server(4, entries[3])
	h := newHistory(t)
	h.up = map[string]*serverProcess{"s1": server(4, entries...), "s2": server(0, stale), "s3": fresh}
	for i, want := range entries {
		got, err := h.entry(fresh.store, uint64(i+1))
		if err != nil || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("entry %d: %q, %v", i+1, got.Data, err)
		}
	}
}
