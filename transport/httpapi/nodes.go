package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Node is how a node is shown.
type Node struct {
	ID           model.NodeID       `json:"id"`
	Name         string             `json:"name"`
	State        model.NodeState    `json:"state" enum:"disabled,offline,draining,cordoned,unreachable,degraded,active"`
	Intent       model.Intent       `json:"intent" enum:"active,cordoned,draining,disabled"`
	Health       model.Health       `json:"health" enum:"online,degraded,unreachable,offline"`
	Eligible     bool               `json:"eligible" doc:"new instances may be placed here"`
	Reason       string             `json:"reason" doc:"why it is not eligible"`
	Labels       map[string]string  `json:"labels"`
	Attributes   map[string]string  `json:"attributes"`
	Address      string             `json:"address"`
	APIAddress   string             `json:"api_address"`
	Epoch        uint64             `json:"epoch" doc:"grows at each registration"`
	BootID       string             `json:"boot_id"`
	Version      string             `json:"version" doc:"of the agent"`
	Warnings     []string           `json:"warnings"`
	Capacity     Amounts            `json:"capacity"`
	Reserved     Amounts            `json:"reserved"`
	Allocated    Amounts            `json:"allocated"`
	Instances    int                `json:"instances" doc:"not confirmed stopped"`
	AutoEvicting bool               `json:"auto_evicting" doc:"replicas on it are to be evicted because of the node drain policy; false when somebody asked"`
	DrainID      model.DrainID      `json:"drain_id"`
	LastSeen     *time.Time         `json:"last_seen" doc:"by the answering server"`
	SeenBy       model.ServerID     `json:"seen_by" doc:"a server that hears the node although the answering one does not"`
	Acked        []model.InstanceID `json:"acked" doc:"blockers that were acknowledged"`
	Avoid        []Avoidance        `json:"avoid" doc:"groups that did badly here: new instances of them come here only if no other node will do"`
	Unknown      []UnknownInstance  `json:"unknown" doc:"instances that run here and that the state does not know, as after a restore"`
	PortProblems []PortProblem      `json:"port_problems" doc:"ports that its agent can't open"`
	Troubles     []Trouble          `json:"troubles" doc:"what its agent's checks of its own machine find; with any of them the node is degraded"`
	Owes         bool               `json:"inventory_missing" doc:"its agent has not told since the last restore what runs here"`
}

// Trouble is a check of an agent's own machine that fails.
type Trouble struct {
	Check  model.SelfCheck `json:"check" enum:"cgroup_not_writable,clock_jumps,disk_full,disk_not_writable,disk_slow"`
	Reason string          `json:"reason"`
}

// Avoidance is a group that avoids a node for a while.
type Avoidance struct {
	Group   model.GroupID `json:"group"`
	Version uint64        `json:"version,omitempty" doc:"of the group that avoids it; absent: every version, as a person asked for"`
	Reason  string        `json:"reason"`
	Until   time.Time     `json:"until"`
}

// avoiding lists the groups that avoid a node now. Their time is cluster time, shown as wall time from now on.
func (r *reading) avoiding(n *fsm.Node) []Avoidance {
	list := []Avoidance{}
	for _, a := range n.Avoiding(r.now) {
		list = append(list, Avoidance{Group: a.Group, Version: a.Version, Reason: a.Reason, Until: r.wallAt(a.Until)})
	}
	return list
}

// wallAt is a moment of cluster time that is still to come, as wall time from now on.
func (r *reading) wallAt(t model.Time) time.Time {
	return r.wall.Add(time.Duration(t.Sub(r.now)) * time.Millisecond).UTC().Truncate(time.Second)
}

// Amounts are what is offered or taken.
type Amounts struct {
	CPU         int64 `json:"cpu"`
	MemoryBytes int64 `json:"memory_bytes"`
}

func amounts(r model.Resources) Amounts { return Amounts{CPU: r.CPU, MemoryBytes: r.MemoryBytes} }

// NodeReply is the answer to a write that concerns one node.
type NodeReply struct {
	Written
	Node *Node `json:"node,omitempty" doc:"absent when the node was forgotten"`
}

