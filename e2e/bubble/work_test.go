package bubble

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/invariant"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
	"github.com/outspan/outspan/transport"
)

// work does at random what operators and programs do, in addition to the faults of chaos. Not safe for concurrent use,
// except for ask, send, sendBy and say.
type work struct {
	*chaos
	cast    []model.JobSpec // the jobs that are submitted, stopped and submitted again
	clients []*transport.Client
	crashes int
	dead    map[*node]bool // machines without power
}

func newWork(w *world, random *rand.Rand, cast ...model.JobSpec) *work {
	k := &work{chaos: &chaos{w: w, random: random}, cast: cast, dead: map[*node]bool{}}
	for i, s := range w.servers {
		c := w.clientOf(s, fmt.Sprintf("operator%d", i))
		w.t.Cleanup(c.Close)
		k.clients = append(k.clients, c)
	}
	return k
}

// begin submits all jobs of the cast and waits until all instances are ready.
func (k *work) begin() {
	k.w.t.Helper()
	for _, job := range k.cast {
		_, err := k.w.send("/v1/jobs", map[string]any{"job": job})
		must(k.w.t, err)
	}
	k.w.eventually(3*time.Minute, "everything is up", func() bool { return k.w.unready() == "" })
}

// unready describes the first group with too few or too many instances, or returns "".
func (w *world) unready() string {
	st := w.state()
	for id, g := range st.Groups.All() {
		want := g.Count
		if g.Role == model.RoleSystem && g.Count > 0 {
			want = len(w.nodes)
		}
		if g.Ready != want || g.Running != want || g.Alive != want {
			return fmt.Sprintf("%s has %d ready, %d running, %d alive of %d", id, g.Ready, g.Running, g.Alive, want)
		}
	}
	return ""
}

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

func (k *work) one() *model.JobSpec { return &k.cast[k.random.IntN(len(k.cast))] }

// group returns a random group of the state, or "" if there is none.
func (k *work) group() model.GroupID {
	st := k.w.state()
	var ids []model.GroupID
	for id := range st.Groups.All() {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return ""
	}
	return ids[k.random.IntN(len(ids))]
}

// submit submits a random job of the cast, unchanged or with a small change.
func (k *work) submit() {
	job := *k.one()
	job.Groups = slices.Clone(job.Groups)
	g := &job.Groups[0]
	g.Env = maps.Clone(g.Env)
	if g.Env == nil {
		g.Env = map[string]string{}
	}
	switch k.random.IntN(4) {
	case 0: // without a change
	case 1:
		g.Count = max(0, g.Count+k.random.IntN(3)-1)
	default:
		k.versions++
		g.Env["RELEASE"] = fmt.Sprint(k.versions)
	}
	k.ask("/v1/jobs", map[string]any{"job": job})
}

// spoil submits a version that never becomes ready and is reverted automatically.
func (k *work) spoil() {
	job := *k.one()
	job.Groups = slices.Clone(job.Groups)
	g := &job.Groups[0]
	if len(g.Checks) == 0 || g.Toleration.NotReady == nil {
		return // the version would become ready, or its instances would stay until an operator bypasses the budget
	}
	g.Env = maps.Clone(g.Env)
	g.Env["BAD"] = "1"
	g.Update.AutoRevert, g.Update.Deadline = true, 10*model.Second
	k.ask("/v1/jobs", map[string]any{"job": job})
}

func (k *work) scale() {
	name, group := k.group().Split()
	if name != "" {
		k.ask("/v1/jobs/"+string(name)+"/scale", map[string]any{"group": group, "count": k.random.IntN(6)})
	}
}

func (k *work) stopJob() {
	purge := k.random.IntN(2) == 0
	k.ask("/v1/jobs/"+string(k.one().Name)+"/stop", map[string]any{"purge": purge})
}

func (k *work) revert() { k.ask("/v1/jobs/"+string(k.one().Name)+"/revert", map[string]any{}) }

func (k *work) roll() { k.ask("/v1/jobs/"+string(k.one().Name)+"/restart", map[string]any{}) }

