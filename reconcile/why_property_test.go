package reconcile_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/draw"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// TestWhyAlwaysAnswers asks for the reasons of every object after random events. Each reason has a message and a code
// that docs/model.md lists under "Codes". For an instance that must leave or is not ready, and for a group that lacks
// ready instances, the answer is never that all is as it should be (S14).
func TestWhyAlwaysAnswers(t *testing.T) {
	asked := map[model.Code]int{}
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		w.run("settings offline_after=6s start_timeout=20s")
		w.run("node n1 n2 rack=a")
		w.run("node n3 n4 rack=b")
		w.run("node n5 memory=400MiB rack=c")
		var lines []string
		for range rapid.IntRange(5, 40).Draw(rt, "steps") {
			line := drawLine(rt, w)
			lines = append(lines, line)
			w.at = strings.Join(lines, "\n")
			w.run(line)
			if rapid.Bool().Draw(rt, "decides") {
				lines = append(lines, "decide")
				w.at = strings.Join(lines, "\n")
				w.decide()
			}
			w.askWhy(rt, asked)
		}
	})
	if len(asked) < 8 && !draw.Race {
		t.Errorf("only %d codes were met: %v", len(asked), asked)
	}
}

const asItShouldBe = "nothing: it is as it should be"

// askWhy asks for the reasons of every object, and adds the number of reasons with each code to the map asked.
func (w *world) askWhy(t rapid.TB, asked map[model.Code]int) {
	explained := reconcile.Explain(w.input())
	settled := len(reconcile.Decide(w.input()).Entries) == 0
	for id, inst := range w.state.Instances.All() {
		why := w.answer(t, explained, string(id), asked)
		comes := inst.Desired == model.DesiredRunning && !inst.Ready()
		goes := inst.Desired == model.DesiredDraining || inst.Desired == model.DesiredRunning && inst.Eviction.Requested
		if (comes || goes) && (why.Next == "" || why.Next == asItShouldBe) {
			t.Fatalf("%s: instance %s is %s, and the answer is %q", w.at, w.names[id],
				strings.TrimSpace(w.instanceLine(inst)), why.Next)
		}
		if settled && inst.Desired == model.DesiredRunning && inst.Eviction.Requested && len(why.Blockers) == 0 {
			t.Fatalf("%s: instance %s is marked and nothing keeps it", w.at, w.names[id])
		}
	}
	for id, g := range w.state.Groups.All() {
		why := w.answer(t, explained, string(id), asked)
		if want := g.Want(); g.Ready < want && (why.Next == "" || why.Next == asItShouldBe) {
			t.Fatalf("%s: %s has %d of %d ready, and the answer is %q", w.at, id, g.Ready, want, why.Next)
		}
		if settled && g.Role != model.RoleSystem && g.Running < g.Count && explained.Pending(id) == nil &&
			len(why.Blockers) == 0 {
			t.Fatalf("%s: %s has %d of %d running, and there is no reason", w.at, id, g.Running, g.Count)
		}
	}
	for name := range w.state.Jobs.All() {
		w.answer(t, explained, string(name), asked)
	}
	for id := range w.state.Nodes.All() {
		w.answer(t, explained, string(id), asked)
	}
	for id, d := range w.state.Drains.All() {
		why := w.answer(t, explained, string(id), asked)
		if settled && d.Phase() == model.PhaseDraining && !d.Paused && len(why.Blockers) == 0 {
			t.Fatalf("%s: drain %s goes on and nothing keeps it", w.at, id)
		}
	}
}

// answer returns the reasons of one object. It checks that each reason has a message and a known code.
func (w *world) answer(t rapid.TB, e *reconcile.Explanation, object string, asked map[model.Code]int) model.WhyResult {
	why, refusal := e.Why(object)
	if refusal != nil {
		t.Fatalf("%s: why %s: %v", w.at, object, refusal)
	}
	for _, b := range why.Blockers {
		if !knownReason(b.Code) || b.Message == "" {
			t.Fatalf("%s: why %s: %q is no code of the list, or says nothing: %+v", w.at, object, b.Code, b)
		}
		asked[b.Code]++
	}
	for _, c := range why.Considered {
		if c.ExcludedBy != "" && !slices.Contains(placementCodes(), c.ExcludedBy) {
			t.Fatalf("%s: why %s: node %s is excluded by %q", w.at, object, c.Node, c.ExcludedBy)
		}
	}
	return why
}

// knownReason reports whether docs/model.md, "Codes", lists a code as a reason.
func knownReason(code model.Code) bool {
	if rest, unschedulable := strings.CutPrefix(string(code), string(model.Unschedulable(""))); unschedulable {
		return slices.Contains(placementCodes(), model.Code(rest)) || fsm.IsQuota(model.Code(rest))
	}
	return strings.HasPrefix(string(code), string(model.Gated(""))) || fsm.IsQuota(code) ||
		slices.Contains(placementCodes(), code) || slices.Contains([]model.Code{
		model.CodeVolumeLocal, model.CodeLastHealthy, model.CodeReplicaEvicting, model.CodeNoCandidate, model.CodeRoleNever,
		model.CodeIsLeader, model.CodeNotDrained,
		model.CodeNoInSyncFollower, model.CodeQuorumNotHealthy, model.CodeFactsUnknown, model.CodeBudgetMinReady,
		model.CodeBudgetRate, model.CodeActorRate,
		model.CodeReplacementPending, model.CodeHookFailed, model.CodeNodeOffline, model.CodeAckRequired, model.CodePaused,
		model.CodeHold, model.CodeStopping,
		model.CodeBackupRunning,
	}, code)
}

func placementCodes() []model.Code {
	return []model.Code{
		model.CodeNoMemory, model.CodeNoPorts, model.CodeNoNodes, model.CodeConstraint, model.CodeVolumeNoNode,
		model.CodeVolumeInUse, model.CodeAntiAffinity,
		model.CodeRetryLimit, model.CodeVolumeOffline, model.CodeReplicaEvicting,
		model.CodeNoRuntime, model.CodeRuntimeDown, model.CodeNoNetwork, model.CodeImagePulling, model.CodeImagePull,
	}
}

// Why takes the complete name or id of a node to mean this node, even if it is also the prefix of an instance's id.
func TestWhyPrefersCompleteNames(t *testing.T) {
	w := newWorld(t)
	w.run("node n1")
	w.run("run web http")
	w.run("decide")
	prefix := string(w.id("web-http-0a"))[:8]
	for name, node := range map[string]struct{ id, name string }{
		"name": {"n2", prefix},
		"id":   {prefix, "other"},
	} {
		state := w.state
		w.apply("agent:new", &fsm.NodeRegister{ID: model.NodeID(node.id), Name: node.name, Agent: model.AgentInfo{
			BootID: "b", Incarnation: "1", Address: "127.0.0.1", Key: []byte("k")}})
		why, refusal := reconcile.Explain(w.input()).Why(prefix)
		if want := "node/" + node.id; refusal != nil || why.Subject != want {
			t.Errorf("by %s: %v, %s, want %s", name, refusal, why.Subject, want)
		}
		w.state = state
	}
}
