package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/outspan/outspan/model"
)

// tried applies one command and checks the invariants. It returns the new state and the refusal, if any.
func tried(t *testing.T, s State, c Command) (State, *model.Error) {
	t.Helper()
	next, results := s.Apply(s.Index+1, 1,
		Entry{Format: model.CurrentFormat, At: s.Now + 1, Actor: "cli:alice", Groups: [][]Command{{c}}})
	if err := Check(next); err != nil {
		t.Fatal(err)
	}
	return next, results[0].Refusal
}

func order(s State) []model.ClassName {
	var names []model.ClassName
	for _, c := range s.Classes {
		names = append(names, c.Name)
	}
	return names
}

// One command puts a class anywhere in the order of classes. The state before the command keeps its own order. A
// snapshot of the new state has the new order.
//
// proves R7
func TestClassOrder(t *testing.T) {
	tests := []struct {
		name string
		set  ClassSet
		want []model.ClassName
		code model.Code
	}{
		{"above", ClassSet{Name: "gold", Above: model.ClassProduction},
			[]model.ClassName{"system", "critical", "gold", "production", "batch"}, ""},
		{"below", ClassSet{Name: "gold", Below: model.ClassBatch},
			[]model.ClassName{"system", "critical", "production", "batch", "gold"}, ""},
		{
			"below one and above the next", ClassSet{Name: "gold", Below: model.ClassCritical},
			[]model.ClassName{"system", "critical", "gold", "production", "batch"}, "",
		},
		{"first", ClassSet{Name: "gold", Above: model.ClassSystem},
			[]model.ClassName{"gold", "system", "critical", "production", "batch"}, ""},
		{"moved", ClassSet{Name: model.ClassBatch, Above: model.ClassSystem},
			[]model.ClassName{"batch", "system", "critical", "production"}, ""},
		{"moved down", ClassSet{Name: model.ClassSystem, Below: model.ClassBatch},
			[]model.ClassName{"critical", "production", "batch", "system"}, ""},
		{"nowhere", ClassSet{Name: "gold"}, nil, model.CodeUnknownClass},
		{"unknown place", ClassSet{Name: "gold", Below: "royal"}, nil, model.CodeUnknownClass},
		{"two places", ClassSet{Name: "gold", Below: model.ClassSystem, Above: model.ClassBatch}, nil, model.CodeInvalid},
		{"itself", ClassSet{Name: model.ClassBatch, Below: model.ClassBatch}, nil, model.CodeInvalid},
		{"name", ClassSet{Name: "so so", Below: model.ClassBatch}, nil, model.CodeInvalid},
		{"percentage", ClassSet{Name: model.ClassBatch, MaxDown: &model.MaxDown{Amount: model.Amount{N: 101, Percent: true}}},
			nil, model.CodeInvalid},
		{"quota", ClassSet{Name: model.ClassBatch, Quota: &model.Quota{Instances: -1}}, nil, model.CodeInvalid},
		{"equal", ClassSet{Name: model.ClassBatch, PreemptEqual: "always"}, nil, model.CodeInvalid},
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

// There are at most maxClasses classes. At this limit, existing classes can still be changed.
func TestClassesAreBounded(t *testing.T) {
	s := NewState()
	for n := range maxClasses - len(s.Classes) {
		s = run(t, s, 1000, &ClassSet{Name: model.ClassName(fmt.Sprint("c", n)), Below: model.ClassBatch})
	}
	_, refusal := attempt(s, 1000, &ClassSet{Name: "more", Below: model.ClassBatch})
	wantCode(t, "one more class", refusal, model.CodeInvalid)
	_, refusal = attempt(s, 1000, &ClassSet{Name: "c0", Above: model.ClassSystem})
	wantCode(t, "a change", refusal, "")
}

// A new default budget of a class takes effect in the same entry, for all groups of the class that have no budget of
// their own.
//
// proves R26, R28
func TestClassDefault(t *testing.T) {
	s := NewState()
	group := func(name string, own *model.BudgetSpec) model.GroupSpec {
		return model.GroupSpec{Name: name, Count: 10, Exec: model.ExecSpec{Command: "/bin/x"}, Budget: own}
	}
	s, refusal := tried(t, s,
		&JobSubmit{
			Spec: model.JobSpec{Name: "web",
				Groups: []model.GroupSpec{group("plain", nil), group("own", &model.BudgetSpec{MinReady: &model.Amount{N: 9}})}}})
	if refusal != nil {
		t.Fatal(refusal)
	}
	downOf := func(group model.GroupID) int {
		g, _ := s.Groups.Get(group)
		return g.Budget.MaxDown
	}
	if downOf("web/plain") != 2 || downOf("web/own") != 1 {
		t.Fatalf("max down is %d and %d, want 2 (25%% of 10, rounded down) and 1", downOf("web/plain"), downOf("web/own"))
	}
	if s, refusal = tried(t,
		s,
		&ClassSet{Name: model.ClassProduction,
			MaxDown: &model.MaxDown{Amount: model.Amount{N: 55, Percent: true}}}); refusal != nil {
		t.Fatal(refusal)
	}
	if downOf("web/plain") != 5 || downOf("web/own") != 1 {
		t.Errorf("with 55%%: max down is %d and %d, want 5 and 1", downOf("web/plain"), downOf("web/own"))
	}
}

// TestBuiltinDefaults checks how many instances the default budgets of the built-in classes let be down. A lower class
// lets at least as many be down as a higher one.
//
// proves R26
func TestBuiltinDefaults(t *testing.T) {
	counts := []int{0, 1, 2, 3, 4, 5, 8, 10, 20}
	want := map[model.ClassName][]int{
		model.ClassSystem: {0, 1, 1, 1, 1, 1, 1, 1, 1}, model.ClassCritical: {0, 1, 1, 1, 1, 1, 1, 1, 1},
		model.ClassProduction: {0, 1, 1, 1, 1, 1, 2, 2, 5}, model.ClassBatch: {0, 1, 1, 1, 2, 2, 4, 5, 10},
	}
	for _, c := range BuiltinClasses() {
		for i, n := range counts {
			if got := c.MaxDown.Of(n); got != want[c.Name][i] {
				t.Errorf("%s: of %d may be down %d, want %d", c.Name, n, got, want[c.Name][i])
			}
		}
	}
}
