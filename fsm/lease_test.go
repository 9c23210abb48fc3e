package fsm

import (
	"errors"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// fencedSpec returns a job whose first group is exclusive, with a lease of 10 s.
func fencedSpec() model.JobSpec {
	spec := webSpec()
	spec.Groups[0].Exclusive = &model.ExclusiveSpec{Lease: 10 * model.Second}
	return spec
}

// leaseState returns a state with the given job and setting offline_after. The instance i1 of the job's first group is
// ready on n1.
func leaseState(t *testing.T, spec model.JobSpec, offlineAfter model.Duration) State {
	t.Helper()
	settings := model.DefaultSettings()
	settings.OfflineAfter = offlineAfter
	return run(t, NewState(), 1000,
		&ClusterInit{ID: "c1", Name: "test", Settings: settings}, register("n1"), &NodeReport{ID: "n1", Full: true},
		&JobSubmit{Spec: spec}, placed("i1", model.GroupID(spec.Name)+"/"+model.GroupID(spec.Groups[0].Name), 0, "n1", 20000),
		observed("n1", "i1", model.ObservedReady))
}

// run applies commands, each in its own entry. It fails the test if one is refused.
func run(t *testing.T, s State, at model.Time, commands ...Command) State {
	t.Helper()
	for _, c := range commands {
		var refusal *model.Error
		if s, refusal = attempt(s, at, c); refusal != nil {
			t.Fatalf("%T: %v", c, refusal)
		}
	}
	return s
}

func attempt(s State, at model.Time, c Command) (State, *model.Error) {
	after, results := s.Apply(s.Index+1, 1, Entry{Format: model.CurrentFormat, At: at, Groups: atEpochs(s, []Command{c})})
	return after, results[0].Refusal
}

func offline(s State, id model.NodeID) Command {
	n, _ := s.Nodes.Get(id)
	return &NodeHealth{ID: id, Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch}
}

// S2: a partitioned agent may still run the only holder of a slot until its lease, its grace and a margin are over.
// Before that time, only a forced confirm-dead is accepted.
func TestConfirmDeadWaitsForTheLease(t *testing.T) {
	s := leaseState(t, fencedSpec(), 6*model.Second)
	s = run(t, s, 10_000, offline(s, "n1"))
	spec, _ := s.Spec("web/api", 1)
	end := model.Time(10_000).Add(10*model.Second + spec.Stop.DrainDelay + spec.Stop.Grace + 5*model.Second)
	_, refusal := attempt(s, end-11_500, &NodeConfirmDead{ID: "n1"})
	if !errors.Is(refusal, &model.Error{Code: model.CodeLeaseHeld}) ||
		refusal.Message != "node n1 may still run what only one may run: its lease may hold for another 12s" {
		t.Errorf("12 s before its end: %v", refusal)
	}
	if _, refusal = attempt(s, end-1, &NodeConfirmDead{ID: "n1"}); !errors.Is(refusal,
		&model.Error{Code: model.CodeLeaseHeld}) {
		t.Errorf("just before its end: %v", refusal)
	}
	stopped := func(s State, want string) {
		t.Helper()
		inst, _ := s.Instances.Get("i1")
		if !inst.Terminal() || inst.Status.Reason != want {
			t.Errorf("instance is %s/%s (%s), want it stopped (%s)", inst.Desired, inst.Status.Observed,
				inst.Status.Reason, want)
		}
	}
	stopped(run(t, s, end, &NodeConfirmDead{ID: "n1"}), "confirmed dead by the operator")
	forced := run(t, s, 10_001, &NodeConfirmDead{ID: "n1", Force: true})
	stopped(forced, "confirmed dead by the operator, by force while it might still run")
	run(t, forced, 10_002, &NodeConfirmDead{ID: "n1"}) // accepted again, because nothing is left that could run
}

// A lost instance without a lease is never marked as stopped automatically. If its slot may have only one holder,
// confirm-dead needs force. Otherwise, confirm-dead is accepted without force.
func TestConfirmDeadOfWhatHasNoLease(t *testing.T) {
	local, same := webSpec(), webSpec()
	local.Groups[0].Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
	same.Groups[0].Role, same.Groups[0].RoleCheck = model.RoleQuorum, &model.RoleCheckSpec{Exec: []string{"/bin/facts"}}
	for name, spec := range map[string]model.JobSpec{"local volume": local, "same identity": same} {
		t.Run(name, func(t *testing.T) {
			s := leaseState(t, spec, 6*model.Second)
			s = run(t, s, 10_000, offline(s, "n1"))
			if _, refusal := attempt(s, 10_000_000, &NodeConfirmDead{ID: "n1"}); !errors.Is(refusal,
				&model.Error{Code: model.CodeNodeOffline}) || !strings.Contains(refusal.Hint, "--force") {
				t.Errorf("without force: %v", refusal)
			}
			if _, refusal := attempt(s, 10_000_000, &InstanceFenced{ID: "i1"}); !errors.Is(refusal,
				&model.Error{Code: model.CodeStale}) {
				t.Errorf("fenced without a lease: %v", refusal)
			}
			forced := run(t, s, 10_001, &NodeConfirmDead{ID: "n1", Force: true})
			if inst, _ := forced.Instances.Get("i1"); !inst.Terminal() {
				t.Error("force did not confirm it")
			}
		})
	}
	s := leaseState(t, webSpec(), 6*model.Second)
	run(t, s, 10_001, offline(s, "n1"), &NodeConfirmDead{ID: "n1"})
}

// InstanceFenced marks a lost instance as stopped. It is refused until the instance's lease, its grace and a margin are
// over, whether offline_after is shorter or longer than the lease.
func TestFencedByTheLease(t *testing.T) {
	for _, offlineAfter := range []model.Duration{2 * model.Second, model.Minute} {
		s := leaseState(t, fencedSpec(), offlineAfter)
		if _, refusal := attempt(s, 9000, &InstanceFenced{ID: "i1"}); !errors.Is(refusal,
			&model.Error{Code: model.CodeStale}) {
			t.Errorf("while it runs: %v", refusal)
		}
		s = run(t, s, 10_000, offline(s, "n1"))
		spec, _ := s.Spec("web/api", 1)
		end := model.Time(10_000).Add(10*model.Second + spec.Stop.DrainDelay + spec.Stop.Grace + leaseMargin)
		if inst, _ := s.Instances.Get("i1"); s.LeaseEnd(inst) != end {
			t.Errorf("offline_after %s: it ends at %d, want %d", offlineAfter, s.LeaseEnd(inst), end)
		}
		if _, refusal := attempt(s, end-1, &InstanceFenced{ID: "i1"}); !errors.Is(refusal,
			&model.Error{Code: model.CodeLeaseHeld}) {
			t.Errorf("offline_after %s, before its end: %v", offlineAfter, refusal)
		}
		back := run(t, s, end-1, register("n1"),
			&NodeReport{ID: "n1", Full: true,
				Instances: []model.InstanceStatus{{ID: "i1", Generation: 2, Observed: model.ObservedReady}}})
		if _, refusal := attempt(back, end, &InstanceFenced{ID: "i1"}); !errors.Is(refusal,
			&model.Error{Code: model.CodeStale}) {
			t.Errorf("after its node came back: %v", refusal)
		}
		s = run(t, s, end, &InstanceFenced{ID: "i1"})
		if inst, _ := s.Instances.Get("i1"); !inst.Terminal() || inst.Status.Reason != "its lease is over" {
			t.Errorf("at its end it is %s/%s (%s)", inst.Desired, inst.Status.Observed, inst.Status.Reason)
		}
	}
}

// A lease is at least 10 s and at most 24 h.
func TestLeaseBounds(t *testing.T) {
	for lease, code := range map[model.Duration]model.Code{10 * model.Second: "", 10*model.Second - 1: model.CodeInvalid,
		-1: model.CodeInvalid, 24*model.Hour + 1: model.CodeInvalid} {
		spec := fencedSpec()
		spec.Groups[0].Exclusive.Lease = lease
		spec = spec.Expand()
		if refusal := spec.Check(); code == "" && refusal != nil || code != "" && (refusal == nil || refusal.Code != code) {
			t.Errorf("a lease of %s: %v", lease, refusal)
		}
	}
}

// A node that is offline in a restored state may have returned in the lost entries. Until its agent has reported what
// it runs, InstanceFenced is refused for instances on the node, even if their leases are over.
func TestNotFencedByASilenceFromBeforeARestore(t *testing.T) {
	s := leaseState(t, fencedSpec(), 6*model.Second)
	s = run(t, s, 10_000, offline(s, "n1"), &RestoreMark{})
	inst, _ := s.Instances.Get("i1")
	end := s.LeaseEnd(inst)
	_, refusal := attempt(s, end, &InstanceFenced{ID: "i1"})
	wantCode(t, "not confirmed", refusal, model.CodeInventoryMissing)
	s = run(t, s, end, &RestoreMark{Confirm: true})
	_, refusal = attempt(s, end, &InstanceFenced{ID: "i1"})
	wantCode(t, "n1 has not told", refusal, model.CodeInventoryMissing)
	s = inventory(t, run(t, s, end, register("n1")), "n1",
		[]model.InstanceStatus{{ID: "i1", Generation: 9, Observed: model.ObservedReady}},
		model.Holding{ID: "i1", Group: "web/api"})
	if back, _ := s.Instances.Get("i1"); !back.Ready() {
		t.Errorf("i1 is %s and %s", back.Desired, back.Status.Observed)
	}
	s = run(t, s, end, offline(s, "n1"))
	run(t, s, end+end, &InstanceFenced{ID: "i1"})
}
