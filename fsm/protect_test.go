package fsm

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

// membersWorld returns a state, and a function that applies a group of commands to the state. A job with a replicated
// volume has the members i1 on n1, i2 on n2 and i3 on n3, all in sync. The node n4 is empty.
func membersWorld(t rapid.TB) (*State, func(...Command) []Result) {
	t.Helper()
	s := NewState()
	now := model.Time(1000)
	do := func(group ...Command) []Result {
		t.Helper()
		now += 100
		after, results := s.Apply(s.Index+1, 1,
			Entry{Format: model.CurrentFormat, At: now, Wall: int64(now), Actor: "cli:ann", Groups: atEpochs(s, group)})
		s = after
		if err := Check(s); err != nil {
			t.Fatal(err)
		}
		return results
	}
	must := func(group ...Command) {
		t.Helper()
		if r := do(group...); r[0].Refusal != nil {
			t.Fatal(r[0].Refusal)
		}
	}
	must(&ClusterInit{ID: "C1", Name: "test", Settings: model.DefaultSettings()})
	for i := 1; i <= 4; i++ {
		id := model.NodeID(fmt.Sprintf("n%d", i))
		must(&NodeRegister{ID: id, Name: string(id),
			Agent: model.AgentInfo{BootID: "b", Address: "127.0.0.1", Key: []byte("k")},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}}})
		must(&NodeReport{ID: id, Full: true})
	}
	must(&JobSubmit{Spec: model.JobSpec{Name: "db", Groups: []model.GroupSpec{{
		Name: "main", Count: 3, Exec: model.ExecSpec{Command: "/bin/db"},
		RoleCheck: &model.RoleCheckSpec{Exec: []string{"/bin/facts"}},
		Volumes:   []model.VolumeSpec{{Name: "data", Kind: model.VolumeReplicated, Path: "/data"}},
	}}}})
	for i := range 3 {
		id, node := model.InstanceID(fmt.Sprintf("i%d", i+1)), model.NodeID(fmt.Sprintf("n%d", i+1))
		must(&InstancePlace{ID: id, Group: "db/main", Slot: i, Version: 1, Node: node, Cause: model.CauseScaleUp})
		must(says(node, id, 1, model.ObservedReady, "true"))
	}
	return &s, do
}

// says returns a report that contains only the status of one member. If inSync is empty, the status has no facts.
func says(node model.NodeID, id model.InstanceID, generation uint64, observed model.Observed,
	inSync string) *NodeReport {
	status := model.InstanceStatus{ID: id, Generation: generation, Observed: observed}
	if inSync != "" {
		status.Facts = map[string]string{model.FactInSync: inSync}
	}
	return &NodeReport{ID: node, Instances: []model.InstanceStatus{status}}
}

func (s *State) mustInstance(id model.InstanceID) *Instance {
	inst, _ := s.Instances.Get(id)
	return inst
}

