package fsm

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files of the current format anew")

// golden compares got with a golden file of the current format. With -rewrite, it writes the file first. A difference
// means that this program and released ones may be unable to read each other's data. After a difference, raise
// CurrentFormat and add a directory. Rewrite the files only if the current format was never released.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "golden", fmt.Sprintf("format%d", model.CurrentFormat), name)
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with: go test ./fsm -run Golden -rewrite", err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s changed. New things only, in a format that is in no release: go test ./fsm -run Golden -rewrite. "+
			"Otherwise what is on disk could not be read any more; see the comment of golden\n%s", path,
			cmp.Diff(string(want), string(got)))
	}
}

func TestGoldenSchema(t *testing.T) { golden(t, "schema.txt", []byte(schema())) }

// schema lists all fields of entries and snapshots, each with its number, its encoding, and whether an empty value is
// omitted. Go names are not part of the format, so they are not listed. Inner structs are numbered in the order in
// which they first appear.
func schema() string {
	var b strings.Builder
	var structs []reflect.Type
	wire := func(t reflect.Type) string {
		return wireKind(t, func(inner reflect.Type) int {
			if i := slices.Index(structs, inner); i >= 0 {
				return i + 1
			}
			structs = append(structs, inner)
			return len(structs)
		})
	}
	describe := func(title string, t reflect.Type) {
		fmt.Fprintln(&b, title)
		for _, f := range fieldsOf(t) {
			fmt.Fprintf(&b, "  %d %s", keyOf(f), wire(f.Type))
			for _, option := range []string{"omitempty", "omitzero"} {
				if strings.Contains(f.Tag.Get("cbor"), option) {
					fmt.Fprint(&b, " ", option)
				}
			}
			fmt.Fprintln(&b)
		}
	}
	describe("entry", reflect.TypeFor[wireEntry]())
	for _, info := range kinds {
		describe(fmt.Sprintf("command %d %s, format %d", info.kind, info.name, info.format),
			reflect.TypeOf(info.make()).Elem())
	}
	describe("table 1 (scalars)", reflect.TypeFor[metaRow]())
	for _, r := range rowTypes() {
		describe(fmt.Sprintf("table %d %s", r.id, r.name), r.row)
	}
	describe("table 255 (trailer)", reflect.TypeFor[trailerRow]())
	for i := 0; i < len(structs); i++ {
		describe(fmt.Sprintf("struct %d", i+1), structs[i])
	}
	return b.String()
}

// wireKind describes how a type is encoded on disk. The function number returns the number that a struct has in the
// schema.
func wireKind(t reflect.Type, number func(reflect.Type) int) string {
	switch {
	case t.Implements(reflect.TypeFor[cbor.Marshaler]()):
		return "encodes itself"
	case t == reflect.TypeFor[wireCommand]():
		return "command"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "optional " + wireKind(t.Elem(), number)
	case reflect.Slice:
		return "list of " + wireKind(t.Elem(), number)
	case reflect.Map:
		return "map of " + wireKind(t.Key(), number) + " to " + wireKind(t.Elem(), number)
	case reflect.Struct:
		return fmt.Sprintf("struct %d", number(t))
	default:
		return t.Kind().String()
	}
}

// structIn returns the type of the struct that a value of type t contains, directly or through pointers, lists and
// maps. It returns false if there is no such struct, if the type encodes itself, or if the struct is a wireCommand.
func structIn(t reflect.Type) (reflect.Type, bool) {
	for {
		if t.Implements(reflect.TypeFor[cbor.Marshaler]()) {
			return nil, false
		}
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			t = t.Elem()
		case reflect.Struct:
			return t, t != reflect.TypeFor[wireCommand]()
		default:
			return nil, false
		}
	}
}

type rowType struct {
	id   tableID
	name string
	row  reflect.Type
}

// rowTypes returns each table of rowTables with the type that its rows have in State.
func rowTypes() []rowType {
	byName := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[State]()) {
		if get, ok := f.Type.MethodByName("Get"); ok && f.IsExported() {
			byName[strings.ToLower(f.Name)] = get.Type.Out(0).Elem()
		}
	}
	if len(byName) == 0 {
		panic("no table of State was found")
	}
	var all []rowType
	for _, t := range rowTables {
		all = append(all, rowType{t.id, t.name, byName[t.name]})
	}
	return all
}

// Every exported field of State must be in rowTables or metaRow. Otherwise snapshots would lose it.
func TestEveryTableIsInSnapshots(t *testing.T) {
	tables := map[string]bool{}
	ids := map[tableID]bool{metaTable: true, trailerTable: true}
	for _, r := range rowTables {
		if tables[r.name] || ids[r.id] {
			t.Errorf("table %d %s stands twice in rowTables", r.id, r.name)
		}
		tables[r.name], ids[r.id] = true, true
	}
	meta, found := reflect.TypeFor[metaRow](), 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[State]()) {
		if !f.IsExported() {
			continue
		}
		_, scalar := meta.FieldByName(f.Name)
		if !scalar && !tables[strings.ToLower(f.Name)] {
			t.Errorf("State.%s is in no snapshot: add it to rowTables or metaRow", f.Name)
		}
		if !scalar {
			found++
		}
	}
	if found != len(rowTables) {
		t.Errorf("State has %d tables, rowTables %d", found, len(rowTables))
	}
}

