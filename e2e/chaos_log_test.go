package e2e

import (
	"fmt"
	"slices"
	"time"

	room "github.com/outspan/outspan/cluster" // cluster is a type of this package
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/invariant"
)

// judgeLog stops a server and checks the entries of its log up to the given index.
func (x *chaos) judgeLog(m *member, index uint64) {
	if code := m.terminate(x.t); code != 0 {
		x.book.violate("L1: %s ended with code %d when it was asked to end:\n%s", m.Name, code, m.LastLines(15))
	}
	began := time.Now()
	judged, err := judgeDir(m.data(), index, func(found fsm.Finding, r room.LogRecord) {
		x.book.violate("%v, at entry %d of the log of %s", found, r.Index, m.Name)
	})
	if err != nil {
		x.t.Errorf("replay the log of %s: %v", m.Name, err)
	}
	x.t.Logf("%d entries of the log of %s were judged in %s", judged, m.Name, time.Since(began).Round(time.Second))
}

// judgeDir replays the log of a stopped server up to the given index, and passes each violation to the function wrong.
// A restore leaves a hole in the log, and so does a snapshot from the leader. After a hole, judgeDir continues from a
// stored snapshot (see stateBefore), in which the rows of tokens and members must not have gone back. The error
// also says what is wrong with the last state.
func judgeDir(path string, index uint64, wrong func(fsm.Finding, room.LogRecord)) (judged int, err error) {
	dir, err := room.OpenStopped(path)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	state, judge, at := fsm.NewState(), invariant.New(), uint64(0)
	for r, err := range dir.Records(1, index) {
		if err != nil {
			return judged, err
		}
		if r.Kind == room.RecordDamaged { // unreadable or missing; the index of the next entry shows the hole
			continue
		}
		if r.Index != at+1 {
			last := state
			if state, err = stateBefore(dir, r.Index); err != nil {
				return judged, err
			}
			for _, found := range invariant.Resume(&last, &state) {
				wrong(found, r)
			}
			judge = invariant.New()
		}
		at = r.Index
		if r.Kind != room.RecordCommand || r.Index <= state.Index {
			continue
		}
		before := state
		after, results := before.Apply(r.Index, r.Term, r.Entry)
		state = after
		for _, found := range judge.Step(&invariant.Step{Before: &before, After: &after, Index: r.Index, Term: r.Term,
			Entry: r.Entry, Results: results}) {
			wrong(found, r)
		}
		judged++
	}
	if at < index {
		return judged, fmt.Errorf("the log ends with entry %d, before %d", at, index)
	}
	return judged, fsm.Check(state)
}

// stateBefore returns the state of a stored snapshot from which the log can be replayed beginning with the entry next:
// one that has every entry before next. It prefers the oldest such snapshot, because the entries up to its index are
// not judged. It fails if all stored snapshots end earlier, since entries between would be missing.
func stateBefore(dir *room.StoppedDir, next uint64) (fsm.State, error) {
	stored := slices.DeleteFunc(dir.Snapshots(), func(s room.StoredSnapshot) bool { return s.Index+1 < next })
	if len(stored) == 0 {
		return fsm.State{}, fmt.Errorf("no snapshot has all entries before %d, and the log lacks some", next)
	}
	return stored[len(stored)-1].State() // the newest is first
}
