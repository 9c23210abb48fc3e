package httpapi

import (
	"cmp"
	"context"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// UnknownInstance runs on a node, and the servers don't know it: as after a restore, if it was placed later than the snapshot.
type UnknownInstance struct {
	Node     string           `json:"node"`
	Instance model.InstanceID `json:"instance"`
	Job      model.JobName    `json:"job"`
	Group    model.GroupID    `json:"group"`
	Slot     int              `json:"slot"`
	Observed model.Observed   `json:"observed,omitempty"`
	Kept     bool             `json:"kept" doc:"it goes on running: it holds its slot, and a person has not decided yet"`
}

// UnknownInstances are all of them, by node and job.
type UnknownInstances struct {
	Items  []UnknownInstance `json:"items"`
	Silent []string          `json:"silent_nodes" doc:"nodes whose agents did not answer: what runs there is not listed"`
	Owing  []string          `json:"inventory_missing_nodes" doc:"nodes whose agents have not told since the restore what runs there: the list may be incomplete"`
	Out    []OutOfService    `json:"out_of_service" doc:"nodes that the state has cordoned, draining or disabled: what that evicts begins with the confirmation"`
	Index  uint64            `json:"index"`

	Confirmed bool `json:"confirmed" doc:"no restore waits to be confirmed"`
}

// OutOfService is a node that an operator took out of service, as far as the restored state knows.
type OutOfService struct {
	Node   string        `json:"node"`
	Intent model.Intent  `json:"intent"`
	Drain  model.DrainID `json:"drain_id" doc:"the drain that goes on"`
}

// agentStatus is what is needed of an agent's status.
type agentStatus struct {
	Instances []struct {
		ID       model.InstanceID `json:"id"`
		Group    model.GroupID    `json:"group"`
		Slot     int              `json:"slot"`
		Observed model.Observed   `json:"observed"`
	} `json:"instances"`
}

// unknownOperations runs on the server that is asked, and asks every agent.
func (s *Server) unknownOperations() []operation {
	rt := getRoute("unknown-instances", "/v1/unknown-instances", "instances", "List what runs and the servers don't know; after a restore it is stopped once that is confirmed")
	rt.allow, rt.run = forCLI, runHere
	handle := func(ctx context.Context, _ *struct{}) (*body[UnknownInstances], error) {
		all := s.unknown(ctx)
		return &body[UnknownInstances]{Index: decimal(all.Index), Body: all}, nil
	}
	return []operation{{route: rt, register: func(a huma.API) { huma.Register(a, rt.huma(), handle) }}}
}

func (s *Server) unknown(ctx context.Context) UnknownInstances {
	state := s.cfg.Store.Current()
	all := UnknownInstances{Items: []UnknownInstance{}, Owing: []string{}, Out: []OutOfService{}, Index: state.Index,
		Confirmed: !state.Unconfirmed}
	for n := range state.OffDuty() {
		out := OutOfService{Node: n.Name, Intent: n.Intent}
		if d, runs := state.RunningDrain(n); runs {
			out.Drain = d.ID
		}
		all.Out = append(all.Out, out)
	}
	for _, n := range state.Nodes.All() {
		if n.Restore.Owes {
			all.Owing = append(all.Owing, n.Name)
		}
	}
	all.Silent = askAgents(ctx, s, state, "/v1/agent/status", func(n *fsm.Node, status agentStatus) {
		for _, i := range status.Instances {
			if _, known := state.Instances.Get(i.ID); known || i.Observed == model.ObservedStopped || i.Observed == model.ObservedFailed {
				continue
			}
			job, _ := i.Group.Split()
			all.Items = append(all.Items, UnknownInstance{Node: n.Name, Instance: i.ID, Job: job, Group: i.Group, Slot: i.Slot, Observed: i.Observed,
				Kept: state.Keeps(model.Holding{ID: i.ID, Group: i.Group, Slot: i.Slot, Ends: n.Restore.Ends(i.ID)})})
		}
	})
	slices.Sort(all.Owing)
	slices.SortFunc(all.Items, func(a, b UnknownInstance) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Instance, b.Instance))
	})
	return all
}