// TestProtected: i2 is out of sync, and each case breaks one condition for i3 to be protected. Then neither i2 nor i3
// is protected, so their peer i1 has the last copy, and a stop of i1 is refused.
// proves L16
func TestProtected(t *testing.T) {
	for _, tt := range []struct {
		name   string
		break3 []Command // end the protection of i3, whose node is n3
	}{
		{"not in sync", []Command{says("n3", "i3", 2, model.ObservedReady, "false")}},
		{"nothing known", []Command{says("n3", "i3", 2, model.ObservedReady, "")}},
		{"not ready", []Command{says("n3", "i3", 2, model.ObservedUnready, "true")}},
		{"failed",
			[]Command{
				&NodeReport{ID: "n3",
					Instances: []model.InstanceStatus{
						{ID: "i3", Generation: 2, Observed: model.ObservedFailed, Reason: "oom_killed"}}}}},
		{"node cordoned", []Command{&NodeIntent{ID: "n3", Intent: model.IntentCordoned}}},
		{"node draining",
			[]Command{&DrainStart{ID: "d1", Nodes: []string{"n3"}, Options: model.DrainOptions{Deadline: model.Hour}}}},
		{"node disabled", []Command{&NodeIntent{ID: "n3", Intent: model.IntentDisabled}}},
		{"node suspected", []Command{&NodeHealth{ID: "n3", Health: model.HealthDegraded, BootID: "b"}}},
		{"node offline", []Command{&NodeHealth{ID: "n3", Health: model.HealthOffline, BootID: "b"}}},
		{"to be evicted", []Command{&InstanceMark{ID: "i3", Requested: true, Cause: model.CauseUser, By: "ann"}}},
		{"stopping", []Command{&InstanceStop{ID: "i3", Cause: model.CauseUser, Bypass: true}}},
		{"its agent registers again",
			[]Command{
				&NodeRegister{ID: "n3", Name: "n3", Agent: model.AgentInfo{BootID: "b", Address: "127.0.0.1", Key: []byte("k")},
					Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}}}}},
		{"a restore, since which it has not told what it runs", []Command{&RestoreMark{}, &RestoreMark{Confirm: true}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, do := membersWorld(t)
			do(says("n2", "i2", 2, model.ObservedReady, "false"))
			m, ok := s.MemberOf(s.mustInstance("i1"))
			if !ok || s.Last(m) || !s.Protected(s.mustInstance("i3")) {
				t.Fatalf("before: member %t, last %t, i3 protected %t", ok, s.Last(m), s.Protected(s.mustInstance("i3")))
			}
			for _, c := range tt.break3 {
				if r := do(c); r[0].Refusal != nil {
					t.Fatal(r[0].Refusal)
				}
			}
			if s.Protected(s.mustInstance("i3")) || !s.Last(m) {
				t.Errorf("i3 protected %t, i1 last %t; want it unprotected and i1 the last",
					s.Protected(s.mustInstance("i3")), s.Last(m))
			}
			if r := do(&InstanceStop{ID: "i1", Cause: model.CauseRollout}); r[0].Refusal == nil ||
				r[0].Refusal.Code != model.CodeLastCopy {
				t.Errorf("the stop of the last copy: %v, want %s", r[0].Refusal, model.CodeLastCopy)
			}
		})
	}
}

// TestDrainPolicyTable checks the table of docs/drain-policies.md: for each policy, which members are marked for
// eviction and which block a drain.
// proves L1, L2, L3, L4, L5, L6, L16
func TestDrainPolicyTable(t *testing.T) {
	running := &Instance{Desired: model.DesiredRunning, Status: model.InstanceStatus{Observed: model.ObservedReady}}
	members := map[string]struct {
		m    Member
		last bool
	}{
		"not last":          {Member{Held: true, Instance: running}, false},
		"last":              {Member{Held: true, Instance: running}, true},
		"stopped, not last": {Member{Held: true}, false},
		"stopped, last":     {Member{Held: true}, true},
		"never held, last":  {Member{Instance: running}, true},
	}
	for policy, want := range map[model.DrainPolicy]map[string]string{
		model.PolicyAlwaysAllow: {"not last": "", "last": "", "stopped, not last": "",
			"stopped, last": "", "never held, last": ""},
		model.PolicyAllowStopped: {"not last": "", "last": "blocks", "stopped, not last": "",
			"stopped, last": "", "never held, last": ""},
		model.PolicyBlockLast: {"not last": "", "last": "blocks", "stopped, not last": "", "stopped, last": "blocks",
			"never held, last": ""},
		model.PolicyEvictLast: {"not last": "", "last": "marks blocks", "stopped, not last": "",
			"stopped, last": "marks blocks", "never held, last": ""},
		model.PolicyEvictAll: {"not last": "marks blocks", "last": "marks blocks", "stopped, not last": "marks blocks",
			"stopped, last":    "marks blocks",
			"never held, last": "marks blocks"},
	} {
		for name, x := range members {
			got := ""
			if x.m.Marked(policy, x.last) {
				got = "marks"
			}
			if x.m.Blocks(policy, x.last) {
				got = map[string]string{"": "blocks", "marks": "marks blocks"}[got]
			}
			if got != want[name] {
				t.Errorf("%s, a member that is %s: %q, want %q", policy, name, got, want[name])
			}
		}
	}
	if p, ok := ParseDrainPolicy("block-for-eviction-if-last-replica"); !ok || p != model.PolicyEvictLast {
		t.Errorf("the alias is %q, %t", p, ok)
	}
	if model.DefaultSettings().NodeDrainPolicy != string(model.PolicyBlockLast) ||
		model.DefaultSettings().EvictOn != model.EvictOnDrain {
		t.Errorf("the defaults are %s and %s", model.DefaultSettings().NodeDrainPolicy, model.DefaultSettings().EvictOn)
	}
}

