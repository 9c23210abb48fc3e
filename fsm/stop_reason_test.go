package fsm

import (
	"slices"
	"testing"

	"github.com/outspan/outspan/model"
)

// TestReasonsThatDoNotHold: a command is refused and changes nothing if the reason that it gives is not true.
func TestReasonsThatDoNotHold(t *testing.T) {
	s := busyState(t)
	for name, c := range map[string]Command{
		"a node that is not disabled":   &InstanceStop{ID: "i1", Cause: model.CauseNodeDisabled},
		"a node that nobody drains":     &InstanceStop{ID: "i3", Cause: model.CauseNodeDraining, By: "d9"},
		"a crash of what is ready":      &InstanceStop{ID: "i1", Cause: model.CauseCrashLoop, Bypass: true},
		"a node that is well":           &InstanceStop{ID: "i1", Cause: model.CauseNodeNotReady},
		"a move that nobody began":      &InstanceStop{ID: "i1", Cause: model.CauseRebalance},
		"a node that is not there":      &NodeAck{ID: "n9"},
		"a node in full service":        &NodeAck{ID: "n2"},
		"a lease of what is not there":  &InstanceFenced{ID: "i9"},
		"a lease of what is not lost":   &InstanceFenced{ID: "i1"},
		"an unknown one that is known":  &InstanceAdopt{ID: "i1"},
		"an unknown one that is no one": &InstanceAdopt{ID: "i9"},
		"an instance with data":         &InstanceMove{ID: "i3", Cause: model.CauseRebalance, Target: "n2"},
	} {
		after, refusal := try(t, s, c)
		if refusal == nil {
			t.Errorf("%s: accepted", name)
		} else if diff := Diff(s, after); len(diff) > 1 {
			t.Errorf("%s: a refused command changed %v", name, diff)
		}
	}
}

// TestWhatEndsByItselfHasFailed: if an agent reports that an instance that should run has stopped, the state records
// the instance as failed and still wants it to run.
func TestWhatEndsByItselfHasFailed(t *testing.T) {
	s, refusal := try(t, busyState(t), observedAt("n1", "i1", model.ObservedStopped, 2))
	if refusal != nil {
		t.Fatal(refusal)
	}
	i, _ := s.Instances.Get("i1")
	if i.Status.Observed != model.ObservedFailed || i.Status.Reason != "exited" || i.Desired != model.DesiredRunning {
		t.Errorf("desired %s, observed %s, reason %q", i.Desired, i.Status.Observed, i.Status.Reason)
	}
}

