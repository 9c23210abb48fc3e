package model

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHistory(t *testing.T) {
	first := History{Cluster: "C"}
	second := first.Recovered("l2")
	third := second.Recovered("l3")
	side := first.Recovered("x2")
	for _, tt := range []struct {
		name           string
		a, b           History
		replaces, same bool
	}{
		{"the same", second, second, false, true},
		{"one recovery", second, first, true, false},
		{"two recoveries", third, first, true, false},
		{"the last of two", third, second, true, false},
		{"the older side", first, second, false, false},
		{"another recovery of the same servers", side, second, false, false},
		{"one that gives up another", side.Recovered("x3", "l2"), second, true, false},
		{"another cluster", History{Cluster: "D", Lineages: []string{"l9"}}, first, false, false},
	} {
		if tt.a.Replaces(tt.b) != tt.replaces || tt.a.Same(tt.b) != tt.same {
			t.Errorf("%s: %s and %s: replaces %v, same %v", tt.name, tt.a, tt.b, tt.a.Replaces(tt.b), tt.a.Same(tt.b))
		}
		if back, refusal := ParseHistory(tt.a.String()); refusal != nil || !cmp.Equal(back, tt.a) {
			t.Errorf("%s was read as %s: %v", tt.a, back, refusal)
		}
	}
	if got, want := third.String(), "C/l2,l3"; got != want {
		t.Errorf("it is written as %q, want %q", got, want)
	}
	for _, bad := range []string{"/l1", "C/", "C/l1,,l2"} {
		if h, refusal := ParseHistory(bad); refusal == nil {
			t.Errorf("%q was read as %s", bad, h)
		}
	}
	h := first
	for range 3 * maxLineages {
		h = h.Recovered("l")
	}
	if len(h.Lineages) != maxLineages {
		t.Errorf("%d lineages are kept", len(h.Lineages))
	}
}
