package reconcile_test

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// drawMember returns a random event about members or policies.
func drawMember(rt *rapid.T, w *world) string {
	policy := func() string { return rapid.SampledFrom(model.DrainPolicies()).Draw(rt, "policy") }
	node := rapid.SampledFrom([]string{"n1", "n2", "n3", "n4", "n5"}).Draw(rt, "node")
	switch rapid.IntRange(0, 9).Draw(rt, "member") {
	case 0, 1, 2:
		if name := w.someMember(rt); name != "" {
			return rapid.SampledFrom([]string{"sync ", "sync ", "unsync ", "rebuild ", "force "}).Draw(rt, "what") + name
		}
	case 3, 4:
		return "settings node_drain_policy=" + policy()
	case 5, 6:
		return fmt.Sprintf("drain d%d %s policy=%s deadline=30s", w.state.Index, node, policy())
	case 7:
		return "settings evict_on=" + rapid.SampledFrom([]string{"drain", "cordon"}).Draw(rt, "evict_on")
	case 8:
		return "cordon " + node
	}
	return "sync " + rapid.SampledFrom([]string{"on", "off"}).Draw(rt, "slow")
}

// someMember returns the name of a random member that has started and should run, on a node that is not offline. It
// returns "" if there is no such member.
func (w *world) someMember(rt *rapid.T) string {
	var names []string
	for _, inst := range w.state.Instances.All() {
		n, _ := w.state.Nodes.Get(inst.Node)
		if _, member := w.state.MemberOf(inst); member && inst.Desired == model.DesiredRunning &&
			n.Health != model.HealthOffline && inst.Status.Observed != model.ObservedPending {
			names = append(names, w.names[inst.ID])
		}
	}
	if len(names) == 0 {
		return ""
	}
	return rapid.SampledFrom(names).Draw(rt, "name")
}

// goodCopies returns, for each group, how many members are ready and in sync on online nodes.
func goodCopies(s fsm.State) map[model.GroupID]int {
	good := map[model.GroupID]int{}
	for _, inst := range s.Instances.All() {
		n, _ := s.Nodes.Get(inst.Node)
		if _, member := s.MemberOf(inst); member && inst.Ready() && n.Health == model.HealthOnline &&
			inst.Status.Facts[model.FactInSync] == "true" {
			good[inst.Group]++
		}
	}
	return good
}

// lastCopiesHold checks that the last decision did not stop the last good copy of a group. The check is skipped if a
// drain with the policy always-allow was running, if the group's count is now 0, or if the decision changed the health
// of a node.
func (w *world) lastCopiesHold(t rapid.TB, before fsm.State) {
	for _, d := range w.state.Drains.All() {
		if p := w.state.PolicyFor(d); d.Phase() == model.PhaseDraining && p == model.PolicyAlwaysAllow {
			return
		}
	}
	for _, d := range before.Drains.All() { // the decision may have ended one of these drains
		if p := before.PolicyFor(d); d.Phase() == model.PhaseDraining && p == model.PolicyAlwaysAllow {
			return
		}
	}
	after := goodCopies(w.state)
	for id, n := range goodCopies(before) {
		g, ok := w.state.Groups.Get(id)
		if !ok || g.Count == 0 || n == 0 || after[id] > 0 || wentOffline(before, w.state, id) || degraded(before, w.state) {
			continue
		}
		t.Fatalf("%s: decisions took the last of %d copies of %s:\n%s", w.at, n, id, w.run("show instances"))
	}
}

// degraded reports whether the decision between the two states changed the health of a node.
func degraded(before, after fsm.State) bool {
	for id, n := range after.Nodes.All() {
		if old, ok := before.Nodes.Get(id); ok && old.Health != n.Health {
			return true
		}
	}
	return false
}

// syncAll makes every ready member report that it is in sync.
func (w *world) syncAll() {
	for _, inst := range w.state.Instances.All() {
		n, _ := w.state.Nodes.Get(inst.Node)
		if _, member := w.state.MemberOf(inst); member && inst.Ready() && n.Health != model.HealthOffline &&
			inst.Status.Facts[model.FactInSync] != "true" {
			w.say1(w.names[inst.ID], "true")
		}
	}
}