func (r *reading) node(n *fsm.Node) Node {
	v := Node{
		ID: n.ID, Name: n.Name, State: n.State(), Intent: n.Intent, Health: n.Shown(),
		Labels: notNilMap(n.Shape.Labels), Attributes: notNilMap(n.Shape.Attributes),
		Address: n.Agent.Address, APIAddress: n.Agent.APIAddress, Epoch: n.Agent.Epoch, BootID: n.Agent.BootID, Version: n.Agent.Version,
		Warnings: notNil(n.Agent.Warnings), Capacity: amounts(n.Shape.Capacity), Reserved: amounts(n.Shape.Reserved),
		Allocated: Amounts{CPU: n.Placed.CPU, MemoryBytes: n.Placed.MemoryBytes}, Instances: n.Placed.Instances,
		Acked: notNil(n.Acked), Avoid: r.avoiding(n), AutoEvicting: r.AutoEvicting(n.ID),
		Unknown: []UnknownInstance{}, Owes: n.Restore.Owes, Troubles: []Trouble{}, PortProblems: closedPorts(n),
	}
	for _, t := range n.Self.Troubles {
		v.Troubles = append(v.Troubles, Trouble(t))
	}
	for _, h := range n.Restore.Unknown {
		job, _ := h.Group.Split()
		v.Unknown = append(v.Unknown, UnknownInstance{Node: n.Name, Instance: h.ID, Job: job, Group: h.Group, Slot: h.Slot, Kept: r.Keeps(h)})
	}
	if n.Intent == model.IntentDraining {
		v.DrainID = n.Drain // of what emptied an active node once, the drain tells
	}
	if refusal := r.Eligible(n); refusal != nil {
		v.Reason = refusal.Message
	} else {
		v.Eligible = true
	}
	if live, ok := r.seen.LiveOf(n.ID); ok && live.Age != model.Forever {
		seen := r.wall.Add(-time.Duration(live.Age) * time.Millisecond).UTC().Truncate(time.Millisecond)
		v.LastSeen, v.SeenBy = &seen, live.SeenBy
	}
	return v
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
		list(s, route{id: "list-nodes", path: "/v1/nodes", tag: "nodes", summary: "List nodes"}, listing[nodeList, Node]{
			topics: topics[nodeList]("nodes"),
			rows: func(r *reading, _ *nodeList, from string, yield func(string, Node) bool) error {
				scan(r.Nodes, from, r.node, yield)
				return nil
			},
		}),
		read(s, getRoute("get-node", "/v1/nodes/{id}", "nodes", "Show a node"), s.nodeTopics, showNode),
		write(s, nodeRoute("cordon", "Take no new instances"), setIntent(model.IntentCordoned)),
		write(s, nodeRoute("uncordon", "Take new instances again; cancels a running drain"), setIntent(model.IntentActive, model.IntentDisabled)),
		write(s, nodeRoute("disable", "Treat the node as removed: evict at once"), setIntent(model.IntentDisabled)),
		write(s, nodeRoute("enable", "End disabled"), setIntent(model.IntentActive, model.IntentCordoned, model.IntentDraining)),
		write(s, nodeRoute("ack-blockers", "Accept that instances stay running on a draining node"), ackBlockers()),
		write(s, nodeRoute("confirm-dead", "Say that nothing runs on an offline node any more"), confirmDead()),
		write(s, nodeRoute("label", "Set labels; an empty value removes one"), labelNode()),
		write(s, route{id: "forget-node", method: http.MethodDelete, path: "/v1/nodes/{id}", tag: "nodes", summary: "Remove an offline node on which nothing is left"}, forgetNode()),
		write(s, drainNodeRoute(), startDrain[nodeDrainInput]()),
	}
}

// drainNodeRoute is also for the node's own agent, which may be told to drain it when it is shut down.
func drainNodeRoute() route {
	rt := nodeRoute("drain", "Drain a node")
	rt.allow = forCLI | forAgent
	return rt
}

func nodeRoute(verb, summary string) route {
	return route{id: verb + "-node", path: "/v1/nodes/{id}/" + verb, tag: "nodes", summary: summary}
}

func (s *Server) nodeTopics(in *nodeRead) []fsm.Topic {
	state, _ := s.cfg.Store.Watch()
	if n, refusal := state.FindNode(in.ID); refusal == nil {
		return []fsm.Topic{"node/" + fsm.Topic(n.ID)}
	}
	return []fsm.Topic{"nodes"}
}

func showNode(_ context.Context, r *reading, in *nodeRead) (Node, error) {
	n, refusal := r.FindNode(in.ID)
	if refusal != nil {
		return Node{}, refusal
	}
	return r.node(n), nil
}

