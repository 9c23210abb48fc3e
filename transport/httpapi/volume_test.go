package httpapi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// withVolume returns a rig with two nodes that have backup directories, and a volume in use on n1.
func withVolume(t *testing.T, servers ...string) *rig {
	t.Helper()
	r := newRig(t, servers...)
	for _, name := range []string{"n1", "n2"} {
		id := model.NodeID("01N" + name[1:])
		r.apply(&fsm.NodeRegister{ID: id, Name: name,
			Agent: model.AgentInfo{BootID: "b1", Incarnation: "i1", Address: "127.0.0.1",
				APIAddress: "127.0.0.1:1", Key: []byte("k")},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: 4 << 30},
				Attributes: map[string]string{model.AttributeBackup: "/b"}, PortMin: 20000, PortMax: 21000}})
		r.apply(&fsm.NodeReport{ID: id, Epoch: r.epoch(id), Full: true})
	}
	job := spec("web", 1)
	job.Groups[0].Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
	r.apply(&fsm.JobSubmit{Spec: job})
	r.place("inst-a", 0, "01N1", model.ObservedReady)
	return r
}

const volumeURL = "/v1/volumes/web%2Fhttp%2F0%2Fdata"

// The slashes in a volume's id are sent as %2F, even through a follower. A repeated request begins only one transfer.
func TestMigrateVolume(t *testing.T) {
	r := withVolume(t, "s1", "s2")
	c := r.cli("s2")
	v := get(t, c, volumeURL)
	if v["node"] != "n1" || v["state"] != "in_use" || v["instance"] != "inst-a" {
		t.Errorf("volume: %v", v)
	}
	path := volumeURL + "/migrate"
	query := values("request_id=r1")
	first, _, err := c.Do(t.Context(), "POST", path, query, map[string]any{"to": "n2", "keep": "1h"})
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := c.Do(t.Context(), "POST", path, query, map[string]any{"to": "n2", "keep": "1h"})
	if err != nil {
		t.Fatal(err)
	}
	one, two := decode(t, first)["transfer"].(map[string]any), decode(t, again)["transfer"].(map[string]any)
	if one["id"] != two["id"] || one["phase"] != "queued" || one["from"] != "n1" || one["to"] != "n2" {
		t.Errorf("transfers %v and %v", one, two)
	}
	_, _, err = c.Do(t.Context(), "POST", path, query, map[string]any{"to": "n1"})
	wantCode(t, err, model.CodeRequestConflict)
	_, _, err = c.Do(t.Context(), "POST", path, nil, map[string]any{"to": "n2"})
	wantCode(t, err, model.CodeVolumeInUse)
	if got := get(t, c, volumeURL); got["state"] != "moving" || got["transfer"] != one["id"] ||
		len(got["transfers"].([]any)) != 1 {
		t.Errorf("volume: %v", got)
	}
	if got := get(t, c, "/v1/volumes/web%2Fht"); got["id"] != "web/http/0/data" {
		t.Errorf("by a prefix: %v", got["id"])
	}
}

// Agents get the orders of each phase of a transfer. Only the orders to serve and to fetch have the transfer's token.
func TestTransferOrders(t *testing.T) {
	r := withVolume(t)
	id := model.TransferID(post(t, r.cli(), volumeURL+"/migrate",
		map[string]any{"to": "n2"})["transfer"].(map[string]any)["id"].(string))
	row, _ := r.machine.State().Transfers.Get(id)
	if len(row.Token) < 20 {
		t.Fatalf("token %q", row.Token)
	}
	told := func(name string) map[transport.TransferTask]string {
		t.Helper()
		got := must(r.client(pki.RoleAgent, name).
			Assignments(t.Context(),
				transport.AssignmentsRequest{Node: model.NodeID("01N" + name[1:]),
					Epoch: r.epoch(model.NodeID("01N" + name[1:]))}))(t)
		tasks := map[transport.TransferTask]string{}
		for _, o := range got.Transfers {
			tasks[o.Task] = o.Token
		}
		return tasks
	}
	step := func(phase model.TransferPhase) { r.apply(&fsm.TransferStep{ID: id, Phase: phase}) }
	say := func(node model.NodeID, state model.TransferState) {
		t.Helper()
		c := r.client(pki.RoleAgent, "n"+string(node[3:]))
		must(c.Report(t.Context(),
			transport.ReportRequest{Node: node, Epoch: r.epoch(node),
				Transfers: []model.TransferReport{{ID: id, State: state, Bytes: 5, Total: 5}}}))(t)
	}
	check := func(when string, n1, n2 map[transport.TransferTask]string) {
		t.Helper()
		if d := cmp.Diff([]map[transport.TransferTask]string{n1, n2},
			[]map[transport.TransferTask]string{told("n1"), told("n2")}); d != "" {
			t.Errorf("%s: %s", when, d)
		}
	}
	type tasks = map[transport.TransferTask]string
	r.apply(&fsm.TransferStep{ID: id, Phase: model.TransferStopping},
		&fsm.InstanceStop{ID: "inst-a", Cause: model.CauseUser, Bypass: true})
	check("stopping", tasks{}, tasks{})
	r.apply(&fsm.NodeReport{ID: "01N1", Epoch: r.epoch("01N1"),
		Instances: []model.InstanceStatus{{ID: "inst-a", Generation: 9, Observed: model.ObservedStopped}}})
	step(model.TransferCopying)
	check("copying", tasks{transport.TaskServe: row.Token}, tasks{transport.TaskFetch: row.Token})
	say("01N2", model.SideVerified)
	step(model.TransferVerifying)
	step(model.TransferAttaching)
	check("attaching", tasks{transport.TaskRetire: ""}, tasks{transport.TaskAttach: ""})
	say("01N2", model.SideAttached)
	step(model.TransferStarting)
	check("starting", tasks{transport.TaskRetire: ""}, tasks{})
	r.apply(&fsm.TransferCancel{ID: mustEnd(t, r, id)})
	check("the old copy is not wanted", tasks{transport.TaskDrop: ""}, tasks{})
	say("01N1", model.SideDropped)
	check("over", tasks{}, tasks{})
	if got := get(t, r.cli(), volumeURL); got["node"] != "n2" || len(got["old_copies"].([]any)) != 0 {
		t.Errorf("volume: %v", got)
	}
}

