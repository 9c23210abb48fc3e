package sim

import (
	"math/rand/v2"

	"github.com/outspan/outspan/model"
)

// ActionKind is the kind of an action: something that a person does, or a fault.
type ActionKind uint8

// Action is one action at a certain time. Its choices are drawn from Number when it happens, so they depend on earlier
// actions as little as possible.
type Action struct {
	At     model.Time
	Kind   ActionKind
	Number uint64
}

// scenario is a kind of history: how large it is, how long it takes, and how often each kind of action happens.
type scenario struct {
	name        string
	least, most int     // number of nodes
	memory      []int64 // sizes that a node can have, in MiB
	actions     int
	longest     model.Duration // upper limit of the time between two actions; one gap in ten may be three times as long
	hookFails   int            // percentage of hooks that fail
	weights     []weight
	jobs        []model.JobName // names that jobs can have; empty means all
	images      bool            // most groups run containers; see images.go
	fair        bool            // jobs of class batch may preempt each other
	tune        func(*model.Settings)
}

type weight struct {
	kind ActionKind
	n    int
}

// everything returns every kind of action with its default weight.
func everything() []weight {
	return []weight{
		{ActSubmit, 16}, {ActScale, 8}, {ActStopJob, 2}, {ActPurge, 1}, {ActRestartJob, 3}, {ActRevert, 2}, {ActPromote, 3},
		{ActDrain, 8}, {ActDrainMany, 4}, {ActCancelDrain, 3}, {ActPauseDrain, 2}, {ActUncordon, 8}, {ActCordon, 2},
		{ActDisable, 2}, {ActEnable, 3}, {ActAck, 3},
		{ActConfirmDead, 3}, {ActForget, 1}, {ActReplaceMachine, 2}, {ActEvict, 5}, {ActEvictPair, 4}, {ActStopInstance, 3},
		{ActRestartInstance, 2}, {ActLabel, 4},
		{ActBudget, 4}, {ActBudgetRemove, 1}, {ActPolicy, 4}, {ActRates, 2}, {ActPauseAll, 1}, {ActHold, 1}, {ActClass, 3},
		{ActClassRemove, 1}, {ActJobClass, 2}, {ActRescheduler, 3}, {ActAskMoves, 1},
		{ActPowerLoss, 5}, {ActAgentCrash, 4}, {ActFreeze, 3}, {ActCutNode, 5}, {ActCutOne, 3}, {ActFailover, 6},
		{ActIsolateLeader, 2}, {ActServerCrash, 3}, {ActSlowServer, 2},
		{ActKillProgram, 6}, {ActBlip, 4}, {ActLossy, 3}, {ActSuspect, 3}, {ActRoleFlip, 4}, {ActMassCut, 1},
		{ActOutage, 1}, {ActSick, 3},
	}
}

// more returns the weights of everything, with those in changes replaced.
func more(changes ...weight) []weight {
	all := everything()
	for _, c := range changes {
		for i := range all {
			if all[i].kind == c.kind {
				all[i].n = c.n
			}
		}
	}
	return all
}

func small() []int64 { return []int64{1024, 1024, 1536, 2048} }

