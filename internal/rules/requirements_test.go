package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
)

// families are the ids of the requirements: a letter, and how many there are.
var families = []struct {
	letter string
	count  int
}{{"P", 39}, {"L", 23}, {"B", 15}, {"A", 12}, {"R", 62}}

// proof is one line of docs/requirements.md: what it says, and what proves it.
type proof struct{ id, text, by string }

var (
	proofLine = regexp.MustCompile(`^\| ([A-Z][0-9]+) \| (.+) \| (.+) \|$`)
	testName  = regexp.MustCompile(`\bTest[A-Z][A-Za-z0-9_]*(/[A-Za-z0-9_]+)?`)
	scenario  = regexp.MustCompile(`\b[a-z0-9_]+\.txt\b`)
	testFunc  = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
)

// proofs reads the table.
func proofs(text string) []proof {
	var all []proof
	for line := range strings.Lines(text) {
		if m := proofLine.FindStringSubmatch(strings.TrimSpace(line)); len(m) == 4 && m[1] != "id" {
			all = append(all, proof{m[1], m[2], m[3]})
		}
	}
	return all
}

// requirementFindings says which ids are missing or stand twice, which lines name nothing, and which names don't exist.
func requirementFindings(all []proof, tests, scenarios map[string]bool) []string {
	var found []string
	seen := map[string]int{}
	for _, p := range all {
		seen[p.id]++
		named := 0
		for _, name := range testName.FindAllString(p.by, -1) {
			named++
			if top, _, _ := strings.Cut(name, "/"); !tests[top] {
				found = append(found, fmt.Sprintf("%s: there is no test %s", p.id, name))
			}
		}
		for _, name := range scenario.FindAllString(p.by, -1) {
			named++
			if !scenarios[name] {
				found = append(found, fmt.Sprintf("%s: there is no scenario %s", p.id, name))
			}
		}
		if reason, ok := strings.CutPrefix(p.by, "does not apply: "); named == 0 && (!ok || len(reason) < 20) {
			found = append(found, fmt.Sprintf("%s: it names neither a test nor a reason (does not apply: ...)", p.id))
		}
	}
	for _, f := range families {
		for n := 1; n <= f.count; n++ {
			id := fmt.Sprint(f.letter, n)
			if seen[id] != 1 {
				found = append(found, fmt.Sprintf("%s stands there %d times", id, seen[id]))
			}
			delete(seen, id)
		}
	}
	for id := range seen {
		found = append(found, fmt.Sprintf("%s is no requirement", id))
	}
	slices.Sort(found)
	return found
}

// TestRequirements: docs/requirements.md names for every requirement a test that exists, or why it does not apply.
func TestRequirements(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "requirements.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, scenarios := map[string]bool{}, map[string]bool{}
	err = filepath.WalkDir(filepath.Join("..", ".."), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch {
		case strings.HasSuffix(path, "_test.go"):
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range testFunc.FindAllSubmatch(source, -1) {
				tests[string(m[1])] = true
			}
		case strings.HasSuffix(path, ".txt") && filepath.Base(filepath.Dir(path)) == "testdata":
			scenarios[d.Name()] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range requirementFindings(proofs(string(text)), tests, scenarios) {
		t.Error(finding)
	}
}

// TestRequirementFindings shows that the rule can fail.
func TestRequirementFindings(t *testing.T) {
	table := "| id | what | proved by |\n|---|---|---|\n| P1 | a | TestNone |\n| P2 | b | none.txt |\n| P3 | c | later |\n| P3 | c | does not apply: outspan has none of these |\n| Z9 | d | TestSome |\n"
	found := strings.Join(requirementFindings(proofs(table), map[string]bool{"TestSome": true}, nil), "\n")
	for _, want := range []string{
		"P1: there is no test TestNone", "P2: there is no scenario none.txt", "P3: it names neither a test nor a reason", "P3 stands there 2 times",
		"P4 stands there 0 times", "R62 stands there 0 times", "Z9 is no requirement",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("it does not find %q in\n%s", want, found)
		}
	}
}

// TestDrainPoliciesAreDocumented: docs/drain-policies.md tells of every policy when to choose it. proves L21
func TestDrainPoliciesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "drain-policies.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range fsm.DrainPolicies() {
		if !strings.Contains(string(text), "`"+policy+"`") {
			t.Errorf("the page does not name %s", policy)
		}
	}
}
