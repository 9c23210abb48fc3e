package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// An instance that a restored state does not know is adopted only if it fits its slot, and if it is certain that no
// other instance holds the slot.
func TestAdopt(t *testing.T) {
	base := aloneState(t)
	spec, _ := base.Spec(aloneGroup, 1)
	x := model.Holding{ID: "x", Group: aloneGroup, Spec: spec.Digest(),
		Ports: model.Ports{{Name: "http", Number: 20001}}, RestartSeq: 4}
	scaled := *spec
	scaled.Count, scaled.Budget = spec.Count+3, nil
	running := model.InstanceStatus{ID: "i1", Generation: 99, Observed: model.ObservedReady}
	ended := model.InstanceStatus{ID: "i1", Generation: 99, Observed: model.ObservedStopped, Reason: model.ReasonEnded}
	for _, tt := range []struct {
		name        string
		i1          model.InstanceStatus
		x           model.Holding
		beside      []model.Holding // unknown instances on n2
		silent      bool            // n2 has not reported
		unconfirmed bool
		want        model.Code
	}{
		{name: "alone", i1: ended, x: x},
		{name: "the holder runs", i1: running, x: x, want: model.CodeSlotTaken},
		{name: "two of them", i1: ended, x: x, beside: []model.Holding{{ID: "y", Group: aloneGroup}},
			want: model.CodeSlotTaken},
		{name: "one that may be any", i1: ended, x: x, beside: []model.Holding{{ID: "y"}}, want: model.CodeSlotTaken},
		{name: "of another slot", i1: ended, x: x, beside: []model.Holding{{ID: "y", Group: "web/other"}}},
		{name: "a node has not told", i1: ended, x: x, silent: true, want: model.CodeInventoryMissing},
		{name: "not confirmed", i1: ended, x: x, unconfirmed: true, want: model.CodeRestoreUnconfirmed},
		{name: "its group was scaled meanwhile", i1: ended,
			x: model.Holding{ID: "x", Group: aloneGroup, Spec: scaled.Digest(), Ports: x.Ports, RestartSeq: 4}},
		{name: "of another version", i1: ended, x: model.Holding{ID: "x", Group: aloneGroup, Spec: "other", Ports: x.Ports},
			want: model.CodeStale},
		{name: "it is to stop", i1: ended,
			x: model.Holding{ID: "x", Group: aloneGroup, Spec: x.Spec, Ports: x.Ports, Ends: true}, want: model.CodeStale},
		{name: "no slot", i1: ended, x: model.Holding{ID: "x", Group: aloneGroup, Slot: 7, Spec: x.Spec, Ports: x.Ports},
			want: model.CodeStale},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := run(t, base, 2000, &RestoreMark{})
			s = inventory(t, inventory(t, s, "n1", []model.InstanceStatus{tt.i1}), "n3",
				[]model.InstanceStatus{{ID: "x", Generation: 5, Observed: model.ObservedReady}}, tt.x)
			if !tt.silent {
				s = inventory(t, s, "n2", nil, tt.beside...)
			}
			if !tt.unconfirmed {
				s = run(t, s, 2000, &RestoreMark{Confirm: true})
			}
			if tt.x.Ends {
				s = run(t, s, 2000, &InstanceStop{ID: "x", Cause: model.CauseUser})
			}
			s, refusal := attempt(s, 2000, &InstanceAdopt{ID: "x"})
			wantCode(t, "adopt", refusal, tt.want)
			if refusal != nil {
				return
			}
			s = run(t, s, 2000,
				&NodeReport{ID: "n3", Instances: []model.InstanceStatus{{ID: "x", Generation: 5, Observed: model.ObservedReady}}})
			got, _ := s.Instances.Get("x")
			old, _ := s.Instances.Get("i1")
			n3, _ := s.Nodes.Get("n3")
			if !got.Ready() || got.Node != "n3" || got.Version != 1 || got.Links.RestartSeq != 4 ||
				old.Desired != model.DesiredStopped || n3.Restore.Unknown != nil {
				t.Errorf("x is %+v, i1 %s, unknown on n3 %v", got, old.Desired, n3.Restore.Unknown)
			}
			if port, _ := got.Claims.Ports.Get("http"); port != 20001 {
				t.Errorf("its ports are %v", got.Claims.Ports)
			}
		})
	}
}

