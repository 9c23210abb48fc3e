package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

const aloneGroup model.GroupID = "web/api"

// aloneState returns a state with one instance, i1 on n1, whose slot may have only one holder. The nodes n2 and n3 are
// empty.
func aloneState(t *testing.T) State {
	t.Helper()
	spec := webSpec()
	spec.Groups[0].Count, spec.Groups[0].Replacement = 1, model.ReplacementSpec{Identity: "same"}
	s := leaseState(t, spec, 6*model.Second)
	for _, id := range []model.NodeID{"n2", "n3"} {
		s = run(t, s, 1000, register(id), &NodeReport{ID: id, Full: true})
	}
	return s
}

// inventory applies a node's inventory, as an agent sends it in the current incarnation.
func inventory(t *testing.T, s State, id model.NodeID, statuses []model.InstanceStatus, holds ...model.Holding) State {
	t.Helper()
	return run(t, s, s.Now, &NodeReport{ID: id, Full: true, Instances: statuses, Holds: holds, Incarnation: s.Incarnation})
}

// replacesI1 stops i1 and tries to place i2 in i1's slot on a node. It returns the refusal of the placement, or nil.
func replacesI1(t *testing.T, s State, node model.NodeID) *model.Error {
	t.Helper()
	s = run(t, s, s.Now, &InstanceStop{ID: "i1", Cause: model.CauseUser, Bypass: true},
		&NodeReport{ID: "n1", Instances: []model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedStopped}}})
	_, refusal := attempt(s, s.Now, placed("i2", aloneGroup, 0, node, 20001))
	return refusal
}

func wantCode(t *testing.T, what string, refusal *model.Error, want model.Code) {
	t.Helper()
	if want == "" && refusal != nil || want != "" && (refusal == nil || refusal.Code != want) {
		t.Errorf("%s: %v, want %q", what, refusal, want)
	}
}

// After a restore, a slot that only one instance may fill gets no new instance until the restore is confirmed and each
// node has reported what it runs or is confirmed dead.
func TestSlotWaitsForInventories(t *testing.T) {
	s := aloneState(t)
	wantCode(t, "without a restore", replacesI1(t, s, "n2"), "")
	late := &NodeReport{ID: "n3", Full: true, Incarnation: s.Incarnation} // built before the restore
	s = run(t, s, 2000, &RestoreMark{})
	i1 := []model.InstanceStatus{{ID: "i1", Generation: 2, Observed: model.ObservedReady}}
	s = inventory(t, inventory(t, s, "n1", i1, model.Holding{ID: "i1", Group: aloneGroup}), "n2", nil)
	wantCode(t, "not confirmed", replacesI1(t, s, "n2"), model.CodeRestoreUnconfirmed)
	s = run(t, s, 2000, &RestoreMark{Confirm: true}, late)
	wantCode(t, "n3 has not told since the restore", replacesI1(t, s, "n2"), model.CodeInventoryMissing)
	wantCode(t, "all have told", replacesI1(t, inventory(t, s, "n3", nil), "n2"), "")

	s = run(t, s, 20_000, offline(s, "n3"))
	if _, refusal := attempt(s, 20_000, &NodeForget{ID: "n3"}); !errors.Is(refusal,
		&model.Error{Code: model.CodeConflict}) {
		t.Errorf("a node that owes its inventory is forgotten: %v", refusal)
	}
	if _, refusal := attempt(s, 20_000, &NodeConfirmDead{ID: "n3"}); !errors.Is(refusal,
		&model.Error{Code: model.CodeNodeOffline}) || !strings.Contains(refusal.Hint, "--force") {
		t.Errorf("a node that owes its inventory is dead without force: %v", refusal)
	}
	wantCode(t, "n3 is confirmed dead",
		replacesI1(t, run(t, s, 20_000, &NodeConfirmDead{ID: "n3", Force: true}), "n2"), "")
}

