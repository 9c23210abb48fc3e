package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
)

// gateWorld returns a cluster with one group of count instances, each on a node of its own. No instance has been
// reported yet.
func gateWorld(t *testing.T, role model.Role, count int) *Machine {
	t.Helper()
	m := NewMachine()
	mustApply(t, m, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	mustApply(t, m, &JobSubmit{Spec: model.JobSpec{Name: "db", Groups: []model.GroupSpec{{
		Name: "main", Count: count, Role: role, Exec: model.ExecSpec{Command: "/bin/db"},
		RoleCheck: &model.RoleCheckSpec{Exec: []string{"/bin/facts"}},
	}}}})
	for i := range count {
		node := model.NodeID(fmt.Sprintf("n%d", i))
		mustApply(t, m, register(node))
		mustApply(t, m, &NodeReport{ID: node, Full: true})
		id := model.InstanceID(fmt.Sprintf("i%d", i))
		mustApply(t, m, &InstancePlace{ID: id, Group: "db/main", Slot: i, Version: 1, Node: node, Cause: model.CauseScaleUp})
	}
	return m
}

// tells applies a report that the instance number i is ready and has the given facts, which may be nil.
func tells(t *testing.T, m *Machine, i int, facts map[string]string) {
	t.Helper()
	s := m.State()
	inst, _ := s.Instances.Get(model.InstanceID(fmt.Sprintf("i%d", i)))
	n, _ := s.Nodes.Get(inst.Node)
	mustApply(t,
		m, &NodeReport{ID: n.ID, Epoch: n.Agent.Epoch, FactsGen: n.FactsGen + 1, Instances: []model.InstanceStatus{
			{ID: inst.ID, Generation: inst.Status.Generation + 1, Observed: model.ObservedReady, Facts: facts},
		}})
}

func kv(words ...string) map[string]string {
	facts := map[string]string{}
	for i := 0; i < len(words); i += 2 {
		facts[words[i]] = words[i+1]
	}
	return facts
}

// TestShardedDataReadiness: facts decide when an instance of a sharded data store may be evicted or replaced.
// proves A7
func TestShardedDataReadiness(t *testing.T) {
	const yes, no = "true", "false"
	leads, safe, drained := model.FactLeadsShards, model.FactShardsSafe, model.FactDrained
	// peer returns the facts of another member, which include the given facts about slot 0.
	peer := func(facts map[string]string) map[string]string {
		out := map[string]string{leads: yes, drained: no}
		for name, value := range facts {
			out["slot.0."+name] = value
		}
		return out
	}
	tests := []struct {
		name           string
		own            map[string]string // facts of the instance; nil means that its node is offline
		first, second  map[string]string // facts of the two other members
		evict, replace model.Code        // "" means allowed
	}{
		{"nothing is known", kv(), nil, nil, model.CodeFactsUnknown, model.CodeFactsUnknown},
		{"drained, and leads none", kv(drained, yes, leads, no), nil, nil, "", ""},
		{"leads none, but is not drained", kv(drained, no, leads, no), nil, nil, model.CodeNotDrained, ""},
		{"drained, but still leads, every follower in sync", kv(drained, yes, leads, yes, safe, yes), nil, nil,
			model.CodeNoInSyncFollower, ""},
		{"leads, every shard has a follower in sync", kv(drained, no, leads, yes, safe, yes), nil,
			nil, model.CodeNotDrained, ""},
		{"leads the only copy that is in sync", kv(drained, no, leads, yes, safe, no), nil, nil, model.CodeNotDrained,
			model.CodeNoInSyncFollower},
		{"drained and leads: the answers disagree, so it stays", kv(drained, yes, leads, yes, safe, no), nil, nil,
			model.CodeNoInSyncFollower, model.CodeNoInSyncFollower},
		{"drained, who leads isn't known", kv(drained, yes), nil, nil, model.CodeFactsUnknown, model.CodeFactsUnknown},
		{"leads none, whether it is drained isn't known", kv(leads, no), nil, nil, model.CodeFactsUnknown, ""},
		{"what its peers say doesn't count while it speaks for itself", kv(drained, no, leads, yes, safe, no),
			peer(kv(leads, no)), nil, model.CodeNotDrained, model.CodeNoInSyncFollower},
		{"dead: nobody says anything", nil, peer(nil), peer(nil), "", model.CodeFactsUnknown},
		{"dead: a peer says that it led none", nil, peer(kv(leads, no)), peer(nil), "", ""},
		{"dead: all say that its shards have a follower in sync", nil, peer(kv(leads, yes, safe, yes)),
			peer(kv(leads, yes, safe, yes)), "", ""},
		{"dead: it led the only copy that was in sync (RF 1)", nil, peer(kv(leads, yes, safe, no)),
			peer(kv(leads, yes, safe, no)), "", model.CodeNoInSyncFollower},
		{"dead: the peers disagree", nil, peer(kv(leads, yes, safe, yes)), peer(kv(leads, yes, safe, no)),
			"", model.CodeFactsUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := gateWorld(t, model.RoleShardedData, 3)
			tells(t, m, 0, tt.own)
			tells(t, m, 1, tt.first)
			tells(t, m, 2, tt.second)
			if tt.own == nil {
				s := m.State()
				n, _ := s.Nodes.Get("n0")
				mustApply(t, m, &NodeHealth{ID: n.ID, Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch})
			}
			s := m.State()
			inst, _ := s.Instances.Get("i0")
			policy, _ := s.Policy(inst.Group)
			if got := refusedAs(s.MayEvict(inst, model.CauseNodeDraining, "", EveryGate)); got != tt.evict {
				t.Errorf("eviction: %q, want %q", got, tt.evict)
			}
			if got := refusedAs(s.CheckGates(inst, policy.Replacement.When, EveryGate)); got != tt.replace {
				t.Errorf("replacement: %q, want %q", got, tt.replace)
			}
		})
	}
}