// TestLastCopyCauses: a stop of the instance with the last copy is refused for every cause, unless a person bypasses
// the check or stops the job.
// proves L16, R32
func TestLastCopyCauses(t *testing.T) {
	for _, tt := range []struct {
		stop InstanceStop
		want model.Code
	}{
		{InstanceStop{Cause: model.CauseRollout}, model.CodeLastCopy},
		{InstanceStop{Cause: model.CauseScaleDown}, model.CodeLastCopy},
		{InstanceStop{Cause: model.CauseRebalance}, model.CodeLastCopy},
		{InstanceStop{Cause: model.CauseAffinity}, model.CodeLastCopy},
		{InstanceStop{Cause: model.CauseRoleReplacement}, model.CodeLastCopy},
		{InstanceStop{Cause: model.CauseStartTimeout}, model.CodeLastCopy},
		{InstanceStop{Cause: model.CauseNodeDisabled}, model.CodeLastCopy},
		{InstanceStop{Cause: model.CauseDrainTimeout, Bypass: true}, model.CodeLastCopy},
		{InstanceStop{Cause: model.CauseNodeDraining, Bypass: true}, model.CodeLastCopy},
		{InstanceStop{Cause: model.CauseUser}, model.CodeLastCopy},
		{InstanceStop{Cause: model.CauseUser, Bypass: true}, ""},
		{InstanceStop{Cause: model.CauseJobStopped}, ""},
	} {
		s, do := membersWorld(t)
		do(says("n2", "i2", 2, model.ObservedReady, "false"))
		do(says("n3", "i3", 2, model.ObservedReady, "false"))
		tt.stop.ID = "i1"
		got := model.Code("")
		if r := do(&tt.stop); r[0].Refusal != nil {
			got = r[0].Refusal.Code
		}
		if got != tt.want {
			t.Errorf("%s, bypass %t: %q, want %q", tt.stop.Cause, tt.stop.Bypass, got, tt.want)
		}
		if tt.want == "" && s.mustInstance("i1").Desired == model.DesiredRunning {
			t.Errorf("%s: it still runs", tt.stop.Cause)
		}
	}
}

// A drain with the policy always-allow may stop the instance with the last copy, before and after the drain's deadline.
// Stops for other causes are refused.
func TestDrainLetsLastCopyGo(t *testing.T) {
	s, do := membersWorld(t)
	do(says("n2", "i2", 2, model.ObservedReady, "false"))
	do(says("n3", "i3", 2, model.ObservedReady, "false"))
	do(&DrainStart{ID: "d1", Nodes: []string{"n1"},
		Options: model.DrainOptions{Deadline: model.Hour, Policy: string(model.PolicyAlwaysAllow)}})
	for cause, want := range map[model.Cause]model.Code{
		model.CauseNodeDraining: "", model.CauseDrainTimeout: "", model.CauseRollout: model.CodeLastCopy,
	} {
		refusal := s.mayLoseCopy(s.mustInstance("i1"), &InstanceStop{ID: "i1", Cause: cause, By: "d1"})
		wantCode(t, string(cause), refusal, want)
	}
}