// An instance that the restored state does not know holds its slot until its agent reports that the instance has
// stopped. Before this report, a drain of the node can't finish.
func TestUnknownInstanceHoldsItsSlot(t *testing.T) {
	s := run(t, aloneState(t), 2000, &RestoreMark{})
	s = inventory(t,
		inventory(t, s, "n1", []model.InstanceStatus{{ID: "i1", Generation: 2, Observed: model.ObservedReady}}), "n2", nil)
	x := model.Holding{ID: "x", Group: aloneGroup}
	s = inventory(t, s, "n3", []model.InstanceStatus{{ID: "x", Generation: 5, Observed: model.ObservedReady}}, x)
	s = run(t, s, 2000, &RestoreMark{Confirm: true})
	wantCode(t, "x runs", replacesI1(t, s, "n2"), model.CodeSlotTaken)
	if !s.Keeps(x) {
		t.Error("x is stopped although nobody decided")
	}
	drained := run(t, s, 2000,
		&DrainStart{ID: "d1", Nodes: []string{"n3"}, Options: model.DrainOptions{Deadline: model.Hour}})
	n3, _ := drained.Nodes.Get("n3")
	d, _ := drained.Drains.Get("d1")
	if left := drained.DrainLeft(d, n3); !errors.Is(left, &model.Error{Code: model.CodeUnknownInstance}) {
		t.Errorf("the drain of n3 waits for %v", left)
	}
	s = run(t, s, 2000, &InstanceStop{ID: "x", Cause: model.CauseUser})
	n3, _ = s.Nodes.Get("n3")
	if s.Keeps(n3.Restore.Unknown[0]) {
		t.Error("x is kept although it is to stop")
	}
	if left := s.unknownLeft(n3); left.Hint != "they are being stopped; wait for that" {
		t.Errorf("a drain of n3 would wait for %v", left)
	}
	wantCode(t, "x is stopping", replacesI1(t, s, "n2"), model.CodeSlotTaken)
	before, _ := s.Nodes.Get("n1")
	s = run(t, s, 2000,
		&NodeReport{ID: "n3", Instances: []model.InstanceStatus{{ID: "x", Generation: 6, Observed: model.ObservedStopped}}})
	wantCode(t, "x has stopped", replacesI1(t, s, "n2"), "")
	if n1, _ := s.Nodes.Get("n1"); n1.Assigned == before.Assigned {
		t.Error("the agents are not told that the slot is settled")
	}
}

// After a restore, an instance may run that the state has recorded as stopped. The instance holds its slot, but must
// stop.
func TestStoppedInstanceThatRunsIsNotKept(t *testing.T) {
	stopped := []model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedStopped}}
	s := run(t, aloneState(t), 2000, &InstanceStop{ID: "i1", Cause: model.CauseUser, Bypass: true},
		&NodeReport{ID: "n1", Instances: stopped}, &RestoreMark{})
	h := model.Holding{ID: "i1", Group: aloneGroup}
	s = inventory(t, inventory(t, s, "n2", nil), "n3", nil)
	s = inventory(t, s, "n1", []model.InstanceStatus{{ID: "i1", Generation: 100, Observed: model.ObservedReady}}, h)
	s = run(t, s, 2000, &RestoreMark{Confirm: true})
	_, refusal := attempt(s, s.Now, placed("i2", aloneGroup, 0, "n2", 20001))
	wantCode(t, "i1 runs", refusal, model.CodeSlotTaken)
	if s.Keeps(h) {
		t.Error("i1 goes on although the state has it as stopped, and nobody can stop it")
	}
}

// After a restore, an earlier confirm-dead of a node has no effect, because the node may have returned in the lost
// entries.
func TestConfirmDeadOfTheSnapshotDoesNotCount(t *testing.T) {
	s := aloneState(t)
	s = run(t, s, 20_000, offline(s, "n3"), &NodeConfirmDead{ID: "n3"}, &RestoreMark{})
	s = inventory(t,
		inventory(t, s, "n1", []model.InstanceStatus{{ID: "i1", Generation: 2, Observed: model.ObservedReady}}), "n2", nil)
	s = run(t, s, 20_000, &RestoreMark{Confirm: true})
	wantCode(t, "n3 was confirmed dead before", replacesI1(t, s, "n2"), model.CodeInventoryMissing)
}

