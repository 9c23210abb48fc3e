package bubble

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// All invariants hold while jobs are submitted, scaled, rolled out, reverted, stopped, purged and submitted again under
// the same names, and while servers and nodes are lost. Some versions never become ready and are reverted
// automatically. Slots with a volume or an identity always have one holder, with growing epochs.
func TestJobChurn(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		inBubble(t, options{nodes: 5}, func(t *testing.T, w *world) {
			web := roleGroup(model.RoleService, 5, "")
			web.Budget = &model.BudgetSpec{MinReady: amount(3)}
			web.Update = model.UpdateSpec{MaxSurge: 2, AutoRevert: true, Deadline: 10 * model.Second, MinHealthy: model.Second}
			first := roleGroup(model.RoleService, 3, "")
			first.Eviction.Order = model.OrderStopFirst
			canary := roleGroup(model.RoleFront, 3, "")
			canary.Update = model.UpdateSpec{MaxSurge: 1, Canary: 1, Deadline: 20 * model.Second}
			alone := roleGroup(model.RoleService, 2, "")
			alone.Exclusive = &model.ExclusiveSpec{Lease: 10 * model.Second}
			local := roleGroup(model.RoleLocal, 2, "")
			local.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
			local.Env["ONE"] = "1"
			local.Toleration = model.TolerationSpec{}
			k := newWork(w, random, job("web", "", web), job("first", "", first), job("canary", "", canary),
				job("alone", "", alone), job("disk", "", local))
			k.begin()
			k.run(during(100*time.Second), k.submit, k.submit, k.submit, k.spoil, k.spoil, k.scale, k.scale, k.stopJob, k.revert,
				k.roll, k.promote, k.race, k.drainWith, k.change, k.intend,
				k.sicken, k.crash, k.look, k.killServer, k.killLeader, k.cutServer, k.lossy, k.powerOff,
				k.confirmDead, k.killAgent, k.cutNode)
			k.settle()
		})
	})
}

// promote promotes the canaries of a running deployment or makes the deployment fail. Sometimes it does nothing.
func (k *work) promote() {
	st := k.w.state()
	for id, d := range st.Deployments.All() {
		if !d.Status.Ended() && k.random.IntN(2) == 0 {
			k.ask("/v1/deployments/"+string(id)+"/"+pick(k.random, "promote", "promote", "fail"), map[string]any{})
			return
		}
	}
}

// All invariants hold while the cluster has too little memory. Jobs of all classes are submitted and purged, and
// preempt instances of lower classes, or of their own class if preempt_equal allows it. Meanwhile quotas are set, the
// rescheduler moves instances, and nodes are drained and lost.
func TestPriorities(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		o := options{nodes: 5, settings: func(s *model.Settings) {
			s.Rescheduler, s.MoveMinAge, s.MoveCooldown, s.MoveCycle, s.MoveGain = "eager", 3*model.Second,
				2*model.Second, 3*model.Second, 5
		}}
		inBubble(t, o, func(t *testing.T, w *world) {
			batch := roleGroup(model.RoleService, 8, "")
			batch.Resources.MemoryBytes = 500 * mib
			equal := roleGroup(model.RoleService, 4, "")
			equal.Resources.MemoryBytes = 700 * mib
			web := roleGroup(model.RoleService, 5, "")
			web.Resources.MemoryBytes = 400 * mib
			web.Budget = &model.BudgetSpec{MaxDown: amount(2)}
			web.Spreads = []model.Spread{{Attribute: "node.name"}}
			quorum := roleGroup(model.RoleQuorum, 3, playLeader)
			likes := roleGroup(model.RoleService, 3, "")
			likes.Affinities = []model.Affinity{
				{Constraint: model.Constraint{Attribute: "node.name", Operator: "=", Value: "n1"}, Weight: 80}}
			k := newWork(w, random, job("batch", model.ClassBatch, batch), job("equal", model.ClassBatch, equal),
				job("web", "", web), job("quorum", model.ClassCritical, quorum), job("likes", "", likes))
			must(t, k.send("PUT", "/v1/classes/batch", map[string]any{"preempt_equal": "fair"}))
			k.begin()
			k.run(during(100*time.Second), k.hog, k.hog, k.hog, k.hog, k.rebalance, k.rebalance, k.quota, k.quota, k.scale,
				k.submit, k.race, k.drainWith, k.change, k.intend, k.settings, k.look, k.look,
				k.killServer, k.killLeader, k.cutServer, k.lossy, k.powerOff, k.confirmDead, k.killAgent, k.cutNode)
			k.settle()
			t.Logf("%d moves and preemptions", len(commands[*fsm.InstanceMove](w.history))+k.preempted())
		})
	})
}

// hog submits a job that needs much memory, or purges such a job.
func (k *work) hog() {
	name := fmt.Sprintf("hog%d", k.random.IntN(3))
	if k.random.IntN(2) == 0 {
		k.ask("/v1/jobs/"+name+"/stop", map[string]any{"purge": true})
		return
	}
	g := roleGroup(model.RoleService, 1+k.random.IntN(4), "")
	g.Resources.MemoryBytes = pick[int64](k.random, 300, 900, 2000) * mib
	k.ask("/v1/jobs",
		map[string]any{"job": job(name, pick(k.random, model.ClassCritical, model.ClassProduction, model.ClassBatch), g)})
}

func (k *work) rebalance() { k.ask("/v1/rebalance", map[string]any{}) }

func (k *work) preempted() int {
	n := 0
	for _, c := range commands[*fsm.InstanceStop](k.w.history) {
		if c.Cause == model.CausePreempted {
			n++
		}
	}
	return n
}
