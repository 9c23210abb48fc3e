package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// avoiding returns the groups that avoid a node now.
func (r *reading) avoiding(n *fsm.Node) []api.Avoidance {
	list := []api.Avoidance{}
	for _, a := range n.Avoiding(r.now) {
		list = append(list, api.Avoidance{Group: veiled(r.veil, "group", a.Group), Version: a.Version,
			Reason: r.veil.text(a.Reason), Until: r.wallAt(a.Until)})
	}
	for _, f := range n.PullsPaused(r.now) {
		list = append(list, api.Avoidance{Group: veiled(r.veil, "group", f.Group), Version: f.Version,
			Reason: r.veil.text(f.Words), Until: r.wallAt(f.Until)})
	}
	return list
}

// wallAt converts a future cluster time to wall time, in whole seconds.
func (r *reading) wallAt(t model.Time) time.Time {
	return r.wall.Add(time.Duration(t.Sub(r.now)) * time.Millisecond).UTC().Truncate(time.Second)
}

func amounts(r model.Resources) api.Amounts {
	return api.Amounts{CPU: r.CPU, MemoryBytes: r.MemoryBytes}
}

func (r *reading) node(n *fsm.Node) api.Node {
	v := api.Node{
		ID: n.ID, Name: n.Name, State: n.State(), Intent: n.Intent, Health: n.Shown(),
		Labels: notNilMap(n.Shape.Labels), Attributes: notNilMap(n.Shape.Attributes),
		Address: n.Agent.Address, APIAddress: n.Agent.APIAddress, Epoch: n.Agent.Epoch, BootID: n.Agent.BootID,
		Version:  n.Agent.Version,
		Warnings: notNil(n.Agent.Warnings), Capacity: amounts(n.Shape.Capacity), Reserved: amounts(n.Shape.Reserved),
		Allocated: api.Amounts{CPU: n.Placed.CPU, MemoryBytes: n.Placed.MemoryBytes}, Instances: n.Placed.Instances,
		Acked: veiledAll(r.veil, n.Acked), Avoid: r.avoiding(n), AutoEvicting: r.AutoEvicting(n.ID),
		Unknown: []api.UnknownInstance{}, Owes: n.Restore.InventoryOwed,
		Troubles: []api.Trouble{}, PortProblems: r.closedPorts(n),
	}
	if x := n.Self.Runtime; x != nil {
		v.Runtime = &api.Runtime{Version: x.Version, Down: x.Down, Bridge: x.Bridge, NoBridge: x.WhyNoBridge()}
		if x.DownSince != 0 {
			since := r.wallAt(x.DownSince)
			v.Runtime.DownSince = &since
		}
	}
	for _, t := range n.Self.Troubles {
		v.Troubles = append(v.Troubles, api.Trouble(t))
	}
	for _, h := range n.Restore.Unknown {
		job, _ := h.Group.Split()
		v.Unknown = append(v.Unknown,
			api.UnknownInstance{Node: n.Name, Instance: veiled(r.veil, "instance", h.ID), Job: veiled(r.veil, "job", job),
				Group: veiled(r.veil, "group", h.Group), Slot: h.Slot, Kept: r.Keeps(h)})
	}
	if n.Intent == model.IntentDraining {
		v.DrainID = veiled(r.veil, "drain", n.Drain) // not shown for other intents, although n.Drain keeps its value
		if d, ok := r.Drains.Get(n.Drain); ok {
			part, _ := d.Node(n.ID)
			v.DrainPhase = part.Phase
		}
	}
	if refusal := r.Eligible(n); refusal != nil {
		v.Reason = r.veil.text(refusal.Message + r.drainWords(n))
	} else {
		v.Eligible = true
	}
	if v.LastSeen = lastSeen(r, n.ID); v.LastSeen != nil {
		live, _ := r.seen.LiveOf(n.ID)
		v.SeenBy = live.SeenBy
	}
	return v
}

// lastSeen returns when the server of the reading last heard a node, or nil if it does not know.
func lastSeen(r *reading, id model.NodeID) *time.Time {
	live, ok := r.seen.LiveOf(id)
	if !ok || live.Age == model.Forever {
		return nil
	}
	seen := r.wall.Add(-time.Duration(live.Age) * time.Millisecond).UTC().Truncate(time.Millisecond)
	return &seen
}

