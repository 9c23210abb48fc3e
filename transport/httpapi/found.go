package httpapi

import (
	"cmp"
	"context"
	"slices"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// foundOperations run on the server that gets the request, and ask every agent.
func (s *Server) foundOperations() []operation {
	rt := getRoute("found-volumes", "/v1/found-volumes", "volumes",
		"List data of volumes on nodes' disks that nothing uses and that the servers don't keep")
	return []operation{askEveryAgent(s, rt, func(ctx context.Context) (api.FoundVolumes, uint64) {
		all := s.found(ctx)
		return all, all.Index
	})}
}

func (s *Server) found(ctx context.Context) api.FoundVolumes {
	state := s.cfg.Store.Current()
	all := api.FoundVolumes{Items: []api.FoundVolume{}, Index: state.Index}
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
	slices.SortFunc(all.Items, func(a, b api.FoundVolume) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Volume, b.Volume), cmp.Compare(b.Epoch, a.Epoch))
	})
	return all
}

// foundIn lists the data of one slot on one node that the servers don't know. An item has one copy of a volume's data
// and, for each other volume of the slot, the newest copy that is not newer. If the servers know all copies of an item,
// the item is omitted. While a transfer of the slot runs, foundIn returns nil.
func foundIn(state *fsm.State, n *fsm.Node, data []transport.VolumeData) (items []api.FoundVolume) {
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
		f := api.FoundVolume{Node: n.Name, Volume: model.NewVolumeID(group, slot, d.Name), Epoch: d.Epoch, Age: api.FoundOnly,
			Copies: map[string]uint64{}}
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
				f.Age = api.FoundNewer
			case f.Epoch == row.Made && row.Home == n.ID:
				f.Age = api.FoundSame
			default:
				f.Age = api.FoundOlder
			}
		}
		items = append(items, f)
	}
	return items
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// inUse reports whether the servers know this data on the node: as the current data of a volume, as a kept old copy, or
// as data of a replicated volume. Data that was put aside is not current, even if a restored state names its epoch as
// current.
func inUse(state *fsm.State, node model.NodeID, group model.GroupID, slot int,
	data model.VolumeEpoch, aside bool) bool {
	row, ok := state.Volumes.Get(model.NewVolumeID(group, slot, data.Name))
	if ok && !aside && row.Home == node && row.Made == data.Epoch {
		return true
	}
	if policy, ok := state.Policy(group); ok && slices.ContainsFunc(policy.Volumes, func(v model.VolumeSpec) bool {
		return v.Name == data.Name && v.Kind == model.VolumeReplicated
	}) {
		return true // the program itself replicates this data
	}
	_, kept := state.KeptBy(group, slot, node, data)
	return kept
}
