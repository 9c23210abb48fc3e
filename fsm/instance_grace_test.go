package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// An instance that was replaced while its node was offline gets its full grace after the node returns. A person can end
// the grace early with a stop whose grace is zero, or with a kill whose field Now is set.
func TestGraceOfWhatWasReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		end  Command
		ends bool
		code model.Code
	}{
		"a stop with no grace": {end: &InstanceStop{ID: "i1", Cause: model.CauseUser, By: "now", Grace: new(model.Duration)},
			ends: true},
		"a kill now": {end: &InstanceKill{ID: "i1", Now: true}, ends: true},
		"a stop":     {end: &InstanceStop{ID: "i1", Cause: model.CauseUser}, code: model.CodeStopping},
		"a kill":     {end: &InstanceKill{ID: "i1"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := webSpec()
			spec.Groups[0].Count = 1
			s := leaseState(t, spec, 6*model.Second)
			s = run(t, s, 2000, register("n2"), &NodeReport{ID: "n2", Full: true})
			n, _ := s.Nodes.Get("n1")
			s = run(t, s, 2000, &NodeHealth{ID: "n1", Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch})
			next := placed("i2", aloneGroup, 0, "n2", 20001)
			next.Replaces, next.Cause = "i1", model.CauseNodeOffline
			s = run(t, s, 2000, next,
				&NodeReport{ID: "n2", Instances: []model.InstanceStatus{{ID: "i2", Generation: 1, Observed: model.ObservedReady}}},
				&InstanceStop{ID: "i1", Cause: model.CauseNodeOffline}, register("n1"))
			s = run(t, s, 2000,
				&NodeReport{ID: "n1", Full: true,
					Instances: []model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedReady}}})
			if i, _ := s.Instances.Get("i1"); !s.InGrace(i) {
				t.Fatalf("it is %+v", i)
			}
			after, refusal := attempt(s, 3000, c.end)
			if c.code != "" {
				wantCode(t, name, refusal, c.code)
				return
			}
			if refusal != nil {
				t.Fatal(refusal)
			}
			i, _ := after.Instances.Get("i1")
			was, _ := s.Nodes.Get("n1")
			now, _ := after.Nodes.Get("n1")
			if after.InGrace(i) == c.ends || i.Desired != model.DesiredStopped || c.ends != (now.Assigned > was.Assigned) {
				t.Errorf("it is %+v, its agent called at %d and %d", i, was.Assigned, now.Assigned)
			}
			if err := CheckStep(s, after); err != nil {
				t.Error(err)
			}
		})
	}
}

// The grace of a stop is at most 24 h, even for an operator. The wait for the end of a lease includes the grace. A
// larger grace could overflow this sum, and then the wait would be over at once.
//
// proves S2
func TestGraceOfAStopIsBounded(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count, spec.Groups[0].Exclusive = 1, &model.ExclusiveSpec{Lease: model.Minute}
	s := leaseState(t, spec, 6*model.Second)
	for _, c := range []struct {
		grace model.Duration
		code  model.Code
	}{{model.Forever, model.CodeInvalid}, {-model.Second, model.CodeInvalid}, {24*model.Hour + 1, model.CodeInvalid},
		{24 * model.Hour, ""}} {
		for name, command := range map[string]Command{
			"stop":    &InstanceStop{ID: "i1", Cause: model.CauseUser, Bypass: true, Grace: &c.grace},
			"prepare": &InstancePrepare{ID: "i1", Cause: model.CauseUser, Grace: &c.grace},
		} {
			after, refusal := attempt(s, 3000, command)
			if c.code != "" {
				wantCode(t, name, refusal, c.code)
				continue
			}
			if i, _ := after.Instances.Get("i1"); name == "stop" && (refusal != nil || i.Marks.StopGrace < c.grace) {
				t.Errorf("a stop with %s: %v, %+v", c.grace, refusal, i.Marks)
			}
		}
	}
}