// drainWith drains one to three nodes with all kinds of options.
func (k *work) drainWith() {
	body := map[string]any{"deadline": model.Duration(2+k.random.IntN(40)) * model.Second, "message": "maintenance"}
	names := map[string]bool{}
	for range 1 + k.random.IntN(3) {
		names[k.node().name] = true
	}
	body["nodes"] = slices.Sorted(maps.Keys(names))
	for _, option := range []func(){
		func() { body["force_at_deadline"] = true },
		func() { body["accept_downtime"] = []string{pick(k.random, "*", string(k.group()))} },
		func() { body["ignore_system"] = true },
		func() { body["max_parallel_nodes"] = 1 },
		func() { body["policy"] = pick(k.random, model.DrainPolicies()...) },
	} {
		if k.random.IntN(4) == 0 {
			option()
		}
	}
	if k.random.IntN(10) == 0 {
		body["force"] = true
	}
	k.ask("/v1/drains", body)
}

// change pauses, resumes or cancels a running drain.
func (k *work) change() {
	st := k.w.state()
	for id, d := range st.Drains.All() {
		if d.Phase() == model.PhaseDraining {
			verb := pick(k.random, "pause", "resume", "resume", "cancel")
			k.ask("/v1/drains/"+string(id)+"/"+verb, map[string]any{})
			return
		}
	}
}

// intend changes the intent of a random node, or acknowledges its blockers.
func (k *work) intend() {
	verb := pick(k.random, "cordon", "uncordon", "uncordon", "uncordon", "disable", "enable", "enable", "ack-blockers")
	k.ask("/v1/nodes/"+k.node().name+"/"+verb, map[string]any{})
}

// race makes several operators evict instances of one group at the same moment, each through a different server.
func (k *work) race() {
	members := k.w.members(k.group())
	ids := slices.Sorted(maps.Keys(members))
	if len(ids) == 0 {
		return
	}
	var wg sync.WaitGroup
	for _, c := range k.clients {
		id := ids[k.random.IntN(len(ids))]
		body := map[string]any{"avoid": k.random.IntN(4) == 0}
		wg.Go(func() { _ = k.sendBy(c, "POST", "/v1/instances/"+string(id)+"/evict", body) })
	}
	wg.Wait()
}

// settings changes a setting that decisions depend on.
func (k *work) settings() {
	change := pick(k.random,
		map[string]any{"node_drain_policy": pick(k.random, model.DrainPolicies()...)},
		map[string]any{"node_drain_policy": pick(k.random, model.DrainPolicies()...)},
		map[string]any{"evict_on": pick(k.random, "drain", "cordon")},
		map[string]any{"rescheduler": pick(k.random, "off", "careful", "balanced", "eager")},
		map[string]any{"placement_algorithm": pick(k.random, "spread", "binpack")},
		map[string]any{"rate_drain": pick(k.random, "none", "1/2s", "3/5s")},
		map[string]any{"rate_operator": pick(k.random, "none", "1/1s", "2/5s")},
		map[string]any{"place_on_degraded": k.random.IntN(2) == 0},
	)
	_ = k.send("PUT", "/v1/settings", change)
}

func (k *work) pause() {
	k.ask("/v1/settings/"+pick(k.random, "pause", "resume", "resume"), map[string]any{"what": "actuation"})
}

func (k *work) budget() {
	_ = k.send("PUT", "/v1/budgets/"+sharedBudget, sharedSpec(k.random))
}

const sharedBudget = "edge"

func sharedSpec(random *rand.Rand) model.BudgetSpec {
	spec := model.BudgetSpec{MaxDown: amount(1 + random.IntN(3))}
	if random.IntN(2) == 0 {
		spec.Rate = &model.RateSpec{Max: 1 + random.IntN(3), Window: model.Duration(1+random.IntN(4)) * model.Second}
	}
	return spec
}

// quota sets or removes the quota of a random class.
func (k *work) quota() {
	_ = k.send("PUT", "/v1/classes/"+pick(k.random, "batch", "production"),
		map[string]any{"quota_instances": pick(k.random, 0, 0, 6, 12)})
}

// mute makes the role checks of a random group fail for some seconds. The next methods cause other troubles: hooks
// fail, another program leads, copies fall behind, checks fail, or programs exit.
func (k *work) mute() {
	if p := k.w.truth.any(k.random, plays(playLeader, playCopies, playShards)); p != nil {
		until := time.Now().Add(time.Duration(1+k.random.IntN(8)) * time.Second)
		k.say("no role check of %s answers until %s", p.group, until.Format("04:05"))
		k.w.truth.trouble(p, func(s *stage, _ *part) { s.mute[p.group] = until })
	}
}

func plays(what ...string) func(*program) bool {
	return func(p *program) bool { return slices.Contains(what, p.env["PLAY"]) }
}

