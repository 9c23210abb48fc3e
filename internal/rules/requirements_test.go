package rules

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

var rewrite = flag.Bool("rewrite", false, "write the third column of docs/requirements.md")

// families lists the letters with which the requirements' ids begin, and how many ids begin with each letter.
var families = []struct {
	letter string
	count  int
}{{"P", 39}, {"L", 23}, {"B", 15}, {"A", 12}, {"R", 62}, {"X", 20}}

// requirement is one line of the table in docs/requirements.md. The field by is the whole third column: the tests that
// prove the requirement, and the reason. The field reason is the part of by that is written by hand: why the
// requirement does not apply, how outspan differs on purpose, or what is missing so far.
type requirement struct{ id, text, by, reason string }

var (
	requirementLine = regexp.MustCompile(`^\| ([A-Z][0-9]+) \| (.+) \| (.*) \|$`)
	reasonPart      = regexp.MustCompile(`(?:^|; )((does not apply|differs|not yet): .*)$`)
	invariantLine   = regexp.MustCompile(`(?m)^\| ([SL][0-9]+) \| `)
)

// requirements parses the table of docs/requirements.md.
func requirements(page string) []requirement {
	var all []requirement
	for line := range strings.Lines(page) {
		m := requirementLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		r := requirement{id: m[1], text: m[2], by: m[3]}
		if reason := reasonPart.FindStringSubmatch(r.by); reason != nil {
			r.reason = reason[1]
		}
		all = append(all, r)
	}
	return all
}

// provedBy returns the third column for the requirement with this id: the scenarios of reconcile, the tests of each
// directory, and the reason.
func provedBy(id string, all []claim, reason string) string {
	byPlace := map[string][]string{}
	for _, c := range all {
		place := c.dir + ": "
		if c.dir == "reconcile" && strings.HasSuffix(c.test, ".txt") {
			place = ""
		}
		if c.id == id {
			byPlace[place] = append(byPlace[place], c.test)
		}
	}
	var parts []string
	for _, place := range slices.Sorted(maps.Keys(byPlace)) {
		slices.Sort(byPlace[place])
		parts = append(parts, place+strings.Join(slices.Compact(byPlace[place]), ", "))
	}
	if reason != "" {
		parts = append(parts, reason)
	}
	return strings.Join(parts, "; ")
}

// requirementPage returns the page with a new third column, made from the claims and the reasons in the page.
func requirementPage(page string, all []claim) string {
	var out strings.Builder
	for line := range strings.Lines(page) {
		if rows := requirements(line); len(rows) == 1 {
			r := rows[0]
			line = fmt.Sprintf("| %s | %s | %s |\n", r.id, r.text, provedBy(r.id, all, r.reason))
		}
		out.WriteString(line)
	}
	return out.String()
}

// requirementFindings lists ids that are missing, repeated or unknown, claims of unknown ids, and requirements with
// neither a claim nor a reason. It also lists reasons that are too short or that contradict the claims. A claim may
// also name an invariant.
func requirementFindings(rows []requirement, all []claim, invariants map[string]bool) []string {
	var found []string
	known, times, claimed := map[string]bool{}, map[string]int{}, map[string]bool{}
	for _, f := range families {
		for n := range f.count {
			known[fmt.Sprint(f.letter, n+1)] = true
		}
	}
	for _, c := range all {
		claimed[c.id] = true
		if !known[c.id] && !invariants[c.id] {
			found = append(found, fmt.Sprintf("%s: %s claims %s, which is no requirement", c.dir, c.test, c.id))
		}
	}
	for _, r := range rows {
		times[r.id]++
		if !known[r.id] {
			found = append(found, fmt.Sprintf("%s is no requirement", r.id))
		}
		kind, why, _ := strings.Cut(r.reason, ": ")
		switch {
		case r.reason != "" && len(why) < 20:
			found = append(found, fmt.Sprintf("%s: %q is no reason", r.id, r.reason))
		case kind == "does not apply" && claimed[r.id]:
			found = append(found, fmt.Sprintf("%s does not apply, and a test claims it", r.id))
		case kind == "differs" && !claimed[r.id]:
			found = append(found, fmt.Sprintf("%s differs, and no test claims to show how", r.id))
		case r.reason == "" && !claimed[r.id]:
			found = append(found, fmt.Sprintf("%s: no test claims it, and there is no reason", r.id))
		}
	}
	for id := range known {
		if times[id] != 1 {
			found = append(found, fmt.Sprintf("%s stands there %d times", id, times[id]))
		}
	}
	slices.Sort(found)
	return found
}

