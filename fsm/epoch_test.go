package fsm

import (
	"bytes"
	"errors"
	"testing"

	"github.com/outspan/outspan/model"
)

// atEpochs returns the groups with an epoch in each NodeReport and NodeHealth that had none. The groups are for the
// next entry of s. The epoch is that of the node's row. If an earlier command in the groups registers the node, the
// epoch is the one that this registration will get.
func atEpochs(s State, groups ...[]Command) [][]Command {
	epochs := map[model.NodeID]uint64{}
	for id, n := range s.Nodes.All() {
		epochs[id] = n.Agent.Epoch
	}
	out := make([][]Command, len(groups))
	for i, group := range groups {
		for _, c := range group {
			switch one := c.(type) {
			case *NodeRegister:
				s.Index++
				epochs[one.ID] = max(epochs[one.ID]+1, s.MomentNumber())
				s.Index--
			case *NodeReport:
				if one.Epoch == 0 {
					next := *one
					next.Epoch = epochs[one.ID]
					c = &next
				}
			case *NodeHealth:
				if one.Epoch == 0 {
					next := *one
					next.Epoch = epochs[one.ID]
					c = &next
				}
			}
			out[i] = append(out[i], c)
		}
	}
	return out
}

// A node's epoch is never used again, even if the node was forgotten or a snapshot was restored in between.
func TestEpochsNeverComeAgain(t *testing.T) {
	had := map[uint64]string{}
	add := func(s State, what string) {
		t.Helper()
		n, _ := s.Nodes.Get("n1")
		if before, again := had[n.Agent.Epoch]; again {
			t.Errorf("S8: %s: epoch %d, which it had %s", what, n.Agent.Epoch, before)
		}
		had[n.Agent.Epoch] = what
	}
	s := run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()}, register("n1"))
	add(s, "at first")
	var saved bytes.Buffer
	if err := WriteSnapshot(&saved, s); err != nil {
		t.Fatal(err)
	}
	file := saved.Bytes()
	n, _ := s.Nodes.Get("n1")
	s = run(t, s, 2000, &NodeHealth{ID: "n1", Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch},
		&NodeForget{ID: "n1"}, register("n1"))
	add(s, "after it was forgotten")
	s = run(t, s, 3000, register("n1"))
	add(s, "once more")
	for _, what := range []string{"after the first recovery", "after the second recovery of the same file"} {
		// The restored state lacks the entries after the snapshot. The agent has seen an assignment from these entries.
		seen := s.Moment()
		restored, err := ReadSnapshot(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		again := register("n1")
		again.Seen = seen
		s = run(t, restored, 4000, &RestoreMark{}, again)
		add(s, what)
		if !seen.Before(s.Moment()) {
			t.Errorf("%s: the agent saw %+v and does not obey %+v", what, seen, s.Moment())
		}
	}
}

// After a restore, Outlived is true for the epochs of all registrations before the restore.
func TestOutlived(t *testing.T) {
	epoch := func(s State) uint64 { n, _ := s.Nodes.Get("n1"); return n.Agent.Epoch }
	s := run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()}, register("n1"))
	first := epoch(s)
	if s.Outlived(first) {
		t.Error("an epoch is outlived without a restore")
	}
	s = run(t, s, 1000, &RestoreMark{})
	if !s.Outlived(first) {
		t.Error("an epoch from before the restore is not outlived")
	}
	if s = run(t, s, 1000, register("n1")); s.Outlived(epoch(s)) {
		t.Error("an epoch from after the restore is outlived")
	}
}

// While a restore is unconfirmed, the registration of an agent that has seen a lost entry raises the incarnation.
// riseLimit keeps a single agent from using up all incarnations.
func TestAgentsRaiseTheIncarnation(t *testing.T) {
	start := run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()},
		register("n1"), register("n2"), &RestoreMark{})
	for _, tt := range []struct {
		name    string
		seen    model.Seen
		want    uint64 // the incarnation after the registration
		refused bool
		confirm bool
	}{
		{name: "nothing", want: 1},
		{name: "an older state", seen: model.Seen{Incarnation: 0, Index: 90_000}, want: 1},
		{name: "this state", seen: start.Moment(), want: 1},
		{name: "what was lost", seen: model.Seen{Incarnation: 1, Index: 90_000}, want: 2},
		{name: "a later restore", seen: model.Seen{Incarnation: 7, Index: 3}, want: 8},
		{name: "the highest that is believed", seen: model.Seen{Incarnation: riseLimit, Index: 3}, want: riseLimit + 1},
		{name: "more than that", seen: model.Seen{Incarnation: riseLimit + 1, Index: 3}, want: 1, refused: true},
		{name: "the highest number", seen: model.Seen{Incarnation: 1<<64 - 1, Index: 1<<64 - 1}, want: 1, refused: true},
		{name: "what was lost, too late", seen: model.Seen{Incarnation: 1, Index: 90_000}, want: 1,
			confirm: true, refused: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start
			if tt.confirm {
				s = run(t, s, 2000, &RestoreMark{Confirm: true})
			}
			c := register("n1")
			c.Seen = tt.seen
			after, refusal := attempt(s, 3000, c)
			if after.Incarnation != tt.want || (refusal != nil) != tt.refused || refusal != nil &&
				!errors.Is(refusal, &model.Error{Code: model.CodeConflict}) {
				t.Fatalf("incarnation %d, %v; want %d, refused %v", after.Incarnation, refusal, tt.want, tt.refused)
			}
			other, _ := after.Nodes.Get("n2")
			if after.Incarnation > s.Incarnation && other.Assigned != after.Index {
				t.Errorf("the other agent is not told: assigned at %d, the state is at %d", other.Assigned, after.Index)
			}
			for range 3 { // the agent claims ever higher incarnations
				c.Seen = model.Seen{Incarnation: after.Incarnation + riseLimit/2, Index: 1}
				after, _ = attempt(after, 4000, c)
			}
			if after.Incarnation > riseLimit+1 {
				t.Errorf("an agent raised the incarnation to %d", after.Incarnation)
			}
			if err := Check(after); err != nil {
				t.Error(err)
			}
		})
	}
}
