package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/outspan/outspan/fsm"
)

// jobNames are the jobs there can be; each has its own role, so that a few names show all of them.
func jobNames() []fsm.JobName {
	return []fsm.JobName{"web", "api", "batch", "crit", "db", "kv", "lock", "quo", "lf", "shard", "one", "mon", "probe", "front", "work", "pile"}
}

func pick[T any](r *rand.Rand, set ...T) T { return set[r.IntN(len(set))] }

// rarely is true about once in n.
func rarely(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// spec draws a spec of a job: its role stays, its size and its limits don't.
func spec(r *rand.Rand, name fsm.JobName) fsm.JobSpec {
	g := fsm.GroupSpec{Name: "main", Count: r.IntN(5), Exec: fsm.ExecSpec{Command: behaviour(r), Args: []string{fmt.Sprintf("v%d", r.IntN(4))}}}
	g.Resources = fsm.Resources{CPU: 100, MemoryBytes: pick[int64](r, 40, 80, 120, 200) * mib}
	g.Stop = fsm.StopSpec{Grace: pick(r, fsm.Second, 3*fsm.Second, 10*fsm.Second), DrainDelay: pick[fsm.Duration](r, 200, 1000)}
	g.Reschedule = fsm.RetrySpec{Attempts: 2, Interval: fsm.Minute}
	g.Update = fsm.UpdateSpec{Deadline: pick(r, fsm.Minute, 5*fsm.Minute), MinHealthy: pick[fsm.Duration](r, 0, 0, 5000), AutoRevert: rarely(r, 2), MaxUnavailable: pick(r, 0, 0, 1)}
	if rarely(r, 5) && g.Count > 0 {
		g.Update.Canary = 1
	}
	j := fsm.JobSpec{Name: name, Groups: []fsm.GroupSpec{g}}
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

// limit draws what a group may lose.
func limit(r *rand.Rand, g *fsm.GroupSpec) {
	amount := func(n int, percent bool) *fsm.Amount { return &fsm.Amount{N: n, Percent: percent} }
	switch r.IntN(7) {
	case 0:
		g.Budget = &fsm.BudgetSpec{MinReady: amount(50, true)}
	case 1:
		g.Budget = &fsm.BudgetSpec{MaxDown: amount(1, false)}
	case 2:
		g.Budget = &fsm.BudgetSpec{MinReady: amount(max(g.Count-1, 0), false), Rate: &fsm.RateSpec{Max: 1, Window: 20 * fsm.Second}}
	case 3:
		g.Budget = &fsm.BudgetSpec{MaxDown: amount(60, true), Rate: &fsm.RateSpec{Max: 2, Window: pick(r, 30*fsm.Second, 5*fsm.Minute)}}
	case 4:
		g.Budgets = []fsm.BudgetName{pick[fsm.BudgetName](r, "both", "all")}
	case 5:
		g.Budget = &fsm.BudgetSpec{MaxDown: amount(0, false), Blocking: true}
	}
	if rarely(r, 4) {
		tolerates := pick(r, 0, 5*fsm.Second, 30*fsm.Second)
		g.Toleration.Unreachable = &tolerates
	}
}

// shape gives a job its role, its class and its data.
func shape(r *rand.Rand, j *fsm.JobSpec, g *fsm.GroupSpec) {
	g.Eviction.Order = pick(r, "", "", fsm.OrderStopFirst)
	check := &fsm.RoleCheckSpec{Exec: []string{"role"}}
	hook := []fsm.HookSpec{{Name: fsm.HookBeforeStop, Exec: []string{"resign"}, Timeout: 10 * fsm.Second, OnFailure: pick(r, fsm.HookAbort, fsm.HookContinue)}}
	data := func(kind fsm.VolumeKind) []fsm.VolumeSpec {
		g.Eviction.Order = ""
		return []fsm.VolumeSpec{{Name: "data", Kind: kind, Path: "/data"}}
	}
	switch j.Name {
	case "web":
		g.Ports = []fsm.PortSpec{{Name: "http"}}
		g.Services = []fsm.ServiceSpec{{Name: "web", Port: "http"}}
		g.Spreads = []fsm.Spread{{Attribute: "node.label.rack"}}
	case "api":
		g.Ports = []fsm.PortSpec{{Name: "http", Static: pick(r, 0, 0, 8080)}}
		g.Affinities = []fsm.Affinity{{Constraint: fsm.Constraint{Attribute: "node.label.rack", Operator: "=", Value: pick(r, "a", "b")}, Weight: 80}}
	case "batch", "pile":
		j.Class = fsm.ClassBatch
		g.Count = r.IntN(8)
	case "crit":
		j.Class = pick(r, fsm.ClassCritical, fsm.ClassSystem)
		g.Resources.MemoryBytes = pick[int64](r, 200, 300, 400) * mib
	case "db":
		g.Volumes = data(fsm.VolumeLocal)
	case "kv":
		g.Volumes, g.RoleCheck = data(fsm.VolumeReplicated), check
		g.Count = 1 + r.IntN(3)
	case "lock":
		g.Exclusive, g.Eviction.Order = &fsm.ExclusiveSpec{Lease: pick[fsm.Duration](r, 10, 20, 60) * fsm.Second}, ""
	case "quo":
		g.Role, g.RoleCheck, g.Hooks, g.Eviction.Order = fsm.RoleQuorum, check, hook, ""
		g.Count = pick(r, 1, 3)
	case "lf":
		g.Role, g.RoleCheck, g.Eviction.Order = fsm.RoleLeaderFollower, check, ""
		if rarely(r, 2) {
			g.Hooks = hook
		}
	case "shard":
		g.Role, g.RoleCheck, g.Hooks, g.Eviction.Order = fsm.RoleShardedData, check, hook, ""
	case "one":
		g.Role, g.Count, g.Eviction.Order = fsm.RoleSingleton, 1, ""
	case "mon":
		g.Role, g.Eviction.Order, g.Budgets, g.Update.Canary = fsm.RoleSystem, "", nil, 0
		g.Resources.MemoryBytes = 20 * mib
	case "probe":
		g.Role, g.Eviction.Order = fsm.RoleProbe, ""
	case "front":
		g.Role, g.Hooks = fsm.RoleFront, hook
		g.Distinct = []string{"node.id"}
	case "work":
		g.Role = fsm.RoleWorker
		g.Constraints = []fsm.Constraint{{Attribute: "node.label.rack", Operator: pick(r, "=", "!="), Value: pick(r, "a", "b", "c")}}
	}
}