func refusedAs(refusal *model.Error) model.Code {
	if refusal == nil {
		return ""
	}
	return refusal.Code
}

// TestFactsOfADeadInstance: what an instance in the same slot says about the slot is about itself, so it does not count
// for the dead instance. What an instance in another slot says counts.
func TestFactsOfADeadInstance(t *testing.T) {
	m := gateWorld(t, model.RoleShardedData, 3)
	for i := range 3 {
		tells(t, m, i, kv("slot.0."+model.FactLeadsShards, "false"))
	}
	state := m.State()
	s := state.fork()
	edit(&s.Nodes, "n0", func(n *Node) { n.Health = model.HealthOffline })
	second(s, "i9", "i0", func(i *Instance) {
		i.Node, i.Links.Replaces, i.Status.Facts = "n1", "i0", kv("slot.0."+model.FactLeadsShards, "true")
	})
	inst, _ := s.Instances.Get("i0")
	if diff := cmp.Diff(kv(model.FactLeadsShards, "false"), s.FactsOf(inst)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestQuorumGates: whether a gate passes depends on the facts that the members of a quorum report.
// proves A8
func TestQuorumGates(t *testing.T) {
	lead, follow := kv(model.FactLeader, "true"), kv(model.FactLeader, "false")
	named := func(name string, index ...string) map[string]string {
		facts := kv(model.FactLeader, "false", model.FactLeaderName, name)
		if len(index) > 0 {
			facts[model.FactIndex] = index[0]
		}
		return facts
	}
	for _, tt := range []struct {
		name    string
		gate    string
		members [3]map[string]string
		want    model.Code
	}{
		{"a follower of a whole quorum", "group.followers_responding >= 1", [3]map[string]string{follow, lead, follow}, ""},
		{"it is no follower of itself", "group.followers_responding >= 2", [3]map[string]string{follow, lead, follow},
			model.CodeQuorumNotHealthy},
		{"one does not answer", "group.followers_responding >= 1", [3]map[string]string{follow, lead, nil},
			model.CodeFactsUnknown},
		{"no leader", "group.leader_responding", [3]map[string]string{follow, follow, follow}, model.CodeQuorumNotHealthy},
		{"a leader", "group.leader_responding", [3]map[string]string{follow, lead, nil}, ""},
		{"the leader itself", "!self.leader", [3]map[string]string{lead, follow, follow}, model.CodeIsLeader},
		{"one leader", "group.healthy", [3]map[string]string{follow, lead, follow}, ""},
		{"two leaders", "group.healthy", [3]map[string]string{lead, lead, follow}, model.CodeQuorumNotHealthy},
		{"they disagree", "group.healthy",
			[3]map[string]string{named("a"), kv(model.FactLeader, "true", model.FactLeaderName, "b"), named("b")},
			model.CodeQuorumNotHealthy},
		{"they agree", "group.healthy",
			[3]map[string]string{named("b"), kv(model.FactLeader, "true", model.FactLeaderName, "b"), named("b")}, ""},
		{"one lags", "group.healthy",
			[3]map[string]string{named("b", "7"), kv(model.FactLeader, "true", model.FactLeaderName, "b", model.FactIndex, "8"),
				named("b", "8")}, model.CodeQuorumNotHealthy},
		{"one does not tell its index", "group.healthy",
			[3]map[string]string{named("b"), kv(model.FactLeader, "true", model.FactLeaderName, "b", model.FactIndex, "8"),
				named("b", "8")}, model.CodeQuorumNotHealthy},
		{"all ready", "group.ready >= 3", [3]map[string]string{}, ""},
		{"more than there are", "group.ready >= 4", [3]map[string]string{}, "gate:group.ready >= 4"},
		{"the old one runs", "old.confirmed_stopped", [3]map[string]string{}, "gate:old.confirmed_stopped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := gateWorld(t, model.RoleQuorum, 3)
			for i, facts := range tt.members {
				tells(t, m, i, facts)
			}
			s := m.State()
			inst, _ := s.Instances.Get("i0")
			if got := refusedAs(s.CheckGates(inst, []string{tt.gate}, EveryGate)); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.gate, got, tt.want)
			}
		})
	}
}

