package sim

import (
	"bytes"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// snapshotEvery is the number of entries after which a server makes a new snapshot.
const snapshotEvery = 48

// server is one replica. It applies the bytes of the log with the real fsm.Machine, some time after the entries were
// committed.
type server struct {
	w       *world
	id      int
	machine *fsm.Machine
	applied uint64 // number of applied log entries, including those that begin a term
	up      bool
	waking  bool           // catchUp has planned to apply the committed entries
	started model.Time     // true time at which its process started
	lag     model.Duration // additional delay before it applies entries

	kept      []byte // its latest snapshot
	keptIndex uint64 // the log index of that snapshot
}

func newServer(w *world, id int) *server {
	return &server{w: w, id: id, machine: fsm.NewMachine(), up: true, started: -model.Time(model.Hour)}
}

func (s *server) state() fsm.State { return s.machine.State() }

// apply applies the entry at index, which must be the next one. It compares the results with those of the server that
// applied the entry first.
func (s *server) apply(index uint64) []fsm.Result {
	e := &s.w.log.entries[index-1]
	s.applied = index
	if e.data == nil {
		return nil
	}
	results, err := s.machine.Apply(index, e.term, e.data)
	if err != nil {
		s.w.fail(fsm.S5, "server s%d can't apply entry %d: %v", s.id+1, index, err)
		return nil
	}
	if e.results != nil && !sameResults(e.results, results) {
		s.w.fail(fsm.S5, "server s%d gives another answer at index %d:\n%s", s.id+1, index, cmp.Diff(e.results, results))
	}
	if e.digest != "" {
		s.compare(index, "applied the log")
	}
	if index-s.keptIndex >= snapshotEvery {
		s.snapshot()
	}
	return results
}

func sameResults(a, b []fsm.Result) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i].Refusal, b[i].Refusal
		if a[i].Index != b[i].Index || a[i].Replay != b[i].Replay || (x == nil) != (y == nil) || x != nil && *x != *y {
			return false
		}
	}
	return true
}

// compare compares the whole state with the state that the first server had at this index.
func (s *server) compare(index uint64, how string) {
	want := s.w.log.entries[index-1].digest
	s.w.counts[CountDigests]++
	if got := fsm.Digest(s.state()); got != want {
		s.w.fail(fsm.S5, "server s%d, which %s, has digest %s at index %d, the first one had %s",
			s.id+1, how, got, index, want)
	}
}

// catchUp makes the server apply all committed entries after a short delay. The agents that poll the server then get
// new assignments.
func (s *server) catchUp() {
	if s.waking || !s.up || s.applied >= uint64(len(s.w.log.entries)) {
		return
	}
	s.waking = true
	s.w.after(s.lag+between(s.w.chance, 1, 40), func() {
		s.waking = false
		if s.up && s.w.log.leader != s.id {
			s.applyAll()
		}
		s.w.net.published(s.id)
	})
}

func (s *server) applyAll() {
	for s.w.failure == nil && s.applied < uint64(len(s.w.log.entries)) {
		s.apply(s.applied + 1)
	}
}

// snapshot makes a snapshot and reads it back. The state that was read must equal the state that was written (S5).
func (s *server) snapshot() {
	var out bytes.Buffer
	state := s.state()
	if err := fsm.WriteSnapshot(&out, state); err != nil {
		s.w.fail(fsm.S5, "snapshot of server s%d: %v", s.id+1, err)
		return
	}
	s.kept, s.keptIndex = bytes.Clone(out.Bytes()), s.applied
	s.w.counts[CountSnapshots]++
	again, err := fsm.ReadSnapshot(&out)
	if err != nil {
		s.w.fail(fsm.S5, "snapshot of server s%d can't be read: %v", s.id+1, err)
		return
	}
	if got, want := fsm.Digest(again), fsm.Digest(state); got != want {
		s.w.fail(fsm.S5, "a snapshot at index %d has digest %s, the state %s", state.Index, got, want)
	}
}

// crash ends the server's process. restart starts it again, from its own snapshot or another server's.
func (s *server) crash() {
	s.up = false
	s.w.step(CountServerCrashes)
	s.w.trace.say("server s%d crashes", s.id+1)
	s.w.net.changed()
}

func (s *server) restart(from *server) {
	if s.up {
		return
	}
	s.up, s.started, s.waking = true, s.w.now, false
	s.machine, s.applied = fsm.NewMachine(), 0
	if from.kept != nil {
		if err := s.machine.Restore(bytes.NewReader(from.kept)); err != nil {
			s.w.fail(fsm.S5, "server s%d can't restore the snapshot of s%d: %v", s.id+1, from.id+1, err)
			return
		}
		s.applied, s.keptIndex, s.kept = from.keptIndex, from.keptIndex, from.kept
		s.w.step(CountRestores)
	}
	s.w.trace.say("server s%d starts from a snapshot at %d", s.id+1, s.applied)
	s.w.net.changed()
	s.catchUp()
}