// After a restore, an agent may report that an instance has stopped which the restored state has as running. The
// instance becomes terminal, and its group gets no failure.
func TestStoppedBeforeIsNoFailure(t *testing.T) {
	s := run(t, aloneState(t), 2000, &RestoreMark{})
	s = run(t, s, 2000,
		&NodeReport{ID: "n1",
			Instances: []model.InstanceStatus{
				{ID: "i1", Generation: 99, Observed: model.ObservedStopped, Reason: model.ReasonEnded}}})
	inst, _ := s.Instances.Get("i1")
	g, _ := s.Groups.Get(aloneGroup)
	if !inst.Terminal() || inst.Marks.StopCause != model.CauseRestored || len(g.Failures) != 0 {
		t.Errorf("i1 is %s and %s (%s, cause %s), the group has %d failures", inst.Desired, inst.Status.Observed,
			inst.Status.Reason, inst.Marks.StopCause, len(g.Failures))
	}
}

// Each agent can raise the incarnation only once after a restore. Its registration is refused if it claims to have seen
// an index that no state can reach.
func TestAgentRaisesIncarnationOnce(t *testing.T) {
	s := run(t, aloneState(t), 2000, &RestoreMark{})
	again := register("n1")
	again.Seen = model.Seen{Incarnation: s.Incarnation, Index: 1 << 44}
	_, refusal := attempt(s, 2000, again)
	wantCode(t, "an index that no state reaches", refusal, model.CodeConflict)
	again.Seen.Index = 90_000
	s = run(t, s, 2000, again)
	again.Seen.Incarnation = s.Incarnation
	_, refusal = attempt(s, 2000, again)
	wantCode(t, "the same node raises it once more", refusal, model.CodeConflict)
	other := register("n2")
	other.Seen = again.Seen
	s = run(t, s, 2000, other)
	s = run(t, s, 2000, &RestoreMark{})
	again.Seen.Incarnation = s.Incarnation
	run(t, s, 2000, again)
}

// Two recoveries of the same state reach the same incarnation and indexes. They derive different instance ids, because
// their lineages differ.
func TestInstanceIDsDifferByLineage(t *testing.T) {
	at := model.Seen{Incarnation: 2, Index: 7}
	if a, b := DeriveInstanceID(at, "one", aloneGroup, 0, 0), DeriveInstanceID(at, "two", aloneGroup, 0, 0); a == b {
		t.Errorf("both are %s", a)
	}
}

// A node whose last unknown instance has stopped is read back from a snapshot unchanged.
func TestSettledNodeReadsBack(t *testing.T) {
	s := run(t, aloneState(t), 2000, &RestoreMark{})
	s = inventory(t, s, "n3", []model.InstanceStatus{{ID: "x", Generation: 5, Observed: model.ObservedReady}},
		model.Holding{ID: "x", Group: aloneGroup})
	s = run(t, s, 2000,
		&NodeReport{ID: "n3", Instances: []model.InstanceStatus{{ID: "x", Generation: 6, Observed: model.ObservedStopped}}})
	var saved bytes.Buffer
	if err := WriteSnapshot(&saved, s); err != nil {
		t.Fatal(err)
	}
	back, err := ReadSnapshot(&saved)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := Digest(back), Digest(s); got != want {
		t.Errorf("it reads back as %s, it was %s", got, want)
	}
}

// Without a restore, a forgotten node that returns must stop its instances that were replaced meanwhile. The state does
// not know these instances, because NodeForget removed their rows.
func TestForgottenMachineEndsWhatItRuns(t *testing.T) {
	s := aloneState(t)
	s = run(t, s, 20_000, offline(s, "n1"), &NodeConfirmDead{ID: "n1", Force: true})
	s = run(t, s, 20_000, placed("i2", aloneGroup, 0, "n2", 20001), &NodeForget{ID: "n1"})
	back := register("n1")
	back.Seen = model.Seen{Incarnation: s.Incarnation, Index: s.Index}
	s = run(t, s, 20_000, back)
	s = inventory(t, s, "n1", []model.InstanceStatus{{ID: "i1", Generation: 2, Observed: model.ObservedReady}},
		model.Holding{ID: "i1", Group: aloneGroup})
	n1, _ := s.Nodes.Get("n1")
	for _, h := range n1.Restore.Unknown {
		if s.Keeps(h) {
			t.Errorf("%s goes on beside i2, which replaced it", h.ID)
		}
	}
}

