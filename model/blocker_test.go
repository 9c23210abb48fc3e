package model_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
)

func TestSumBlockers(t *testing.T) {
	local := func(id model.InstanceID, slot int) model.Blocker {
		volume := model.NewVolumeID("db/pg", slot, "data")
		return model.Blocker{
			Code: model.CodeVolumeLocal, Instance: id, Volume: volume,
			Message: "instance " + string(id) + " holds the local volume " + string(volume),
			Unblock: "outspan node ack-blockers n1, or move it: outspan volume migrate " + string(volume) + " --to NODE",
		}
	}
	stopping := model.Blocker{Code: model.CodeStopping, Instance: "x", Message: "it is stopping"}
	var got []string
	for _, s := range model.SumBlockers([]model.Blocker{local("inst1", 0), stopping, local("inst2", 1),
		local("inst3", 2), local("inst4", 3)}) {
		got = append(got, string(s.Code), s.Who(), s.What(), s.Message, s.Unblock)
	}
	want := []string{
		"volume_local", "4 instances (inst1, inst2, inst3 and 1 more)",
		"4 volumes (db/pg/0/data, db/pg/1/data, db/pg/2/data and 1 more)",
		"the instance holds the local volume VOLUME",
		"outspan node ack-blockers n1, or move it: outspan volume migrate VOLUME --to NODE",
		"stopping", "instance x", "", "it is stopping", "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if alone := model.SumBlockers(
		[]model.Blocker{local("inst1", 0)}); alone[0].Message != "instance inst1 holds the local volume db/pg/0/data" {
		t.Errorf("of one blocker: %+v", alone[0])
	}
}