// drainWords returns a text about how the last drain of a node ended. The text is empty while that drain runs, and
// after the node has left the intent draining.
func (r *reading) drainWords(n *fsm.Node) string {
	d, part, ok := r.EndedDrain(n)
	switch {
	case !ok:
		return ""
	case part.Phase == model.PhaseDrained:
		return fmt.Sprintf("; drain %s has drained it", d.ID)
	case part.Phase == model.PhaseFailed:
		return fmt.Sprintf("; drain %s failed: %s", d.ID, part.LastError)
	}
	return fmt.Sprintf("; drain %s was canceled", d.ID)
}

// NodePath is the part of a path that names a node.
type NodePath struct {
	ID string `path:"id" doc:"id or name; a read also takes a unique prefix of the id"`
}

type nodeList struct{ ListParams }

type nodeRead struct {
	ReadParams
	NodePath
}

func (s *Server) nodeOperations() []operation {
	return []operation{
		list(s, route{id: "list-nodes", path: "/v1/nodes", tag: "nodes", summary: "List nodes"}, listing[nodeList, api.Node]{
			topics: topics[nodeList]("nodes"),
			rows: func(r *reading, _ *nodeList, from string, yield func(string, api.Node) bool) error {
				scan(r.Nodes, from, r.node, yield)
				return nil
			},
		}),
		read(s, getRoute("get-node", "/v1/nodes/{id}", "nodes", "Show a node"), nodeTopics, showNode),
		write(s, nodeRoute("cordon", "Take no new instances"), setIntent(model.IntentCordoned)),
		write(s, nodeRoute("uncordon", "Take new instances again; cancels a running drain"),
			setIntent(model.IntentActive, model.IntentDisabled)),
		write(s, nodeRoute("disable", "Treat the node as removed: evict at once"), setIntent(model.IntentDisabled)),
		write(s, nodeRoute("enable", "End disabled"),
			setIntent(model.IntentActive, model.IntentCordoned, model.IntentDraining)),
		write(s, nodeRoute("ack-blockers", "Accept that instances stay running on a draining node"), ackBlockers()),
		write(s, nodeRoute("confirm-dead", "Say that nothing runs on an offline node any more"), confirmDead()),
		write(s, nodeRoute("label", "Set labels; an empty value removes one"), labelNode()),
		write(s, route{id: "forget-node", method: http.MethodDelete, path: "/v1/nodes/{id}", tag: "nodes",
			summary: "Remove an offline node on which nothing is left"}, forgetNode()),
		write(s, drainNodeRoute(), startDrain[nodeDrainInput]()),
	}
}

// drainNodeRoute is also open to the node's own agent, for on_shutdown = "drain".
func drainNodeRoute() route {
	rt := nodeRoute("drain", "Drain a node")
	rt.allow = forCLI | forAgent
	return rt
}

func nodeRoute(verb, summary string) route {
	return route{id: verb + "-node", path: "/v1/nodes/{id}/" + verb, tag: "nodes", summary: summary}
}

func nodeTopics(r *reading, in *nodeRead) []fsm.Topic {
	if n, refusal := r.FindNode(in.ID); refusal == nil {
		return []fsm.Topic{"node/" + fsm.Topic(n.ID)}
	}
	return []fsm.Topic{"nodes"}
}

func showNode(_ context.Context, r *reading, in *nodeRead) (api.Node, error) {
	n, refusal := r.FindNode(in.ID)
	if refusal != nil {
		return api.Node{}, refusal
	}
	return r.node(n), nil
}

// nodeReply shows the node after a write. It shows no node if this write removed it. In the answer to a repeated
// request, a later write may have removed the node.
func (o *outcome) nodeReply(ref string) (api.NodeReply, error) {
	reply := api.NodeReply{Written: o.Written}
	if n, refusal := o.NamedNode(ref); refusal == nil {
		v := o.node(n)
		reply.Node = &v
	}
	return reply, nil
}

// onNode returns the functions of a write that changes one node by one command.
func onNode[I any](ref func(*I) string,
	command func(*reading, *fsm.Node, *I) (fsm.Command, error)) change[I, api.NodeReply] {
	return change[I, api.NodeReply]{
		prepare: func(r *reading, in *I) ([]fsm.Command, error) {
			n, refusal := r.NamedNode(ref(in))
			if refusal != nil {
				return nil, refusal
			}
			c, err := command(r, n, in)
			return []fsm.Command{c}, err
		},
		answer: func(o *outcome, in *I) (api.NodeReply, error) { return o.nodeReply(ref(in)) },
	}
}

