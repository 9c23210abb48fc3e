package fsm

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/model"
)

// mustApply applies commands as the next entry, each in its own group. It fails the test if one is refused.
func mustApply(t testing.TB, m *Machine, commands ...Command) {
	t.Helper()
	e := Entry{Format: model.CurrentFormat, At: m.State().Now + 10, Wall: 1_700_000_000_000, Actor: "cli:alice"}
	for _, c := range commands {
		e.Groups = append(e.Groups, []Command{c})
	}
	e.Groups = atEpochs(m.State(), e.Groups...)
	data, err := EncodeEntry(e)
	if err != nil {
		t.Fatal(err)
	}
	results, err := m.Apply(m.State().Index+1, 1, data)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Refusal != nil {
			t.Fatalf("%s: %v", KindName(commands[i].Kind()), r.Refusal)
		}
	}
}

func register(id model.NodeID) *NodeRegister {
	return &NodeRegister{ID: id, Name: string(id),
		Agent: model.AgentInfo{BootID: "boot", Address: "127.0.0.1", Key: []byte("k")},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: 8 << 30}, PortMin: 20000, PortMax: 29999}}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestMachineWakesWhomItConcerns(t *testing.T) {
	m := NewMachine()
	mustApply(t, m, register("n1"), register("n2"))
	before, next := m.Watch()
	one, cancelOne := m.WatchTopic("node/n1")
	defer cancelOne()
	two, cancelTwo := m.WatchTopic("node/n2")
	defer cancelTwo()
	gone, cancelGone := m.WatchTopic("node/n1")
	cancelGone()
	cancelGone() // a second call is allowed
	mustApply(t, m, &NodeIntent{ID: "n1", Intent: model.IntentCordoned})
	if !closed(next) || !closed(one) || closed(two) {
		t.Errorf("closed: next %v, touched topic %v, other topic %v", closed(next), closed(one), closed(two))
	}
	_ = gone // shares its channel with another watcher, so the channel may close although this watch was canceled
	if n, _ := before.Nodes.Get("n1"); n.Intent != model.IntentActive {
		t.Error("the state that was watched changed")
	}
	if n, _ := m.State().Nodes.Get("n1"); n.Intent != model.IntentCordoned {
		t.Error("the new state was not published before the waiters woke")
	}
	again, cancel := m.WatchTopic("node/n1")
	defer cancel()
	if closed(again) {
		t.Error("a new watch saw an old change")
	}
}

func TestMachineForgetsWaiters(t *testing.T) {
	m := NewMachine()
	_, first := m.WatchTopic("node/n1")
	defer first()
	_, second := m.WatchTopic("node/n1")
	second()
	second() // the second call must not end the first watch
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := m.WaitIndex(ctx, 1<<60); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if m.indexes.Len() != 0 {
		t.Error("an abandoned wait for an index is kept")
	}
	_, last := m.WatchTopic("node/n2")
	last()
	if len(m.topics) != 1 {
		t.Errorf("%d topics are kept, want the one that is still watched", len(m.topics))
	}
}

func TestWaitIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMachine()
		if err := m.WaitIndex(t.Context(), 0); err != nil {
			t.Errorf("what is there already: %v", err)
		}
		var wg sync.WaitGroup
		for _, index := range []uint64{1, 2, 2, 3} {
			wg.Go(func() {
				if err := m.WaitIndex(t.Context(), index); err != nil || m.State().Index < index {
					t.Errorf("waited for %d: %v at index %d", index, err, m.State().Index)
				}
			})
		}
		synctest.Wait()
		mustApply(t, m, register("n1"))
		synctest.Wait()
		if got := m.indexes.Len(); got != 2 {
			t.Errorf("at index 1 %d indexes are waited for, want 2 and 3", got)
		}
		mustApply(t, m, register("n1"))
		mustApply(t, m, register("n1"))
		wg.Wait()

		cause := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		if err := m.WaitIndex(ctx, 99); !errors.Is(err, cause) {
			t.Errorf("got %v, want the cause", err)
		}
	})
}

