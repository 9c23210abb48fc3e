package fsm

import (
	"errors"
	"testing"
)

// fencedSpec is a job of which only one instance may run.
func fencedSpec() JobSpec {
	spec := webSpec()
	spec.Groups[0].Exclusive = true
	return spec
}

// leaseState is n1 with one instance, ready, under settings that call a node offline after the time given.
func leaseState(t *testing.T, spec JobSpec, offlineAfter Duration) State {
	t.Helper()
	settings := DefaultSettings()
	settings.OfflineAfter = offlineAfter
	return run(t, NewState(), 1000,
		&ClusterInit{ID: "c1", Name: "test", Settings: settings}, register("n1"), &NodeReport{ID: "n1", Epoch: 1, Full: true},
		&JobSubmit{Spec: spec}, placed("i1", GroupID(spec.Name)+"/"+GroupID(spec.Groups[0].Name), 0, "n1", 20000), observed("n1", "i1", ObservedReady))
}

// run applies commands, each in an entry of its own, and fails if one is refused.
func run(t *testing.T, s State, at Time, commands ...Command) State {
	t.Helper()
	for _, c := range commands {
		var refusal *Error
		if s, refusal = attempt(s, at, c); refusal != nil {
			t.Fatalf("%T: %v", c, refusal)
		}
	}
	return s
}

func attempt(s State, at Time, c Command) (State, *Error) {
	after, results := s.Apply(s.Index+1, 1, Entry{Format: CurrentFormat, At: at, Groups: [][]Command{{c}}})
	return after, results[0].Refusal
}

func offline(s State, id NodeID) Command {
	n, _ := s.Nodes.Get(id)
	return &NodeHealth{ID: id, Health: HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch}
}

// S2: until lease, grace and margin are over a partitioned agent may run what only one may run, and only force says otherwise.
func TestConfirmDeadWaitsForTheLease(t *testing.T) {
	s := leaseState(t, fencedSpec(), 6*Second)
	s = run(t, s, 10_000, offline(s, "n1"))
	spec, _ := s.Spec("web/api", 1)
	end := Time(10_000).Add(6*Second + spec.Stop.DrainDelay + spec.Stop.Grace + 5*Second)
	_, refusal := attempt(s, end-11_500, &NodeConfirmDead{ID: "n1"})
	if !errors.Is(refusal, &Error{Code: CodeLeaseHeld}) || refusal.Message != "node n1 may still run what only one may run: its lease may hold for another 12s" {
		t.Errorf("12 s before its end: %v", refusal)
	}
	if _, refusal = attempt(s, end-1, &NodeConfirmDead{ID: "n1"}); !errors.Is(refusal, &Error{Code: CodeLeaseHeld}) {
		t.Errorf("just before its end: %v", refusal)
	}
	stopped := func(s State, want string) {
		t.Helper()
		inst, _ := s.Instances.Get("i1")
		if !inst.Terminal() || inst.Status.Reason != want {
			t.Errorf("instance is %s/%s (%s), want it stopped (%s)", inst.Desired, inst.Status.Observed, inst.Status.Reason, want)
		}
	}
	stopped(run(t, s, end, &NodeConfirmDead{ID: "n1"}), "confirmed dead by the operator")
	forced := run(t, s, 10_001, &NodeConfirmDead{ID: "n1", Force: true})
	stopped(forced, "confirmed dead by the operator, by force while its lease may hold")
	run(t, forced, 10_002, &NodeConfirmDead{ID: "n1"}) // said again: nothing is left that could run
}

// What runs under no lease is not made safer by waiting.
func TestConfirmDeadOfWhatIsNotFenced(t *testing.T) {
	local := fencedSpec()
	local.Groups[0].Volumes = []VolumeSpec{{Name: "data", Kind: VolumeLocal, Path: "/data"}}
	for name, spec := range map[string]JobSpec{"ordinary": webSpec(), "local volume": local} {
		t.Run(name, func(t *testing.T) {
			s := leaseState(t, spec, 6*Second)
			s = run(t, s, 10_000, offline(s, "n1"))
			run(t, s, 10_001, &NodeConfirmDead{ID: "n1"})
		})
	}
}

// An agent that was cut off before it heard of a shorter offline_after uses the longer lease of before.
func TestConfirmDeadAfterTheLeaseWasShortened(t *testing.T) {
	s := leaseState(t, fencedSpec(), Minute)
	settings := s.Settings
	settings.OfflineAfter = 6 * Second
	s = run(t, s, 5000, &SettingsSet{Settings: settings})
	again := register("n1") // the agent, and not the machine, was restarted: its shims hold the old lease
	s = run(t, s, 6000, again, &NodeReport{ID: "n1", Epoch: 2, Full: true, Instances: []InstanceStatus{{ID: "i1", Generation: 2, Observed: ObservedReady}}})
	down := run(t, s, 13_000, offline(s, "n1"))
	inst, _ := down.Instances.Get("i1")
	grace := down.graceOf(inst, nil)
	if _, refusal := attempt(down, Time(13_000).Add(Minute+grace), &NodeConfirmDead{ID: "n1"}); !errors.Is(refusal, &Error{Code: CodeLeaseHeld}) {
		t.Errorf("while the old lease may hold: %v", refusal)
	}
	run(t, down, Time(13_000).Add(Minute+grace+leaseMargin), &NodeConfirmDead{ID: "n1"})
	back := run(t, down, 13_000+100_000, register("n1"), &NodeReport{ID: "n1", Epoch: 3, Full: true, Instances: []InstanceStatus{{ID: "i1", Generation: 2, Observed: ObservedReady}}})
	if n, _ := back.Nodes.Get("n1"); n.Return.Lease != 0 {
		t.Errorf("a lease of %s is remembered after an outage that was longer", n.Return.Lease)
	}
}
