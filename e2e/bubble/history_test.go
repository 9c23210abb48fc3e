package bubble

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
)

// history is every entry that any server has applied, replayed from the log into a state of its own, and judged. Safe for many
// goroutines.
type history struct {
	t *testing.T

	mu      sync.Mutex
	state   fsm.State            // after the last entry
	states  map[uint64]fsm.State // after each entry
	digests map[uint64]string    // of some of them
	entries []committed
	stops   map[fsm.GroupID][]fsm.Time // of the voluntary stops that a rate counts
}

// committed is one entry with what became of it.
type committed struct {
	index, term uint64
	fsm.Entry
	results []fsm.Result
}

func newHistory(t *testing.T) *history {
	return &history{t: t, state: fsm.NewState(), states: map[uint64]fsm.State{}, digests: map[uint64]string{}, stops: map[fsm.GroupID][]fsm.Time{}}
}

// follow looks at everything that a server publishes, until its context ends.
func (h *history) follow(name string, p *serverProcess) func(context.Context) {
	return func(ctx context.Context) {
		var last uint64
		for {
			state, next := p.machine.Watch()
			if state.Index != 0 {
				h.look(name, p.store, state, state.Index >= last+compareEvery)
				last = state.Index - state.Index%compareEvery
			}
			select {
			case <-next:
			case <-ctx.Done():
				h.look(name, p.store, p.machine.State(), true)
				return
			}
		}
	}
}

// compareEvery is after how many entries a server's state is compared with the replay, as a whole. States that differ once differ from then on,
// so nothing is missed by comparing now and then, and at the end.
const compareEvery = 16

// look has the replay go on from this server's log when it is the first to get there, and compares what it published.
func (h *history) look(name string, log cluster.LogStore, state fsm.State, compare bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if state.Index == 0 {
		return
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

// replay applies the entries up to index.
func (h *history) replay(log cluster.LogStore, index uint64) error {
	for i := h.state.Index + 1; i <= index; i++ {
		var l raft.Log
		if err := log.GetLog(i, &l); err != nil {
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
		if entry.Term != 0 && entry.Term != l.Term && slices.ContainsFunc(results, func(r fsm.Result) bool { return r.Refusal == nil }) {
			h.t.Errorf("S10: entry %d was decided in term %d and taken in term %d", i, entry.Term, l.Term)
		}
		h.step(before, h.state)
	}
	return nil
}

// step judges one entry.
func (h *history) step(before, after fsm.State) {
	report := func(err error) {
		if err != nil {
			h.t.Errorf("entry %d (%s): %v", after.Index, kinds(h.entries[len(h.entries)-1].Entry), err)
		}
	}
	report(fsm.Check(after))
	if before.Index > 0 {
		report(fsm.CheckStep(before, after))
	}
	report(h.budgets(before, after))
	report(holds(before, after))
	report(storms(after))
}

// budgets is S3: who began to stop by somebody's choice left enough behind, and the rate's window was not overdrawn. Commands of one entry
// see each other, so the groups are judged by what the entry did in all.
func (h *history) budgets(before, after fsm.State) error {
	taken := map[fsm.GroupID]int{}
	for id, now := range after.Instances.All() {
		was, ok := before.Instances.Get(id)
		if !ok || was == now || was.Desired != fsm.DesiredRunning || now.Desired == fsm.DesiredRunning || !voluntary(now) {
			continue
		}
		if was.Ready() {
			taken[now.Group]++
		}
		h.rate(after, was, now)
	}
	for id, n := range taken {
		g, _ := before.Groups.Get(id)
		if left := g.Ready - n; left < g.Budget.MinReady {
			return fmt.Errorf("S3: %d ready of %s were told to stop, %d are left of the %d that must be", n, id, left, g.Budget.MinReady)
		}
	}
	for id, times := range h.stops {
		g, ok := after.Groups.Get(id)
		if !ok || g.Budget.RateMax == 0 {
			continue
		}
		for i := g.Budget.RateMax; i < len(times); i++ {
			if gap := times[i].Sub(times[i-g.Budget.RateMax]); gap < g.Budget.Window {
				return fmt.Errorf("S3: %s lost %d within %s, %d within %s are allowed", id, g.Budget.RateMax+1, gap, g.Budget.RateMax, g.Budget.Window)
			}
		}
	}
	return nil
}

// rate notes a stop that the group's rate counts: of what was running.
func (h *history) rate(after fsm.State, was, now *fsm.Instance) {
	switch was.Status.Observed {
	case fsm.ObservedLost, fsm.ObservedFailed, fsm.ObservedPending:
		return
	}
	if g, ok := after.Groups.Get(now.Group); ok && g.Budget.RateMax > 0 {
		h.stops[now.Group] = append(h.stops[now.Group], now.Marks.StopBegan)
	}
}

// voluntary reports whether a stop was somebody's choice that budgets are there for.
func voluntary(i *fsm.Instance) bool {
	return slices.Contains([]fsm.Cause{fsm.CauseNodeDraining, fsm.CauseRollout, fsm.CauseUser}, i.Marks.StopCause)
}

// holds is S12: while a hold is set nothing involuntary begins.
func holds(before, after fsm.State) error {
	if !before.Hold.Active || !after.Hold.Active {
		return nil
	}
	for id, n := range after.Nodes.All() {
		if was, ok := before.Nodes.Get(id); ok && was.Health != fsm.HealthOffline && n.Health == fsm.HealthOffline {
			return fmt.Errorf("S12: node %s was marked offline during a hold", n.Name)
		}
	}
	for id, i := range after.Instances.All() {
		if !before.Instances.Has(id) && i.Cause == fsm.CauseNodeOffline {
			return fmt.Errorf("S12: instance %s replaces one of an offline node during a hold", id)
		}
	}
	return nil
}

// storms is S7: what is desired to run and not lost is at most the count and its surge, and no slot has two successors.
func storms(s fsm.State) error {
	for id, g := range s.Groups.All() {
		if g.Role == fsm.RoleSystem {
			continue
		}
		running, bySlot := 0, map[int]int{}
		for i := range s.InstancesOf(id) {
			if i.Wanted() {
				running++
				bySlot[i.Slot]++
			}
		}
		for slot, n := range bySlot {
			if n > 2 {
				return fmt.Errorf("S7: slot %d of %s has %d instances", slot, id, n)
			}
		}
		if running > 2*max(g.Count, 1) {
			return fmt.Errorf("S7: %d instances of %s run, its count is %d", running, id, g.Count)
		}
	}
	return nil
}

// judge is the end: whoever still ran had everything that was committed.
func (h *history) judge() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.t.Logf("%d entries, the last at index %d", len(h.entries), h.state.Index)
}

// last is the state after the last entry.
func (h *history) last() fsm.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// find lists the entries for which ok says so.
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

// commands lists the accepted commands of one type, with the index of each.
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

// kinds names the commands of an entry.
func kinds(e fsm.Entry) string {
	text := string(e.Actor)
	for _, group := range e.Groups {
		for _, c := range group {
			text += fmt.Sprintf(" %T", c)
		}
	}
	return text
}
