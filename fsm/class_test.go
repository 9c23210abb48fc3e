package fsm

import (
	"bytes"
	"slices"
	"testing"
)

// tried applies one command and returns the new state and the refusal.
func tried(t *testing.T, s State, c Command) (State, *Error) {
	t.Helper()
	next, results := s.Apply(s.Index+1, 1, Entry{Format: CurrentFormat, At: s.Now + 1, Actor: "cli:alice", Groups: [][]Command{{c}}})
	if err := Check(next); err != nil {
		t.Fatal(err)
	}
	return next, results[0].Refusal
}

func order(s State) []ClassName {
	var names []ClassName
	for _, c := range s.Classes {
		names = append(names, c.Name)
	}
	return names
}

// A class is put between two others by one entry; the state of before, and a snapshot, keep theirs.
// proves R7
func TestClassOrder(t *testing.T) {
	tests := []struct {
		name string
		set  ClassSet
		want []ClassName
		code Code
	}{
		{"above", ClassSet{Name: "gold", Above: ClassProduction}, []ClassName{"system", "critical", "gold", "production", "batch"}, ""},
		{"below", ClassSet{Name: "gold", Below: ClassBatch}, []ClassName{"system", "critical", "production", "batch", "gold"}, ""},
		{
			"below one and above the next", ClassSet{Name: "gold", Below: ClassCritical},
			[]ClassName{"system", "critical", "gold", "production", "batch"}, "",
		},
		{"first", ClassSet{Name: "gold", Above: ClassSystem}, []ClassName{"gold", "system", "critical", "production", "batch"}, ""},
		{"moved", ClassSet{Name: ClassBatch, Above: ClassSystem}, []ClassName{"batch", "system", "critical", "production"}, ""},
		{"moved down", ClassSet{Name: ClassSystem, Below: ClassBatch}, []ClassName{"critical", "production", "batch", "system"}, ""},
		{"nowhere", ClassSet{Name: "gold"}, nil, CodeUnknownClass},
		{"unknown place", ClassSet{Name: "gold", Below: "royal"}, nil, CodeUnknownClass},
		{"two places", ClassSet{Name: "gold", Below: ClassSystem, Above: ClassBatch}, nil, CodeInvalid},
		{"itself", ClassSet{Name: ClassBatch, Below: ClassBatch}, nil, CodeInvalid},
		{"name", ClassSet{Name: "so so", Below: ClassBatch}, nil, CodeInvalid},
		{"percentage", ClassSet{Name: ClassBatch, MaxDown: &MaxDown{Amount: Amount{N: 101, Percent: true}}}, nil, CodeInvalid},
		{"quota", ClassSet{Name: ClassBatch, Quota: &Quota{Instances: -1}}, nil, CodeInvalid},
		{"equal", ClassSet{Name: ClassBatch, PreemptEqual: "always"}, nil, CodeInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := NewState()
			after, refusal := tried(t, before, &tt.set)
			if refusal != nil || tt.code != "" {
				if refusal == nil || refusal.Code != tt.code {
					t.Fatalf("got %v, want %s", refusal, tt.code)
				}
				tt.want = order(before)
			}
			if got := order(after); !slices.Equal(got, tt.want) {
				t.Errorf("the order is %v, want %v", got, tt.want)
			}
			if got := order(before); !slices.Equal(got, order(NewState())) {
				t.Errorf("the state of before has the order %v", got)
			}
			restored, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, after)))
			if err != nil {
				t.Fatal(err)
			}
			if got := order(restored); !slices.Equal(got, order(after)) {
				t.Errorf("restored from a snapshot the order is %v, want %v", got, order(after))
			}
		})
	}
}

// A new default of a class is in force for its groups in the same entry, and for those alone that have no budget of their own.
// proves R26, R28
func TestClassDefault(t *testing.T) {
	s := NewState()
	group := func(name string, own *BudgetSpec) GroupSpec {
		return GroupSpec{Name: name, Count: 10, Exec: ExecSpec{Command: "/bin/x"}, Budget: own}
	}
	s, refusal := tried(t, s, &JobSubmit{Spec: JobSpec{Name: "web", Groups: []GroupSpec{group("plain", nil), group("own", &BudgetSpec{MinReady: &Amount{N: 9}})}}})
	if refusal != nil {
		t.Fatal(refusal)
	}
	downOf := func(group GroupID) int {
		g, _ := s.Groups.Get(group)
		return g.Budget.MaxDown
	}
	if downOf("web/plain") != 2 || downOf("web/own") != 1 {
		t.Fatalf("max down is %d and %d, want 2 (25%% of 10, rounded down) and 1", downOf("web/plain"), downOf("web/own"))
	}
	if s, refusal = tried(t, s, &ClassSet{Name: ClassProduction, MaxDown: &MaxDown{Amount: Amount{N: 55, Percent: true}}}); refusal != nil {
		t.Fatal(refusal)
	}
	if downOf("web/plain") != 5 || downOf("web/own") != 1 {
		t.Errorf("with 55%%: max down is %d and %d, want 5 and 1", downOf("web/plain"), downOf("web/own"))
	}
}

// What the defaults of the built-in classes come to: laxer as the priority falls.
// proves R26
func TestBuiltinDefaults(t *testing.T) {
	counts := []int{0, 1, 2, 3, 4, 5, 8, 10, 20}
	want := map[ClassName][]int{
		ClassSystem: {0, 1, 1, 1, 1, 1, 1, 1, 1}, ClassCritical: {0, 1, 1, 1, 1, 1, 1, 1, 1},
		ClassProduction: {0, 1, 1, 1, 1, 1, 2, 2, 5}, ClassBatch: {0, 1, 1, 1, 2, 2, 4, 5, 10},
	}
	for _, c := range BuiltinClasses() {
		for i, n := range counts {
			if got := c.MaxDown.Of(n); got != want[c.Name][i] {
				t.Errorf("%s: of %d may be down %d, want %d", c.Name, n, got, want[c.Name][i])
			}
		}
	}
}
