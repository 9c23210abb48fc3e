package httpapi

import (
	"context"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Drain is how a drain is shown.
type Drain struct {
	ID        model.DrainID        `json:"id"`
	Phase     model.DrainPhase     `json:"phase" enum:"draining,drained,failed,canceled"`
	Paused    bool                 `json:"paused"`
	Actor     model.Actor          `json:"actor"`
	Message   string               `json:"message"`
	Options   model.DrainOptions   `json:"options"`
	Nodes     []DrainNode          `json:"nodes"`
	Rejected  []model.DrainRefusal `json:"rejected"`
	CreatedAt time.Time            `json:"created_at"`
	Index     uint64               `json:"index"`
}

// DrainNode is one node of a drain.
type DrainNode struct {
	Node      string           `json:"node" doc:"name"`
	NodeID    model.NodeID     `json:"node_id"`
	Phase     model.DrainPhase `json:"phase" enum:"draining,drained,failed,canceled"`
	Turn      bool             `json:"turn" doc:"its turn has come; see max_parallel_nodes"`
	LastError string           `json:"last_error"`
	StartedAt *time.Time       `json:"started_at"`
	Deadline  *time.Time       `json:"deadline" doc:"null: none, or its turn has not come"`
	EndedAt   *time.Time       `json:"ended_at"`
	BootID    string           `json:"boot_id" doc:"of the node when the drain began"`
	Moved     int              `json:"moved"`
	Stopped   int              `json:"stopped" doc:"of those moved: stopped, and not replaced elsewhere"`
	Remaining []DrainRemaining `json:"remaining"`
	Blockers  []DrainBlocker   `json:"blockers"`
}

// DrainRemaining is an instance that is still on a draining node.
type DrainRemaining struct {
	Instance model.InstanceID `json:"instance"`
	Class    model.DataClass  `json:"class" enum:"stateless,stateful"`
	State    string           `json:"state"`
	Blocker  model.Code       `json:"blocker"`
}

// DrainBlocker is why a drain can't go on, and what would let it.
type DrainBlocker struct {
	Code     model.Code       `json:"code"`
	Instance model.InstanceID `json:"instance"`
	Volume   model.VolumeID   `json:"volume"`
	Message  string           `json:"message"`
	Unblock  string           `json:"unblock"`
}

// DrainForecast is what a drain will do with one instance.
type DrainForecast struct {
	Node     string           `json:"node"`
	NodeID   model.NodeID     `json:"node_id"`
	Instance model.InstanceID `json:"instance"`
	Group    model.GroupID    `json:"group"`
	Class    model.DataClass  `json:"class" enum:"stateless,stateful"`
	Member   string           `json:"member" doc:"the identity that the instance keeps; empty: its replacement has a new one"`
	Action   model.Action     `json:"action" enum:"move,stop_first,stop,leave,wait"`
	Target   string           `json:"target" doc:"name of the node where its replacement fits now"`
	Blocker  model.Code       `json:"blocker"`
	Volume   model.VolumeID   `json:"volume,omitempty" doc:"that the blocker names"`
	Message  string           `json:"message"`
	Unblock  string           `json:"unblock"`
	Never    bool             `json:"never" doc:"no time alone removes the blocker"`
	Note     string           `json:"note" doc:"what is not as the group asks for: a quota holds no surge"`
	After    model.Duration   `json:"after" doc:"about when it is gone; 0s: not known"`
}

// DrainReply is the answer to a drain: it has started where it says so, and no new work lands there.
type DrainReply struct {
	Written
	Drain    model.DrainID        `json:"drain"`
	Started  []string             `json:"started" doc:"names of nodes"`
	Rejected []model.DrainRefusal `json:"rejected"`
	Forecast []DrainForecast      `json:"forecast"`
}

// DrainWriteReply is the answer to other writes to a drain.
type DrainWriteReply struct {
	Written
	Drain *Drain `json:"drain,omitempty"`
}

func (r *reading) drain(d *fsm.Drain) Drain {
	v := Drain{
		ID: d.ID, Phase: d.Phase(), Paused: d.Paused, Actor: d.Actor, Message: d.Message, Options: d.Options, Nodes: []DrainNode{},
		Rejected: notNil(d.Rejected), CreatedAt: wallTime(d.Wall), Index: d.Index,
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

func (r *reading) drainNode(n fsm.DrainNode, status model.DrainStatus) DrainNode {
	v := DrainNode{
		Node: r.nodeName(n.Node), NodeID: n.Node, Phase: n.Phase, Turn: n.Turn, LastError: n.LastError, StartedAt: wallTimeOrNil(n.StartedWall),
		Deadline: wallTimeOrNil(n.DeadlineWall), EndedAt: wallTimeOrNil(n.EndedWall), BootID: n.BootID, Moved: n.Moved, Stopped: n.Unreplaced, Remaining: []DrainRemaining{}, Blockers: []DrainBlocker{},
	}
	for _, rest := range status.Remaining {
		v.Remaining = append(v.Remaining, DrainRemaining{Instance: rest.Instance, Class: rest.Class, State: rest.State, Blocker: rest.Blocker})
	}
	for _, b := range status.Blockers {
		v.Blockers = append(v.Blockers, drainBlocker(b))
	}
	return v
}

func drainBlocker(b model.Blocker) DrainBlocker {
	return DrainBlocker{Code: b.Code, Instance: b.Instance, Volume: b.Volume, Message: b.Message, Unblock: b.Unblock}
}

// DrainPath is the part of a path that names a drain.
type DrainPath struct {
	ID string `path:"id" doc:"id; a read also takes a unique prefix"`
}

type drainList struct{ ListParams }

type drainRead struct {
	ReadParams
	DrainPath
}

type drainWrite struct {
	WriteParams
	DrainPath
}

func (s *Server) drainOperations() []operation {
	return []operation{
		list(s, getRoute("list-drains", "/v1/drains", "drains", "List drains, oldest first"), listing[drainList, Drain]{
			topics: topics[drainList]("drains", "instances"),
			rows: func(r *reading, _ *drainList, from string, yield func(string, Drain) bool) error {
				scan(r.Drains, from, r.drain, yield)
				return nil
			},
		}),
		read(s, getRoute("get-drain", "/v1/drains/{id}", "drains", "Show a drain with what is left and what blocks it"), s.drainTopics, showDrain),
		write(s, route{id: "start-drain", path: "/v1/drains", tag: "drains", summary: "Drain nodes"}, startDrain[drainInput]()),
		write(s, drainRoute("pause", "Pause a drain; its deadline goes on"), pauseDrain(true)),
		write(s, drainRoute("resume", "Go on with a paused drain"), pauseDrain(false)),
		write(s, drainRoute("cancel", "Cancel what has not begun; the cordon stays unless uncordon is set"), cancelDrain()),
	}
}

func drainRoute(verb, summary string) route {
	return route{id: verb + "-drain", path: "/v1/drains/{id}/" + verb, tag: "drains", summary: summary}
}

// drainTopics are what a drain's picture is made of: its own row, and the instances on its nodes.
func (s *Server) drainTopics(in *drainRead) []fsm.Topic {
	state, _ := s.cfg.Store.Watch()
	d, refusal := state.FindDrain(in.ID)
	if refusal != nil {
		return []fsm.Topic{"drains"}
	}
	if d.Phase() == model.PhaseDraining {
		return []fsm.Topic{"drain/" + fsm.Topic(d.ID), "instances"}
	}
	return []fsm.Topic{"drain/" + fsm.Topic(d.ID)}
}

func showDrain(_ context.Context, r *reading, in *drainRead) (Drain, error) {
	d, refusal := r.FindDrain(in.ID)
	if refusal != nil {
		return Drain{}, refusal
	}
	return r.drain(d), nil
}

// onDrain is a change of one command to one drain.
func onDrain[I any](ref func(*I) string, command func(*fsm.Drain, *I) fsm.Command) change[I, DrainWriteReply] {
	return change[I, DrainWriteReply]{
		prepare: func(r *reading, in *I) ([]fsm.Command, error) {
			d, refusal := r.NamedDrain(ref(in))
			if refusal != nil {
				return nil, refusal
			}
			return []fsm.Command{command(d, in)}, nil
		},
		answer: func(o *outcome, in *I) (DrainWriteReply, error) {
			reply := DrainWriteReply{Written: o.Written}
			if d, refusal := o.NamedDrain(ref(in)); refusal == nil {
				v := o.drain(d)
				reply.Drain = &v
			}
			return reply, nil
		},
	}
}

func (in *drainWrite) ref() string { return in.ID }

func pauseDrain(paused bool) change[drainWrite, DrainWriteReply] {
	return onDrain((*drainWrite).ref, func(d *fsm.Drain, _ *drainWrite) fsm.Command {
		return &fsm.DrainPause{ID: d.ID, Paused: paused}
	})
}

type cancelInput struct {
	WriteParams
	DrainPath
	Input cancelBody
}

type cancelBody struct {
	Uncordon bool `json:"uncordon,omitempty"`
}

func (in *cancelInput) body() any { return &in.Input }

func (in *cancelInput) ref() string { return in.ID }

func cancelDrain() change[cancelInput, DrainWriteReply] {
	return onDrain((*cancelInput).ref, func(d *fsm.Drain, in *cancelInput) fsm.Command {
		return &fsm.DrainCancel{ID: d.ID, Uncordon: in.Input.Uncordon}
	})
}