// If the setting evict_on is "cordon", the policy evict-all marks a member on a cordoned node for eviction, unless the
// node is offline.
func TestPolicyOnACordonedNode(t *testing.T) {
	s, do := membersWorld(t)
	settings := s.Settings
	settings.EvictOn, settings.NodeDrainPolicy = model.EvictOnCordon, string(model.PolicyEvictAll)
	do(&SettingsSet{Settings: settings})
	want := func(when string, want bool) {
		t.Helper()
		if by, marks := s.PolicyMarks(s.mustInstance("i1")); marks != want || marks && by != ByPolicy {
			t.Errorf("%s: i1 is marked %v by %q", when, marks, by)
		}
	}
	want("active", false)
	do(&NodeIntent{ID: "n1", Intent: model.IntentCordoned})
	want("cordoned", true)
	do(&NodeHealth{ID: "n1", Health: model.HealthOffline, BootID: "b"})
	want("cordoned and offline", false)
}

// TestMembersApart: two members of a group never share a node, and a successor is never on the node of its predecessor.
// The copy of a replaced instance is forgotten once that instance has stopped. A member that is placed again on its old
// node uses the copy that it has there.
func TestMembersApart(t *testing.T) {
	s, do := membersWorld(t)
	place := func(id model.InstanceID, slot int, node model.NodeID, replaces model.InstanceID) model.Code {
		t.Helper()
		if r := do(&InstancePlace{ID: id, Group: "db/main", Slot: slot, Version: 1, Node: node, Replaces: replaces,
			Cause: model.CauseNodeDraining})[0].Refusal; r != nil {
			return r.Code
		}
		return ""
	}
	if got := place("x1", 0, "n2", "i1"); got != model.CodeAntiAffinity {
		t.Errorf("beside another member: %q", got)
	}
	if got := place("x2", 0, "n1", "i1"); got != model.CodeAntiAffinity {
		t.Errorf("on the node of its predecessor: %q", got)
	}
	if got := place("x3", 0, "n4", "i1"); got != "" {
		t.Errorf("on an empty node: %q", got)
	}
	before, _ := s.Volumes.Get("db/main/0/data@n1")
	do(says("n4", "x3", 1, model.ObservedReady, "true"))
	if _, ok := s.Volumes.Get("db/main/0/data@n1"); !ok {
		t.Error("the copy of a member that runs was forgotten")
	}
	do(&InstanceStop{ID: "i1", Cause: model.CauseScaleDown})
	do(says("n1", "i1", 2, model.ObservedStopped, ""))
	if _, ok := s.Volumes.Get("db/main/0/data@n1"); ok {
		t.Error("the copy that was replaced is still a member")
	}
	do(&InstanceStop{ID: "i2", Cause: model.CauseUser})
	do(says("n2", "i2", 2, model.ObservedStopped, ""))
	kept, _ := s.Volumes.Get("db/main/1/data@n2")
	if got := place("x4", 1, "n2", ""); got != "" {
		t.Fatalf("back to its copy: %q", got)
	}
	if again, _ := s.Volumes.Get("db/main/1/data@n2"); again.Made != kept.Made || !again.Held {
		t.Errorf("it came back to %+v, its copy was %+v", again, kept)
	}
	if got, _ := s.CopiesUsed(s.mustInstance("x4")); got["data"] != kept.Made || before.Made == kept.Made {
		t.Errorf("the agent is told of the copies %v, want %d", got, kept.Made)
	}
}

// TestLastCopyHolds applies random commands to a group of three members, and checks each accepted stop by
// lastCopyHolds.
func TestLastCopyHolds(t *testing.T) {
	stopped := 0
	rapid.Check(t, func(rt *rapid.T) {
		s, do := membersWorld(rt)
		h := &randomLog{t: rt}
		for step := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			c := drawMembers(rt, s, step)
			before := *s
			results := do(c)
			h.lastCopyHolds(before, Entry{Groups: [][]Command{{c}}}, results)
			if _, stop := c.(*InstanceStop); stop && results[0].Refusal == nil {
				stopped++
			}
		}
	})
	if stopped == 0 {
		t.Error("nothing was ever stopped")
	}
}