// The order for the target of a migration names the user who must own the volume, which is the user of the job, or says
// that the job runs an image, whose users own it. The order for the source does neither.
func TestTransferOrdersNameTheUser(t *testing.T) {
	t.Run("program", func(t *testing.T) {
		transferOrdersName(t, "postgres", false, func(g *model.GroupSpec) { g.Exec.User = "postgres" })
	})
	t.Run("container", func(t *testing.T) {
		transferOrdersName(t, "", true, func(g *model.GroupSpec) {
			g.Exec = model.ExecSpec{}
			g.Container = &model.ContainerSpec{Image: "reg/web@sha256:" + strings.Repeat("a", 64), User: "postgres"}
		})
	})
}

func transferOrdersName(t *testing.T, user string, container bool, change func(*model.GroupSpec)) {
	r := withVolume(t)
	job := spec("web", 1)
	job.Groups[0].Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
	change(&job.Groups[0])
	r.withRuntime("01N1", "")
	r.withRuntime("01N2", "")
	r.apply(&fsm.JobSubmit{Spec: job})
	id := model.TransferID(post(t, r.cli(), volumeURL+"/migrate",
		map[string]any{"to": "n2"})["transfer"].(map[string]any)["id"].(string))
	r.apply(&fsm.TransferStep{ID: id, Phase: model.TransferStopping},
		&fsm.InstanceStop{ID: "inst-a", Cause: model.CauseUser, Bypass: true})
	r.apply(&fsm.NodeReport{ID: "01N1", Epoch: r.epoch("01N1"),
		Instances: []model.InstanceStatus{{ID: "inst-a", Generation: 9, Observed: model.ObservedStopped}}})
	r.apply(&fsm.TransferStep{ID: id, Phase: model.TransferCopying})
	for _, name := range []string{"n1", "n2"} {
		node := model.NodeID("01N" + name[1:])
		got := must(r.client(pki.RoleAgent, name).
			Assignments(t.Context(), transport.AssignmentsRequest{Node: node, Epoch: r.epoch(node)}))(t)
		want := [2]any{"", false}
		if name == "n2" {
			want = [2]any{user, container}
		}
		if o := got.Transfers; len(o) != 1 || [2]any{o[0].User, o[0].Container} != want {
			t.Errorf("%s is told %+v, want %v", name, o, want)
		}
	}
}

// mustEnd completes a transfer that is starting, and returns its id.
func mustEnd(t *testing.T, r *rig, id model.TransferID) model.TransferID {
	t.Helper()
	r.place("inst-b", 0, "01N2", model.ObservedReady)
	r.apply(&fsm.TransferStep{ID: id, Phase: model.TransferSucceeded})
	return id
}

// A volume is unused if its slot was removed, because the count of the group was reduced or the job was stopped. While
// an instance still runs in the slot, the volume is in use.
func TestVolumeOfARemovedSlotIsUnused(t *testing.T) {
	r := withVolume(t)
	c := r.cli()
	stop := func() {
		r.apply(&fsm.InstanceStop{ID: "inst-a", Cause: model.CauseUser, Bypass: true})
		n, _ := r.machine.State().Nodes.Get("01N1")
		status := model.InstanceStatus{ID: "inst-a", Generation: 9, Observed: model.ObservedStopped}
		r.apply(&fsm.NodeReport{ID: "01N1", Epoch: n.Agent.Epoch, Instances: []model.InstanceStatus{status}})
	}
	scale := func(count int) {
		job := spec("web", count)
		job.Groups[0].Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
		r.apply(&fsm.JobSubmit{Spec: job})
	}
	scale(0)
	if got := get(t, c, volumeURL); got["state"] != "in_use" {
		t.Errorf("while its instance runs it is %v", got["state"])
	}
	stop()
	if got := get(t, c, volumeURL); got["state"] != "unused" {
		t.Errorf("of a removed slot it is %v", got["state"])
	}
	scale(1)
	if got := get(t, c, volumeURL); got["state"] != "in_use" {
		t.Errorf("once the slot is back it is %v", got["state"])
	}
	r.apply(&fsm.JobStop{Job: "web"})
	if got := get(t, c, volumeURL); got["state"] != "unused" {
		t.Errorf("of a stopped job it is %v", got["state"])
	}
}
