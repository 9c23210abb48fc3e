package fsm

import (
	"cmp"
	"testing"

	"github.com/outspan/outspan/model"
)

func TestCheckStepFindsWhatIsBroken(t *testing.T) {
	newcomer := func(s *State) {
		first, _ := s.Instances.Get("i1")
		next := *first
		next.ID, next.Marks.CreatedIndex = "i9", s.Index
		s.Instances.put("i9", &next)
	}
	tests := []struct {
		name  string
		says  string
		spoil func(*State)
	}{
		{"index", "index", func(s *State) { s.Index-- }},
		{"term", "term", func(s *State) { s.LogTerm = 0 }},
		{"time", "time", func(s *State) { s.Now -= 100 }},
		{"cluster", "became {ID:c2", func(s *State) { s.Cluster.ID = "c2" }},
		{"incarnation", "incarnation", func(s *State) { s.Format = 0 }},
		{"epoch", "epoch 2 became 0", func(s *State) { edit(&s.Nodes, "n1", func(n *Node) { n.Agent.Epoch = 0 }) }},
		{"registered at the old epoch", "epoch 2 became 2 in 1 registrations", func(s *State) {
			edit(&s.Nodes, "n1", func(n *Node) { n.Registrations++ })
		}},
		{"node version", "version", func(s *State) { edit(&s.Nodes, "n1", func(n *Node) { n.Version-- }) }},
		{"silent change", "its version did not", func(s *State) {
			edit(&s.Nodes, "n1", func(n *Node) { n.Health = model.HealthDegraded })
		}},
		{"boot id", "boot id", func(s *State) { edit(&s.Nodes, "n1", func(n *Node) { n.Agent.BootID = "other" }) }},
		{"overfull", "are placed on", func(s *State) {
			edit(&s.Nodes, "n1", func(n *Node) { n.Placed.MemoryBytes = 1 << 50 })
		}},
		{"terminal lives", "had ended", func(s *State) {
			edit(&s.Instances, "i2", func(i *Instance) { i.Status.Observed = model.ObservedReady })
		}},
		{"desired again", "desired went back", func(s *State) {
			edit(&s.Instances, "i2", func(i *Instance) { i.Desired = model.DesiredRunning })
		}},
		{"pending again", "observed went from ready to pending", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Status.Observed = model.ObservedPending })
		}},
		{"generation", "generation", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Status.Generation = 0 })
		}},
		{"stopped for another cause", "its stop began for", func(s *State) {
			edit(&s.Instances, "i2", func(i *Instance) { i.Marks.StopCause = model.CauseRollout })
		}},
		{"stopped at another time", "its stop began for", func(s *State) {
			edit(&s.Instances, "i2", func(i *Instance) { i.Marks.StopBegan++ })
		}},
		{"changed before", "and again at", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Marks.ChangedIndex-- })
		}},
		{"awaits more", "awaited [] and now [i2]", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Links.Awaits = []model.InstanceID{"i2"} })
		}},
		{"another slot", "changed what it is", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Slot = 7 })
		}},
		{"another version", "changed what it is", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Version = 7 })
		}},
		{"another cause", "changed what it is", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Cause = model.CauseRollout })
		}},
		{"replaces another", "changed what it is", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Links.Replaces = "i2" })
		}},
		{"moved", "changed what it is", func(s *State) { edit(&s.Instances, "i1", func(i *Instance) { i.Node = "n2" }) }},
		{"claims", "its claims", func(s *State) { edit(&s.Instances, "i1", func(i *Instance) { i.Claims.Resources.CPU++ }) }},
		{"began anew", "before it had ended", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Marks.CreatedIndex = s.Index })
		}},
		{"began anew after it was told to stop", "before it had ended", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Marks.CreatedIndex = s.Index })
			key := NewEventKey(s.Index, 0)
			s.Events.put(key, &Event{Key: key, Type: model.EventDesired, Subject: "instance/i1", After: "stopped"})
		}},
		{"not called", "was last called", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Links.RestartSeq++ })
		}},
		{"new and not called", "was last called", newcomer},
		{"gone and not called", "was last called", func(s *State) { s.Instances.del("i1") }},
		{"another state in the list", "what its group is told", func(s *State) {
			edit(&s.Instances, "i1", func(i *Instance) { i.Status.Observed = model.ObservedUnready })
		}},
		{"new in the list", "what its group is told", newcomer},
		{"gone from the list", "what its group is told", func(s *State) { s.Instances.del("i1") }},
		{"not called for a grace", "was last called", func(s *State) {
			grace := model.Second
			edit(&s.Instances, "i1", func(i *Instance) { i.Marks.GraceOverride = &grace })
		}},
		{"new and overfull", "is new and holds", func(s *State) {
			s.Nodes.put("n9", &Node{ID: "n9", Agent: model.AgentInfo{Epoch: 1}, Registrations: 1, Placed: Usage{MemoryBytes: 1}})
		}},
		{"back from the dead", "came back", func(s *State) {
			s.Instances.put("old", &Instance{ID: "old", Marks: Marks{CreatedIndex: 2}})
		}},
		{"deadline", "its deadline went", func(s *State) {
			edit(&s.Drains, "d1", func(d *Drain) {
				d.Nodes = []DrainNode{{Node: "n1", Phase: model.PhaseDraining, Turn: true, Deadline: 1}}
			})
		}},
		{"deployment", "succeeded became rolling", func(s *State) {
			edit(&s.Deployments, "web-1", func(d *Deployment) { d.Status = model.DeploymentRolling })
		}},
		{"job version", "version 1 to 0", func(s *State) { edit(&s.Jobs, "web", func(j *Job) { j.Version = 0 }) }},
		{"placements", "placements became", func(s *State) { edit(&s.Groups, "web/api", func(g *Group) { g.Placed = 0 }) }},
		{"event", "rewritten", func(s *State) {
			key, e, _ := s.Events.Min()
			e.Wall++
			s.Events.put(key, e)
		}},
		{"old event", "came back", func(s *State) { s.Events.put(1, &Event{Key: 1}) }},
		{"version of a key", "version 1 became 1", func(s *State) {
			edit(&s.TrustKeys, "ca/1", func(k *TrustKey) { k.Sealed = []byte("other") })
		}},
		{"a retired key is active", "active became incoming", func(s *State) {
			edit(&s.TrustKeys, "ca/1", func(k *TrustKey) { k.Version, k.Phase = 2, model.KeyIncoming })
		}},
		{"a use came back", "were spent, and now 0", func(s *State) {
			edit(&s.JoinTokens, "first0000000", func(t *JoinToken) { t.Used, t.Ended = 0, 0 })
		}},
		{"a revoked token is valid", "was revoked at index", func(s *State) {
			edit(&s.JoinTokens, serverToken, func(t *JoinToken) { t.RevokedIndex, t.Ended = 0, 0 })
		}},
		{"another token", "changed what it is", func(s *State) {
			edit(&s.JoinTokens, agentToken, func(t *JoinToken) { t.Uses++ })
		}},
		{"a token was dropped", "before it was overdue", func(s *State) { s.delJoinToken(agentToken) }},
		{"a token came back", "came back", func(s *State) { s.putJoinToken(&JoinToken{ID: "old000000000"}) }},
		{"a member was dropped", "was dropped", func(s *State) { s.delMember(agentNamed("n2")) }},
		{"a server was dropped", "was dropped", func(s *State) { s.delMember(serverNamed("s1")) }},
		{"a void certificate counts again", "certificates before", func(s *State) {
			edit(&s.TrustMembers, "agent:n1", func(m *TrustMember) { m.VoidBefore-- })
		}},
		{"a revoked member is valid", "no token admitted it", func(s *State) {
			edit(&s.TrustMembers, "agent:n1", func(m *TrustMember) { m.RevokedIndex = 0 })
		}},
		{"a revoked member has another key", "no token admitted it", func(s *State) {
			edit(&s.TrustMembers, "agent:n1", func(m *TrustMember) { m.Key = hashOf(7) })
		}},
		{"request answered again", "the outcome of request r", func(s *State) {
			s.Now = s.Now.Add(requestMinimum)
			edit(&s.Requests, "r", func(r *Request) { r.Refusal = model.Refuse(model.CodeBusy, "no") })
		}},
		{"request carried out again too early", "the outcome of request r", func(s *State) {
			edit(&s.Requests, "r", func(r *Request) { r.Index = s.Index })
		}},
		{"generation of a service", "generation", func(s *State) {
			edit(&s.Services, "api", func(v *Service) { v.Generation = 0 })
		}},
	}
	// the invariants that cases break; a case that is not listed breaks S8
	rules := map[string]Invariant{"overfull": S1, "new and overfull": S1, "back from the dead": S9, "old event": S9,
		"a token came back": S9}
	for _, name := range []string{"version of a key", "a retired key is active", "a use came back",
		"a revoked token is valid", "another token", "a token was dropped", "a member was dropped", "a server was dropped",
		"a void certificate counts again", "a revoked member is valid", "a revoked member has another key"} {
		rules[name] = S19
	}
	start := busyState(t).WithTrustOf(run(t, trustState(t), 1000, admit(agentNamed("n2"), 2), &TokenRevoke{serverToken},
		&MemberRevoke{agentNamed("n1"), ""}))
	start.putMember(&TrustMember{Subject: serverNamed("s1"), Key: hashOf(1), NotAfter: 1})
	start.Index += 20 // above the indexes of the rows that came from another state
	start.Now = max(start.Now, 1000)
	before, results := start.Apply(start.Index+1, 1,
		Entry{Format: 1, At: start.Now, Request: "r", Body: "b",
			Groups: [][]Command{{&DeploymentStep{ID: "web-1", Status: model.DeploymentSucceeded}}}})
	if results[0].Refusal != nil {
		t.Fatal(results[0].Refusal)
	}
	next, _ := before.Apply(before.Index+1, 1, Entry{Format: 1, At: before.Now + 50})
	if err := CheckStep(before, next); err != nil {
		t.Fatalf("a good step: %v", err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := next.fork()
			tt.spoil(s)
			wantFinding(t, CheckStep(before, *s), cmp.Or(rules[tt.name], S8), tt.says)
		})
	}
}