// The claim of its own slot does not keep an unknown instance from being adopted, and ends.
func TestAdoptEndsAClaim(t *testing.T) {
	s := pullState(t)
	job := pulledJob(1)
	job.Groups[0].Count, job.Groups[0].Replacement = 1, model.ReplacementSpec{Identity: "same"}
	s = run(t, s, 1000, &JobSubmit{Spec: job})
	g, _ := s.Groups.Get("web/http")
	spec, _ := s.Spec(g.ID, g.Version)
	want := wantImage(0, "n1")
	want.Version = g.Version
	s = run(t, s, 1000, want, &RestoreMark{})
	s = inventory(t, s, "n1", []model.InstanceStatus{{ID: "x", Generation: 5, Observed: model.ObservedReady}},
		model.Holding{ID: "x", Group: g.ID, Spec: spec.Digest(), Ports: model.Ports{{Name: "http", Number: 8080}}})
	s = run(t, inventory(t, s, "n2", nil), 2000, &RestoreMark{Confirm: true}, &InstanceAdopt{ID: "x"})
	sound(t, s)
	if n, _ := s.Nodes.Get("n1"); s.Pulls.Len() != 0 || n.Promised != 0 {
		t.Errorf("%d claims, %d promised", s.Pulls.Len(), n.Promised)
	}
}

// When an instance is adopted, the row of its volume gets the node and the epoch of the data that the instance uses,
// instead of those in the restored state.
func TestAdoptWithVolume(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count, spec.Groups[0].Volumes = 1,
		[]model.VolumeSpec{{Name: "rows", Kind: model.VolumeLocal, Path: "/rows"}}
	s := leaseState(t, spec, 6*model.Second)
	s = run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true}, &RestoreMark{})
	group, _ := s.Spec(aloneGroup, 1)
	s = inventory(t, s, "n1",
		[]model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedStopped, Reason: model.ReasonEnded}})
	s = inventory(t, s, "n2", nil,
		model.Holding{ID: "x", Group: aloneGroup, Spec: group.Digest(), Ports: model.Ports{{Name: "http", Number: 20001}},
			Copies: []model.VolumeEpoch{{Name: "rows", Epoch: 4711}}})
	s = run(t, s, 2000, &RestoreMark{Confirm: true}, &InstanceAdopt{ID: "x"})
	if v, _ := s.Volumes.Get(model.NewVolumeID(aloneGroup, 0, "rows")); v.Home != "n2" || v.Made != 4711 || !v.Held {
		t.Errorf("the volume is %+v", v)
	}
	x, _ := s.Instances.Get("x")
	if epochs, held := s.CopiesUsed(x); epochs["rows"] != 4711 || len(held) != 1 {
		t.Errorf("its agent is told of %v, held %v", epochs, held)
	}
}

// An instance is adopted only if its data is known to be the newest of its volume. Otherwise a person must decide.
func TestAdoptKeepsNewerData(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count, spec.Groups[0].Volumes = 1,
		[]model.VolumeSpec{{Name: "rows", Kind: model.VolumeLocal, Path: "/rows"}}
	base := leaseState(t, spec, 6*model.Second)
	base = run(t, base, 1000, register("n2"), &NodeReport{ID: "n2", Full: true}, &RestoreMark{})
	group, _ := base.Spec(aloneGroup, 1)
	base = inventory(t, base, "n1",
		[]model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedStopped, Reason: model.ReasonEnded}})
	before, _ := base.Volumes.Get(model.NewVolumeID(aloneGroup, 0, "rows"))
	for name, copies := range map[string][]model.VolumeEpoch{
		"older": {{Name: "rows", Epoch: before.Made - 1}}, "the same at another home": {{Name: "rows", Epoch: before.Made}},
		"without an epoch": {{Name: "rows", Epoch: 0}}, "not told": nil,
	} {
		t.Run(name, func(t *testing.T) {
			x := model.Holding{ID: "x", Group: aloneGroup, Spec: group.Digest(),
				Ports: model.Ports{{Name: "http", Number: 20001}}, Copies: copies}
			s := run(t, inventory(t, base, "n2", nil, x), 2000, &RestoreMark{Confirm: true})
			s, refusal := attempt(s, 2000, &InstanceAdopt{ID: "x"})
			wantCode(t, "adopt", refusal, model.CodeStale)
			if v, _ := s.Volumes.Get(before.ID); v.Made != before.Made || v.Home != before.Home {
				t.Errorf("the volume was %+v and is %+v", before, v)
			}
		})
	}
}

