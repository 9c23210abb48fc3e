package api

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// What was in use together is listed together: of each volume of the slot the newest data that is not newer.
func TestFoundTogether(t *testing.T) {
	state, node := fsm.NewState(), &fsm.Node{ID: "n1", Name: "n1"}
	early, late := time.Unix(1000, 0), time.Unix(2000, 0)
	data := func(name string, epoch uint64, at time.Time) transport.VolumeData {
		return transport.VolumeData{Group: "db/main", Name: name, Epoch: epoch, Written: at}
	}
	for name, c := range map[string]struct {
		data []transport.VolumeData
		want []FoundVolume
	}{
		"one":         {[]transport.VolumeData{data("rows", 42, early)}, []FoundVolume{{Volume: "db/main/0/rows", Epoch: 42, Written: early, Copies: map[string]uint64{"rows": 42}}}},
		"added later": {[]transport.VolumeData{data("rows", 42, late), data("logs", 45, early)}, []FoundVolume{{Volume: "db/main/0/logs", Epoch: 45, Written: late, Copies: map[string]uint64{"rows": 42, "logs": 45}}}},
		"two generations": {[]transport.VolumeData{data("rows", 42, early), data("rows", 50, late), data("logs", 42, early), data("logs", 50, early)}, []FoundVolume{
			{Volume: "db/main/0/logs", Epoch: 50, Written: late, Copies: map[string]uint64{"rows": 50, "logs": 50}},
			{Volume: "db/main/0/logs", Epoch: 42, Written: early, Copies: map[string]uint64{"rows": 42, "logs": 42}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := foundIn(&state, node, c.data)
			if !slices.EqualFunc(got, c.want, func(a, b FoundVolume) bool {
				return a.Volume == b.Volume && a.Epoch == b.Epoch && a.Age == FoundOnly && a.Node == "n1" && a.Written.Equal(b.Written) && maps.Equal(a.Copies, b.Copies)
			}) {
				t.Errorf("found %+v, want %+v", got, c.want)
			}
		})
	}
}