// A node that the snapshot does not have registers after the restore was confirmed. Its agent followed the lost state,
// so its unknown instance keeps running until a person decides.
func TestNodeThatARestoreLostKeepsWhatItRuns(t *testing.T) {
	s := run(t, aloneState(t), 2000, &RestoreMark{})
	for _, id := range []model.NodeID{"n1", "n2", "n3"} {
		s = inventory(t, s, id, nil)
	}
	s = run(t, s, 2000, &RestoreMark{Confirm: true})
	late := register("n4")
	late.Seen = model.Seen{Incarnation: s.Incarnation - 1, Index: 90_000}
	x := model.Holding{ID: "x", Group: aloneGroup}
	s = run(t, s, 2000, late)
	behind, _ := s.Nodes.Get("n4")
	s = run(t, s, 2000, register("n5"))
	empty := inventory(t, s, "n4", nil)
	if told, _ := empty.Nodes.Get("n4"); told.Restore.Behind || told.Assigned <= behind.Assigned {
		t.Error("its agent is not told that it may end what is not to be kept")
	}
	s = inventory(t, s, "n4", nil, x)
	late.Seen = model.Seen{Incarnation: s.Incarnation, Index: 1}
	s = inventory(t, run(t, s, 2000, late), "n4", nil, x) // the agent restarts, and has followed this state by now
	n4, _ := s.Nodes.Get("n4")
	if len(n4.Restore.Unknown) != 1 || !s.Keeps(n4.Restore.Unknown[0]) || n4.Restore.Behind {
		t.Errorf("x is to stop, or n4 is still behind: %+v", n4.Restore)
	}
	wantCode(t, "x runs", replacesI1(t, s, "n2"), model.CodeSlotTaken)
}

// The slots of a node that was confirmed dead were filled elsewhere. If the node returns, it must stop its old
// instances, even if a restore lost their rows.
func TestReturnedNodeEndsWhatWasReplaced(t *testing.T) {
	for name, given := range map[string][]Command{"confirmed dead": nil, "forgotten": {&NodeForget{ID: "n3"}}} {
		t.Run(name, func(t *testing.T) {
			s := run(t, aloneState(t), 2000, &RestoreMark{})
			s = inventory(t,
				inventory(t, s, "n1",
					[]model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedStopped, Reason: model.ReasonEnded}}),
				"n2", nil)
			s = run(t, s, 2000, &RestoreMark{Confirm: true})
			s = run(t, s, 20_000, offline(s, "n3"), &NodeConfirmDead{ID: "n3", Force: true},
				placed("i2", aloneGroup, 0, "n2", 20001))
			s = run(t, s, 20_000, given...)
			back := register("n3")
			back.Seen = model.Seen{Incarnation: s.Incarnation - 1, Index: 90_000}
			x := model.Holding{ID: "x", Group: aloneGroup}
			s = inventory(t, run(t, s, 20_000, back), "n3",
				[]model.InstanceStatus{{ID: "x", Generation: 5, Observed: model.ObservedReady}}, x)
			if n3, _ := s.Nodes.Get("n3"); len(n3.Restore.Unknown) != 1 || s.Keeps(n3.Restore.Unknown[0]) {
				t.Errorf("x goes on beside i2, which replaced it: %+v", n3.Restore)
			}
		})
	}
}

