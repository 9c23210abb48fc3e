package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// measure prints the mutants that survived and those that no test reaches. At the end, it prints the number of mutants
// by outcome.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a test binary and runs it 30 times")
	}
	var out, progress strings.Builder
	o := options{
		seed: 1, only: regexp.MustCompile(""), workers: 2, checks: 5, slow: 5, patience: 1,
		packages: []string{"./testdata/sample"}, progress: &progress,
		equivalents: "# about the file\n\nsample\ncounter.add\n+ becomes -\ni + 1\n# no such\n# thing\n",
	}
	if err := measure(context.Background(), o, &out); err != nil {
		t.Fatal(err, progress.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	got := lines[:len(lines)-3]
	slices.Sort(got)
	want := []string{
		`survived: testdata/sample/sample.go:14: counter.add: == becomes !=: s == "-"`,
		`survived: testdata/sample/sample.go:40: endless: zero returned: return n`,
		`unreached: testdata/sample/sample.go:33: forgotten: true returned: return false`,
		`unreached: testdata/sample/sample.go:9: between: < becomes <=: n < high`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	last := lines[len(lines)-3:]
	if want := "sample: 21 of 21 changes, seed 1; 1 equivalents left out"; last[2] != want {
		t.Errorf("%q, want %q", last[2], want)
	}
	want = []string{"16 failed a test", "1 ran out of time or memory", "2 survived", "2 reached by no test"}
	for _, part := range want {
		if !strings.Contains(last[0], part) || !strings.Contains(last[1], part) {
			t.Errorf("no %q in %q", part, last[:2])
		}
	}
}

// With the same seed, choose returns the same sample. The sample contains only mutants that match o.only.
func TestChoose(t *testing.T) {
	var all []Mutant
	for id := range 100 {
		all = append(all, Mutant{ID: id, File: "a.go", Line: id})
	}
	o := options{sample: 7, seed: 3, only: regexp.MustCompile(`a\.go:\d5:`)}
	once := choose(all, o)
	if len(once) != 7 || !slices.Equal(once, choose(all, o)) {
		t.Errorf("sample: %v", once)
	}
	for _, m := range once {
		if m.Line%10 != 5 {
			t.Errorf("not asked for: %v", m)
		}
	}
}

func TestEquivalentsAreRefused(t *testing.T) {
	for _, text := range []string{"a\nb\nc\n# three lines", "a\nb\nc\nd", "a\nb\nc\nd\n# one\n\na\nb\nc\nd\n# again"} {
		if _, err := readEquivalents(text); err == nil {
			t.Errorf("accepted: %q", text)
		}
	}
	k, err := readEquivalents("a\nb\nc\nd\n# why")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.leaveOut([]Mutant{{Package: "a", Func: "b", Change: "c", Source: "another"}}); err == nil {
		t.Error("an entry of no change is accepted")
	}
}

// Each entry of equivalents.txt must match a mutant. If the code has changed so that an entry no longer matches, the
// entry must be checked again or removed.
func TestEquivalentsAreOfThisTree(t *testing.T) {
	t.Chdir("../..")
	found, err := find([]string{"./model", "./fsm", "./reconcile"})
	if err != nil {
		t.Fatal(err)
	}
	k, err := readEquivalents(equivalents)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.leaveOut(found.mutants); err != nil {
		t.Error(err)
	}
}
