package httpapi

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// FoundAge compares found data with the data that is in use.
type FoundAge string

// The ages.
const (
	FoundNewer FoundAge = "newer"
	FoundOlder FoundAge = "older"
	FoundOnly  FoundAge = "only" // no node has data of this volume in use
	FoundSame  FoundAge = "same" // it is what the state has in use, but it was put aside there: nothing can use it
)

// FoundVolume is data of a slot's local volumes that is on a node's disk, and that the servers neither use nor keep as an old copy: a restore lost what they knew of
// it, or it was given up with a node that came back.
type FoundVolume struct {
	Node    string            `json:"node"`
	Volume  model.VolumeID    `json:"volume" doc:"what it can be attached as, with the others of its slot"`
	Epoch   uint64            `json:"epoch" doc:"of the newest of the volumes; a higher one is newer"`
	Age     FoundAge          `json:"age" enum:"newer,older,only,same" doc:"than the data in use; same: it is that data, and was put aside"`
	Written time.Time         `json:"written" doc:"when a file directly in it was last written, by the node's clock"`
	Copies  map[string]uint64 `json:"copies" doc:"epoch of each volume, by its name: what attach-volume takes"`
}

// FoundVolumes are all of them, by node and volume.
type FoundVolumes struct {
	Items  []FoundVolume `json:"items"`
	Silent []string      `json:"silent_nodes" doc:"nodes whose agents did not answer: what is there is not listed"`
	Index  uint64        `json:"index"`
}

// foundOperations run on the server that is asked, and ask every agent.
func (s *Server) foundOperations() []operation {
	rt := getRoute("found-volumes", "/v1/found-volumes", "volumes", "List data of volumes on nodes' disks that nothing uses and that the servers don't keep")
	rt.allow, rt.run = forCLI, runHere
	handle := func(ctx context.Context, _ *struct{}) (*body[FoundVolumes], error) {
		all := s.found(ctx)
		return &body[FoundVolumes]{Index: decimal(all.Index), Body: all}, nil
	}
	return []operation{{route: rt, register: func(a huma.API) { huma.Register(a, rt.huma(), handle) }}}
}

func (s *Server) found(ctx context.Context) FoundVolumes {
	state := s.cfg.Store.Current()
	all := FoundVolumes{Items: []FoundVolume{}, Index: state.Index}
	all.Silent = askAgents(ctx, s, state, transport.PathAgentVolumes, func(n *fsm.Node, data []transport.VolumeData) {
		type slot struct {
			group model.GroupID
			slot  int
		}
		slots := map[slot][]transport.VolumeData{}
		for _, d := range data {
			slots[slot{d.Group, d.Slot}] = append(slots[slot{d.Group, d.Slot}], d)
		}
		for _, data := range slots {
			all.Items = append(all.Items, foundIn(state, n, data)...)
		}
	})
	slices.SortFunc(all.Items, func(a, b FoundVolume) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Volume, b.Volume), cmp.Compare(b.Epoch, a.Epoch))
	})
	return all
}

// foundIn puts the data of one slot on one node together as it was in use together: of each volume the newest that is not newer than an epoch.
func foundIn(state *fsm.State, n *fsm.Node, data []transport.VolumeData) (items []FoundVolume) {
	group, slot := data[0].Group, data[0].Slot
	if _, moving := state.TransferOf(group, slot); moving {
		return nil
	}
	slices.SortFunc(data, func(a, b transport.VolumeData) int {
		return cmp.Or(cmp.Compare(b.Epoch, a.Epoch), cmp.Compare(a.Name, b.Name), compareBool(a.Aside, b.Aside))
	})
	listed := map[model.VolumeEpoch]bool{}
	for i, d := range data {
		if listed[model.VolumeEpoch{Name: d.Name, Epoch: d.Epoch}] {
			continue
		}
		f := FoundVolume{Node: n.Name, Volume: model.NewVolumeID(group, slot, d.Name), Epoch: d.Epoch, Age: FoundOnly, Copies: map[string]uint64{}}
		lost := false
		for _, d := range data[i:] {
			if _, newer := f.Copies[d.Name]; newer {
				continue
			}
			copied := model.VolumeEpoch{Name: d.Name, Epoch: d.Epoch}
			f.Copies[d.Name], listed[copied] = d.Epoch, true
			if d.Written.After(f.Written) {
				f.Written = d.Written
			}
			lost = lost || !inUse(state, n.ID, group, slot, copied, d.Aside)
		}
		if !lost {
			continue
		}
		if row, ok := state.Volumes.Get(f.Volume); ok && row.Home != "" {
			switch {
			case f.Epoch > row.Made:
				f.Age = FoundNewer
			case f.Epoch == row.Made && row.Home == n.ID:
				f.Age = FoundSame
			default:
				f.Age = FoundOlder
			}
		}
		items = append(items, f)
	}
	return items
}

// compareBool has false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// inUse reports whether data on a node is what the servers know of there: in use, an old copy that is kept, or a member's of a replicated volume. What was put aside
// is in no use, whatever a restored state says of its epoch.
func inUse(state *fsm.State, node model.NodeID, group model.GroupID, slot int, data model.VolumeEpoch, aside bool) bool {
	row, ok := state.Volumes.Get(model.NewVolumeID(group, slot, data.Name))
	if ok && !aside && row.Home == node && row.Made == data.Epoch {
		return true
	}
	if policy, ok := state.Policy(group); ok && slices.ContainsFunc(policy.Volumes, func(v model.VolumeSpec) bool { return v.Name == data.Name && v.Kind == model.VolumeReplicated }) {
		return true // the program brings each member up to date by itself
	}
	_, kept := state.KeptBy(group, slot, node, data)
	return kept
}
