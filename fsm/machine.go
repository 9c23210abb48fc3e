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

// Machine publishes the State of one server. Safe for concurrent use: entries are applied by one goroutine at a time,
// and reading the state never blocks. A Machine decides when readers see a state, never what is in the state.
type Machine struct {
	current atomic.Pointer[publication]

	write  sync.Mutex // one ApplyBatch, Restore or Replace at a time
	failed error      // why no more entries may be applied, or nil; guarded by write

	wait    sync.Mutex // guards the fields below
	topics  map[Topic]*waiter
	indexes Table[uint64, *waiter] // by the index that the callers wait for
	changes []*Changes
}

// publication is a State and the channel that is closed when the next State is published.
type publication struct {
	state State
	next  chan struct{}
}

// waiter is the channel that wakes all callers that wait for the same topic or index, and the number of these callers.
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

// Logged is one encoded entry and its position in the log.
type Logged struct {
	Index, Term uint64
	Data        []byte
}

// Apply applies one entry of the log and publishes the new state. Its results and errors are those of ApplyBatch.
func (m *Machine) Apply(index, term uint64, data []byte) ([]Result, error) {
	results, err := m.ApplyBatch([]Logged{{index, term, data}})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// ApplyBatch applies entries of the log in order and publishes the state after the last entry. No reader sees a state
// between the entries. The results are in the order of the entries and contain the refusals.
//
// ApplyBatch returns an error if an entry can't be decoded (codes needs_format, invalid), or if its index is not higher
// than that of the state (internal). The entries before it are applied and published. The caller must then stop the
// server, because a skipped entry would make this replica differ from the others. Every later call returns the same
// error until a Restore or Replace.
func (m *Machine) ApplyBatch(entries []Logged) ([][]Result, error) {
	m.write.Lock()
	defer m.write.Unlock()
	if m.failed != nil || len(entries) == 0 {
		return nil, m.failed
	}
	next := m.State().fork()
	// A panic is not recovered, because the entry must not be skipped. Later calls then return this error.
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

// Restore replaces the whole state by that of a snapshot and wakes all callers that wait for a topic. If ReadSnapshot
// fails, Restore returns its error and changes nothing.
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

// Replace publishes a state that the caller has already read, as Restore does with that of a snapshot.
func (m *Machine) Replace(s State) {
	m.write.Lock()
	defer m.write.Unlock()
	m.replace(s)
}

// replace publishes a state that was not made by applying entries to the published state. m.write must be held.
func (m *Machine) replace(s State) {
	m.failed = nil
	m.publish(s, touchedTopics{}, true)
}

// State returns the published state. It doesn't block.
func (m *Machine) State() State { return m.current.Load().state }

// Current returns a pointer to the published state. It saves callers that read only a little of the state from copying
// a struct of 3 kB. Callers must not change the state. Current doesn't block.
func (m *Machine) Current() *State { return &m.current.Load().state }

// Snapshot returns the state to write with WriteSnapshot. Writing it needs no lock and may take any time.
func (m *Machine) Snapshot() State { return m.State() }

// Watch returns the published state and a channel that is closed once a newer state is published. It doesn't block.
func (m *Machine) Watch() (State, <-chan struct{}) {
	p := m.current.Load()
	return p.state, p.next
}

// WatchTopic returns a channel that is closed when a snapshot is restored, or an entry that touches t is published,
// even if the object of the topic is unchanged. To miss no change, callers must call WatchTopic BEFORE they read the
// state, and again for each further wait. They must always call cancel, even after the channel was closed.
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

// WaitIndex blocks until the published state is at index or later, and returns nil. If ctx is done first, it returns
// the cause of ctx.
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

// awaitIndex adds a waiter for index, or returns nil if the published state is at index already. It reads the state
// while it holds m.wait, which publish takes after it has stored a newer state. So either awaitIndex sees the newer
// state, or publish sees the waiter.
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

// publish makes s the state that readers see. Then it wakes the callers that wait for a touched topic, and those that
// wait for an index up to that of s. If all is true, it wakes the callers of every topic.
func (m *Machine) publish(s State, touched touchedTopics, all bool) {
	now := &publication{s, make(chan struct{})}
	old := m.current.Swap(now)
	m.wait.Lock()
	for _, c := range m.changes {
		c.add(&now.state, touched.objects, all)
	}
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

// wake wakes the callers that wait for a touched topic. m.wait must be held.
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
