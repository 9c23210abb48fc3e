package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// An instance above its disk limit is a problem of the cluster, until its usage is below the limit. The problem says
// what the usage is and what to do.
func TestDiskOfAnInstance(t *testing.T) {
	r := newRig(t, "s1", "s2", "s3")
	r.node("01N1", "n1")
	r.node("01N2", "n2")
	web := spec("web", 12)
	web.Groups[0].Resources.DiskBytes = 2 << 30
	r.apply(&fsm.JobSubmit{Spec: web})
	for slot := range 12 {
		r.place(model.InstanceID(fmt.Sprintf("inst-%02d", slot)), slot, "01N2", model.ObservedReady)
	}
	gen := uint64(0)
	told := func(uses ...model.DiskUse) {
		gen++
		r.apply(&fsm.NodeReport{ID: "01N2", Epoch: r.epoch("01N2"),
			Self: &model.SelfReport{Gen: gen, Disk: uses, Measured: true}})
	}
	want := func(above bool, used json.Number, atLeast bool, next string) {
		t.Helper()
		disk := map[string]any{"limit_bytes": json.Number("2147483648"), "above": above, "used_bytes": used,
			"at_least": atLeast, "next": next}
		if diff := cmp.Diff(disk, get(t, r.cli(), "/v1/instances/inst-03")["disk"]); diff != "" {
			t.Error(diff)
		}
	}
	told()
	want(false, "0", false, "")
	if got := problemsNow(t, r, ""); len(got) > 0 {
		t.Errorf("problems: %q", got)
	}

	use := model.DiskUse{ID: "inst-03", UsedBytes: 3 << 30, LimitBytes: 2 << 30, AtLeast: true, Dir: "/data/inst-03"}
	told(use, model.DiskUse{ID: "unknown", UsedBytes: 2, LimitBytes: 1})
	next := "on n2: du -ah /data/inst-03 | sort -h; to begin anew with an empty one: outspan instance evict inst-03"
	want(true, "3221225472", true, next)
	problem :=
		"instance_disk instance/inst-03: web/http on n2: its work directory has at least 3GiB, its limit is 2GiB -> " + next
	if got := problemsNow(t, r, ""); len(got) != 1 || got[0] != problem {
		t.Errorf("problems: %q", got)
	}

	var all []model.DiskUse
	for slot := range 12 {
		all = append(all,
			model.DiskUse{ID: model.InstanceID(fmt.Sprintf("inst-%02d", slot)), UsedBytes: 3 << 30, LimitBytes: 2 << 30})
	}
	told(all...)
	rest := "instance_disk instances: 4 more like these -> outspan events --type instance.disk_changed"
	if got := problemsNow(t, r, ""); len(got) != 9 || !strings.HasSuffix(got[8], rest) {
		t.Errorf("problems: %q", got)
	}

	told()
	want(false, "0", false, "")
	if got := problemsNow(t, r, ""); len(got) > 0 {
		t.Errorf("problems: %q", got)
	}
}
