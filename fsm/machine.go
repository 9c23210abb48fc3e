package fsm

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// Machine holds the published State of one server. One goroutine at a time applies the log here; reading is safe for
// many goroutines and never blocks. A Machine decides when a state is seen, never what is in it.
type Machine struct {
	current atomic.Pointer[publication]

	write  sync.Mutex // one Apply or Restore at a time
	failed error      // why nothing more may be applied; guarded by write

	wait    sync.Mutex // guards the fields below
	topics  map[Topic]*waiter
	indexes Table[uint64, *waiter] // by the index to wait for
}

// publication is a State and the channel that is closed when the next one is published.
type publication struct {
	state State
	next  chan struct{}
}

// waiter is the channel that wakes all callers that wait for the same thing.
type waiter struct {
	woken chan struct{}
	users int
}

// NewMachine returns a Machine in the state before the first entry.
func NewMachine() *Machine {
	m := &Machine{topics: map[Topic]*waiter{}}
	m.indexes = m.indexes.fork(nil)
	m.current.Store(&publication{NewState(), make(chan struct{})})
	return m
}

// Logged is one entry as the log holds it.
type Logged struct {
	Index, Term uint64
	Data        []byte
}

// Apply applies one entry of the log and publishes the result; see ApplyBatch.
func (m *Machine) Apply(index, term uint64, data []byte) ([]Result, error) {
	results, err := m.ApplyBatch([]Logged{{index, term, data}})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// ApplyBatch applies entries of the log in order and publishes the state after the last one; no reader sees a state
// between them. The results are in the order of the entries and contain the refusals. The error is for input that a
// healthy log can't hold: an entry that can't be decoded (codes needs_format, invalid) or an index that does not grow
// (internal). The caller must then end the server, because a skipped entry would make this replica differ from the
// others. Entries before the bad one are published. Every further call returns the same error until a Restore. A panic
// is not caught, for the same reason.
func (m *Machine) ApplyBatch(entries []Logged) ([][]Result, error) {
	m.write.Lock()
	defer m.write.Unlock()
	if m.failed != nil || len(entries) == 0 {
		return nil, m.failed
	}
	next := m.State().fork()
	// later calls return this if applying panics
	m.failed = model.Refuse(model.CodeInternal, "entry %d of term %d could not be applied",
		entries[0].Index, entries[0].Term)
	results, err := next.applyLogged(entries)
	m.failed = err
	if len(results) > 0 {
		touched := next.entry.touched
		m.publish(next.publish(), touched, false)
	}
	return results, err
}

// applyLogged applies entries to a fork, up to the first one that can't be applied.
func (s *State) applyLogged(entries []Logged) (results [][]Result, _ error) {
	results = make([][]Result, 0, len(entries))
	for _, l := range entries {
		entry, err := DecodeEntry(l.Data)
		if err != nil && plant.Is(plant.SkipUnknown) {
			results = append(results, nil)
			continue
		}
		if err == nil && l.Index <= s.Index {
			err = model.Refuse(model.CodeInternal, "the state is at index %d already", s.Index)
		}
		if err != nil {
			return results, fmt.Errorf("apply entry %d of term %d: %w", l.Index, l.Term, err)
		}
		results = append(results, s.applyNext(l.Index, l.Term, entry))
	}
	return results, nil
}

// Restore replaces the whole state by that of a snapshot and wakes everybody who waits. On an error, which comes from
// ReadSnapshot or r, nothing changes.
func (m *Machine) Restore(r io.Reader) error {
	m.write.Lock()
	defer m.write.Unlock()
	s, err := ReadSnapshot(r)
	if err != nil {
		return err
	}
	m.replace(s)
	return nil
}

// Replace is a Restore of a snapshot whose state the caller already has.
func (m *Machine) Replace(s State) {
	m.write.Lock()
	defer m.write.Unlock()
	m.replace(s)
}

// replace publishes a state that was not made from the one before. m.write is held.
func (m *Machine) replace(s State) {
	m.failed = nil
	m.publish(s, touchedTopics{}, true)
}

// State returns the published state. It doesn't block.
func (m *Machine) State() State { return m.current.Load().state }

// Current returns a pointer to the published state, for callers that read little of a struct of 3 kB. Nobody may change
// it. It doesn't block.
func (m *Machine) Current() *State { return &m.current.Load().state }

// Snapshot returns the state to write with WriteSnapshot, which needs no lock and may take as long as it needs.
func (m *Machine) Snapshot() State { return m.State() }

// Watch returns the published state and a channel that is closed once there is a newer one. It doesn't block.
func (m *Machine) Watch() (State, <-chan struct{}) {
	p := m.current.Load()
	return p.state, p.next
}

// WatchTopic returns a channel that is closed after the next entry that touches t was published, or a snapshot was
// restored. Call it BEFORE reading the state that you judge, so that no change is missed in between. It wakes once.
// cancel must be called in any case, and may be called earlier to give up. A wake-up only means that it is worth
// looking again.
func (m *Machine) WatchTopic(t Topic) (woken <-chan struct{}, cancel func()) {
	m.wait.Lock()
	defer m.wait.Unlock()
	w, ok := m.topics[t]
	if !ok {
		w = &waiter{woken: make(chan struct{})}
		m.topics[t] = w
	}
	w.users++
	return w.woken, sync.OnceFunc(func() {
		m.wait.Lock()
		defer m.wait.Unlock()
		if w.users--; w.users == 0 && m.topics[t] == w {
			delete(m.topics, t)
		}
	})
}

// WaitIndex blocks until the entry at index, or a later one, is published here, and returns nil. If ctx ends first, it
// returns the cause.
func (m *Machine) WaitIndex(ctx context.Context, index uint64) error {
	w := m.awaitIndex(index)
	if w == nil {
		return nil
	}
	defer m.leaveIndex(index, w)
	select {
	case <-w.woken:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitIndex adds a waiter for index, or returns nil if it is published. It reads the state under the lock that publish
// takes after it stored a newer one. So either it sees the newer state here, or publish sees the waiter.
func (m *Machine) awaitIndex(index uint64) *waiter {
	m.wait.Lock()
	defer m.wait.Unlock()
	if m.current.Load().state.Index >= index {
		return nil
	}
	w, ok := m.indexes.Get(index)
	if !ok {
		w = &waiter{woken: make(chan struct{})}
		m.indexes.put(index, w)
	}
	w.users++
	return w
}

func (m *Machine) leaveIndex(index uint64, w *waiter) {
	m.wait.Lock()
	defer m.wait.Unlock()
	if w.users--; w.users > 0 {
		return
	}
	if current, ok := m.indexes.Get(index); ok && current == w {
		m.indexes.del(index)
	}
}

// publish makes s the state that readers see, then wakes those who wait for a touched topic, or all.
func (m *Machine) publish(s State, touched touchedTopics, all bool) {
	old := m.current.Swap(&publication{s, make(chan struct{})})
	m.wait.Lock()
	if all {
		touched.tables = slices.Sorted(maps.Keys(m.topics))
	}
	m.wake(touched)
	for {
		index, w, ok := m.indexes.Min()
		if !ok || index > s.Index {
			break
		}
		m.indexes.del(index)
		close(w.woken)
	}
	m.wait.Unlock()
	close(old.next)
}

// wake wakes those who wait for a touched topic. m.wait is held.
func (m *Machine) wake(touched touchedTopics) {
	for _, t := range touched.tables {
		m.wakeTopic(t)
	}
	var text []byte
	for _, o := range touched.objects {
		text = append(append(text[:0], o.noun...), o.id...)
		if _, ok := m.topics[Topic(text)]; ok {
			m.wakeTopic(Topic(text))
		}
	}
}

func (m *Machine) wakeTopic(t Topic) {
	if w, ok := m.topics[t]; ok {
		delete(m.topics, t)
		close(w.woken)
	}
}