// drawMembers draws one command about the group of membersWorld or its nodes.
func drawMembers(rt *rapid.T, s *State, step int) Command {
	node := model.NodeID(rapid.SampledFrom([]string{"n1", "n2", "n3", "n4"}).Draw(rt, "node"))
	var ids []model.InstanceID
	for inst := range s.InstancesOf("db/main") {
		ids = append(ids, inst.ID)
	}
	inst := s.mustInstance(rapid.SampledFrom(ids).Draw(rt, "instance"))
	switch rapid.IntRange(0, 7).Draw(rt, "what") {
	case 0, 1:
		observed := rapid.SampledFrom([]model.Observed{model.ObservedReady, model.ObservedReady, model.ObservedReady,
			model.ObservedUnready, model.ObservedStopped}).Draw(rt, "observed")
		return says(inst.Node, inst.ID, inst.Status.Generation+1, observed,
			rapid.SampledFrom([]string{"true", "true", "false", ""}).Draw(rt, "in_sync"))
	case 2:
		return &NodeIntent{ID: node,
			Intent: rapid.SampledFrom([]model.Intent{model.IntentActive, model.IntentActive, model.IntentCordoned,
				model.IntentDisabled}).Draw(rt, "intent")}
	case 3:
		policy := rapid.SampledFrom(model.DrainPolicies()).Draw(rt, "policy")
		return &DrainStart{ID: model.DrainID(fmt.Sprintf("d%d", step)), Nodes: []string{string(node)},
			Options: model.DrainOptions{Deadline: model.Hour, Policy: policy,
				Force: rapid.IntRange(0, 9).Draw(rt, "force") == 0}}
	case 4:
		by, marks := s.PolicyMarks(inst)
		return &InstanceMark{ID: inst.ID, Requested: marks, Cause: model.CauseNodeDraining, By: by, Automatic: marks}
	case 5:
		return &InstancePlace{ID: model.InstanceID(fmt.Sprintf("x%d", step)), Group: "db/main", Slot: inst.Slot, Version: 1,
			Node: node, Replaces: inst.ID, Cause: model.CauseNodeDraining}
	}
	n, _ := s.Nodes.Get(inst.Node)
	cause := rapid.SampledFrom([]model.Cause{model.CauseNodeDraining, model.CauseNodeDraining, model.CauseRollout,
		model.CauseScaleDown, model.CauseUser, model.CauseNodeDisabled, model.CauseStartTimeout,
		model.CauseDrainTimeout}).Draw(rt, "cause")
	return &InstanceStop{ID: inst.ID, Cause: cause, By: string(n.Drain), Bypass: cause != model.CauseUser &&
		rapid.Bool().Draw(rt, "bypass")}
}

// lastCopyHolds checks an accepted stop that is the only command of its entry. It must not stop the instance with the
// last copy in sync, unless a person bypassed the check or stopped the job, or the policy of a drain allows the stop.
func (h *randomLog) lastCopyHolds(before State, e Entry, results []Result) {
	if len(e.Groups) != 1 || len(e.Groups[0]) != 1 || results[0].Refusal != nil || results[0].Replay {
		return
	}
	c, ok := e.Groups[0][0].(*InstanceStop)
	if !ok || c.Cause == model.CauseJobStopped || c.Bypass && c.Cause == model.CauseUser {
		return
	}
	i, _ := before.Instances.Get(c.ID)
	g, ok := before.Groups.Get(i.Group)
	if _, member := before.MemberOf(i); !member || !ok || g.Count == 0 || !i.Ready() ||
		i.Status.Facts[model.FactInSync] != "true" {
		return
	}
	if d, ok := before.Drains.Get(model.DrainID(c.By)); ok && before.PolicyFor(d) == model.PolicyAlwaysAllow {
		return
	}
	for peer := range before.InstancesOf(i.Group) {
		n, _ := before.Nodes.Get(peer.Node)
		if peer.Node != i.Node && peer.Ready() && n.Health == model.HealthOnline && n.Intent == model.IntentActive &&
			peer.Status.Facts[model.FactInSync] == "true" {
			return
		}
	}
	h.t.Fatalf("a stop for %s took the last copy of %s", c.Cause, i.Group)
}
