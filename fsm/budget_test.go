package fsm

import (
	"strings"
	"testing"
)

// Check finds a shared budget, a ledger or a sum of a class that is not what the rows say.
func TestCheckFindsBrokenBudgets(t *testing.T) {
	s := NewState()
	spec := JobSpec{Name: "web", Groups: []GroupSpec{{Name: "a", Count: 3, Exec: ExecSpec{Command: "/bin/x"}, Budgets: []BudgetName{"db"}}}}
	for _, c := range []Command{&BudgetSet{Name: "db", Spec: BudgetSpec{MinReady: &Amount{N: 50, Percent: true}}}, &JobSubmit{Spec: spec}} {
		var refusal *Error
		if s, refusal = tried(t, s, c); refusal != nil {
			t.Fatal(refusal)
		}
	}
	budget := func(change func(*SharedBudget)) func(*State) { return func(s *State) { edit(s.Budgets, "db", change) } }
	tests := []struct {
		name, says string
		spoil      func(*State)
	}{
		{"numbers", "it would be", budget(func(b *SharedBudget) { b.Resolved.MinReady = 1 })},
		{"a group too few", "does not have it", budget(func(b *SharedBudget) { b.Groups, b.Resolved = nil, Budget{} })},
		{"a group too many", "does not exist", budget(func(b *SharedBudget) { b.Groups = []GroupID{"web/a", "web/z"} })},
		{"gone", "does not have it", func(s *State) { s.Budgets.del("db") }},
		{"stops to come", "out of order", budget(func(b *SharedBudget) { b.Stops = []Time{1 << 50} })},
		{"actor", "the stops of", func(s *State) { s.Actors.put("nobody", &ActorLedger{Actor: "nobody"}) }},
		{"actor's stops", "out of order", func(s *State) { s.Actors.put(ByDrain, &ActorLedger{Actor: ByDrain, Stops: []Time{1, 0}}) }},
		{"usage of a class", "its instances sum up to", func(s *State) { s.classUse.put(ClassProduction, Usage{Instances: 1}) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := s.fork()
			tt.spoil(f)
			if err := Check(*f); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Check says %v, want %q", err, tt.says)
			}
		})
	}
	if err := Check(s); err != nil {
		t.Error(err)
	}
}

// A rate is written as settings show it, and nothing else is read.
func TestActorRateText(t *testing.T) {
	for text, want := range map[string]ActorRate{"none": {}, "5/1m": {5, Minute}, "1/1h30m": {1, Hour + 30*Minute}} {
		var got ActorRate
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is read as %+v, %v; want %+v", text, got, err, want)
		}
		if got.String() != text {
			t.Errorf("%+v is written as %q, want %q", got, got, text)
		}
	}
	for _, text := range []string{"", "5", "5/", "/1m", "0/1m", "-1/1m", "5/1ms", "5/forever", "x/1m", "5/1m/1m", "99999/1m"} {
		var got ActorRate
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}
