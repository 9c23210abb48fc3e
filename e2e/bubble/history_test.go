package bubble

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/invariant"
)

// history collects every entry that any server has applied. It replays these entries into a separate state, and judges
// each step. Safe for concurrent use.
type history struct {
	t *testing.T

	mu      sync.Mutex
	state   fsm.State            // state after the last entry
	base    uint64               // index of the last restored snapshot; 0 means that no snapshot was restored
	states  map[uint64]fsm.State // the state after each entry, by index
	digests map[uint64]string    // digests of some of the states, by index
	entries []committed
	judges  *invariant.Judge
	restart fsm.State                 // a state that was read from a snapshot, with later entries applied; see copied
	up      map[string]*serverProcess // the running servers, by name
	ears    ears
}

type committed struct {
	index, term uint64
	fsm.Entry
	results []fsm.Result
}

func newHistory(t *testing.T) *history {
	return &history{t: t, state: fsm.NewState(), states: map[uint64]fsm.State{}, digests: map[uint64]string{},
		judges: invariant.New(), up: map[string]*serverProcess{}, ears: ears{}}
}

// follow returns a function that checks each state that a server publishes, until the function's context ends.
func (h *history) follow(name string, p *serverProcess) func(context.Context) {
	return func(ctx context.Context) {
		var last uint64
		h.mu.Lock()
		h.up[name] = p
		h.mu.Unlock()
		for {
			state, next := p.machine.Watch()
			if state.Index != 0 {
				h.look(name, p.store, state, state.Index >= last+compareEvery)
				last = state.Index - state.Index%compareEvery
			}
			select {
			case <-next:
			case <-ctx.Done():
				h.mu.Lock()
				delete(h.up, name)
				h.mu.Unlock()
				h.look(name, p.store, p.machine.State(), true)
				return
			}
		}
	}
}

// compareEvery is the number of entries between two comparisons of a server's whole state with the replay. Once states
// differ, they stay different. So occasional comparisons, and one at the end, are enough.
const compareEvery = 16

// look replays a server's log up to the index of the state that the server published, unless an earlier call has
// already replayed these entries. After a restore, the replay continues from the restored state. If compare is true,
// look also compares the published state with the replay.
func (h *history) look(name string, log cluster.LogStore, state fsm.State, compare bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if state.Index == 0 {
		return
	}
	if state.Index > h.state.Index && state.Incarnation > h.state.Incarnation && h.state.Index != 0 {
		h.restored(state)
	}
	if state.Index < h.base && h.states[state.Index].Index == 0 {
		return // the state is older than the restored one, and no replay has reached it
	}
	if err := h.replay(log, state.Index); err != nil {
		h.t.Errorf("%s, log up to %d: %v", name, state.Index, err)
		return
	}
	if !compare {
		return
	}
	want, ok := h.digests[state.Index]
	if !ok {
		want = fsm.Digest(h.states[state.Index])
		h.digests[state.Index] = want
	}
	if got := fsm.Digest(state); got != want {
		h.t.Errorf("S5: %s at index %d has digest %s, the replay of the log %s", name, state.Index, got, want)
	}
}

// restored continues the replay from a restored snapshot, whose state does not follow from the log. The entries after
// the snapshot are judged as a new history.
func (h *history) restored(state fsm.State) {
	h.state, h.base = state, state.Index
	h.states[state.Index] = state
	h.judges, h.restart = invariant.New(), fsm.State{}
}

// replay applies the entries up to an index, and judges each step.
func (h *history) replay(log cluster.LogStore, index uint64) error {
	for i := h.state.Index + 1; i <= index; i++ {
		l, err := h.entry(log, i)
		if h.base != 0 && errors.Is(err, raft.ErrLogNotFound) {
			// This is the index of a restored snapshot, or of an entry of raft itself before an installed snapshot. If a command
			// were missing, the digests would differ.
			continue
		}
		if err != nil {
			return fmt.Errorf("read entry %d: %w", i, err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		entry, err := fsm.DecodeEntry(l.Data)
		if err != nil {
			return fmt.Errorf("decode entry %d: %w", i, err)
		}
		before := h.state
		var results []fsm.Result
		h.state, results = before.Apply(i, l.Term, entry)
		h.states[i] = h.state
		h.entries = append(h.entries, committed{i, l.Term, entry, results})
		after := h.state
		h.step(&invariant.Step{Before: &before, After: &after, Index: i, Term: l.Term, Entry: entry, Results: results})
	}
	return nil
}

// entry reads one entry from the given log, or else from the log of another server that has applied the entry. A server
// that began with a snapshot lacks earlier entries, and its state may be checked before the other servers' states.
func (h *history) entry(log cluster.LogStore, index uint64) (raft.Log, error) {
	var l raft.Log
	err := log.GetLog(index, &l)
	if !errors.Is(err, raft.ErrLogNotFound) {
		return l, err
	}
	for _, p := range h.up {
		if p.machine.State().Index >= index && p.store.GetLog(index, &l) == nil {
			return l, nil
		}
	}
	return l, err
}

func (h *history) step(s *invariant.Step) {
	for _, finding := range h.judges.Step(s) {
		h.t.Errorf("%v\n\tat entry %d: %s%s", finding, s.Index, kinds(s.Entry), refusals(s.Results))
	}
	if err := h.silence(s); err != nil {
		h.t.Errorf("%v\n\tat entry %d: %s", err, s.Index, kinds(s.Entry))
	}
	h.copied(s)
}

// judge checks the finished history. The state that was read from the last snapshot must be right, and clients' answers
// must agree with the log.
func (h *history) judge(r *receipts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.compareCopy()
	if err := r.durable(h.entries, h.state); err != nil {
		h.t.Error(err)
	}
	h.t.Logf("%d entries, the last at index %d; %s", len(h.entries), h.state.Index, r.summary())
}

// last returns the state after the last entry.
func (h *history) last() fsm.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// find lists the entries for which ok returns true.
func (h *history) find(ok func(committed) bool) []committed {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []committed
	for _, e := range h.entries {
		if ok(e) {
			out = append(out, e)
		}
	}
	return out
}

// since lists the entries after an index.
func (h *history) since(index uint64) []committed {
	return h.find(func(c committed) bool { return c.index > index })
}

// commands lists the accepted commands of one type.
func commands[C fsm.Command](h *history) (out []C) {
	for _, e := range h.find(func(committed) bool { return true }) {
		for i, group := range e.Groups {
			for _, c := range group {
				if one, ok := c.(C); ok && e.results[i].Refusal == nil {
					out = append(out, one)
				}
			}
		}
	}
	return out
}

// kinds describes an entry by its actor and the types of its commands.
func kinds(e fsm.Entry) string {
	text := string(e.Actor)
	for _, group := range e.Groups {
		for _, c := range group {
			text += fmt.Sprintf(" %T", c)
		}
	}
	return text
}