// A node with more unknown instances than its row can list owes its inventory until the list is complete, because
// instances that are not listed may hold slots.
func TestTooManyUnknownInstances(t *testing.T) {
	s := run(t, aloneState(t), 2000, &RestoreMark{})
	for _, id := range []model.NodeID{"n2", "n3"} {
		s = inventory(t, s, id, nil)
	}
	lost := make([]model.Holding, maxHoldings+1) // without groups, as from an agent that has lost its journal
	for i := range lost {
		lost[i].ID = model.InstanceID(fmt.Sprintf("x%04d", i))
	}
	for _, holds := range [][]model.Holding{lost, lost[1:], nil} {
		s = inventory(t, s, "n1", nil, holds...)
		n1, _ := s.Nodes.Get("n1")
		if owes := len(holds) > maxHoldings; n1.Restore.InventoryOwed != owes ||
			len(n1.Restore.Unknown) != min(len(holds), maxHoldings) {
			t.Errorf("of %d unknown instances %d are noted, it owes its inventory: %t", len(holds),
				len(n1.Restore.Unknown), n1.Restore.InventoryOwed)
		}
	}
}

// If a restored state does not know a running instance, FindInstance refuses and says on which node the instance runs.
func TestFindUnknownInstance(t *testing.T) {
	s := run(t, aloneState(t), 2000, &RestoreMark{})
	s = inventory(t, s, "n3", []model.InstanceStatus{{ID: "x", Generation: 5, Observed: model.ObservedReady}},
		model.Holding{ID: "x", Group: aloneGroup})
	for id, want := range map[string]string{
		"x": "instance x runs on node n3, and the restored state does not know it",
		"y": `there is no instance "y"`,
	} {
		if _, refusal := s.Finder(nil).FindInstance(id); refusal == nil || refusal.Code != model.CodeNotFound ||
			refusal.Message != want {
			t.Errorf("instance %s: %v, want %q", id, refusal, want)
		}
	}
}

// Without a restore, or once the restore is settled on a node, an unknown instance there can block only slots of groups
// that have been on this node. The state knows where it has placed each group.
func TestAgentBlocksNoSlotsOfOthers(t *testing.T) {
	for what, h := range map[string]model.Holding{"names the slot": {ID: "x", Group: aloneGroup},
		"names no group": {ID: "x"}} {
		t.Run(what, func(t *testing.T) {
			s := inventory(t, aloneState(t), "n3", nil, h)
			wantCode(t, "n3 never had one", replacesI1(t, s, "n2"), "")
			s = inventory(t, aloneState(t), "n1",
				[]model.InstanceStatus{{ID: "i1", Generation: 2, Observed: model.ObservedReady}},
				model.Holding{ID: "i1", Group: aloneGroup}, h)
			wantCode(t, "n1 had one", replacesI1(t, s, "n2"), model.CodeSlotTaken)

			s = run(t, aloneState(t), 2000, &RestoreMark{})
			for _, id := range []model.NodeID{"n1", "n2", "n3"} {
				s = inventory(t, s, id, nil)
			}
			s = inventory(t, run(t, s, 2000, &RestoreMark{Confirm: true}), "n3", nil, h)
			wantCode(t, "n3 told all since the restore", replacesI1(t, s, "n2"), "")
			again := register("n3") // its field Seen is empty
			s = inventory(t, run(t, s, 2000, again), "n3", nil, h)
			wantCode(t, "n3 told all, and registers again", replacesI1(t, s, "n2"), "")
		})
	}
}

// Without a restore, an unknown instance concerns only groups that have been on its node. SlotsThatDiffer, which lists
// the slots that decisions must visit, gets no slots of other groups. Other nodes need not ask for assignments again.
func TestLateHoldingConcernsItsNode(t *testing.T) {
	s := aloneState(t)
	n2, _ := s.Nodes.Get("n2")
	h := model.Holding{ID: "x"}
	other := inventory(t, s, "n3", nil, h)
	if slots := other.SlotsThatDiffer(aloneGroup, 5); len(slots) != 0 {
		t.Errorf("slots %v are apart by the word of n3, which never had one", slots)
	}
	if now, _ := other.Nodes.Get("n2"); now.Assigned != n2.Assigned {
		t.Error("n2 asks again by the word of n3")
	}
	own := inventory(t, s, "n1", []model.InstanceStatus{{ID: "i1", Generation: 2, Observed: model.ObservedReady}},
		model.Holding{ID: "i1", Group: aloneGroup}, h)
	if slots := own.SlotsThatDiffer(aloneGroup, 5); len(slots) != 5 {
		t.Errorf("only slots %v are apart by the word of n1, which has one", slots)
	}
}
