package rules

import (
	"fmt"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	maxMethods = 60 // methods that one type declares, without promoted methods
	maxFiles   = 40 // files of one package, without tests
)

// exception allows one type or package to exceed the limit. The new limit is the field most, which may only be lowered.
type exception struct {
	most int
	why  string
}

// manyMethods lists types that may have more than maxMethods methods, by package and name.
var manyMethods = map[string]exception{
	"cluster.Server": {130,
		"raft, gossip, membership and disk share one lock and one life; its parts are to become types"},
	"fsm.State": {336,
		"rules that look into two drawers, or refuse; what reads one drawer belongs to that"},
	"internal/cli.app":         {133, "each command is a method, and all share streams, flags and the client"},
	"reconcile.pass":           {267, "every pass of a decision reads and extends the same draft and plan"},
	"transport/httpapi.Server": {137, "each operation is a handler, and all share the callbacks of the server"},
	"transport/httpapi.reading": {89,
		"each view is built from the same state, time and caller; a view of its own type would carry all three"},
}

// manyFiles lists packages that may have more than maxFiles files.
var manyFiles = map[string]exception{
	"agent": {51,
		"what one node does: instances, checks, volumes and ports share the journal and the reports"},
	"cluster": {59, "raft, gossip and membership are one state machine around one server"},
	"fsm": {131,
		"a file for each noun and one for its commands; rows reach into each other, so no part stands alone"},
	"reconcile":         {54, "a file for each pass and each question that is asked of a plan"},
	"internal/cli":      {54, "a file for each noun of the command line"},
	"transport/httpapi": {93, "a file for each noun of the API"},
}

// oversized compares sizes with a limit and its exceptions, and returns its findings. An exception without a reason is
// a finding too. So is an exception that is no longer needed, so that somebody removes it.
func oversized(unit string, limit int, sizes map[string]int, allowed map[string]exception) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		most, why := limit, "split it"
		if e, ok := allowed[name]; ok {
			most, why = e.most, "the exception is for "+fmt.Sprint(e.most)
		}
		if n := sizes[name]; n > most {
			found = append(found, fmt.Sprintf("%s has %d %s, at most %d: %s", name, n, unit, most, why))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		switch e := allowed[name]; {
		case sizes[name] <= limit:
			found = append(found, fmt.Sprintf("%s has %d %s and needs no exception any more", name, sizes[name], unit))
		case e.why == "":
			found = append(found, fmt.Sprintf("the exception of %s gives no reason", name))
		}
	}
	return found
}

// methodCounts returns how many methods each type of a package declares outside tests.
func methodCounts(s source) map[string]int {
	counts := map[string]int{}
	scope := s.types.Scope()
	for _, name := range scope.Names() {
		if t, ok := scope.Lookup(name).(*types.TypeName); ok && !t.IsAlias() {
			if named, ok := t.Type().(*types.Named); ok {
				counts[strings.TrimPrefix(s.path, module+"/")+"."+name] = named.NumMethods()
			}
		}
	}
	return counts
}

// fileCounts returns how many files each package has, without test files. It includes files for any platform and build
// tag.
func fileCounts(files []goFile) map[string]int {
	counts := map[string]int{}
	for _, f := range files {
		if !f.isTest() {
			counts[path.Dir(f.name)]++
		}
	}
	return counts
}

func TestMethodsOfTypes(t *testing.T) {
	counts := map[string]int{}
	for _, s := range tree(t) {
		maps.Copy(counts, methodCounts(s))
	}
	none(t, oversized("methods", maxMethods, counts, manyMethods))
}

func TestFilesOfPackages(t *testing.T) {
	none(t, oversized("files", maxFiles, fileCounts(goFiles(t)), manyFiles))
}

func TestOversized(t *testing.T) {
	var text strings.Builder
	text.WriteString(
		"package a\n\ntype small int\n\nfunc (small) one() {}\n\ntype inner struct{}\n\ntype large struct{ inner }\n")
	for i := range maxMethods {
		fmt.Fprintf(&text, "func (*large) m%d() {}\nfunc (inner) n%d() {}\n", i, i)
	}
	at := fixture(t, module+"/internal/a", text.String())
	over := fixture(t, module+"/internal/a", text.String()+"func (large) more() {}\n")
	large := func(most int, why string) map[string]exception {
		return map[string]exception{"internal/a.large": {most, why}}
	}
	tests := []struct {
		name    string
		s       source
		allowed map[string]exception
		want    []string
	}{
		{"at the limit", at, nil, nil},
		{"over it", over, nil, []string{"internal/a.large has 61 methods, at most 60"}},
		{"as excepted", over, large(61, "why"), nil},
		{"over the exception", over, large(60, "why"), []string{"the exception is for 60"}},
		{"not needed", at, large(61, "why"), []string{"has 60 methods and needs no exception"}},
		{"gone", at, map[string]exception{"internal/b.gone": {61, "why"}},
			[]string{"internal/b.gone has 0 methods and needs no"}},
		{"no reason", over, large(61, ""), []string{"gives no reason"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want(t, oversized("methods", maxMethods, methodCounts(tt.s), tt.allowed), tt.want...)
		})
	}
}

func TestFileCounts(t *testing.T) {
	var files []goFile
	for _, name := range []string{"a/a.go", "a/b_windows.go", "a/a_test.go", "a/b/c.go"} {
		f, err := parseFile(name, "package a\n")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	got := fileCounts(files)
	want(t, oversized("files", 1, got, nil), "a has 2 files, at most 1")
}
