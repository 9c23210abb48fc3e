package fsm

import (
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
)

// ScalarsTable is the name under which the values of a State that are in no table are shown: as a table of one row with
// an empty key.
const ScalarsTable = "scalars"

// Change is how a row differs between two states.
type Change string

// The values of Change.
const (
	RowAdded   Change = "added"
	RowRemoved Change = "removed"
	RowChanged Change = "changed"
)

// Valid reports whether c is one of the constants above.
func (c Change) Valid() bool { return oneOf(c, RowAdded, RowRemoved, RowChanged) }

// String implements fmt.Stringer.
func (c Change) String() string { return string(c) }

// RowChange is one row that differs between two states.
type RowChange struct {
	Table  string        `json:"table"`
	Key    string        `json:"key,omitempty"` // empty for the scalars
	Change Change        `json:"change"`
	Fields []FieldChange `json:"fields"`
}

// FieldChange is one part of a row that differs, with the values that Describe returns. Before is nil if the part was
// added. After is nil if the part was removed.
type FieldChange struct {
	Path   string `json:"path"` // such as "status.observed" or "labels.rack"
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
}

// Diff lists the rows that differ between a and b: first the scalars, then the tables in the order of snapshots, each
// in the order of its keys. Indexes are not compared. A secret that differs is shown as Hidden before and as "(another
// secret)" after. Rows that a and b share, as states of one history do, are only compared by pointer. If a and b share
// no rows, Diff takes about as long as a Digest of each.
func Diff(a, b State) []RowChange {
	var changes []RowChange
	if fields := diffRows(a.meta(), b.meta()); len(fields) > 0 {
		changes = append(changes, RowChange{ScalarsTable, "", RowChanged, fields})
	}
	for i := range rowTables {
		changes = append(changes, rowTables[i].diff(&a, &b)...)
	}
	return changes
}

// diffTable compares one table of two states. show returns the value to pass to Describe for a row.
func diffTable[K cmp.Ordered, V comparable](name string, a, b Table[K, V], show func(V) any) []RowChange {
	var changes []RowChange
	for key, row := range differences(a, b) {
		change := RowChange{Table: name, Key: fmt.Sprint(key)}
		switch {
		case !row.had:
			change.Change, change.Fields = RowAdded, wholeRow(show(row.after), false)
		case !row.has:
			change.Change, change.Fields = RowRemoved, wholeRow(show(row.before), true)
		default:
			change.Change, change.Fields = RowChanged, diffRows(show(row.before), show(row.after))
			if len(change.Fields) == 0 {
				continue
			}
		}
		changes = append(changes, change)
	}
	return changes
}

// wholeRow lists every part of a row that was added, or that was removed if went is true.
func wholeRow(row any, went bool) []FieldChange {
	parts := Describe(row).(Fields)
	list := make([]FieldChange, len(parts))
	for i, part := range parts {
		list[i].Path = part.Name
		if went {
			list[i].Before = part.Value
		} else {
			list[i].After = part.Value
		}
	}
	return list
}

// diffRows lists the parts in which two rows of one table differ.
func diffRows(a, b any) []FieldChange {
	var d differ
	d.walk("", reflect.ValueOf(a), reflect.ValueOf(b))
	return d.found
}

// differ collects the parts in which two values of one type differ.
type differ struct{ found []FieldChange }

func (d *differ) note(path string, before, after any) {
	d.found = append(d.found, FieldChange{path, before, after})
}

// walk notes each part in which a and b differ. Both have the same type.
func (d *differ) walk(path string, a, b reflect.Value) {
	if same(a, b) {
		return
	}
	if _, leaf := leafText(a); leaf {
		d.note(path, describe(a), describe(b))
		return
	}
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			d.note(path, describe(a), describe(b))
			return
		}
		d.walk(path, a.Elem(), b.Elem())
	case reflect.Struct:
		d.structs(path, a, b)
	case reflect.Map:
		d.maps(path, a, b, false)
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() || !isComposite(a.Type().Elem()) {
			d.note(path, describe(a), describe(b))
			return
		}
		for i := range a.Len() {
			d.walk(path+"["+strconv.Itoa(i)+"]", a.Index(i), b.Index(i))
		}
	default:
		d.note(path, describe(a), describe(b))
	}
}

func (d *differ) structs(path string, a, b reflect.Value) {
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if !f.IsExported() || same(a.Field(i), b.Field(i)) {
			continue
		}
		at := join(path, nameOf(f))
		switch {
		case !isSecret(f):
			d.walk(at, a.Field(i), b.Field(i))
		case f.Type.Kind() == reflect.Map:
			d.maps(at, a.Field(i), b.Field(i), true)
		default:
			d.note(at, hide(a.Field(i)), another(hide(b.Field(i))))
		}
	}
}

func (d *differ) maps(path string, a, b reflect.Value, secret bool) {
	keys := mapKeys(a)
	for _, key := range mapKeys(b) {
		if !a.MapIndex(key).IsValid() {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(x, y reflect.Value) int {
		return cmp.Compare(fmt.Sprint(x.Interface()), fmt.Sprint(y.Interface()))
	})
	for _, key := range keys {
		before, after := a.MapIndex(key), b.MapIndex(key)
		at := join(path, fmt.Sprint(key.Interface()))
		switch {
		case before.IsValid() && after.IsValid() && same(before, after):
		case secret:
			d.note(at, hideEntry(before), another(hideEntry(after)))
		case before.IsValid() && after.IsValid():
			d.walk(at, before, after)
		default:
			d.note(at, describe(before), describe(after))
		}
	}
}

// hideEntry returns what to show of a map's secret value v: Hidden, or nil if v is invalid because the map lacks the
// key.
func hideEntry(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	return Hidden
}

// another returns "(another secret)" instead of Hidden, so that two different secrets don't look equal.
func another(shown any) any {
	if shown == Hidden {
		return "(another secret)"
	}
	return shown
}

// same reports whether two values mean the same on disk, where a nil slice or map equals an empty one.
func same(a, b reflect.Value) bool {
	if a.Kind() == reflect.Slice || a.Kind() == reflect.Map {
		if a.Len() == 0 && b.Len() == 0 {
			return true
		}
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// isComposite reports whether a type is a struct, a map, or a pointer to one of these.
func isComposite(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map
}

// join appends a name to a path. It quotes a name that could be taken for several parts of a path.
func join(path, name string) string {
	for _, r := range name {
		if r == '.' || r == '[' || r == '"' || r <= ' ' {
			return path + "[" + strconv.Quote(name) + "]"
		}
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// Rows iterates over the rows of a table in the order of their keys, which are given as strings. ScalarsTable has one
// row with the key "". Rows returns false for a table that TableNames does not list.
func (s *State) Rows(table string) (rows iter.Seq2[string, any], ok bool) {
	if table == ScalarsTable {
		return func(yield func(string, any) bool) { yield("", s.meta()) }, true
	}
	for i := range rowTables {
		if rowTables[i].name == table {
			return rowTables[i].all(s), true
		}
	}
	return nil, false
}

// TableNames lists the tables that Rows knows: ScalarsTable first, and then the tables in the order of snapshots.
func TableNames() []string {
	names := []string{ScalarsTable}
	for i := range rowTables {
		names = append(names, rowTables[i].name)
	}
	return names
}