// TestRequirements: for every requirement, docs/requirements.md names the tests that claim to prove it, or gives a
// reason why there is no such test. docs/proof.md lists the invariants of fsm.
func TestRequirements(t *testing.T) {
	root := filepath.Join("..", "..")
	path := filepath.Join(root, "docs", "requirements.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := os.ReadFile(filepath.Join(root, "docs", "proof.md"))
	if err != nil {
		t.Fatal(err)
	}
	invariants := map[string]bool{}
	var listed []fsm.Invariant
	for _, m := range invariantLine.FindAllSubmatch(proof, -1) {
		invariants[string(m[1])] = m[1][0] == 'S'
		listed = append(listed, fsm.Invariant(m[1]))
	}
	if diff := cmp.Diff(listed, fsm.Invariants()); diff != "" {
		t.Errorf("docs/proof.md does not list the invariants of fsm:\n%s", diff)
	}
	all, findings, err := claims(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range append(findings, requirementFindings(requirements(string(page)), all, invariants)...) {
		t.Error(finding)
	}
	want := requirementPage(string(page), all)
	switch {
	case want == string(page):
	case *rewrite:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/requirements.md is not what the claims give: run make docs\n%s", cmp.Diff(string(page), want))
	}
}

func TestRequirementFindings(t *testing.T) {
	table := `| id | what | proved by |
|---|---|---|
| P1 | a | TestGone |
| P2 | b | differs: something else is done here |
| P3 | c | b.txt; not yet: there is nothing to show here |
| P3 | c | does not apply: outspan has none of these |
| P4 | d | x; does not apply: no |
| Z9 | e | TestSome |
`
	all := []claim{
		{"P3", "reconcile", "b.txt"}, {"P3", "reconcile", "a.txt"}, {"P3", "e2e", "TestB"}, {"P3", "e2e", "TestB"},
		{"Z8", "e2e", "TestB"}, {"S1", "e2e", "TestB"},
	}
	rows := requirements(table)
	found := strings.Join(requirementFindings(rows, all, map[string]bool{"S1": true}), "\n")
	for _, want := range []string{
		"P1: no test claims it", "P2 differs, and no test claims", "P3 does not apply, and a test claims it",
		"P3 stands there 2 times", `P4: "does not apply: no" is no reason`, "P5 stands there 0 times",
		"R62 stands there 0 times", "Z9 is no requirement", "e2e: TestB claims Z8",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("it does not find %q in\n%s", want, found)
		}
	}
	if strings.Contains(found, "S1") {
		t.Errorf("it finds the invariant S1 in\n%s", found)
	}
	page := requirementPage(table, all)
	for _, want := range []string{
		"| P1 | a |  |\n", "| P2 | b | differs: something else is done here |\n",
		"| P3 | c | a.txt, b.txt; e2e: TestB; not yet: there is nothing to show here |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("it does not write %q in\n%s", want, page)
		}
	}
}

// TestDrainPoliciesAreDocumented: for every policy that is not an alias, docs/drain-policies.md says when to choose the
// policy and what it costs. The page also names the unexpected costs.
// proves L21
func TestDrainPoliciesAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "drain-policies.md"))
	if err != nil {
		t.Fatal(err)
	}
	section := func(title string) string {
		_, text, _ := strings.Cut(string(page), "\n## "+title+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
		return text
	}
	for _, policy := range model.DrainPolicies() {
		if strings.Contains(string(page), "`"+policy+"` is an alias") {
			continue
		}
		if !strings.Contains(section("Which one"), "`"+policy+"` |") {
			t.Errorf("the page does not say when to choose %s", policy)
		}
		if !strings.Contains(section("What each one costs"), "**`"+policy+"`**") {
			t.Errorf("the page does not say what %s costs", policy)
		}
	}
	for _, cost := range []string{
		"slowest", "over the network", "doesn't go back", "Rebuilds that were for nothing", "not meant to end in a drain",
	} {
		if !strings.Contains(section("What each one costs"), cost) {
			t.Errorf("the page does not say: %s", cost)
		}
	}
}
