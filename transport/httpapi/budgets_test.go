package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// shares returns a rig with three ready instances of web/http. The group uses the given budget as the shared budget db.
func shares(t *testing.T, budget model.BudgetSpec) *rig {
	r := newRig(t)
	r.node("01N1", "n1")
	r.node("01N2", "n2")
	r.apply(&fsm.BudgetSet{Name: "db", Spec: budget})
	web := spec("web", 3)
	web.Groups[0].Budget, web.Groups[0].Budgets = nil, []model.BudgetName{"db"}
	r.apply(&fsm.JobSubmit{Spec: web})
	r.place("inst-a", 0, "01N1", model.ObservedReady)
	r.place("inst-b", 1, "01N1", model.ObservedReady)
	r.place("inst-c", 2, "01N2", model.ObservedReady)
	return r
}

// If one unit of a budget is left, exactly one of many simultaneous evictions is accepted. The others are refused
// because of the budget, or because the instance is already stopping.
// proves R33, R34
func TestConcurrentEvictions(t *testing.T) {
	r := shares(t, model.BudgetSpec{MaxDown: &model.Amount{N: 1}})
	errs := make([]error, 12)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			_, _, errs[i] = r.cli().
				Do(t.Context(), http.MethodPost, "/v1/instances/inst-"+string('a'+rune(i%3))+"/evict", nil, nil)
		})
	}
	wg.Wait()
	accepted := 0
	for _, err := range errs {
		if err == nil {
			accepted++
			continue
		}
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeBudgetMinReady &&
			e.Code != model.CodeStopping {
			t.Errorf("refused with %v, want budget_min_ready", err)
		}
	}
	if accepted != 1 {
		t.Errorf("%d evictions were accepted, one unit was there", accepted)
	}
}

// Missing instances are counted as voluntary or involuntary, and by cause.
// proves R24, R31
func TestDownByCause(t *testing.T) {
	r := shares(t, model.BudgetSpec{MaxDown: &model.Amount{N: 2}, Rate: &model.RateSpec{Max: 2, Window: model.Minute}})
	c := r.cli()
	post(t, c, "/v1/instances/inst-a/evict", nil)
	n, _ := r.machine.State().Nodes.Get("01N2")
	r.apply(&fsm.NodeHealth{ID: n.ID, Health: model.HealthOffline, BootID: n.Agent.BootID,
		Epoch: n.Agent.Epoch, Reason: "silent"})
	for _, path := range []string{"/v1/budgets/db", "/v1/budgets/web/http"} {
		b := get(t, c, path)
		down := b["down"].(map[string]any)
		causes := down["by_cause"].(map[string]any)
		if number(down["voluntary"]) != 1 || number(down["involuntary"]) != 1 || number(causes["user_requested"]) != 1 ||
			number(causes["node_offline"]) != 1 {
			t.Errorf("%s: down %v, want one evicted and one lost", path, down)
		}
		if number(b["ready"]) != 1 {
			t.Errorf("%s: %v ready, want 1", path, b["ready"])
		}
	}
	b := get(t, c, "/v1/budgets/db")
	if rate := b["rate"].(map[string]any); number(rate["used"]) != 1 || number(b["allowed"]) != 0 {
		t.Errorf("rate %v, allowed %v; want 1 used of 2, and nothing allowed because 1 of 1 must stay ready",
			rate, b["allowed"])
	}
}

func number(v any) int {
	n, err := strconv.Atoi(fmt.Sprint(v))
	if err != nil {
		return -1
	}
	return n
}

// The pages of the list of budgets show first groups, then shared budgets, then actors. No item is missing.
func TestBudgetPages(t *testing.T) {
	r := shares(t, model.BudgetSpec{MaxDown: &model.Amount{N: 1}})
	r.apply(&fsm.BudgetSet{Name: "a-first", Spec: model.BudgetSpec{MaxDown: &model.Amount{N: 1}}})
	settings := r.machine.State().Settings
	settings.RateDrain = model.ActorRate{Max: 3, Window: model.Minute}
	settings.RateOperator = model.ActorRate{Max: 1, Window: model.Minute}
	r.apply(&fsm.SettingsSet{Settings: settings})
	var got []string
	next := ""
	for range 10 {
		page := decode(t, must2(r.cli().Do(t.Context(), http.MethodGet, "/v1/budgets", values("limit=1&next="+next), nil))(t))
		for _, item := range page["items"].([]any) {
			b := item.(map[string]any)
			got = append(got, b["scope"].(string)+" "+b["name"].(string))
		}
		if next, _ = page["next"].(string); next == "" {
			break
		}
	}
	want := []string{"group web/http", "shared a-first", "shared db", "actor drain", "actor operator"}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("item %d is %s, want %s", i, got[i], want[i])
		}
	}
}

// Two simultaneous scale-ups would each fit into the quota of the class, but not together. Exactly one succeeds.
func TestRacingScaleUps(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	r.apply(&fsm.ClassSet{Name: model.ClassProduction, Quota: &model.Quota{Instances: 3}})
	for _, name := range []string{"web", "api"} {
		r.apply(&fsm.JobSubmit{Spec: spec(name, 1)})
	}
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, name := range []string{"web", "api"} {
		wg.Go(func() {
			_, _, errs[i] = r.cli().Do(t.Context(), http.MethodPost, "/v1/jobs/"+name+"/scale", nil, map[string]any{"count": 2})
		})
	}
	wg.Wait()
	switch {
	case errs[0] == nil && errs[1] == nil:
		t.Error("both were accepted: 4 instances in a class of 3")
	case errs[0] != nil && errs[1] != nil:
		t.Errorf("both were refused: %v, %v", errs[0], errs[1])
	case errs[0] != nil:
		wantCode(t, errs[0], model.QuotaExceeded("instances"))
	default:
		wantCode(t, errs[1], model.QuotaExceeded("instances"))
	}
	total := 0
	for _, g := range r.machine.State().Groups.All() {
		total += g.Count
	}
	if total != 3 {
		t.Errorf("%d instances are wanted, want 3", total)
	}
}