// scenarios returns all scenarios. The large one must be the last.
func scenarios() []*scenario {
	return []*scenario{
		{name: "mixed", least: 3, most: 6, memory: small(), actions: 60, longest: 60 * model.Second,
			hookFails: 25, weights: everything()},
		{name: "drains", least: 3, most: 7, memory: small(), actions: 60, longest: 90 * model.Second,
			hookFails: 25, weights: more(
				weight{ActDrain, 30}, weight{ActDrainMany, 16}, weight{ActUncordon, 24}, weight{ActPolicy, 10},
				weight{ActEvictPair, 12}, weight{ActAck, 8})},
		{name: "tight", least: 3, most: 5, memory: []int64{512, 640, 768}, actions: 70, longest: 40 * model.Second,
			hookFails: 10, weights: more(
				weight{ActSubmit, 40}, weight{ActScale, 20}, weight{ActClass, 20}, weight{ActJobClass, 10})},
		{name: "outages", least: 4, most: 9, memory: small(), actions: 60, longest: 60 * model.Second,
			hookFails: 10, weights: more(
				weight{ActPowerLoss, 25}, weight{ActCutNode, 20}, weight{ActFreeze, 12}, weight{ActMassCut, 8},
				weight{ActConfirmDead, 12}, weight{ActSuspect, 10}, weight{ActReplaceMachine, 12},
				weight{ActForget, 6}, weight{ActSick, 16})},
		{name: "failovers", least: 3, most: 6, memory: small(), actions: 80, longest: 20 * model.Second,
			hookFails: 10, weights: more(
				weight{ActFailover, 60}, weight{ActIsolateLeader, 16}, weight{ActServerCrash, 16}, weight{ActSlowServer, 10},
				weight{ActEvictPair, 20}, weight{ActLossy, 10})},
		{name: "cordons", least: 4, most: 7, memory: small(), actions: 50, longest: 60 * model.Second, hookFails: 10,
			jobs:    []model.JobName{"kv", "kv", "web", "lock"},
			weights: more(weight{ActCordon, 30}, weight{ActUncordon, 30}, weight{ActFreeze, 8}), tune: func(s *model.Settings) {
				s.EvictOn, s.NodeDrainPolicy = model.EvictOnCordon, string(model.PolicyEvictAll)
			}},
		{name: "shares", least: 3, most: 4, memory: []int64{512, 640}, actions: 70, longest: 40 * model.Second, fair: true,
			jobs:    []model.JobName{"pile", "batch", "pile", "batch", "crit"},
			weights: more(weight{ActSubmit, 40}, weight{ActScale, 40}, weight{ActClass, 40}, weight{ActStopJob, 8})},
		{name: "stateful", least: 4, most: 7, memory: small(), actions: 60,
			jobs: []model.JobName{"kv", "db", "lock", "quo", "lf", "shard", "one", "kv", "web"}, longest: 90 * model.Second,
			hookFails: 25, weights: more(
				weight{ActDrain, 20}, weight{ActUncordon, 20}, weight{ActPolicy, 14}, weight{ActRoleFlip, 20}, weight{ActFreeze, 8},
				weight{ActCutNode, 10}, weight{ActCordon, 16})},
		{name: "moves", least: 4, most: 8, memory: small(), actions: 50, longest: 5 * model.Minute,
			weights: more(weight{ActRescheduler, 12}, weight{ActAskMoves, 6}, weight{ActUncordon, 20}, weight{ActScale, 16}),
			tune: func(s *model.Settings) {
				s.Rescheduler, s.MoveMinAge, s.MoveCooldown, s.MoveCycle = "eager", 10*model.Second,
					20*model.Second, 10*model.Second
			}},
		{name: "idle", least: 3, most: 5, memory: small(), actions: 30, longest: 40 * model.Minute,
			hookFails: 10, weights: everything()},
		{name: "large", least: 20, most: 40, memory: small(), actions: 60, longest: 30 * model.Second, hookFails: 10,
			weights: more(weight{ActSubmit, 30}, weight{ActScale, 20})},
	}
}

func scenarioOf(cfg Config) *scenario {
	all := scenarios()
	for _, s := range append(all, imageScenario()) {
		if s.name == cfg.Scenario {
			return s
		}
	}
	at := random(cfg.Seed, "scenario").IntN(4 * len(all))
	if at == 0 {
		return all[len(all)-1] // the large scenario, which takes longest and is therefore rare
	}
	return all[at%(len(all)-1)]
}

// schedule draws which actions happen, and when.
func (s *scenario) schedule(seed uint64) []Action {
	r := random(seed, "schedule")
	total := 0
	for _, w := range s.weights {
		total += w.n
	}
	var list []Action
	at := model.Time(6000)
	for i := range s.actions {
		kind := ActSubmit
		if i > 4 { // the first actions create a few jobs
			kind = s.draw(r, total)
		}
		list = append(list, Action{At: at, Kind: kind, Number: r.Uint64()})
		at = at.Add(s.gap(r))
	}
	return list
}

// gap draws the time to the next action. It is often so short that actions overlap.
func (s *scenario) gap(r *rand.Rand) model.Duration {
	switch r.IntN(10) {
	case 0, 1:
		return between(r, 0, 30)
	case 2, 3, 4, 5:
		return between(r, 100, 5000)
	case 9:
		return between(r, 0, 3*s.longest)
	}
	return between(r, 0, s.longest)
}

func (s *scenario) draw(r *rand.Rand, total int) ActionKind {
	at := r.IntN(total)
	for _, w := range s.weights {
		if at -= w.n; at < 0 {
			return w.kind
		}
	}
	return ActSubmit
}

// settings draws the settings with which the cluster begins.
func (s *scenario) settings(r *rand.Rand) model.Settings {
	c := model.DefaultSettings()
	c.OfflineAfter = []model.Duration{2 * model.Second, 6 * model.Second, 60 * model.Second}[r.IntN(3)]
	c.StartTimeout = 20 * model.Second
	c.EventLimit, c.EventAge = 1000, model.Minute // with a longer history of events the checks would take longer
	c.InstanceOverhead = 8 * mib
	c.Rescheduler = []string{"off", "balanced", "eager"}[r.IntN(3)]
	c.MoveMinAge, c.MoveCooldown = 30*model.Second, model.Minute
	c.Algorithm = []string{"spread", "spread", "binpack"}[r.IntN(3)]
	if r.IntN(3) == 0 {
		c.FailureDomainLabel = "rack"
	}
	if s.tune != nil {
		s.tune(&c)
	}
	return c
}
