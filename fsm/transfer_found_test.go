package fsm

import (
	"errors"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// foundState returns a state in which i1 on n1 uses a local volume, and the volume's row. The node n2 is empty.
func foundState(t *testing.T) (State, *Volume) {
	t.Helper()
	spec := webSpec()
	spec.Groups[0].Count, spec.Groups[0].Volumes = 1,
		[]model.VolumeSpec{{Name: "rows", Kind: model.VolumeLocal, Path: "/rows"}}
	s := leaseState(t, spec, 6*model.Second)
	s = run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true})
	v, ok := s.Volumes.Get(model.NewVolumeID(aloneGroup, 0, "rows"))
	if !ok {
		t.Fatal("there is no volume")
	}
	return s, v
}

func attachFound(v *Volume, node model.NodeID, found ...model.VolumeEpoch) *TransferStart {
	return &TransferStart{ID: "t1", Work: model.TransferAttach, Volume: v.ID, To: node, Found: found}
}

// Data that the state does not know is attached once the agent of the node with the data has reported it, and the
// slot's instance has stopped.
func TestAttachFoundData(t *testing.T) {
	s, v := foundState(t)
	s = run(t, s, 2000, attachFound(v, "n2", model.VolumeEpoch{Name: "rows", Epoch: 7}))
	refused := func(to model.TransferPhase, code model.Code) {
		t.Helper()
		_, refusal := attempt(s, 2000, &TransferStep{ID: "t1", Phase: to})
		wantCode(t, string(to), refusal, code)
	}
	refused(model.TransferStopping, model.CodeStale)
	refused(model.TransferFailed, model.CodeInvalid) // because the step does not say why the transfer failed
	s = run(t, s, 2000, &TransferStep{ID: "t1", Phase: model.TransferRunning})
	refused(model.TransferStopping, model.CodeStale) // because n2's agent has not reported the data
	s = run(t, s, 2000, &NodeReport{ID: "n2", Transfers: []model.TransferReport{{ID: "t1", State: model.SideVerified}}},
		&TransferStep{ID: "t1", Phase: model.TransferStopping})
	refused(model.TransferAttaching, model.CodeVolumeInUse)
	s = run(t, s, 2000, &InstanceStop{ID: "i1", Cause: model.CauseUser, Bypass: true},
		&NodeReport{ID: "n1", Instances: []model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedStopped}}},
		&TransferStep{ID: "t1", Phase: model.TransferAttaching})
	now, _ := s.Volumes.Get(v.ID)
	if now.Home != "n2" || now.Made <= v.Made || !now.Held {
		t.Errorf("the volume is %+v", now)
	}
	done, _ := s.Transfers.Get("t1")
	if done.Left.Old != "n1" || done.Epochs[0] != v.Made || done.Found[0] != 7 {
		t.Errorf("the transfer is %+v", done)
	}
	if kept, ok := s.KeptBy(v.Group, 0, "n1", model.VolumeEpoch{Name: "rows", Epoch: v.Made}); !ok || kept.ID != "t1" {
		t.Errorf("what it replaced is kept by %+v", kept)
	}
}

// If the agent reports that it does not have the data, the attachment fails and no instance is stopped.
func TestAttachFoundDataThatIsMissing(t *testing.T) {
	s, v := foundState(t)
	s = run(t, s, 2000, attachFound(v, "n2", model.VolumeEpoch{Name: "rows", Epoch: 7}),
		&TransferStep{ID: "t1", Phase: model.TransferRunning},
		&NodeReport{ID: "n2",
			Transfers: []model.TransferReport{
				{ID: "t1", State: model.SideFailed, Code: model.CodeNotFound, Message: "there is no data"}}})
	now, _ := s.Volumes.Get(v.ID)
	if inst, _ := s.Instances.Get("i1"); !inst.Wanted() || now.Home != "n1" || now.Made != v.Made || now.Transfer != "" {
		t.Errorf("the instance is %+v, the volume %+v", inst, now)
	}
}

