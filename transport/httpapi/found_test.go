package httpapi

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Data of a slot's volumes that was in use at the same time is listed as one item. The item of an epoch has, for each
// volume of the slot, the newest data that is not newer than the epoch.
func TestFoundTogether(t *testing.T) {
	state, node := fsm.NewState(), &fsm.Node{ID: "n1", Name: "n1"}
	early, late := time.Unix(1000, 0), time.Unix(2000, 0)
	data := func(name string, epoch uint64, at time.Time) transport.VolumeData {
		return transport.VolumeData{Group: "db/main", Name: name, Epoch: epoch, Written: at}
	}
	for name, c := range map[string]struct {
		data []transport.VolumeData
		want []api.FoundVolume
	}{
		"one": {[]transport.VolumeData{data("rows", 42, early)},
			[]api.FoundVolume{{Volume: "db/main/0/rows", Epoch: 42, Written: early, Copies: map[string]uint64{"rows": 42}}}},
		"added later": {[]transport.VolumeData{data("rows", 42, late), data("logs", 45, early)},
			[]api.FoundVolume{
				{Volume: "db/main/0/logs", Epoch: 45, Written: late, Copies: map[string]uint64{"rows": 42, "logs": 45}}}},
		"two generations": {[]transport.VolumeData{data("rows", 42, early), data("rows", 50, late), data("logs", 42, early),
			data("logs", 50, early)}, []api.FoundVolume{
			{Volume: "db/main/0/logs", Epoch: 50, Written: late, Copies: map[string]uint64{"rows": 50, "logs": 50}},
			{Volume: "db/main/0/logs", Epoch: 42, Written: early, Copies: map[string]uint64{"rows": 42, "logs": 42}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := foundIn(&state, node, c.data)
			if !slices.EqualFunc(got, c.want, func(a, b api.FoundVolume) bool {
				return a.Volume == b.Volume && a.Epoch == b.Epoch && a.Age == api.FoundOnly && a.Node == "n1" &&
					a.Written.Equal(b.Written) && maps.Equal(a.Copies, b.Copies)
			}) {
				t.Errorf("found %+v, want %+v", got, c.want)
			}
		})
	}
}

// After a restore, the state may say that data is in use although an agent has put the data aside. Such data is listed,
// unless data of the same epoch is also in the volume's usual place.
func TestFoundPutAside(t *testing.T) {
	state := fsm.NewState()
	group := model.GroupSpec{Name: "main", Count: 1, Exec: model.ExecSpec{Command: "/bin/db"},
		Volumes: []model.VolumeSpec{{Name: "rows", Kind: model.VolumeLocal, Path: "/rows"}}}
	agent := model.AgentInfo{BootID: "b1", Incarnation: "i1", Address: "127.0.0.1", Key: []byte("k")}
	for _, c := range []fsm.Command{
		&fsm.ClusterInit{ID: "c", Name: "test", Settings: model.DefaultSettings()},
		&fsm.NodeRegister{ID: "n1", Name: "n1", Agent: agent,
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: 4 << 30}}},
		&fsm.JobSubmit{Spec: model.JobSpec{Name: "db", Groups: []model.GroupSpec{group}}},
		&fsm.NodeReport{ID: "n1", Full: true},
		&fsm.InstancePlace{ID: "i1", Group: "db/main", Version: 1, Node: "n1", Cause: model.CauseScaleUp},
	} {
		if report, ok := c.(*fsm.NodeReport); ok {
			n, _ := state.Nodes.Get("n1")
			report.Epoch = n.Agent.Epoch
		}
		after, results := state.Apply(state.Index+1, 1, fsm.Entry{Format: model.CurrentFormat, Groups: [][]fsm.Command{{c}}})
		if results[0].Refusal != nil {
			t.Fatalf("%T: %v", c, results[0].Refusal)
		}
		state = after
	}
	row, ok := state.Volumes.Get("db/main/0/rows")
	if !ok {
		t.Fatal("there is no volume")
	}
	node, _ := state.Nodes.Get("n1")
	here := transport.VolumeData{Group: "db/main", Name: "rows", Epoch: row.Made}
	aside := here
	aside.Aside = true
	if got := foundIn(&state, node, []transport.VolumeData{aside}); len(got) != 1 || got[0].Age != api.FoundSame ||
		got[0].Copies["rows"] != row.Made {
		t.Errorf("found %+v", got)
	}
	for _, data := range [][]transport.VolumeData{{here}, {here, aside}, {aside, here}} {
		if got := foundIn(&state, node, data); len(got) > 0 {
			t.Errorf("data in use is found: %+v", got)
		}
	}
}