// TestCheckStepSeesWhatAnEntryHides: CheckStep sees only the states before and after an entry. It must accept allowed
// changes that look forbidden because several groups of one entry made them. For example, an instance's row is removed
// and its id is used again, or a node gets an instance and then becomes too small for it.
func TestCheckStepSeesWhatAnEntryHides(t *testing.T) {
	steps := func(t *testing.T, s State, groups ...[]Command) State {
		t.Helper()
		after, results := s.Apply(s.Index+1, 1, Entry{Format: model.CurrentFormat, At: s.Now, Groups: atEpochs(s, groups...)})
		for i, r := range results {
			if r.Refusal != nil {
				t.Fatalf("group %d: %v", i, r.Refusal)
			}
		}
		if err := CheckStep(s, after); err != nil {
			t.Error(err)
		}
		return after
	}
	small := register("n1")
	small.Shape.Capacity.MemoryBytes = 1
	t.Run("purged", func(t *testing.T) {
		s := busyState(t)
		steps(t, s,
			[]Command{&InstanceStop{ID: "i1", Cause: model.CauseUser, Bypass: true},
				&InstanceStop{ID: "i3", Cause: model.CauseUser, Bypass: true}, &JobStop{Job: "web", Purge: true}},
			[]Command{observedAt("n1", "i1", model.ObservedStopped, 2), observedAt("n1", "i3", model.ObservedStopped, 2)},
			[]Command{&JobSubmit{Spec: webSpec()}, placed("i1", "web/api", 0, "n2", 20000)})
	})
	t.Run("collected", func(t *testing.T) {
		s := busyState(t)
		stop := func(id model.InstanceID) []Command {
			return []Command{&InstanceStop{ID: id, Cause: model.CauseUser, Bypass: true}}
		}
		s = steps(t, s, []Command{placed("j1", "web/api", 1, "n2", 20001)},
			[]Command{observed("n2", "j1", model.ObservedReady)}, stop("j1"))
		s = steps(t, s, []Command{placed("j2", "web/api", 1, "n2", 20002)}, stop("j2"),
			[]Command{observed("n2", "j2", model.ObservedStopped)})
		s = steps(t, s, []Command{placed("j3", "web/api", 1, "n2", 20003)}, stop("j3"),
			[]Command{observed("n2", "j3", model.ObservedStopped)})
		s = steps(t, s, []Command{observedAt("n2", "j1", model.ObservedStopped, 2)},
			[]Command{placed("j1", "web/api", 1, "n2", 20004)})
		if i, _ := s.Instances.Get("j1"); i == nil || i.Terminal() {
			t.Errorf("j1 was not used again: %+v", i)
		}
	})
	t.Run("smaller", func(t *testing.T) {
		fresh := NewState()
		steps(t, fresh, []Command{&ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()}},
			[]Command{register("n1"), &NodeReport{ID: "n1", Full: true}},
			[]Command{&JobSubmit{Spec: webSpec()}, placed("i1", "web/api", 0, "n1", 20000)}, []Command{small})
	})
	t.Run("smaller in between", func(t *testing.T) {
		first := NewState()
		s := steps(t, first, []Command{&ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()}},
			[]Command{small})
		steps(t, s, []Command{register("n1"), &NodeReport{ID: "n1", Full: true}, &JobSubmit{Spec: webSpec()},
			placed("i1", "web/api", 0, "n1", 20000)}, []Command{small})
	})
}