// nodeReply shows the node after a write; after a repeated request it may be gone.
func (o *outcome) nodeReply(ref string) (NodeReply, error) {
	reply := NodeReply{Written: o.Written}
	if n, refusal := o.NamedNode(ref); refusal == nil {
		v := o.node(n)
		reply.Node = &v
	}
	return reply, nil
}

// onNode is a change of one command to one node.
func onNode[I any](ref func(*I) string, command func(*reading, *fsm.Node, *I) (fsm.Command, error)) change[I, NodeReply] {
	return change[I, NodeReply]{
		prepare: func(r *reading, in *I) ([]fsm.Command, error) {
			n, refusal := r.NamedNode(ref(in))
			if refusal != nil {
				return nil, refusal
			}
			c, err := command(r, n, in)
			return []fsm.Command{c}, err
		},
		answer: func(o *outcome, in *I) (NodeReply, error) { return o.nodeReply(ref(in)) },
	}
}

type intentInput struct {
	WriteParams
	NodePath
	Input intentBody
}

type intentBody struct {
	Reason string `json:"reason,omitempty" maxLength:"256" doc:"for people; it stands in the event"`
}

func (in *intentInput) body() any { return &in.Input }

func (in *intentInput) ref() string { return in.ID }

// setIntent changes what the operator wants of a node. barred are present intents that another verb has to end.
func setIntent(to model.Intent, barred ...model.Intent) change[intentInput, NodeReply] {
	return onNode((*intentInput).ref, func(_ *reading, n *fsm.Node, in *intentInput) (fsm.Command, error) {
		if slices.Contains(barred, n.Intent) {
			verb := "enable"
			if n.Intent != model.IntentDisabled {
				verb = "uncordon"
			}
			return nil, model.Refuse(model.CodeConflict, "node %s is %s", n.Name, n.Intent).WithHint("use: outspan node %s %s", verb, n.Name)
		}
		return &fsm.NodeIntent{ID: n.ID, Intent: to, Reason: in.Input.Reason}, nil
	})
}

type ackInput struct {
	WriteParams
	NodePath
	Input ackBody
}

type ackBody struct {
	Instances []model.InstanceID `json:"instances,omitempty" maxItems:"1000" doc:"default: all that block now"`
}

func (in *ackInput) body() any { return &in.Input }

func (in *ackInput) ref() string { return in.ID }

func ackBlockers() change[ackInput, NodeReply] {
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
	Input deadBody
}

type deadBody struct {
	Force bool `json:"force,omitempty" doc:"the machine is known to be off, whatever it might still run of which only one may run; recorded"`
}

func (in *deadInput) body() any { return &in.Input }

func (in *deadInput) ref() string { return in.ID }

func confirmDead() change[deadInput, NodeReply] {
	return onNode((*deadInput).ref, func(_ *reading, n *fsm.Node, in *deadInput) (fsm.Command, error) {
		return &fsm.NodeConfirmDead{ID: n.ID, Force: in.Input.Force}, nil
	})
}

type forgetInput struct {
	WriteParams
	NodePath
	LoseData []string `query:"lose_data,explode" doc:"job/group: a group whose data on this node is given up; its slots start empty elsewhere; recorded"`
}

// ForgetReply is the answer to the removal of a node.
type ForgetReply struct {
	NodeReply
	Lost []model.VolumeID `json:"lost,omitempty" doc:"volumes whose data is given up"`
}

func forgetNode() change[forgetInput, ForgetReply] {
	return change[forgetInput, ForgetReply]{
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
		answer: func(o *outcome, in *forgetInput) (ForgetReply, error) {
			node, err := o.nodeReply(in.ID)
			reply := ForgetReply{NodeReply: node}
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
	Input labelBody
}

type labelBody struct {
	Labels map[string]string `json:"labels"`
}

func (in *labelInput) body() any { return &in.Input }

func (in *labelInput) ref() string { return in.ID }

func labelNode() change[labelInput, NodeReply] {
	return onNode((*labelInput).ref, func(_ *reading, n *fsm.Node, in *labelInput) (fsm.Command, error) {
		if len(in.Input.Labels) == 0 {
			return nil, model.Refuse(model.CodeInvalid, "no label is given").WithHint(`send {"labels":{"rack":"r1"}}`)
		}
		return &fsm.NodeLabel{ID: n.ID, Labels: in.Input.Labels}, nil
	})
}
