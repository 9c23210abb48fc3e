package model

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSingleHolderOrder: if a slot may never have two instances, the order is stop_first by default, and the order
// surge is refused.
// proves X8
func TestSingleHolderOrder(t *testing.T) {
	volumes := []VolumeSpec{{Name: "data", Kind: VolumeLocal, Path: "/data"}}
	tests := []struct {
		name  string
		group GroupSpec
		says  string // part of the refusal; "" means that the spec is accepted
	}{
		{"a volume", GroupSpec{Volumes: volumes}, ""},
		{"a volume and stop-first",
			GroupSpec{Volumes: volumes, Update: UpdateSpec{Order: OrderStopFirst},
				Eviction: EvictionSpec{Order: OrderStopFirst}}, ""},
		{"a volume and a surge of updates", GroupSpec{Volumes: volumes, Update: UpdateSpec{Order: OrderSurge}},
			`update.order is "surge", but the group has the volume "data"`},
		{"a volume and a surge of evictions", GroupSpec{Volumes: volumes, Eviction: EvictionSpec{Order: OrderSurge}},
			`eviction.order is "surge", but the group has the volume "data"`},
		{"exclusive", GroupSpec{Exclusive: &ExclusiveSpec{}}, ""},
		{"exclusive and a surge of updates", GroupSpec{Exclusive: &ExclusiveSpec{}, Update: UpdateSpec{Order: OrderSurge}},
			"is exclusive"},
		{"same identity and a surge of evictions",
			GroupSpec{Replacement: ReplacementSpec{Identity: "same"}, Eviction: EvictionSpec{Order: OrderSurge}},
			"keeps the identity"},
		{"neither", GroupSpec{Update: UpdateSpec{Order: OrderSurge}, Eviction: EvictionSpec{Order: OrderSurge}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.group.Name, tt.group.Count, tt.group.Exec.Command = "g", 1, "/bin/x"
			spec := JobSpec{Name: "j", Groups: []GroupSpec{tt.group}}.Expand()
			refusal := spec.Check()
			switch {
			case tt.says == "" && refusal != nil:
				t.Fatalf("refused: %v", refusal)
			case tt.says != "" &&
				(refusal == nil || refusal.Code != CodeInvalid || !strings.Contains(refusal.Message, tt.says) ||
					!strings.Contains(refusal.Hint, "stop_first")):
				t.Fatalf("got %v, want a refusal that says %s", refusal, tt.says)
			}
			g := spec.Groups[0]
			if single := g.OneHolder(); tt.says == "" && single &&
				(g.Eviction.Order != OrderStopFirst || g.Update.Order != OrderStopFirst) {
				t.Errorf("orders are %s and %s, want stop_first", g.Eviction.Order, g.Update.Order)
			}
		})
	}
}

// A check has defaults for all its times and counts. A value that the spec sets replaces the default.
func TestDefaultsOfACheck(t *testing.T) {
	full := CheckSpec{Kind: CheckTCP, Interval: Second, Timeout: 3 * Second, Grace: Minute, Successes: 2, Failures: 4}
	spec := JobSpec{Name: "j", Groups: []GroupSpec{{Name: "g", Checks: []CheckSpec{{Kind: CheckTCP}, full}}}}.Expand()
	want := []CheckSpec{{Kind: CheckTCP, Interval: 10 * Second, Timeout: 2 * Second, Grace: 10 * Second, Successes: 1,
		Failures: 3}, full}
	if diff := cmp.Diff(want, spec.Groups[0].Checks); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// An HTTP check without a path gets the path /. Other checks get no path.
func TestPathOfAnHTTPCheck(t *testing.T) {
	spec := JobSpec{Name: "j",
		Groups: []GroupSpec{
			{Name: "g", Checks: []CheckSpec{{Kind: CheckHTTP}, {Kind: CheckHTTP, Path: "/ok"}, {Kind: CheckTCP}}}}}.Expand()
	for i, want := range []string{"/", "/ok", ""} {
		if got := spec.Groups[0].Checks[i].Path; got != want {
			t.Errorf("check %d has the path %q, want %q", i, got, want)
		}
	}
}