// TestPurgeEndsWithTheLastInstance: a purged job is removed when its last instance is reported as stopped, or when the
// operator confirms that the instance's node is dead.
func TestPurgeEndsWithTheLastInstance(t *testing.T) {
	for _, confirmed := range []bool{false, true} {
		m := NewMachine()
		mustApply(t, m, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
		mustApply(t, m, register("n1"))
		mustApply(t, m, &NodeReport{ID: "n1", Full: true}, &JobSubmit{Spec: webSpec()})
		mustApply(t, m, placed("i1", "web/api", 0, "n1", 20000))
		mustApply(t, m, observed("n1", "i1", model.ObservedReady), &JobStop{Job: "web", Purge: true})
		s := m.State()
		if !s.Jobs.Has("web") {
			t.Fatal("purged while an instance runs")
		}
		if confirmed {
			mustApply(t, m, &InstanceStop{ID: "i1", Cause: model.CauseJobStopped})
			n, _ := s.Nodes.Get("n1")
			mustApply(t, m, &NodeHealth{ID: "n1", Health: model.HealthOffline, BootID: "boot", Epoch: n.Agent.Epoch})
			mustApply(t, m, &NodeConfirmDead{ID: "n1", Force: true})
		} else {
			mustApply(t, m, &InstanceStop{ID: "i1", Cause: model.CauseJobStopped})
			mustApply(t, m, observedAt("n1", "i1", model.ObservedStopped, 2))
		}
		if s = m.State(); s.Jobs.Has("web") {
			t.Errorf("confirmed %v: the job is still there", confirmed)
		}
	}
}

// TestLeaves: Leaves is true for a migration or an attachment to another node until the transfer has ended. For a
// restore with the option Attach, Leaves is true from the phase stopping on. For a backup, Leaves is always false.
func TestLeaves(t *testing.T) {
	running := []model.TransferPhase{model.TransferStopping, model.TransferCopying, model.TransferVerifying,
		model.TransferAttaching}
	all := append([]model.TransferPhase{model.TransferQueued, model.TransferRunning, model.TransferSucceeded,
		model.TransferFailed}, running...)
	for _, kind := range []model.TransferKind{model.TransferMigrate, model.TransferAttach,
		model.TransferRestore, model.TransferBackup} {
		for _, phase := range all {
			for _, attach := range []bool{false, true} {
				for _, to := range []model.NodeID{"n1", "n2"} {
					x := Transfer{Kind: kind, Phase: phase, From: "n1", To: to, Options: TransferOptions{Attach: attach}}
					want := to == "n2" && !phase.Ended()
					switch kind {
					case model.TransferRestore:
						want = want && attach && slices.Contains(running, phase)
					case model.TransferBackup:
						want = false
					}
					if x.Leaves() != want {
						t.Errorf("%s, %s, attach %v, to %s: leaves %v", kind, phase, attach, to, !want)
					}
				}
			}
		}
	}
}

// TestLostWith: LostWith lists the volumes whose home is the node. It also lists a volume that has an old copy on the
// node if the volume's home is offline.
func TestLostWith(t *testing.T) {
	lost := func(node model.NodeID, changes ...func(*State)) []model.VolumeID {
		s := busyState(t)
		s = *s.fork()
		for _, change := range changes {
			change(&s)
		}
		return s.LostWith(node)
	}
	volume := model.NewVolumeID("web/store", 0, "data")
	old := func(s *State) {
		s.Transfers.put("t1", &Transfer{
			ID: "t1", Kind: model.TransferMigrate, Group: "web/store", Names: []string{"data"}, From: "n2", To: "n1",
			Phase: model.TransferSucceeded, Left: TransferLeft{Old: "n2"},
		})
	}
	dropped := func(s *State) { edit(&s.Transfers, "t1", func(x *Transfer) { x.Left.Drop = true }) }
	silent := func(s *State) { edit(&s.Nodes, "n1", func(n *Node) { n.Health = model.HealthOffline }) }
	for _, tt := range []struct {
		name string
		got  []model.VolumeID
		want bool
	}{
		{"its home", lost("n1"), true},
		{"another node", lost("n2"), false},
		{"an old copy beside one in use", lost("n2", old), false},
		{"an old copy of what is offline", lost("n2", old, silent), true},
		{"an old copy that is removed", lost("n2", old, dropped, silent), false},
		{"a node with neither", lost("n3", old, silent), false},
	} {
		if want := []model.VolumeID{volume}; tt.want && !slices.Equal(tt.got, want) || !tt.want && len(tt.got) > 0 {
			t.Errorf("%s: lost %v", tt.name, tt.got)
		}
	}
}

// TestStopsOfARate: noteStop drops a stop as soon as a full window has passed since the stop, and keeps only the newest
// stops if there are more than the rate allows. nextOf returns when the next stop may begin; 0 means now.
func TestStopsOfARate(t *testing.T) {
	for _, tt := range []struct {
		now  model.Time
		want []model.Time
	}{{19, []model.Time{10, 15, 19}}, {20, []model.Time{15, 20}}, {30, []model.Time{30}}} {
		if got := noteStop([]model.Time{10, 15}, 3, 10, tt.now); !slices.Equal(got, tt.want) {
			t.Errorf("at %d: %v, want %v", tt.now, got, tt.want)
		}
	}
	if got := noteStop([]model.Time{10, 15}, 2, 10, 16); !slices.Equal(got, []model.Time{15, 16}) {
		t.Errorf("more than count: %v", got)
	}
	if next := nextOf([]model.Time{10, 15}, 2, 10); next != 20 {
		t.Errorf("the next stop may begin at %d, want 20", next)
	}
	if next := nextOf([]model.Time{10}, 2, 10); next != 0 {
		t.Errorf("the next stop may begin at %d, want now", next)
	}
}

// TestLeaving: an instance is leaving while a transfer moves its volumes to another node.
func TestLeaving(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to model.NodeID
		phase    model.TransferPhase
		want     bool
	}{
		{"it moves", "n1", "n2", model.TransferCopying, true},
		{"it comes here", "n2", "n1", model.TransferCopying, false},
		{"it has moved", "n1", "n2", model.TransferSucceeded, false},
	} {
		state := busyState(t)
		s := state.fork()
		s.setTransfer(nil, &Transfer{
			ID: "t1", Kind: model.TransferMigrate, Group: "web/store", Names: []string{"data"},
			From: tt.from, To: tt.to, Phase: tt.phase,
		})
		s.bindVolumes(&Transfer{Kind: model.TransferMigrate, Group: "web/store", Names: []string{"data"}}, "t1")
		i3, _ := s.Instances.Get("i3")
		if _, leaving := s.Leaving(i3); leaving != tt.want {
			t.Errorf("%s: leaving %v", tt.name, leaving)
		}
		i1, _ := s.Instances.Get("i1")
		if _, leaving := s.Leaving(i1); leaving {
			t.Errorf("%s: an instance without volumes is leaving", tt.name)
		}
	}
}

func TestAllocatable(t *testing.T) {
	n := Node{Shape: model.NodeShape{
		Capacity: model.Resources{CPU: 4000, MemoryBytes: 8 << 30}, Reserved: model.Resources{CPU: 500, MemoryBytes: 1 << 30},
	}}
	if got, want := n.Allocatable(), (model.Resources{CPU: 3500, MemoryBytes: 7 << 30}); got != want {
		t.Errorf("allocatable %+v, want %+v", got, want)
	}
}
