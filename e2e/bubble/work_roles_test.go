package bubble

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
)

// roleGroup is a group of a role; play is what its programs play.
func roleGroup(role fsm.Role, count int, play string) fsm.GroupSpec {
	g := group("g", count, 64*mib)
	g.Role = role
	g.Env = map[string]string{"PLAY": play, "SLOW": "200ms"}
	g.Checks = []fsm.CheckSpec{{Name: "alive", Kind: fsm.CheckExec, Command: []string{askHealthy}, Interval: fsm.Second, Timeout: fsm.Second, Failures: 2}}
	g.Stop = fsm.StopSpec{Grace: 3 * fsm.Second, DrainDelay: 200}
	g.Restart = fsm.RestartSpec{Attempts: 3, Interval: fsm.Minute, Delay: fsm.Second}
	soon := 2 * fsm.Second
	g.Toleration = fsm.TolerationSpec{Unreachable: &soon, NotReady: &soon}
	if play != "" {
		g.RoleCheck = &fsm.RoleCheckSpec{Exec: []string{askFacts}, Interval: fsm.Second, Timeout: fsm.Second}
	}
	if play == playLeader || play == playShards {
		g.Hooks = []fsm.HookSpec{{Name: fsm.HookBeforeStop, Exec: []string{askResign}, Timeout: 5 * fsm.Second}}
	}
	return g
}

func job(name string, class fsm.ClassName, groups ...fsm.GroupSpec) fsm.JobSpec {
	return fsm.JobSpec{Name: fsm.JobName(name), Class: class, Groups: groups}
}

// everyRole is a job of each role.
func everyRole() []fsm.JobSpec {
	local := roleGroup(fsm.RoleLocal, 2, "")
	local.Volumes = []fsm.VolumeSpec{{Name: "data", Kind: fsm.VolumeLocal, Path: "/data"}}
	local.Env["ONE"] = "1"
	local.Toleration = fsm.TolerationSpec{}
	copies := roleGroup(fsm.RoleReplicated, 3, playCopies)
	copies.Volumes = []fsm.VolumeSpec{{Name: "data", Kind: fsm.VolumeReplicated, Path: "/data"}}
	alone := roleGroup(fsm.RoleSingleton, 1, "")
	alone.Toleration = fsm.TolerationSpec{}
	front, web := roleGroup(fsm.RoleFront, 2, ""), roleGroup(fsm.RoleService, 4, "")
	front.Budgets, web.Budgets = []fsm.BudgetName{sharedBudget}, []fsm.BudgetName{sharedBudget}
	return []fsm.JobSpec{
		job("web", "", web), job("probe", "", roleGroup(fsm.RoleProbe, 2, "")), job("front", fsm.ClassCritical, front), job("worker", fsm.ClassBatch, roleGroup(fsm.RoleWorker, 3, "")),
		job("shards", "", roleGroup(fsm.RoleShardedData, 3, playShards)), job("quorum", fsm.ClassCritical, roleGroup(fsm.RoleQuorum, 3, playLeader)), job("alone", "", alone),
		job("pair", "", roleGroup(fsm.RoleLeaderFollower, 2, playLeader)), job("disk", "", local), job("copies", "", copies), job("sys", fsm.ClassSystem, roleGroup(fsm.RoleSystem, 1, "")),
	}
}

// All invariants with a job of every role, whose programs lead, follow, come in sync and fall behind, whose role checks and hooks fail at times, while nodes are
// drained with options of all kinds, instances evicted through all servers at once, policies, budgets and settings changed in the middle, servers and nodes lost.
func TestRoles(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		inBubble(t, options{nodes: 6}, func(t *testing.T, w *world) {
			k := newWork(w, random, everyRole()...)
			must(t, k.send("PUT", "/v1/budgets/"+sharedBudget, sharedSpec(random)))
			k.begin()
			k.run(during(2*time.Minute), k.drainWith, k.drainWith, k.change, k.intend, k.race, k.race, k.settings, k.pause, k.budget, k.submit,
				k.mute, k.stubborn, k.elect, k.fallBehind, k.sicken, k.crash, k.look,
				k.killServer, k.killLeader, k.cutServer, k.lossy, k.powerOff, k.confirmDead, k.killAgent, k.cutNode)
			k.settle()
		})
	})
}