type intentInput struct {
	WriteParams
	NodePath
	Input api.IntentBody
}

func (in *intentInput) body() any { return &in.Input }

func (in *intentInput) ref() string { return in.ID }

// setIntent changes the intent of a node. It refuses to end the intents in barred, which only another verb can end.
// Code: conflict.
func setIntent(to model.Intent, barred ...model.Intent) change[intentInput, api.NodeReply] {
	return onNode((*intentInput).ref, func(_ *reading, n *fsm.Node, in *intentInput) (fsm.Command, error) {
		if slices.Contains(barred, n.Intent) {
			verb := "enable"
			if n.Intent != model.IntentDisabled {
				verb = "uncordon"
			}
			return nil, model.Refuse(model.CodeConflict, "node %s is %s", n.Name, n.Intent).
				WithHint("use: outspan node %s %s", verb, n.Name)
		}
		return &fsm.NodeIntent{ID: n.ID, Intent: to, Reason: in.Input.Reason}, nil
	})
}

type ackInput struct {
	WriteParams
	NodePath
	Input api.AckBody
}

func (in *ackInput) body() any { return &in.Input }

func (in *ackInput) ref() string { return in.ID }

func ackBlockers() change[ackInput, api.NodeReply] {
	return onNode((*ackInput).ref, func(r *reading, n *fsm.Node, in *ackInput) (fsm.Command, error) {
		c := &fsm.NodeAck{ID: n.ID}
		for _, ref := range in.Input.Instances {
			inst, refusal := r.NamedInstance(string(ref))
			if refusal != nil {
				return nil, refusal
			}
			c.Instances = append(c.Instances, inst.ID)
		}
		return c, nil
	})
}

type deadInput struct {
	WriteParams
	NodePath
	Input api.DeadBody
}

func (in *deadInput) body() any { return &in.Input }

func (in *deadInput) ref() string { return in.ID }

func confirmDead() change[deadInput, api.NodeReply] {
	return onNode((*deadInput).ref, func(_ *reading, n *fsm.Node, in *deadInput) (fsm.Command, error) {
		return &fsm.NodeConfirmDead{ID: n.ID, Force: in.Input.Force}, nil
	})
}

type forgetInput struct {
	WriteParams
	NodePath
	LoseData []string `query:"lose_data,explode" doc:"job/group: a group whose data on this node is given up; its slots start empty elsewhere; recorded"`
}

func forgetNode() change[forgetInput, api.ForgetReply] {
	return change[forgetInput, api.ForgetReply]{
		prepare: func(r *reading, in *forgetInput) ([]fsm.Command, error) {
			n, refusal := r.NamedNode(in.ID)
			if refusal != nil {
				return nil, refusal
			}
			c := &fsm.NodeForget{ID: n.ID}
			for _, group := range in.LoseData {
				c.LoseData = append(c.LoseData, model.GroupID(group))
			}
			return []fsm.Command{c}, nil
		},
		answer: func(o *outcome, in *forgetInput) (api.ForgetReply, error) {
			node, err := o.nodeReply(in.ID)
			reply := api.ForgetReply{NodeReply: node}
			for id, v := range o.Volumes.All() {
				if v.Lost != nil && v.Lost.Index >= o.Written.Index && slices.Contains(in.LoseData, string(v.Group)) {
					reply.Lost = append(reply.Lost, id)
				}
			}
			return reply, err
		},
	}
}

type labelInput struct {
	WriteParams
	NodePath
	Input api.LabelBody
}

func (in *labelInput) body() any { return &in.Input }

func (in *labelInput) ref() string { return in.ID }

func labelNode() change[labelInput, api.NodeReply] {
	return onNode((*labelInput).ref, func(_ *reading, n *fsm.Node, in *labelInput) (fsm.Command, error) {
		if len(in.Input.Labels) == 0 {
			return nil, model.Refuse(model.CodeInvalid, "no label is given").WithHint(`send {"labels":{"rack":"r1"}}`)
		}
		return &fsm.NodeLabel{ID: n.ID, Labels: in.Input.Labels}, nil
	})
}
