package fsm

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Digests and Digest return the same digest of the whole state. A changed row changes only this digest and the digest
// of the row's table.
func TestDigestsNameTheTable(t *testing.T) {
	base := sampleState()
	whole, tables := Digests(base)
	if whole != Digest(base) {
		t.Errorf("Digests says %s, Digest %s", whole, Digest(base))
	}
	for i, table := range rowTables {
		if n := table.size(&base); !slices.ContainsFunc(tables, func(d TableDigest) bool {
			return d.Name == table.name && d.Rows == n
		}) {
			t.Errorf("table %s with %d rows is not among %v", table.name, n, tables)
		}
		if i > 0 && slices.ContainsFunc(rowTables[:i], func(o rowTable) bool {
			return o.name == table.name
		}) || table.name == ScalarsTable {
			t.Errorf("the name %s stands for two tables", table.name)
		}
	}
	if diff := DifferentTables(tables, tables); len(diff) != 0 {
		t.Errorf("a state differs from itself: %v", diff)
	}
	for name, change := range map[string]func(*State){
		"scalars": func(s *State) { s.Wall++ },
		"nodes": func(s *State) {
			id, n, _ := s.Nodes.Min()
			other := *n
			other.Version++
			s.Nodes.put(id, &other)
		},
		"events":  func(s *State) { key, _, _ := s.Events.Min(); s.Events.del(key) },
		"backups": func(s *State) { s.Backups.put("b", &Backup{ID: "b"}) },
	} {
		s := base.fork()
		change(s)
		got, changed := Digests(s.publish())
		if got == whole || got != Digest(*s) {
			t.Errorf("%s changed: the whole is %s, was %s, Digest says %s", name, got, whole, Digest(*s))
		}
		for _, pair := range [][2][]TableDigest{{tables, changed}, {changed, tables}} {
			var names []string
			for _, d := range DifferentTables(pair[0], pair[1]) {
				names = append(names, d.Name)
			}
			if diff := cmp.Diff([]string{name}, names); diff != "" {
				t.Errorf("%s changed (-want +got):\n%s", name, diff)
			}
		}
	}
}

// DifferentTables lists a table that only one of its arguments has, with an empty digest for the other argument.
func TestDifferentTablesOfNewerProgram(t *testing.T) {
	_, newer := Digests(sampleState())
	older := newer[:len(newer)-1]
	want := []TableDifference{{newer[len(newer)-1].Name, newer[len(newer)-1], TableDigest{}}}
	if diff := cmp.Diff(want, DifferentTables(newer, older)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want[0].A, want[0].B = want[0].B, want[0].A
	if diff := cmp.Diff(want, DifferentTables(older, newer)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