func TestAttachFoundRefusals(t *testing.T) {
	s, v := foundState(t)
	for name, c := range map[string]struct {
		state State
		start *TransferStart
		code  model.Code
	}{
		"in use": {s, attachFound(v, "n1", model.VolumeEpoch{Name: "rows", Epoch: v.Made}),
			model.CodeConflict},
		"no epoch": {s, attachFound(v, "n2", model.VolumeEpoch{Name: "rows", Epoch: 0}),
			model.CodeInvalid},
		"twice": {s,
			attachFound(v, "n2", model.VolumeEpoch{Name: "rows", Epoch: 7}, model.VolumeEpoch{Name: "rows", Epoch: 8}),
			model.CodeInvalid},
		"too many": {s, attachFound(v, "n2", make([]model.VolumeEpoch, maxHoldingParts+1)...),
			model.CodeInvalid},
		"no name": {s, attachFound(v, "n2", model.VolumeEpoch{Name: "../rows", Epoch: 7}),
			model.CodeInvalid},
		"another volume": {s, attachFound(v, "n2", model.VolumeEpoch{Name: "logs", Epoch: 7}),
			model.CodeInvalid},
		"no volume": {s,
			attachFound(&Volume{ID: "web"}, "n2", model.VolumeEpoch{Name: "rows", Epoch: 7}), model.CodeInvalid},
		"a prefix": {s,
			attachFound(&Volume{ID: "web/a/0/rows"}, "n2", model.VolumeEpoch{Name: "rows", Epoch: 7}), model.CodeNotFound},
		"no node": {s, attachFound(v, "n9", model.VolumeEpoch{Name: "rows", Epoch: 7}),
			model.CodeNotFound},
		"not in the group": {s,
			attachFound(&Volume{ID: "web/api/0/logs"}, "n2", model.VolumeEpoch{Name: "logs", Epoch: 7}), model.CodeConflict},
		"another in a slot": {s,
			attachFound(v, "n2", model.VolumeEpoch{Name: "rows", Epoch: 7}, model.VolumeEpoch{Name: "logs", Epoch: 7}),
			model.CodeConflict},
		"not confirmed": {run(t, s, 2000, &RestoreMark{}),
			attachFound(v, "n2", model.VolumeEpoch{Name: "rows", Epoch: 7}), model.CodeRestoreUnconfirmed},
		"a move before a restore is confirmed": {run(t, s, 2000, &RestoreMark{}),
			&TransferStart{ID: "t1", Work: model.TransferMigrate, Volume: v.ID, To: "n2"}, model.CodeRestoreUnconfirmed},
		"a backup before a restore is confirmed": {run(t, s, 2000, &RestoreMark{}),
			&TransferStart{ID: "t1", Work: model.TransferBackup, Volume: v.ID, To: "n2"}, model.CodeRestoreUnconfirmed},
	} {
		t.Run(name, func(t *testing.T) {
			_, refusal := attempt(c.state, 2000, c.start)
			wantCode(t, "attach", refusal, c.code)
		})
	}
}

// All volumes of a slot must be on one node. So found data can be attached only for both volumes of the slot at once.
func TestAttachFoundDataOfASlot(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count, spec.Groups[0].Volumes = 1, []model.VolumeSpec{
		{Name: "rows", Kind: model.VolumeLocal, Path: "/rows"}, {Name: "logs", Kind: model.VolumeLocal, Path: "/logs"}}
	s := leaseState(t, spec, 6*model.Second)
	s = run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true})
	v, _ := s.Volumes.Get(model.NewVolumeID(aloneGroup, 0, "rows"))
	rows, logs := model.VolumeEpoch{Name: "rows", Epoch: 7}, model.VolumeEpoch{Name: "logs", Epoch: 8}
	_, refusal := attempt(s, 2000, attachFound(v, "n2", rows))
	wantCode(t, "one of two", refusal, model.CodeConflict)
	_, refusal = attempt(s, 2000, attachFound(v, "n2", rows, logs))
	wantCode(t, "both", refusal, "")
}

// An old copy that a transfer left can't be attached as found data. The hint of the refusal names the copy's id. While
// a transfer attaches the copy by its id, the copy can't be removed.
func TestAttachFoundOldCopy(t *testing.T) {
	s, v := foundState(t)
	moved := *v
	moved.Home, moved.Made = "n2", v.Made+1
	s = run(t, s, 2000, &InstanceStop{ID: "i1", Cause: model.CauseUser, Bypass: true},
		&NodeReport{ID: "n1", Instances: []model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedStopped}}})
	s.Volumes.put(v.ID, &moved)
	s.Transfers.put("t0", &Transfer{ID: "t0", Kind: model.TransferMigrate, Group: v.Group, Names: []string{"rows"},
		Phase: model.TransferSucceeded, Epochs: []uint64{v.Made},
		Left: TransferLeft{Old: "n1"}, Marks: TransferMarks{Index: 1, EndedIndex: 1}})
	_, refusal := attempt(s, 2000, attachFound(v, "n1", model.VolumeEpoch{Name: "rows", Epoch: v.Made}))
	wantCode(t, "attach", refusal, model.CodeConflict)
	var e *model.Error
	if errors.As(refusal, &e) && e.Hint != "to put it to use: outspan volume attach web/api/0/rows@t0" {
		t.Errorf("the hint is %q", e.Hint)
	}
	_, refusal = attempt(s, 2000, &TransferCancel{ID: "t0"})
	wantCode(t, "remove the old copy", refusal, "")
	s = run(t, s, 2000, &TransferStart{ID: "t2", Work: model.TransferAttach, Volume: v.ID + "@t0"})
	_, refusal = attempt(s, 2000, &TransferCancel{ID: "t0"})
	wantCode(t, "remove the old copy while it is attached", refusal, model.CodeConflict)
}