func (k *work) stubborn() {
	if p := k.w.truth.any(k.random, plays(playLeader, playShards)); p != nil {
		k.say("hooks of %s fail", p.group)
		until := time.Now().Add(time.Duration(1+k.random.IntN(8)) * time.Second)
		k.w.truth.trouble(p, func(s *stage, _ *part) { s.stubborn[p.group] = until })
	}
}

func (k *work) elect() {
	if p := k.w.truth.any(k.random, plays(playLeader)); p != nil {
		k.say("%s leads %s", p.instance, p.group)
		k.w.truth.trouble(p, func(s *stage, _ *part) { s.leaders[p.group] = p.instance })
	}
}

func (k *work) fallBehind() {
	if p := k.w.truth.any(k.random, plays(playCopies)); p != nil {
		k.say("the copy of %s falls behind", p.instance)
		k.w.truth.trouble(p, func(_ *stage, one *part) { one.synced, one.lost = time.Time{}, time.Now() })
	}
}

func (k *work) sicken() {
	if p := k.w.truth.any(k.random, func(*program) bool { return true }); p != nil {
		k.say("%s is sick", p.instance)
		until := time.Now().Add(time.Duration(1+k.random.IntN(8)) * time.Second)
		k.w.truth.trouble(p, func(_ *stage, one *part) { one.sick = until })
	}
}

const crashesAtMost = 6 // with more failures the restart delay would grow beyond what these tests wait for

func (k *work) crash() {
	p := k.w.truth.any(k.random, func(*program) bool { return true })
	if p == nil || k.crashes >= crashesAtMost {
		return
	}
	k.crashes++
	k.say("%s of %s ends by itself", p.instance, p.group)
	p.crash()
}

// powerOff cuts the power of a random machine for a while. During that time, confirmDead may confirm that the machine
// is dead.
func (k *work) powerOff() {
	k.breakNode("power off", func(n *node) {
		n.powerOff()
		k.dead[n] = true
	}, func(n *node) {
		delete(k.dead, n)
		n.restart()
	})
}

func (k *work) confirmDead() {
	for _, n := range k.w.nodes {
		if k.dead[n] {
			k.ask("/v1/nodes/"+n.name+"/confirm-dead", map[string]any{"force": true})
		}
	}
}

// look checks S14 during the test. See unexplained.
func (k *work) look() {
	if err := k.w.unexplained(); err != nil {
		k.w.t.Errorf("%v\n%s", err, k.w.picture())
	}
}

const actsWithin = model.Second

// unexplained checks S14 with the leader's state. Every instance that should exist is placed, or its group has a
// reason. Every instance that should leave is stopping, or has a reason. Nothing is checked if there is no leader, or
// if the state is younger than actsWithin, because then the leader may be about to act.
func (w *world) unexplained() error {
	leader := w.leads()
	if leader == nil {
		return nil
	}
	st, now := leader.state(), leader.cluster.Now()
	if now.Sub(st.Now) < actsWithin {
		return nil
	}
	return missingReasons(st, reconcile.Explain(reconcile.Input{State: st, Live: leader.cluster.Live(), Now: now}))
}

// The interface because gives the reasons why instances are missing, or why evicted instances still run.
type because interface {
	Pending(model.GroupID) *model.Error
	Waiting(model.InstanceID) []model.Blocker
}

func missingReasons(st fsm.State, why because) error {
	var f fsm.Findings
	for id, g := range st.Groups.All() {
		if g.Role == model.RoleSystem {
			continue
		}
		filled := map[int]bool{} // after a scale-down, slots above the count may be filled instead of lower ones
		for i := range st.InstancesOf(id) {
			// Lost, failed and stopping instances fill their slots too, because their states show the reason.
			if i.Desired == model.DesiredRunning || i.Status.Observed != model.ObservedStopped {
				filled[i.Slot] = true
			}
		}
		if len(filled) < g.Count && why.Pending(id) == nil {
			f.Add(fsm.S14, "%d slots of the %d of %s have an instance, and nothing says why", len(filled), g.Count, id)
		}
	}
	for id, i := range st.Instances.All() {
		if i.Desired == model.DesiredRunning && i.Eviction.Requested && invariant.Runs(i) && !i.Eviction.Preparing &&
			len(why.Waiting(id)) == 0 {
			f.Add(fsm.S14, "instance %s of %s should be evicted for %s since %d, and nothing says what it waits for", id,
				i.Group, i.Eviction.Cause, i.Eviction.Since)
		}
	}
	return f.Err()
}
