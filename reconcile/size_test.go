package reconcile_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// bigCluster is a cluster with many nodes. Its entries are encoded as for the log, so that their sizes are checked.
type bigCluster struct {
	t     *testing.T
	s     fsm.State
	now   model.Time
	live  map[model.NodeID]fsm.Liveness
	nodes []string
}

func newBigCluster(t *testing.T, nodes int) *bigCluster {
	c := &bigCluster{t: t, s: fsm.NewState(), now: 1000, live: map[model.NodeID]fsm.Liveness{}}
	for i := range nodes {
		id := model.NodeID(fmt.Sprintf("01hzzzzzzzzzzzzzzzzzzz%04d", i))
		c.live[id], c.nodes = fsm.Liveness{Gossip: fsm.GossipAlive}, append(c.nodes, string(id))
		c.write("agent:x",
			[]fsm.Command{&fsm.NodeRegister{ID: id, Name: fmt.Sprintf("n%d", i),
				Agent: model.AgentInfo{BootID: "b", Address: "10.0.0.1", Key: []byte("k")},
				Shape: model.NodeShape{Capacity: model.Resources{CPU: 40000, MemoryBytes: 64 << 30},
					PortMin: 20000, PortMax: 21000}}},
			[]fsm.Command{&fsm.NodeReport{ID: id, Epoch: c.s.Index + 1, Full: true}})
	}
	return c
}

// write commits an entry and returns its encoded size in bytes.
func (c *bigCluster) write(actor model.Actor, groups ...[]fsm.Command) int {
	c.t.Helper()
	data, err := fsm.EncodeEntry(fsm.Entry{Format: 1, At: c.now, Wall: int64(c.now), Actor: actor, Groups: groups})
	if err != nil {
		c.t.Fatalf("L5: an entry of %d groups: %v", len(groups), err)
	}
	e, err := fsm.DecodeEntry(data)
	if err != nil {
		c.t.Fatal(err)
	}
	var results []fsm.Result
	c.s, results = c.s.Apply(c.s.Index+1, 1, e)
	for _, r := range results {
		if r.Refusal != nil {
			c.t.Fatal(r.Refusal)
		}
	}
	return len(data)
}

// step makes a decision, commits its plan, lets every agent carry out its assignments, and advances the time by 2 s.
func (c *bigCluster) step(seen *reconcile.Cache) {
	plan := reconcile.Decide(reconcile.Input{State: c.s, Live: c.live, Now: c.now, Cache: seen})
	if len(plan.Skipped) > 0 {
		c.t.Fatalf("left out of the plan: %s", plan.Skipped[0])
	}
	for _, e := range plan.Entries {
		if size := c.write(model.ActorLeader, e.Groups...); size > 257<<10 && len(e.Groups) > 1 {
			c.t.Errorf("an entry of %d groups has %d bytes", len(e.Groups), size)
		}
	}
	var reports [][]fsm.Command
	for _, id := range c.nodes {
		if r := c.report(model.NodeID(id)); r != nil {
			reports = append(reports, []fsm.Command{r})
		}
	}
	if len(reports) > 0 {
		c.write(model.ActorAgents, reports...)
	}
	c.now += 2000
}

func (c *bigCluster) report(id model.NodeID) *fsm.NodeReport {
	n, _ := c.s.Nodes.Get(id)
	r := &fsm.NodeReport{ID: id, Epoch: n.Agent.Epoch, FactsGen: n.FactsGen}
	for inst := range c.s.InstancesOn(id) {
		status := inst.Status
		status.Generation++
		switch {
		case inst.Desired != model.DesiredRunning && status.Observed != model.ObservedStopped:
			status.Observed, status.Facts = model.ObservedStopped, nil
		case inst.Desired == model.DesiredRunning && status.Observed == model.ObservedPending:
			status.Observed, status.Facts = model.ObservedReady,
				map[string]string{"drained": "true", "leads_shards": "false", "in_sync": "true"}
			r.FactsGen = n.FactsGen + 1
		case inst.Preparation() != 0 && (status.Hook == nil || status.Hook.Seq != inst.Preparation()):
			status.Hook = &model.HookResult{Seq: inst.Preparation(), OK: true}
		default:
			continue
		}
		r.Instances = append(r.Instances, status)
	}
	if len(r.Instances) == 0 {
		return nil
	}
	return r
}

// If a group has gates, the command that stops a member lists every node of the group. So a plan that drains many nodes
// has megabytes, and must be divided into entries that the log accepts.
func TestDrainOfManyMembersEnds(t *testing.T) {
	const nodes, count, drained = 400, 800, 150
	c := newBigCluster(t, nodes)
	c.write("cli:a", []fsm.Command{&fsm.JobSubmit{Spec: model.JobSpec{Name: "db", Groups: []model.GroupSpec{{
		Name: "shard", Count: count, Role: model.RoleShardedData, Exec: model.ExecSpec{Command: "/bin/db"},
		RoleCheck: &model.RoleCheckSpec{Exec: []string{"/bin/facts"}},
		Eviction:  model.EvictionSpec{Order: model.OrderStopFirst},
	}}}}})
	seen := new(reconcile.Cache)
	ready := func() bool { g, _ := c.s.Groups.Get("db/shard"); return g.Ready == count }
	for i := 0; i < 10 && !ready(); i++ {
		c.step(seen)
	}
	c.write("cli:a",
		[]fsm.Command{&fsm.DrainStart{ID: "d1", Nodes: c.nodes[:drained], Options: model.DrainOptions{Deadline: model.Hour}}})
	over := func() bool {
		d, _ := c.s.Drains.Get("d1")
		return !slices.ContainsFunc(d.Nodes, func(n fsm.DrainNode) bool { return n.Phase != model.PhaseDrained })
	}
	for i := 0; i < 60 && !over(); i++ {
		c.step(seen)
	}
	if !over() || !ready() {
		d, _ := c.s.Drains.Get("d1")
		t.Errorf("after two minutes the drain is not over, or instances are missing: %+v", d.Nodes[0])
	}
}

// If the log can never accept an entry, the loop splits the entry until the group of commands at fault is alone. This
// group is skipped, and all other groups are written.
func TestWhatCannotBeWrittenIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.nodes("n1", "n2", "n3")
		r.refuse = func(e fsm.Entry) error {
			for _, group := range e.Groups {
				if place, ok := group[0].(*fsm.InstancePlace); ok && place.Slot == 5 {
					return model.Refuse(model.CodeInvalid, "the entry can't be encoded")
				}
			}
			return nil
		}
		defer r.start(t.Context())()
		r.write(&fsm.JobSubmit{Spec: bigJob("web", 12)})
		time.Sleep(20 * time.Second)
		if g := r.group("web/main"); g.Running != 11 {
			t.Errorf("%d instances were placed, want 11 of 12", g.Running)
		}
		if n := r.count(func(r *rig) int { return r.skipped }); n == 0 {
			t.Error("nobody was told of the one that was left out")
		}
		if n := r.count(func(r *rig) int { return r.submitted }); n > 30 {
			t.Errorf("%d entries were submitted for 12 instances", n)
		}
	})
}
