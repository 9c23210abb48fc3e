package fsm

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/outspan/outspan/model"
)

// fuzzedState returns a state that random entries made, and further entries that were drawn for this state. All calls
// return the same state and entries.
func fuzzedState(tb testing.TB) (State, []Entry) {
	tb.Helper()
	s, seq := NewState(), 0
	s, _ = s.Apply(1, 1, newWorld(1, &s, &seq).beginning())
	for seed := range uint64(80) {
		s, _ = s.Apply(s.Index+1, 1, newWorld(seed+2, &s, &seq).entry(1))
	}
	var next []Entry
	for seed := range uint64(120) {
		next = append(next, newWorld(seed+1000, &s, &seq).entry(1))
	}
	if err := Check(s); err != nil {
		tb.Fatal(err)
	}
	return s, next
}

// FuzzApply: any entry that can be decoded can be applied. Applying it never panics, never changes the original state,
// and breaks no invariant. The test brings the entry's times near those of the state, because servers set the times.
func FuzzApply(f *testing.F) {
	s, next := fuzzedState(f)
	add := func(e Entry) {
		data, err := EncodeEntry(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, e := range next {
		for _, group := range e.Groups { // small seeds: one group each
			add(Entry{Format: model.CurrentFormat, Groups: [][]Command{group}})
		}
	}
	for _, info := range kinds {
		add(Entry{Format: model.CurrentFormat, Groups: [][]Command{{sampleCommand(info)}}})
	}
	frozen := Digest(s)
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEntry(data)
		if err != nil {
			return
		}
		e.At, e.Wall = min(max(e.At, s.Now), s.Now.Add(model.Hour)), min(max(e.Wall, s.Wall), s.Wall+3_600_000)
		after, results := s.Apply(s.Index+1, 1, e)
		if Digest(s) != frozen {
			t.Fatalf("%v changed the state that it was applied on", e.names())
		}
		if err := Check(after); err != nil {
			t.Fatalf("after %v: %v", e.names(), err)
		}
		if err := CheckStep(s, after); err != nil {
			t.Fatalf("after %v: %v", e.names(), err)
		}
		for i, r := range results {
			if r.Refusal != nil && (r.Refusal.Code == "" || r.Refusal.Message == "") {
				t.Fatalf("group %d of %v is refused without saying why: %+v", i, e.names(), r.Refusal)
			}
		}
		var whole bytes.Buffer
		if err := WriteSnapshot(&whole, after); err != nil {
			t.Fatal(err)
		}
		if again, err := ReadSnapshot(&whole); err != nil || Digest(again) != Digest(after) {
			t.Fatalf("the state after %v does not survive a snapshot: %v", e.names(), err)
		}
	})
}

// FuzzRows puts one or two fuzzed rows into a snapshot with a correct checksum. If the snapshot can be read, its state
// can be written again, compared, described and checked.
func FuzzRows(f *testing.F) {
	s := sampleState()
	for _, table := range rowTables {
		_ = table.each(&s, func(body []byte) error {
			f.Add(byte(table.id), bytes.Clone(body), []byte{})
			return nil
		})
	}
	f.Fuzz(func(t *testing.T, table byte, one, two []byte) {
		rows := [][]byte{one}
		if len(two) > 0 {
			rows = append(rows, two)
		}
		data := snapshotOfRows(t, tableID(table), rows)
		s, err := ReadSnapshot(bytes.NewReader(data))
		if err != nil {
			var e *model.Error
			if !errors.As(err, &e) || e.Message == "" {
				t.Fatalf("the error has no code: %v", err)
			}
			return
		}
		again := snapshotOf(t, s)
		s2, err := ReadSnapshot(bytes.NewReader(again))
		if err != nil || Digest(s2) != Digest(s) {
			t.Fatalf("what was read can't be written and read again: %v", err)
		}
		if changes := Diff(s, s2); len(changes) > 0 {
			t.Fatalf("it differs from itself: %+v", changes)
		}
		if _, err := json.Marshal(Diff(NewState(), s)); err != nil {
			t.Fatalf("it can't be described: %v", err)
		}
		_ = Check(s) // finds errors in most states, but must not panic
	})
}

// snapshotOfRows returns a snapshot with a correct trailer. It has the given rows of one table, and no other rows.
func snapshotOfRows(tb testing.TB, table tableID, rows [][]byte) []byte {
	tb.Helper()
	empty := NewState()
	var meta []byte
	_ = empty.eachRow(func(_ tableID, body []byte) error {
		meta = bytes.Clone(body)
		return nil
	})
	sum := newRowSum()
	sum.add(metaTable, meta)
	frames := [][]byte{frame(byte(metaTable), meta)}
	trailer := trailerRow{}
	for _, t := range rowTables {
		if t.id == table {
			trailer.Tables = append(trailer.Tables, TableCount{t.name, len(rows)})
		}
	}
	for _, body := range rows {
		sum.add(table, body)
		frames = append(frames, frame(byte(table), body))
	}
	trailer.Digest = sum.String()
	last, err := wire.enc.Marshal(trailer)
	if err != nil {
		tb.Fatal(err)
	}
	return packed(tb, model.CurrentFormat, append(frames, frame(byte(trailerTable), last))...)
}
