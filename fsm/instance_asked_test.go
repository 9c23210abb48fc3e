package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// A stop that the leader decided for a person is refused once that person has cancelled the eviction, also when the program is down by then. A
// person's own stop is not.
func TestCancelledStopOfTheLeaderIsStale(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count = 2
	s := leaseState(t, spec, 6*model.Second)
	next := placed("i3", aloneGroup, 0, "n2", 20002)
	next.Replaces = "i1"
	s = run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true}, placed("i2", aloneGroup, 1, "n2", 20001), observed("n2", "i2", model.ObservedReady),
		&InstanceMark{ID: "i1", Requested: true, Surge: true, Cause: model.CauseUser, By: "ann"}, next, observed("n2", "i3", model.ObservedReady))
	wantCode(t, "while it is asked for", surgeStop(s, model.ActorLeader), "")

	s = run(t, s, s.Now, &InstanceMark{ID: "i1"})
	wantCode(t, "after the cancel", surgeStop(s, model.ActorLeader), model.CodeStale)
	wantCode(t, "after the cancel, by a person", surgeStop(s, "cli:ann"), "")
	down := &NodeReport{ID: "n1", Instances: []model.InstanceStatus{{ID: "i1", Generation: 9, Observed: model.ObservedFailed}}}
	wantCode(t, "after the cancel, when it has failed", surgeStop(run(t, s, s.Now, down), model.ActorLeader), model.CodeStale)

	other := run(t, s, s.Now, &InstanceMark{ID: "i1", Requested: true, Cause: model.CauseNodeDraining, By: "d1"})
	wantCode(t, "when something else asks for it", surgeStop(other, model.ActorLeader), model.CodeStale)
}

// leaderStop tries a leader's stop for a person, or for a transfer.
func leaderStop(s State, id model.InstanceID, by string) *model.Error {
	_, results := s.Apply(s.Index+1, 1, Entry{
		Format: model.CurrentFormat, At: s.Now, Actor: model.ActorLeader, Groups: [][]Command{{&InstanceStop{ID: id, Cause: model.CauseUser, By: by}}},
	})
	return results[0].Refusal
}

// The leader's stop of a replica that a person evicts is refused after a cancel, and while the replica's copy is not in sync elsewhere.
func TestLeaderStopsAReplicaThatIsAskedForAndBuilt(t *testing.T) {
	s, do := membersWorld(t)
	must := func(group ...Command) {
		t.Helper()
		if r := do(group...); r[0].Refusal != nil {
			t.Fatal(r[0].Refusal)
		}
	}
	wantCode(t, "nobody asks", leaderStop(*s, "i2", "ann"), model.CodeStale)
	must(&InstanceMark{ID: "i2", Requested: true, Cause: model.CauseUser, By: "ann"})
	wantCode(t, "without a new copy", leaderStop(*s, "i2", "ann"), model.CodeReplicaEvicting)
	must(&InstancePlace{ID: "i4", Group: "db/main", Slot: 1, Version: 1, Node: "n4", Cause: model.CauseUser, Replaces: "i2"})
	must(says("n4", "i4", 1, model.ObservedReady, "false"))
	wantCode(t, "while the copy is not in sync", leaderStop(*s, "i2", "ann"), model.CodeReplicaEvicting)
	must(says("n4", "i4", 2, model.ObservedReady, "true"))
	wantCode(t, "with the copy in sync", leaderStop(*s, "i2", "ann"), "")
	must(&InstanceMark{ID: "i2"})
	wantCode(t, "after the cancel", leaderStop(*s, "i2", "ann"), model.CodeStale)
}

// A transfer's stop asks for nothing but that the transfer runs, and works on the instance's slot.
func TestLeaderStopsForARunningTransfer(t *testing.T) {
	for name, tt := range map[string]struct {
		phase model.TransferPhase
		slot  int
		want  model.Code
	}{
		"it runs":       {model.TransferStopping, 0, ""},
		"it has failed": {model.TransferFailed, 0, model.CodeStale},
		"another slot":  {model.TransferStopping, 1, model.CodeStale},
	} {
		state := leaseState(t, webSpec(), 6*model.Second)
		s := state.fork()
		move := &Transfer{ID: "t1", Kind: model.TransferMigrate, Group: aloneGroup, Slot: tt.slot, From: "n1", Phase: tt.phase}
		s.Transfers.put("t1", move)
		stop := &InstanceStop{ID: "i1", Cause: model.CauseUser, By: move.Actor()}
		s.entry.actor = model.ActorLeader
		wantCode(t, name, s.stillAsked(s.mustInstance("i1"), stop), tt.want)
	}
}