// TestFactsEndWithTheirAgent: a registration clears the facts of the node's instances and the node's facts generation.
// OwnFacts ignores facts from a degraded node.
func TestFactsEndWithTheirAgent(t *testing.T) {
	m := gateWorld(t, model.RoleQuorum, 3)
	tells(t, m, 0, kv(model.FactLeader, "true"))
	s := m.State()
	n, _ := s.Nodes.Get("n0")
	inst, _ := s.Instances.Get("i0")
	if s.OwnFacts(inst)[model.FactLeader] != "true" || n.FactsGen != 1 {
		t.Fatalf("facts %v of generation %d", s.OwnFacts(inst), n.FactsGen)
	}
	mustApply(t, m, &NodeHealth{ID: n.ID, Health: model.HealthDegraded, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch})
	s = m.State()
	inst, _ = s.Instances.Get("i0")
	if s.OwnFacts(inst) != nil {
		t.Errorf("a suspected node says %v", s.OwnFacts(inst))
	}
	mustApply(t, m, register("n0"))
	s = m.State()
	n, _ = s.Nodes.Get("n0")
	inst, _ = s.Instances.Get("i0")
	if n.FactsGen != 0 || inst.Status.Facts != nil {
		t.Errorf("after a registration: generation %d, facts %v", n.FactsGen, inst.Status.Facts)
	}
}

// TestHookMessageIsCutBetweenCharacters: a hook's message has at most maxHookMessage bytes and is valid UTF-8.
func TestHookMessageIsCutBetweenCharacters(t *testing.T) {
	long := "x" + strings.Repeat("ä", maxHookMessage) // the bound falls within a character
	for _, c := range []struct{ said, kept string }{{long, long[:maxHookMessage-1]},
		{"caf\xc3", "caf"}, {"café", "café"}} {
		known, status := model.InstanceStatus{},
			model.InstanceStatus{Observed: model.ObservedReady, Hook: &model.HookResult{Seq: 1, Message: c.said}}
		keepReported(&known, &status)
		if status.Hook.Message != c.kept {
			t.Errorf("of %d bytes %d were kept: %q", len(c.said), len(status.Hook.Message), status.Hook.Message)
		}
	}
}