// A transfer that is in progress in a restored snapshot may have finished after the snapshot was taken. So while an
// instance that the state does not know may use a volume, no transfer replaces the volume's data. If that instance is
// adopted, the transfer fails.
func TestTransferBehindARestore(t *testing.T) {
	s, v := foundState(t)
	spec, _ := s.Spec(v.Group, 1)
	s = run(t, s, 2000, attachFound(v, "n2", model.VolumeEpoch{Name: "rows", Epoch: 7}),
		&TransferStep{ID: "t1", Phase: model.TransferRunning},
		&NodeReport{ID: "n2", Transfers: []model.TransferReport{{ID: "t1", State: model.SideVerified}}}, &RestoreMark{})
	refused := func(what string, code model.Code) {
		t.Helper()
		for _, to := range []model.TransferPhase{model.TransferStopping, model.TransferAttaching} {
			now := s
			if to == model.TransferAttaching { // as if the snapshot had been taken a moment later
				row, _ := s.Transfers.Get("t1")
				next := *row
				next.Phase = model.TransferStopping
				f := s.fork()
				f.Transfers.put("t1", &next)
				now = *f
			}
			_, refusal := attempt(now, 2000, &TransferStep{ID: "t1", Phase: to})
			wantCode(t, what+", "+string(to), refusal, code)
		}
	}
	s = inventory(t, s, "n1",
		[]model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedStopped, Reason: model.ReasonEnded}})
	refused("not confirmed", model.CodeRestoreUnconfirmed)
	s = run(t, s, 2000, &RestoreMark{Confirm: true})
	refused("n2 has not told", model.CodeInventoryMissing)
	x := model.Holding{ID: "x", Group: v.Group, Spec: spec.Digest(), Ports: model.Ports{{Name: "http", Number: 20001}},
		Copies: []model.VolumeEpoch{{Name: "rows", Epoch: v.Made + 1}}}
	s = inventory(t, s, "n2", []model.InstanceStatus{{ID: "x", Generation: 5, Observed: model.ObservedReady}}, x)
	refused("x uses the newest data", model.CodeSlotTaken)
	s = run(t, s, 2000, &InstanceAdopt{ID: "x"})
	if ended, _ := s.Transfers.Get("t1"); ended.Phase != model.TransferFailed ||
		ended.Failure.Code != model.CodeVolumeInUse {
		t.Errorf("the transfer is %+v", ended)
	}
	if now, _ := s.Volumes.Get(v.ID); now.Home != "n2" || now.Made != v.Made+1 {
		t.Errorf("the volume is %+v", now)
	}
}

// A restored snapshot may lack a move that put a volume's current data aside. If no instance uses the volume, an
// attachment on its home node puts the data back into use. No other data is replaced, so no old copy is left.
func TestAttachPutAside(t *testing.T) {
	s, v := foundState(t)
	again := attachFound(v, "n1", model.VolumeEpoch{Name: "rows", Epoch: v.Made})
	s = run(t, s, 2000,
		&NodeReport{ID: "n1", Instances: []model.InstanceStatus{{ID: "i1", Generation: 98, Observed: model.ObservedReady}}})
	_, refusal := attempt(s, 2000, again)
	wantCode(t, "attach what an instance uses", refusal, model.CodeConflict)
	failed := model.InstanceStatus{ID: "i1", Generation: 99, Observed: model.ObservedFailed, Reason: "start_failed"}
	s = run(t, s, 2000, &NodeReport{ID: "n1", Instances: []model.InstanceStatus{failed}})
	s = run(t, s, 2000, again, &TransferStep{ID: "t1", Phase: model.TransferRunning},
		&NodeReport{ID: "n1", Transfers: []model.TransferReport{{ID: "t1", State: model.SideVerified}}},
		&TransferStep{ID: "t1", Phase: model.TransferStopping},
		&InstanceStop{ID: "i1", Cause: model.CauseUser, Bypass: true},
		&NodeReport{ID: "n1",
			Instances: []model.InstanceStatus{{ID: "i1", Generation: 100, Observed: model.ObservedStopped}}})
	s = run(t, s, 2000, &TransferStep{ID: "t1", Phase: model.TransferAttaching})
	now, _ := s.Volumes.Get(v.ID)
	done, _ := s.Transfers.Get("t1")
	if now.Home != "n1" || now.Made <= v.Made || done.Left != (TransferLeft{}) {
		t.Errorf("the volume is %+v, the transfer %+v", now, done)
	}
}

