package bubble

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// roleGroup returns a group with a role. play is what its programs simulate; "" means nothing.
func roleGroup(role model.Role, count int, play string) model.GroupSpec {
	g := group("g", count, 64*mib)
	g.Role = role
	g.Env = map[string]string{"PLAY": play, "SLOW": "200ms"}
	g.Checks = []model.CheckSpec{{Name: "alive", Kind: model.CheckExec, Command: []string{askHealthy},
		Interval: model.Second, Timeout: model.Second, Failures: 2}}
	g.Stop = model.StopSpec{Grace: 3 * model.Second, DrainDelay: 200}
	g.Restart = model.RestartSpec{Attempts: 3, Interval: model.Minute, Delay: model.Second}
	soon := 2 * model.Second
	g.Toleration = model.TolerationSpec{Unreachable: &soon, NotReady: &soon}
	if play != "" {
		g.RoleCheck = &model.RoleCheckSpec{Exec: []string{askFacts}, Interval: model.Second, Timeout: model.Second}
	}
	if play == playLeader || play == playShards {
		g.Hooks = []model.HookSpec{{Name: model.HookBeforeStop, Exec: []string{askResign}, Timeout: 5 * model.Second}}
	}
	return g
}

func job(name string, class model.ClassName, groups ...model.GroupSpec) model.JobSpec {
	return model.JobSpec{Name: model.JobName(name), Class: class, Groups: groups}
}

// everyRole returns one job of each role.
func everyRole() []model.JobSpec {
	local := roleGroup(model.RoleLocal, 2, "")
	local.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
	local.Env["ONE"] = "1"
	local.Toleration = model.TolerationSpec{}
	copies := roleGroup(model.RoleReplicated, 3, playCopies)
	copies.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeReplicated, Path: "/data"}}
	alone := roleGroup(model.RoleSingleton, 1, "")
	alone.Toleration = model.TolerationSpec{}
	front, web := roleGroup(model.RoleFront, 2, ""), roleGroup(model.RoleService, 4, "")
	front.Budgets, web.Budgets = []model.BudgetName{sharedBudget}, []model.BudgetName{sharedBudget}
	return []model.JobSpec{
		job("web", "", web), job("probe", "", roleGroup(model.RoleProbe, 2, "")), job("front", model.ClassCritical, front),
		job("worker", model.ClassBatch, roleGroup(model.RoleWorker, 3, "")),
		job("shards", "", roleGroup(model.RoleShardedData, 3, playShards)),
		job("quorum", model.ClassCritical, roleGroup(model.RoleQuorum, 3, playLeader)), job("alone", "", alone),
		job("pair", "", roleGroup(model.RoleLeaderFollower, 2, playLeader)), job("disk", "", local),
		job("copies", "", copies), job("sys", model.ClassSystem, roleGroup(model.RoleSystem, 1, "")),
	}
}

// All invariants hold with a job of every role. Programs lead, follow, come in sync and fall behind, and sometimes
// their role checks and hooks fail. Meanwhile nodes are drained with all kinds of options, and instances are evicted
// through all servers at once. Policies, budgets and settings change, and servers and nodes are lost.
func TestRoles(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		inBubble(t, options{nodes: 6}, func(t *testing.T, w *world) {
			k := newWork(w, random, everyRole()...)
			must(t, k.send("PUT", "/v1/budgets/"+sharedBudget, sharedSpec(random)))
			k.begin()
			k.run(during(2*time.Minute), k.drainWith, k.drainWith, k.change, k.intend, k.race, k.race, k.settings,
				k.pause, k.budget, k.submit,
				k.mute, k.stubborn, k.elect, k.fallBehind, k.sicken, k.crash, k.look,
				k.killServer, k.killLeader, k.cutServer, k.lossy, k.powerOff, k.confirmDead, k.killAgent, k.cutNode)
			k.settle()
		})
	})
}
