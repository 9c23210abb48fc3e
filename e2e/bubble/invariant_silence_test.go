package bubble

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/invariant"
	"github.com/outspan/outspan/model"
)

// hearing describes when one running server heard a node.
type hearing struct {
	server string
	silent time.Duration // since it last heard the node
	steady time.Duration // for how long it has heard the node without a gap
}

// ears has the latest streak of each server and node. history updates it with each entry.
type ears map[ear]streak

type ear struct {
	server string
	node   model.NodeID
}

// streak is a time in which a server heard a node without a gap, from the first heartbeat to the last one.
type streak struct{ began, last time.Time }

// listen asks every running server when it last heard each node. If a node was silent for longer than gap, a new streak
// begins.
func (e ears) listen(up map[string]*serverProcess, gap time.Duration) {
	for name, p := range up {
		for id, live := range p.cluster.Live() {
			at, last := ear{name, id}, time.Now().Add(-time.Duration(live.Age)*time.Millisecond)
			was, known := e[at]
			switch {
			case live.Unheard:
				delete(e, at)
			case !known || last.Sub(was.last) > gap:
				e[at] = streak{last, last}
			default:
				e[at] = streak{was.began, last}
			}
		}
	}
}

// of returns one hearing for each running server that has heard the node.
func (e ears) of(id model.NodeID, up map[string]*serverProcess) []hearing {
	var all []hearing
	for _, name := range slices.Sorted(maps.Keys(up)) {
		if s, ok := e[ear{name, id}]; ok {
			all = append(all, hearing{name, time.Since(s.last), time.Since(s.began)})
		}
	}
	return all
}

// lateForHearings is the longest time between the writing of an entry and the questions to the servers. Later answers
// would not show what the servers had heard when the entry was written.
const lateForHearings = 200 * time.Millisecond

// silence checks S13: a node that a majority of the servers heard within half of offline_after is never marked offline.
// The servers are asked when the first of them has applied the entry, a moment after the entry was written. If more
// than lateForHearings has passed since the entry was written, nothing is checked.
func (h *history) silence(s *invariant.Step) error {
	h.ears.listen(h.up, half(s.Before.Settings.OfflineAfter))
	if time.Since(time.UnixMilli(s.Entry.Wall)).Abs() > lateForHearings {
		return nil
	}
	var f fsm.Findings
	for id, n := range s.After.Nodes.All() {
		was, ok := s.Before.Nodes.Get(id)
		if ok && was.Health != model.HealthOffline && n.Health == model.HealthOffline {
			f = append(f, unfair(n.Name, s.Before.Settings.OfflineAfter, voters, h.ears.of(id, h.up))...)
		}
	}
	return f.Err()
}

const voters = 3 // number of voters in every world

func half(threshold model.Duration) time.Duration {
	return time.Duration(threshold) * time.Millisecond / 2
}

// unfair checks S13 for one node that was marked offline. The leader may have decided on what servers knew one
// heartbeat earlier. So unfair considers only servers that heard the node within half the threshold, and that have
// heard it without a gap for longer than one heartbeat.
func unfair(name string, threshold model.Duration, voters int, heard []hearing) fsm.Findings {
	recent, verdict := 0, cluster.HeartbeatInterval(threshold)
	for _, one := range heard {
		if one.silent+lateForHearings < half(threshold) && one.steady > verdict+lateForHearings {
			recent++
		}
	}
	if recent > voters/2 {
		return fsm.Findings{
			{Invariant: fsm.S13, Text: fmt.Sprintf("node %s was marked offline, and %d of %d servers heard it within %s: %v",
				name, recent, voters, threshold/2, heard)}}
	}
	return nil
}

// snapshotEvery is the number of entries between two snapshots that copied compares.
const snapshotEvery = 64

// copied checks S5 for snapshots: a state that is written and read back is the same, and stays equal to the replay when
// the later entries are applied to it. Every snapshotEvery entries, copied compares the two states and makes the next
// snapshot.
func (h *history) copied(s *invariant.Step) {
	if h.restart.Index != 0 {
		h.restart, _ = h.restart.Apply(s.Index, s.Term, s.Entry)
	}
	if len(h.entries)%snapshotEvery == 0 {
		h.compareCopy()
	}
}

func (h *history) compareCopy() {
	if h.restart.Index != 0 {
		if got, want := fsm.Digest(h.restart), fsm.Digest(h.state); got != want {
			h.t.Errorf("S5: a snapshot and the entries after it give digest %s at index %d, the replay of all %s",
				got, h.state.Index, want)
		}
	}
	again, err := reread(h.state)
	if err != nil {
		h.t.Errorf("S5: the snapshot at index %d: %v", h.state.Index, err)
		return
	}
	if got, want := fsm.Digest(again), fsm.Digest(h.state); got != want {
		h.t.Errorf("S5: the snapshot at index %d reads as digest %s, it was %s", h.state.Index, got, want)
	}
	h.restart = again
}

// reread writes a snapshot and reads it back.
func reread(st fsm.State) (fsm.State, error) {
	var b bytes.Buffer
	if err := fsm.WriteSnapshot(&b, st); err != nil {
		return fsm.State{}, err
	}
	return fsm.ReadSnapshot(&b)
}
