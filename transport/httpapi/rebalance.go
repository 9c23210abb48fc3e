package httpapi

import (
	"context"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

type rebalanceRead struct{ ReadParams }

type rebalanceInput struct{ WriteParams }

func (s *Server) rebalanceOperations() []operation {
	return []operation{
		read(s,
			getRoute("forecast-rebalance", "/v1/rebalance", "rebalance",
				"Show the moves that an order to rebalance would begin, and what keeps others"),
			topics[rebalanceRead]("nodes", "instances", "settings"), showMoves),
		write(s,
			route{id: "rebalance", path: "/v1/rebalance", tag: "rebalance",
				summary: "Begin one cycle of moves to better nodes now"}, beginMoves()),
	}
}

func showMoves(_ context.Context, r *reading, _ *rebalanceRead) (api.MoveList, error) {
	moves, _ := r.planner.Moves(r.question())
	list := api.MoveList{Items: []api.Move{}, Index: r.Index, Rescheduler: r.Settings.Rescheduler}
	for _, m := range moves {
		list.Items = append(list.Items, r.move(m))
	}
	return list, nil
}

func (r *reading) move(m fsm.Move) api.Move {
	v := api.Move{Instance: veiled(r.veil, "instance", m.Instance), Group: veiled(r.veil, "group", m.Group),
		From: veiled(r.veil, "node", r.nodeName(m.From)), To: veiled(r.veil, "node", r.nodeName(m.To)),
		Cause: m.Cause, Gain: m.Gain}
	if m.Blocker != nil {
		b := r.veil.blocker(*m.Blocker)
		v.Blocker = &b
	}
	return v
}

func beginMoves() change[rebalanceInput, api.MovesReply] {
	return change[rebalanceInput, api.MovesReply]{
		prepare: func(r *reading, _ *rebalanceInput) ([]fsm.Command, error) {
			if r.Settings.Paused {
				return nil, model.Refuse(model.CodePaused, "actuation is paused: nothing is moved").
					WithHint("outspan settings resume; what would be moved: outspan rebalance --dry-run")
			}
			_, begin := r.planner.Moves(r.question())
			commands := []fsm.Command{}
			for _, group := range begin {
				commands = append(commands, group...)
			}
			return commands, nil
		},
		answer: func(o *outcome, _ *rebalanceInput) (api.MovesReply, error) {
			return api.MovesReply{Written: o.Written, Items: o.begun()}, nil
		},
	}
}

// begun returns the moves that the request began. It reads them from the commands. For a repeated request, whose
// commands are not known, it reads them from the events of the entry.
func (o *outcome) begun() []api.Move {
	items := []api.Move{}
	for _, c := range o.commands {
		if m, ok := c.(*fsm.InstanceMove); ok {
			if inst, known := o.Instances.Get(m.ID); known {
				items = append(items,
					o.move(fsm.Move{Instance: m.ID, Group: inst.Group, From: inst.Node, To: m.Target, Cause: m.Cause, Gain: m.Gain}))
			}
		}
	}
	if o.commands != nil {
		return items
	}
	for key, e := range o.Events.From(fsm.NewEventKey(o.Written.Index, 0)) {
		if key.Index() != o.Written.Index {
			break
		}
		if inst, ok := o.Instances.Get(model.InstanceID(e.Data["replaces"])); ok &&
			e.Type == model.EventAllocated && e.Cause.IsMove() {
			items = append(items,
				o.move(fsm.Move{Instance: inst.ID, Group: inst.Group, From: inst.Node,
					To: model.NodeID(e.Data["node"]), Cause: e.Cause}))
		}
	}
	return items
}
