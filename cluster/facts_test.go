package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Heartbeats carry the generation of an agent's facts to every server. A new generation wakes the leader only if the
// state does not have these facts yet.
func TestFactsReachTheLeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, _ := threeWithAgents(t, 2)
		leader := r.leader(time.Second)
		if got := leader.Live()["n1"].FactsGen; got != 0 {
			t.Errorf("generation %d of an agent that says nothing", got)
		}
		time.Sleep(5 * time.Second) // let other changes wake the leader before LiveChanged is called
		changed := leader.LiveChanged()
		r.report("n1", 3)
		r.beaters["n1"].SetFacts(r.epoch("n1"), 3)
		eventually(t, 2*testBeat, "the generation at the leader", func() bool { return leader.Live()["n1"].FactsGen == 3 })
		time.Sleep(2 * testBeat)
		if woken(changed) {
			t.Error("woken for facts that are in the state")
		}
		r.beaters["n1"].SetFacts(r.epoch("n1"), 4)
		eventually(t, 3*testBeat, "the leader to be woken for facts that are not in the state", func() bool {
			return woken(changed)
		})
		if l := leader.Live(); l["n1"].FactsGen != 4 || l["n2"].FactsGen != 0 {
			t.Errorf("live: %+v", l)
		}
		changed = leader.LiveChanged()
		r.report("n1", 4)
		time.Sleep(3 * testBeat)
		if woken(changed) {
			t.Error("woken again when the report was there")
		}
		// The next leader has heard the same heartbeats.
		leader.crash()
		eventually(t, 20*time.Second, "the generation at the next leader", func() bool {
			return r.leader(20 * time.Second).Live()["n1"].FactsGen == 4
		})
	})
}

// A new registration of an agent begins a new sequence of generations of facts. Until the first heartbeat of the new
// epoch, servers know generation 0.
func TestFactsOfAnEarlierEpochAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, _ := threeWithAgents(t, 1)
		first := r.epoch("n1")
		r.beaters["n1"].SetFacts(first, 9)
		leader := r.leader(time.Second)
		eventually(t, 2*testBeat, "the generation", func() bool { return leader.Live()["n1"].FactsGen == 9 })
		r.mustRegister("n1")
		if got := leader.Live()["n1"].FactsGen; got != 0 {
			t.Errorf("generation %d of an epoch without a heartbeat", got)
		}
		r.beaters["n1"].Register(testNodeKey, r.epoch("n1"), testBeat)
		r.beaters["n1"].SetFacts(first, 10) // a late call for the earlier epoch has no effect
		r.beaters["n1"].SetFacts(r.epoch("n1"), 1)
		eventually(t, 3*testBeat, "the generation of the new epoch", func() bool { return leader.Live()["n1"].FactsGen == 1 })
	})
}

func woken(changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

// report proposes a node's report that contains only the generation of its facts.
func (r *rig) report(id model.NodeID, facts uint64) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	leader := r.leader(5 * time.Second)
	n, _ := leader.machine.State().Nodes.Get(id)
	results, err := leader.Propose(ctx, fsm.Entry{Actor: model.Actor("agent:" + id), Groups: [][]fsm.Command{{
		&fsm.NodeReport{ID: id, Epoch: n.Agent.Epoch, Full: true, FactsGen: facts},
	}}})
	if err != nil || results[0].Refusal != nil {
		r.t.Fatalf("report: %v %v", err, results)
	}
}