func TestMachineRestores(t *testing.T) {
	source := NewMachine()
	mustApply(t, source, register("n1"), register("n2"))
	mustApply(t, source, &NodeIntent{ID: "n1", Intent: model.IntentCordoned})
	data := snapshotOf(t, source.Snapshot())

	m := NewMachine()
	mustApply(t, m, register("old"))
	_, next := m.Watch()
	topic, cancel := m.WatchTopic("drain/x")
	defer cancel()
	if err := m.Restore(bytes.NewReader(data[:len(data)-1])); err == nil || closed(next) || closed(topic) ||
		!m.State().Nodes.Has("old") {
		t.Fatalf("half a snapshot: %v; closed %v, %v", err, closed(next), closed(topic))
	}
	if err := m.Restore(bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if !closed(next) || !closed(topic) {
		t.Error("a restore wakes everybody")
	}
	sameState(t, source.State(), m.State())
	mustApply(t, m, &NodeIntent{ID: "n1", Intent: model.IntentActive}) // the machine still applies entries
}

// After an entry that can't be applied, the machine applies no other entry.
func TestMachineStopsAtWhatItCannotApply(t *testing.T) {
	good, err := EncodeEntry(Entry{Format: 1, Groups: [][]Command{{register("n1")}}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		index uint64
		data  []byte
		code  model.Code
	}{
		{"garbage", 2, []byte("garbage"), model.CodeInvalid},
		{"a newer format", 2, raw(t, map[int]any{1: 5, 8: []any{}}), model.CodeNeedsFormat},
		{"an unknown kind", 2, raw(t, map[int]any{1: 1, 8: [][]any{{[]any{777, 3, map[int]any{}}}}}), model.CodeNeedsFormat},
		{"an index that does not grow", 1, good, model.CodeInternal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMachine()
			mustApply(t, m, register("first"))
			before := Digest(m.State())
			_, err := m.Apply(tt.index, 1, tt.data)
			wantError(t, err, tt.code, "")
			if _, again := m.Apply(3, 1, good); !errors.Is(again, err) {
				t.Errorf("the next entry gave %v", again)
			}
			if Digest(m.State()) != before {
				t.Error("the state changed")
			}
		})
	}
}

// If an entry of a batch can't be applied, the entries before it are applied and published.
func TestMachineStopsWithinABatch(t *testing.T) {
	entry := func(id model.NodeID) []byte {
		data, err := EncodeEntry(Entry{Format: 1, Groups: [][]Command{{register(id)}}})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	m := NewMachine()
	_, next := m.Watch()
	results, err := m.ApplyBatch([]Logged{{1, 1, entry("n1")}, {3, 1, entry("n3")},
		{4, 1, []byte("garbage")}, {5, 1, entry("n5")}})
	wantError(t, err, model.CodeInvalid, "")
	if len(results) != 2 || m.State().Index != 3 || m.State().Nodes.Len() != 2 || !closed(next) {
		t.Errorf("%d results, index %d, %d nodes, woken %v; want the two entries before the broken one", len(results),
			m.State().Index, m.State().Nodes.Len(), closed(next))
	}
	if results, again := m.ApplyBatch([]Logged{{5, 1, entry("n5")}}); results != nil || !errors.Is(again, err) {
		t.Errorf("the next batch gave %v, %v", results, again)
	}
}

// A batch is published as a whole. It wakes the watchers of each topic that one of its entries touches, and no others.
func TestMachinePublishesABatchOnce(t *testing.T) {
	m := NewMachine()
	mustApply(t, m, register("n1"), register("n2"), register("n3"))
	before, next := m.Watch()
	woken := map[Topic]<-chan struct{}{}
	for _, topic := range []Topic{"node/n1", "node/n2", "node/n3"} {
		c, cancel := m.WatchTopic(topic)
		t.Cleanup(cancel)
		woken[topic] = c
	}
	var batch []Logged
	for i, id := range []model.NodeID{"n1", "n2"} {
		data, err := EncodeEntry(Entry{Format: 1, Groups: [][]Command{{&NodeIntent{ID: id, Intent: model.IntentCordoned}}}})
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, Logged{before.Index + 1 + uint64(i), 1, data})
	}
	results, err := m.ApplyBatch(batch)
	if err != nil || len(results) != 2 {
		t.Fatal(results, err)
	}
	after, _ := m.Watch()
	if !closed(next) || after.Index != before.Index+2 || results[0][0].Index != before.Index+1 ||
		results[1][0].Index != before.Index+2 {
		t.Errorf("published index %d, results %v", after.Index, results)
	}
	if !closed(woken["node/n1"]) || !closed(woken["node/n2"]) || closed(woken["node/n3"]) {
		t.Error("a batch wakes those whom it concerns, and nobody else")
	}
	if n1, _ := before.Nodes.Get("n1"); n1.Intent != model.IntentActive {
		t.Error("the state before changed")
	}
}

// A panic while an entry is applied reaches the caller of Apply. If the caller recovers, later calls return an error.
func TestMachineDoesNotSwallowAPanic(t *testing.T) {
	m := NewMachine()
	m.current.Store(&publication{brokenState(m.State()), make(chan struct{})})
	data, err := EncodeEntry(Entry{Format: 1, Groups: [][]Command{{&NodeForget{ID: "n1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = m.Apply(1, 1, data)
	}()
	_, err = m.Apply(2, 1, data)
	wantError(t, err, model.CodeInternal, "entry 1 of term 1 could not be applied")
}

// brokenState returns a state in which the row of n1 is nil, so that a command that reads this row panics.
func brokenState(s State) State {
	f := s.fork()
	f.Nodes.put("n1", nil)
	return f.publish()
}

func TestReadersBesideTheWriter(t *testing.T) {
	m := NewMachine()
	mustApply(t, m, register("n0"))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				woken, stop := m.WatchTopic("nodes")
				s, next := m.Watch()
				if err := Check(s); err != nil {
					t.Error(err)
				}
				draft := s.NewDraft(s.Now)
				if refusal := draft.Try(&NodeIntent{ID: "n0", Intent: model.IntentDisabled}); refusal != nil {
					t.Error(refusal)
				}
				if n, _ := s.Nodes.Get("n0"); n.Intent != model.IntentActive {
					t.Error("a draft wrote to the published state")
				}
				select {
				case <-woken:
				case <-next:
				case <-ctx.Done():
				}
				stop()
			}
		})
	}
	for i := range 100 {
		id := model.NodeID([]string{"n1", "n2", "n3"}[i%3])
		mustApply(t, m, register(id))
		if i%20 == 0 {
			if err := m.Restore(bytes.NewReader(snapshotOf(t, m.Snapshot()))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := m.WaitIndex(ctx, m.State().Index); err != nil {
		t.Error(err)
	}
	cancel()
	wg.Wait()
}
