package httpapi

import (
	"context"
	"slices"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport/lanes"
)

func (r *reading) drain(d *fsm.Drain) api.Drain {
	v := api.Drain{
		ID: d.ID, Phase: d.Phase(), Paused: d.Paused, Actor: d.Actor, Message: d.Message, Options: drainOptions(r, d),
		Nodes:    []api.DrainNode{},
		Rejected: r.veil.rejected(d.Rejected), CreatedAt: wallTime(d.Wall), Index: d.Index,
	}
	status := map[model.NodeID]model.DrainStatus{}
	if v.Phase == model.PhaseDraining {
		for _, one := range r.explain.DrainStatus(r.question(), d.ID) {
			status[one.Node] = one
		}
	}
	for _, n := range d.Nodes {
		v.Nodes = append(v.Nodes, r.drainNode(n, status[n.Node]))
	}
	return v
}

// drainOptions returns the options of a drain without the groups, and the nodes of a roll, that the caller may not see.
// The command of a roll is shown to those who may drain all of its nodes.
func drainOptions(r *reading, d *fsm.Drain) model.DrainOptions {
	o := d.Options
	o.AcceptDowntime = slices.Clone(o.AcceptDowntime)
	for i, group := range o.AcceptDowntime {
		if group != "*" {
			o.AcceptDowntime[i] = veiled(r.veil, "group", group)
		}
	}
	if o.Roll == nil {
		return o
	}
	roll := *o.Roll
	if roll.Exec != "" && !r.drains(o.Roll) {
		roll.Exec = hidden
	}
	roll.Nodes = slices.Clone(roll.Nodes)
	for i, node := range roll.Nodes {
		roll.Nodes[i] = veiled(r.veil, "node", node)
	}
	o.Roll = &roll
	return o
}

func (r *reading) drainNode(n fsm.DrainNode, status model.DrainStatus) api.DrainNode {
	v := api.DrainNode{
		Node: r.nodeName(n.Node), NodeID: n.Node, Phase: n.Phase, Turn: n.Turn, LastError: r.veil.text(n.LastError),
		StartedAt: wallTimeOrNil(n.StartedWall),
		Deadline:  wallTimeOrNil(n.DeadlineWall), EndedAt: wallTimeOrNil(n.EndedWall), BootID: n.BootID, Moved: n.Moved,
		Stopped: n.Unreplaced, Acked: n.Acked,
		Remaining: []api.DrainRemaining{}, Blockers: []api.DrainBlocker{},
	}
	if node, ok := r.Nodes.Get(n.Node); ok && n.Phase == model.PhaseDraining {
		v.Acked = r.Acknowledged(node)
	}
	for _, rest := range status.Remaining {
		v.Remaining = append(v.Remaining,
			api.DrainRemaining{Instance: veiled(r.veil, "instance", rest.Instance), Class: rest.Class, State: rest.State,
				Blocker: rest.Blocker, InMoved: rest.InMoved, InStopped: rest.InStopped})
	}
	for _, b := range status.Blockers {
		v.Blockers = append(v.Blockers, r.veil.blocker(b))
	}
	return v
}

// DrainPath is the part of a path that names a drain.
type DrainPath struct {
	ID string `path:"id" doc:"id; a read also takes a unique prefix"`
}

type drainList struct{ ListParams }

type drainRead struct {
	ReadParams
	DrainPath
	Lanes bool `query:"lanes" doc:"also the lanes: when what happened to each instance"`
}

type drainWrite struct {
	WriteParams
	DrainPath
}

func (s *Server) drainOperations() []operation {
	return []operation{
		list(s, getRoute("list-drains", "/v1/drains", "drains", "List drains, oldest first"), listing[drainList, api.Drain]{
			topics: topics[drainList]("drains", "instances"),
			rows: func(r *reading, _ *drainList, from string, yield func(string, api.Drain) bool) error {
				scan(r.Drains, from, r.drain, yield)
				return nil
			},
		}),
		read(s, getRoute("get-drain", "/v1/drains/{id}", "drains", "Show a drain with what is left and what blocks it"),
			drainTopics, showDrain),
		write(s, route{id: "start-drain", path: "/v1/drains", tag: "drains", summary: "Drain nodes"},
			startDrain[drainInput]()),
		write(s, drainRoute("pause", "Pause a drain; its deadline goes on"), pauseDrain(true)),
		write(s, drainRoute("resume", "Go on with a paused drain"), pauseDrain(false)),
		write(s, drainRoute("cancel", "Cancel what has not begun; the cordon stays unless uncordon is set"), cancelDrain()),
	}
}

func drainRoute(verb, summary string) route {
	return route{id: verb + "-drain", path: "/v1/drains/{id}/" + verb, tag: "drains", summary: summary}
}

// drainTopics returns the topics on which the view of a drain depends: the drain's own row and, while the drain is in
// the phase draining, the instances. If the drain is not found, drainTopics returns the topic of all drains.
func drainTopics(r *reading, in *drainRead) []fsm.Topic {
	d, refusal := r.FindDrain(in.ID)
	if refusal != nil {
		return []fsm.Topic{"drains"}
	}
	if d.Phase() == model.PhaseDraining {
		return []fsm.Topic{"drain/" + fsm.Topic(d.ID), "instances"}
	}
	return []fsm.Topic{"drain/" + fsm.Topic(d.ID)}
}

func showDrain(_ context.Context, r *reading, in *drainRead) (api.Drain, error) {
	d, refusal := r.FindDrain(in.ID)
	if refusal != nil {
		return api.Drain{}, refusal
	}
	v := r.drain(d)
	if in.Lanes {
		v.Lanes = lanes.Of(&r.State, d, r.wall)
		for i := range v.Lanes {
			r.veil.lane(&v.Lanes[i])
		}
	}
	return v, nil
}

// onDrain returns the functions of a write that changes one drain by one command.
func onDrain[I any](ref func(*I) string, command func(*fsm.Drain, *I) fsm.Command) change[I, api.DrainWriteReply] {
	return change[I, api.DrainWriteReply]{
		prepare: func(r *reading, in *I) ([]fsm.Command, error) {
			d, refusal := r.NamedDrain(ref(in))
			if refusal != nil {
				return nil, refusal
			}
			return []fsm.Command{command(d, in)}, nil
		},
		answer: func(o *outcome, in *I) (api.DrainWriteReply, error) {
			reply := api.DrainWriteReply{Written: o.Written}
			if d, refusal := o.NamedDrain(ref(in)); refusal == nil {
				v := o.drain(d)
				reply.Drain = &v
			}
			return reply, nil
		},
	}
}

func (in *drainWrite) ref() string { return in.ID }

func pauseDrain(paused bool) change[drainWrite, api.DrainWriteReply] {
	return onDrain((*drainWrite).ref, func(d *fsm.Drain, _ *drainWrite) fsm.Command {
		return &fsm.DrainPause{ID: d.ID, Paused: paused}
	})
}

type cancelInput struct {
	WriteParams
	DrainPath
	Input api.CancelBody
}

func (in *cancelInput) body() any { return &in.Input }

func (in *cancelInput) ref() string { return in.ID }

func cancelDrain() change[cancelInput, api.DrainWriteReply] {
	return onDrain((*cancelInput).ref, func(d *fsm.Drain, in *cancelInput) fsm.Command {
		return &fsm.DrainCancel{ID: d.ID, Uncordon: in.Input.Uncordon}
	})
}
