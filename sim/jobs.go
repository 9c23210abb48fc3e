package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/outspan/outspan/model"
)

// jobNames returns the names that jobs can have. The name fixes a job's role, and together the names cover all roles.
func jobNames() []model.JobName {
	return []model.JobName{"web", "api", "batch", "crit", "db", "kv", "lock", "quo", "lf", "shard", "one", "mon",
		"probe", "front", "work", "pile"}
}

func pick[T any](r *rand.Rand, set ...T) T { return set[r.IntN(len(set))] }

// rarely returns true about once in n calls.
func rarely(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// spec draws a spec for the job of this name. The name fixes the job's role; size and limits vary.
func spec(r *rand.Rand, name model.JobName) model.JobSpec {
	g := model.GroupSpec{Name: "main", Count: r.IntN(5),
		Exec: model.ExecSpec{Command: behaviour(r), Args: []string{fmt.Sprintf("v%d", r.IntN(4))}}}
	g.Resources = model.Resources{CPU: 100, MemoryBytes: pick[int64](r, 40, 80, 120, 200) * mib}
	g.Stop = model.StopSpec{Grace: pick(r, model.Second, 3*model.Second, 10*model.Second),
		DrainDelay: pick[model.Duration](r, 200, 1000)}
	g.Reschedule = model.RetrySpec{Attempts: 2, Interval: model.Minute}
	g.Update = model.UpdateSpec{Deadline: pick(r, model.Minute, 5*model.Minute),
		MinHealthy: pick[model.Duration](r, 0, 0, 5000), AutoRevert: rarely(r, 2), MaxUnavailable: pick(r, 0, 0, 1)}
	if rarely(r, 5) && g.Count > 0 {
		g.Update.Canary = 1
	}
	j := model.JobSpec{Name: name, Groups: []model.GroupSpec{g}}
	main := &j.Groups[0]
	limit(r, main)
	shape(r, &j, main)
	if rarely(r, 6) && len(main.Volumes) == 0 && main.Role == "" {
		side := *main
		side.Name, side.Ports, side.Services = "side", nil, nil
		j.Groups = append(j.Groups, side)
	}
	return j
}

func behaviour(r *rand.Rand) string {
	switch n := r.IntN(20); {
	case n < 13:
		return behaveSteady
	case n < 15:
		return behaveSlow
	case n < 18:
		return behaveFlaky
	}
	return pick(r, behaveNever, behaveCrash)
}

// limit draws a budget and a toleration for a group. Some groups get neither.
func limit(r *rand.Rand, g *model.GroupSpec) {
	amount := func(n int, percent bool) *model.Amount { return &model.Amount{N: n, Percent: percent} }
	switch r.IntN(7) {
	case 0:
		g.Budget = &model.BudgetSpec{MinReady: amount(50, true)}
	case 1:
		g.Budget = &model.BudgetSpec{MaxDown: amount(1, false)}
	case 2:
		g.Budget = &model.BudgetSpec{MinReady: amount(max(g.Count-1, 0), false),
			Rate: &model.RateSpec{Max: 1, Window: 20 * model.Second}}
	case 3:
		g.Budget = &model.BudgetSpec{MaxDown: amount(60, true),
			Rate: &model.RateSpec{Max: 2, Window: pick(r, 30*model.Second, 5*model.Minute)}}
	case 4:
		g.Budgets = []model.BudgetName{pick[model.BudgetName](r, "both", "all")}
	case 5:
		g.Budget = &model.BudgetSpec{MaxDown: amount(0, false), Blocking: true}
	}
	if rarely(r, 4) {
		tolerates := pick(r, 0, 5*model.Second, 30*model.Second)
		g.Toleration.Unreachable = &tolerates
	}
}

// shape sets the fields that depend on the job's name, such as role, class, volumes and hooks.
func shape(r *rand.Rand, j *model.JobSpec, g *model.GroupSpec) {
	g.Eviction.Order = pick(r, "", "", model.OrderStopFirst)
	check := &model.RoleCheckSpec{Exec: []string{"role"}}
	hook := []model.HookSpec{{Name: model.HookBeforeStop, Exec: []string{"resign"}, Timeout: 10 * model.Second,
		OnFailure: pick(r, model.HookAbort, model.HookContinue)}}
	data := func(kind model.VolumeKind) []model.VolumeSpec {
		g.Eviction.Order = ""
		return []model.VolumeSpec{{Name: "data", Kind: kind, Path: "/data"}}
	}
	switch j.Name {
	case "web":
		g.Ports = []model.PortSpec{{Name: "http"}}
		g.Services = []model.ServiceSpec{{Name: "web", Port: "http"}}
		g.Spreads = []model.Spread{{Attribute: "node.label.rack"}}
	case "api":
		g.Ports = []model.PortSpec{{Name: "http", Static: pick(r, 0, 0, 8080)}}
		g.Affinities = []model.Affinity{
			{Constraint: model.Constraint{Attribute: "node.label.rack", Operator: "=", Value: pick(r, "a", "b")}, Weight: 80}}
	case "batch", "pile":
		j.Class = model.ClassBatch
		g.Count = r.IntN(8)
	case "crit":
		j.Class = pick(r, model.ClassCritical, model.ClassSystem)
		g.Resources.MemoryBytes = pick[int64](r, 200, 300, 400) * mib
	case "db":
		g.Volumes = data(model.VolumeLocal)
	case "kv":
		g.Volumes, g.RoleCheck = data(model.VolumeReplicated), check
		g.Count = 1 + r.IntN(3)
	case "lock":
		g.Exclusive, g.Eviction.Order = &model.ExclusiveSpec{Lease: pick[model.Duration](r, 10, 20, 60) * model.Second}, ""
	case "quo":
		g.Role, g.RoleCheck, g.Hooks, g.Eviction.Order = model.RoleQuorum, check, hook, ""
		g.Count = pick(r, 1, 3)
	case "lf":
		g.Role, g.RoleCheck, g.Eviction.Order = model.RoleLeaderFollower, check, ""
		if rarely(r, 2) {
			g.Hooks = hook
		}
	case "shard":
		g.Role, g.RoleCheck, g.Hooks, g.Eviction.Order = model.RoleShardedData, check, hook, ""
	case "one":
		g.Role, g.Count, g.Eviction.Order = model.RoleSingleton, 1, ""
	case "mon":
		g.Role, g.Eviction.Order, g.Budgets, g.Update.Canary = model.RoleSystem, "", nil, 0
		g.Resources.MemoryBytes = 20 * mib
	case "probe":
		g.Role, g.Eviction.Order = model.RoleProbe, ""
	case "front":
		g.Role, g.Hooks = model.RoleFront, hook
		g.Distinct = []string{"node.id"}
	case "work":
		g.Role = model.RoleWorker
		g.Constraints = []model.Constraint{
			{Attribute: "node.label.rack", Operator: pick(r, "=", "!="), Value: pick(r, "a", "b", "c")}}
	}
}