// An adopted instance on a draining node is protected by its role at once. Until the agent has reported the instance's
// status, a stop for a rollout is refused too.
func TestAdoptOnDrainingNode(t *testing.T) {
	job := webSpec()
	job.Groups[0].Count, job.Groups[0].Role = 1, model.RoleSingleton
	s := leaseState(t, job, 6*model.Second)
	s = run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true}, register("n3"),
		&NodeReport{ID: "n3", Full: true})
	spec, _ := s.Spec(aloneGroup, 1)
	s = run(t, s, 2000, &RestoreMark{})
	s = inventory(t, s, "n1",
		[]model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedStopped, Reason: model.ReasonEnded}})
	s = inventory(t, s, "n2", nil)
	s = inventory(t, s, "n3", nil,
		model.Holding{ID: "x", Group: aloneGroup, Spec: spec.Digest(), Ports: model.Ports{{Name: "http", Number: 20001}}})
	s = run(t, s, 2000, &RestoreMark{Confirm: true},
		&DrainStart{ID: "d1", Nodes: []string{"n3"}, Options: model.DrainOptions{Deadline: model.Hour}},
		&InstanceAdopt{ID: "x"})
	if err := Check(s); err != nil {
		t.Error(err)
	}
	_, refusal := attempt(s, 2000, &InstanceStop{ID: "x", Cause: model.CauseNodeDraining, By: "d1"})
	wantCode(t, "stop", refusal, model.CodeRoleNever)
	_, refusal = attempt(s, 2000, &InstanceStop{ID: "x", Cause: model.CauseRollout})
	wantCode(t, "stop before its agent has told", refusal, model.CodeInventoryMissing)
	s = run(t, s, 2000,
		&NodeReport{ID: "n3", Instances: []model.InstanceStatus{{ID: "x", Generation: 5, Observed: model.ObservedReady}}})
	_, refusal = attempt(s, 2000, &InstanceStop{ID: "x", Cause: model.CauseRollout})
	wantCode(t, "stop of what its agent has told", refusal, "")
}

// Two members of a group with replicated volumes never share a node, even if the restored state does not know one of
// the two.
func TestAdoptKeepsMembersApart(t *testing.T) {
	job := webSpec()
	job.Groups[0].Count, job.Groups[0].Volumes = 2,
		[]model.VolumeSpec{{Name: "rows", Kind: model.VolumeReplicated, Path: "/rows"}}
	job.Groups[0].RoleCheck = &model.RoleCheckSpec{Exec: []string{"/bin/facts"}}
	s := leaseState(t, job, 6*model.Second)
	s = run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true}, register("n3"),
		&NodeReport{ID: "n3", Full: true}, &RestoreMark{})
	group, _ := s.Spec(aloneGroup, 1)
	s = inventory(t, s, "n1",
		[]model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedStopped, Reason: model.ReasonEnded}})
	s = inventory(t, s, "n2", nil,
		model.Holding{ID: "x", Group: aloneGroup, Slot: 1, Spec: group.Digest(),
			Ports: model.Ports{{Name: "http", Number: 20001}}, Copies: []model.VolumeEpoch{{Name: "rows", Epoch: 5}}})
	s = run(t, inventory(t, s, "n3", nil), 2000, &RestoreMark{Confirm: true})
	_, refusal := attempt(s, 2000, placed("i9", aloneGroup, 0, "n2", 20002))
	wantCode(t, "a placement beside an unknown member", refusal, model.CodeAntiAffinity)
	s = run(t, s, 2000, placed("i9", aloneGroup, 0, "n3", 20002), &InstanceAdopt{ID: "x"})
	if err := Check(s); err != nil {
		t.Error(err)
	}
}
