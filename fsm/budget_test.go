package fsm

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// Check finds inconsistent shared budgets, ledgers of actors and usages of classes.
func TestCheckFindsBrokenBudgets(t *testing.T) {
	s := NewState()
	spec := model.JobSpec{Name: "web",
		Groups: []model.GroupSpec{
			{Name: "a", Count: 3, Exec: model.ExecSpec{Command: "/bin/x"}, Budgets: []model.BudgetName{"db"}}}}
	for _, c := range []Command{
		&BudgetSet{Name: "db", Spec: model.BudgetSpec{MinReady: &model.Amount{N: 50, Percent: true}}},
		&JobSubmit{Spec: spec}} {
		var refusal *model.Error
		if s, refusal = tried(t, s, c); refusal != nil {
			t.Fatal(refusal)
		}
	}
	budget := func(change func(*SharedBudget)) func(*State) {
		return func(s *State) { edit(&s.Budgets, "db", change) }
	}
	tests := []struct {
		name, says string
		spoil      func(*State)
	}{
		{"numbers", "it would be", budget(func(b *SharedBudget) { b.Resolved.MinReady = 1 })},
		{"a group too few", "does not have it", budget(func(b *SharedBudget) { b.Groups, b.Resolved = nil, model.Budget{} })},
		{"a group too many", "does not exist", budget(func(b *SharedBudget) {
			b.Groups = []model.GroupID{"web/a", "web/z"}
		})},
		{"gone", "does not have it", func(s *State) { s.Budgets.del("db") }},
		{"stops to come", "out of order", budget(func(b *SharedBudget) { b.Stops = []model.Time{1 << 50} })},
		{"actor", "the stops of", func(s *State) { s.Actors.put("nobody", &ActorLedger{Actor: "nobody"}) }},
		{"actor's stops", "out of order", func(s *State) {
			s.Actors.put(model.ByDrain, &ActorLedger{Actor: model.ByDrain, Stops: []model.Time{1, 0}})
		}},
		{"usage of a class", "its instances sum up to", func(s *State) {
			s.classUse.put(model.ClassProduction, Usage{Instances: 1})
		}},
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