// A restored snapshot may have a transfer in the phase attaching that finished after the snapshot was taken. An unknown
// instance that uses the attached data or newer data is adopted, and the transfer fails. An unknown instance with older
// data, or with the attached data on another node, is not adopted.
func TestAdoptBehindAnAttachingTransfer(t *testing.T) {
	for name, c := range map[string]struct {
		node  model.NodeID
		newer int
		code  model.Code
	}{
		"on what was attached": {"n2", 0, ""}, "moved on since": {"n1", 1, ""},
		"on what was replaced": {"n1", -1, model.CodeStale}, "elsewhere": {"n1", 0, model.CodeStale},
	} {
		t.Run(name, func(t *testing.T) {
			s, v := foundState(t)
			s = run(t, s, 2000, attachFound(v, "n2", model.VolumeEpoch{Name: "rows", Epoch: 7}),
				&TransferStep{ID: "t1", Phase: model.TransferRunning},
				&NodeReport{ID: "n2", Transfers: []model.TransferReport{{ID: "t1", State: model.SideVerified}}},
				&TransferStep{ID: "t1", Phase: model.TransferStopping},
				&InstanceStop{ID: "i1", Cause: model.CauseUser, Bypass: true},
				&NodeReport{ID: "n1",
					Instances: []model.InstanceStatus{{ID: "i1", Generation: 99, Observed: model.ObservedStopped}}},
				&TransferStep{ID: "t1", Phase: model.TransferAttaching}, &RestoreMark{})
			row, _ := s.Volumes.Get(v.ID)
			spec, _ := s.Spec(v.Group, 1)
			s = run(t, s, 2000, &RestoreMark{Confirm: true})
			x := model.Holding{ID: "x", Group: v.Group, Spec: spec.Digest(), Ports: model.Ports{{Name: "http", Number: 20001}},
				Copies: []model.VolumeEpoch{{Name: "rows", Epoch: uint64(int(row.Made) + c.newer)}}}
			for _, node := range []model.NodeID{"n1", "n2"} {
				if node == c.node {
					s = inventory(t, s, node, []model.InstanceStatus{{ID: "x", Generation: 5, Observed: model.ObservedReady}}, x)
				} else {
					s = inventory(t, s, node, nil)
				}
			}
			after, refusal := attempt(s, 2000, &InstanceAdopt{ID: "x"})
			if c.code != "" {
				wantCode(t, "adopt", refusal, c.code)
				return
			}
			if refusal != nil {
				t.Fatal(refusal)
			}
			if err := Check(after); err != nil {
				t.Error(err)
			}
			ended, _ := after.Transfers.Get("t1")
			now, _ := after.Volumes.Get(v.ID)
			if ended.Phase != model.TransferFailed || ended.Left.Old != "n1" || now.Home != c.node ||
				now.Made != x.Copies[0].Epoch {
				t.Errorf("the transfer is %+v, the volume %+v", ended, now)
			}
		})
	}
}

// If an agent reports a transfer as failed, the code and the message are shortened before they are stored.
func TestFailureOfATransferIsBounded(t *testing.T) {
	s, v := foundState(t)
	s = run(t, s, 2000, attachFound(v, "n2", model.VolumeEpoch{Name: "rows", Epoch: 7}),
		&TransferStep{ID: "t1", Phase: model.TransferRunning},
		&NodeReport{ID: "n2",
			Transfers: []model.TransferReport{{ID: "t1", State: model.SideFailed, Code: model.Code(strings.Repeat("x", 900_000)),
				Message: strings.Repeat("m", 1000)}}})
	made, _ := s.Transfers.Get("t1")
	if made.Phase != model.TransferFailed || len(made.Failure.Code) != 64 || len(made.Failure.Message) != 256 {
		t.Errorf("%s: a code of %d bytes, a message of %d", made.Phase, len(made.Failure.Code), len(made.Failure.Message))
	}
}
