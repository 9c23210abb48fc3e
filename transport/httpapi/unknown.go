package httpapi

import (
	"cmp"
	"context"
	"slices"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// agentStatus is the part of an agent's status that unknown needs.
type agentStatus struct {
	Instances []struct {
		ID       model.InstanceID `json:"id"`
		Group    model.GroupID    `json:"group"`
		Slot     int              `json:"slot"`
		Observed model.Observed   `json:"observed"`
	} `json:"instances"`
}

// unknownOperations returns the operation that lists unknown instances. The server that gets the request answers it by
// asking every agent.
func (s *Server) unknownOperations() []operation {
	rt := getRoute("unknown-instances", "/v1/unknown-instances", "instances",
		"List what runs and the servers don't know; after a restore it is stopped once that is confirmed")
	return []operation{askEveryAgent(s, rt, func(ctx context.Context) (api.UnknownInstances, uint64) {
		all := s.unknown(ctx)
		return all, all.Index
	})}
}

func (s *Server) unknown(ctx context.Context) api.UnknownInstances {
	state := s.cfg.Store.Current()
	all := api.UnknownInstances{Items: []api.UnknownInstance{}, Owing: []string{},
		Out: []api.OutOfService{}, Index: state.Index,
		Confirmed: !state.Unconfirmed}
	for n := range state.OutOfService() {
		out := api.OutOfService{Node: n.Name, Intent: n.Intent}
		if d, runs := state.RunningDrain(n); runs {
			out.Drain = d.ID
		}
		all.Out = append(all.Out, out)
	}
	for _, n := range state.Nodes.All() {
		if n.Restore.InventoryOwed {
			all.Owing = append(all.Owing, n.Name)
		}
	}
	all.Silent = askAgents(ctx, s, state, "/v1/agent/status", func(n *fsm.Node, status agentStatus) {
		for _, i := range status.Instances {
			if _, known := state.Instances.Get(i.ID); known || i.Observed == model.ObservedStopped ||
				i.Observed == model.ObservedFailed {
				continue
			}
			job, _ := i.Group.Split()
			all.Items = append(all.Items,
				api.UnknownInstance{Node: n.Name, Instance: i.ID, Job: job, Group: i.Group, Slot: i.Slot, Observed: i.Observed,
					Kept: state.Keeps(model.Holding{ID: i.ID, Group: i.Group, Slot: i.Slot, Ends: n.Restore.Ends(i.ID)})})
		}
	})
	slices.Sort(all.Owing)
	slices.SortFunc(all.Items, func(a, b api.UnknownInstance) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Slot, b.Slot),
			cmp.Compare(a.Instance, b.Instance))
	})
	return all
}
