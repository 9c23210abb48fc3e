//go:build !race

package reconcile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// asserting lists the commands that show something or decide. Scenarios are written to check the output of these
// commands, even if the output is empty.
var asserting = []string{
	"budgets", "changed-since-remembered", "classes", "copies", "decide", "events", "forecast", "lines", "moves", "plan",
	"settle", "show", "stale", "status", "why",
}

// TestNoHollowScenario drops one word or one whole command of a scenario at a time. If the output stays the same, the
// dropped part is hollow: the scenario proves nothing about this part. A hollow part must be deleted, or the scenario
// must be extended to show why the part matters, or testdata/hollow must list the part with a reason.
func TestNoHollowScenario(t *testing.T) {
	allowed := readHollow(t, "testdata/hollow")
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	files = slices.DeleteFunc(files, func(file string) bool { // random scenarios were not written to prove something
		return strings.HasPrefix(filepath.Base(file), "chance_")
	})
	found := make([][]hollow, len(files))
	t.Run("scenarios", func(t *testing.T) {
		for i, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".txt")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				found[i] = hollowParts(name, scenarioLines(string(data)))
			})
		}
	})
	for _, finding := range compareHollow(slices.Concat(found...), allowed) {
		t.Error(finding)
	}
}

// hollow is a part of a scenario without which the output stays the same. Parts of equal lines in one scenario are not
// distinguished.
type hollow struct{ scenario, line, dropped string }

const wholeCommand = "all of it"

func (h hollow) String() string { return h.scenario + " | " + h.line + " | " + h.dropped }

// readHollow reads the list of allowed hollow parts. Each line is: scenario | line | what was dropped | why it stays.
func readHollow(t *testing.T, file string) map[hollow]bool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[hollow]bool{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, " | ")
		if len(fields) != 4 || len(fields[3]) < 20 {
			t.Fatalf("%s: %q is not: scenario | line | what was dropped | a reason", file, line)
		}
		allowed[hollow{fields[0], fields[1], fields[2]}] = true
	}
	return allowed
}

const hollowHint = ": delete it, make the scenario show its effect, or give a reason in testdata/hollow"

// compareHollow returns the hollow parts that are not allowed, and the allowed parts that are not hollow.
func compareHollow(found []hollow, allowed map[hollow]bool) []string {
	var wrong []string
	for _, h := range found {
		if !allowed[h] {
			wrong = append(wrong, fmt.Sprintf("hollow: %s%s", h, hollowHint))
		}
	}
	for h := range allowed {
		if !slices.Contains(found, h) {
			wrong = append(wrong, fmt.Sprintf("testdata/hollow names what is not hollow, remove that line: %s", h))
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

// scenarioLines returns the commands of a scenario without their output.
func scenarioLines(text string) []string {
	var lines []string
	for step := range strings.SplitSeq(text, "\n\n") {
		input, _, _ := strings.Cut(step+"\n", "----\n")
		for line := range strings.Lines(input) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

func hollowParts(scenario string, lines []string) []hollow {
	var found []hollow
	printed := make([]string, len(lines))
	run := newRehearsal()
	for i, line := range lines {
		printed[i] = run.line(line)
	}
	same := func(at int, line string) bool { return sameOutcome(lines, printed, at, line) }
	for i, line := range lines {
		words := strings.Fields(line)
		if !asserts(words[0], printed[i]) && !silence(lines[i:], printed[i:]) && same(i, "") {
			found = append(found, hollow{scenario, line, wholeCommand})
			continue
		}
		first := 1
		if words[0] == "quietly" {
			first = 2
		}
		for n := first; n < len(words); n++ {
			if kept(words[0], words[n]) {
				continue
			}
			if shorter := slices.Delete(slices.Clone(words), n, n+1); same(i, strings.Join(shorter, " ")) {
				found = append(found, hollow{scenario, line, words[n]})
			}
		}
	}
	return found
}

// kept reports whether a word is allowed to be hollow. A node's name is allowed, because a node that stays empty shows
// that nothing was placed there. A word such as cmd=v3 is allowed, because the line makes another version with or
// without the word.
func kept(command, word string) bool {
	return command == "node" && !strings.Contains(word, "=") || strings.HasPrefix(word, "cmd=")
}

// asserts reports whether the output of a command is an assertion: the command shows something or decides, or its
// output is more than the acceptance of a drain. A command after "quietly" asserts nothing, because it has no output.
func asserts(command, printed string) bool {
	if slices.Contains(asserting, command) {
		return true
	}
	for line := range strings.Lines(printed) {
		if !strings.HasPrefix(line, "started ") {
			return true
		}
	}
	return false
}

// silence reports whether the first of the given lines is a failover, or an advance before a decision that does
// nothing. Such a line is not hollow, because it shows that the failover or the wait changes nothing.
func silence(lines, printed []string) bool {
	if lines[0] == "failover" {
		return true
	}
	if len(lines) == 1 || !strings.HasPrefix(lines[0], "advance ") || lines[1] != "decide" && lines[1] != "settle" {
		return false
	}
	for line := range strings.Lines(printed[1]) {
		if !strings.HasPrefix(line, "wake in ") && !strings.HasPrefix(line, "blocked: ") {
			return false
		}
	}
	return true
}

// sameOutcome reports whether the output stays the same if the line with the index at is replaced by the line other, or
// dropped if other is empty. It returns false if the changed scenario can't be run, for example because an argument is
// missing.
func sameOutcome(lines, printed []string, at int, other string) (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	run := newRehearsal()
	for i, line := range lines {
		if i == at {
			if line = other; line == "" {
				continue
			}
		}
		if run.line(line) != printed[i] {
			return false
		}
	}
	return true
}

// rehearsal runs a scenario without the checks that TestScenarios makes after each entry.
type rehearsal struct{ w *world }

func newRehearsal() rehearsal {
	w := newWorld(unable{})
	w.unchecked = true
	return rehearsal{w}
}

func (r rehearsal) line(line string) string {
	r.w.at = line
	return r.w.run(line)
}

// unable is a replacement for *testing.T that panics where the test would fail.
type unable struct{}

func (unable) Helper() {}

func (unable) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// TestHollowScenarioIsFound checks that hollow parts of a scenario are found, and also entries of the list of allowed
// parts that are not hollow any more.
func TestHollowScenarioIsFound(t *testing.T) {
	lines := scenarioLines(`# a job whose count is the default, and time that nothing depends on
node n1
run web http count=1 memory=200MiB
quietly settle
advance 1m
show nodes
----
n1 active, 1 instances, 264 MiB

evict web-http-0a
show nodes
`)
	run := hollow{"own", "run web http count=1 memory=200MiB", "count=1"}
	wait := hollow{"own", "advance 1m", wholeCommand}
	evict := hollow{"own", "evict web-http-0a", wholeCommand}
	found := hollowParts("own", lines)
	if want := []hollow{run, wait, evict}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	stale := hollow{"own", "node n1", wholeCommand}
	got := compareHollow(found, map[hollow]bool{run: true, wait: true, stale: true})
	want := []string{"hollow: " + evict.String() + hollowHint,
		"testdata/hollow names what is not hollow, remove that line: " + stale.String()}
	if !slices.Equal(got, want) {
		t.Errorf("compared: %q, want %q", got, want)
	}
}