// State.fork must fork every table. Otherwise writes to the fork would change a table that others are reading, and the
// writes of a refused group of commands could not be undone.
func TestForkHasEveryTable(t *testing.T) {
	s := sampleState()
	f := s.fork()
	before, after := reflect.ValueOf(&s).Elem(), reflect.ValueOf(f).Elem()
	found := 0
	for _, field := range reflect.VisibleFields(before.Type()) {
		was, is := before.FieldByIndex(field.Index), after.FieldByIndex(field.Index)
		if field.Type == reflect.TypeFor[EventTable]() {
			was, is = was.FieldByName("rows"), is.FieldByName("rows")
		}
		if was.Kind() != reflect.Struct || !was.FieldByName("tree").IsValid() {
			continue
		}
		found++
		if !is.FieldByName("shared").Bool() {
			t.Errorf("State.%s is not copied when the fork writes it", field.Name)
		}
		if is.FieldByName("undo").Pointer() != reflect.ValueOf(f.undo).Pointer() {
			t.Errorf("State.%s does not note what the fork has to undo", field.Name)
		}
	}
	if found <= len(rowTables) {
		t.Errorf("found %d tables with indexes, rowTables has %d", found, len(rowTables))
	}
}

// Rows must not have a method Copy or IsoCopy. The tree library would call such a method and replace rows by clones.
func TestRowsHaveNoCopyMethod(t *testing.T) {
	for _, r := range rowTypes() {
		for _, name := range []string{"Copy", "IsoCopy"} {
			if _, ok := reflect.PointerTo(r.row).MethodByName(name); ok {
				t.Errorf("rows of %s have a method %s, which the tree library calls", r.name, name)
			}
		}
	}
}

func TestEveryFieldHasItsOwnKey(t *testing.T) {
	types := []reflect.Type{reflect.TypeFor[wireEntry](), reflect.TypeFor[metaRow](), reflect.TypeFor[trailerRow]()}
	for _, info := range kinds {
		types = append(types, reflect.TypeOf(info.make()).Elem())
	}
	for _, r := range rowTypes() {
		types = append(types, r.row)
	}
	seen := map[reflect.Type]bool{}
	for len(types) > 0 {
		typ := types[0]
		types = types[1:]
		if seen[typ] {
			continue
		}
		seen[typ] = true
		keys := map[int64]string{}
		for _, f := range fieldsOf(typ) {
			key := keyOf(f)
			switch {
			case !f.IsExported():
				t.Errorf("%s.%s is not exported: it would be lost on disk", typ.Name(), f.Name)
			case key == 0:
				t.Errorf("%s.%s has no number (cbor:\"N,keyasint\")", typ.Name(), f.Name)
			case keys[key] != "":
				t.Errorf("%s.%s and %s have the same number %d", typ.Name(), f.Name, keys[key], key)
			}
			keys[key] = f.Name
			if inner, ok := structIn(f.Type); ok {
				types = append(types, inner)
			}
		}
	}
}

func TestGoldenEntries(t *testing.T) {
	for _, info := range kinds {
		data, err := EncodeEntry(Entry{Format: model.CurrentFormat, At: 1000, Wall: 1_700_000_000_000, Term: 3,
			Actor: "cli:alice", Request: "r", Body: "b",
			Groups: [][]Command{{sampleCommand(info)}}})
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "entry-"+info.name+".cbor", data)
	}
}

func TestGoldenSnapshot(t *testing.T) {
	data := snapshotOf(t, sampleState())
	golden(t, "state.frames", unpacked(t, data))
	if *rewrite {
		// TestGoldenFilesOfEveryFormatAreRead reads this file. No test compares its compressed bytes, because the compression
		// library may change.
		golden(t, "state.snapshot", data)
	}
}

// The golden files of all formats, including old ones, can be read. Their content is still encoded in the same way.
func TestGoldenFilesOfEveryFormatAreRead(t *testing.T) {
	entries, err := filepath.Glob("testdata/golden/format*/entry-*.cbor")
	if err != nil || len(entries) < len(kinds) {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for _, path := range entries {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		e, err := DecodeEntry(data)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if name := KindName(e.Groups[0][0].Kind()); !strings.HasSuffix(path, "entry-"+name+".cbor") {
			t.Errorf("%s holds %s", path, name)
		}
		again, err := EncodeEntry(e)
		if err != nil || !bytes.Equal(data, again) {
			t.Errorf("%s is encoded differently now (%v)", path, err)
		}
	}
	snapshots, err := filepath.Glob("testdata/golden/format*/*.snapshot")
	if err != nil || len(snapshots) < int(model.CurrentFormat) {
		t.Fatalf("%d snapshots, %v", len(snapshots), err)
	}
	for _, path := range snapshots {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ReadSnapshot(bytes.NewReader(data))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if !bytes.Equal(unpacked(t, snapshotOf(t, s)), unpacked(t, data)) { // the compression may change
			t.Errorf("%s is written differently now", path)
		}
	}
}

// commandTypes parses the source of this package and returns the types that have an apply method.
func commandTypes(t *testing.T) []string {
	t.Helper()
	var names []string
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || fn.Name.Name != "apply" {
				continue
			}
			if star, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
				names = append(names, star.X.(*ast.Ident).Name)
			}
		}
	}
	if len(names) < len(kinds) {
		t.Fatalf("found only %d commands in the source: %v", len(names), names)
	}
	return names
}
