package fsm

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// wantFinding fails the test unless err has a finding of the given rule whose text contains the text in says. The empty
// rule stands for findings that break no numbered rule.
func wantFinding(t *testing.T, err error, rule Invariant, says string) {
	t.Helper()
	found, _ := errors.AsType[Findings](err)
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Invariant == rule && strings.Contains(f.Text, says) }) {
		t.Errorf("got %v, want a finding of %q with %q", err, rule, says)
	}
}

// TestFindings: Err returns an error that lists every finding after the id of its rule, or nil if there is no finding.
func TestFindings(t *testing.T) {
	var f Findings
	if err := f.Err(); err != nil || f.First() != "" {
		t.Errorf("no findings: %v, rule %q", err, f.First())
	}
	f.Add("", "a sum is %d", 7)
	f.Add(S2, "two holders")
	f.Add(S1, "too full")
	err := f.Err()
	if want := "a sum is 7\nS2: two holders\nS1: too full"; err == nil || err.Error() != want {
		t.Errorf("got %v, want\n%s", err, want)
	}
	if got := f.First(); got != S2 {
		t.Errorf("the first rule is %q, want S2", got)
	}
}

// TestValidRule: only the ids of the known invariants are valid.
func TestValidRule(t *testing.T) {
	for rule, want := range map[Invariant]bool{S1: true, S19: true, L1: true, L6: true, "": false, "S99": false} {
		if got := rule.Valid(); got != want {
			t.Errorf("rule %q: valid %v", rule, got)
		}
	}
}
