package httpapi

import (
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// drainRequest is an input that starts a drain of the nodes in its body, or of the node in its path.
type drainRequest[I any] interface {
	*I
	request() (nodes []string, choices *api.DrainChoices)
}

type drainInput struct {
	WriteParams
	Input api.DrainBody
}

type nodeDrainInput struct {
	WriteParams
	NodePath
	Input api.DrainChoices
}

func (in *drainInput) body() any     { return &in.Input }
func (in *nodeDrainInput) body() any { return &in.Input }

func (in *drainInput) request() ([]string, *api.DrainChoices) {
	return in.Input.Nodes, &in.Input.DrainChoices
}

func (in *nodeDrainInput) request() ([]string, *api.DrainChoices) {
	return []string{in.ID}, &in.Input
}

func (in *drainInput) selector() map[string]string { return in.Input.Selector }

func startDrain[I any, P drainRequest[I]]() change[I, api.DrainReply] {
	return change[I, api.DrainReply]{
		prepare: func(r *reading, in *I) ([]fsm.Command, error) {
			nodes, choices := P(in).request()
			if labelled, ok := any(P(in)).(interface{ selector() map[string]string }); ok && len(labelled.selector()) > 0 {
				if len(nodes) > 0 {
					return nil, model.Refuse(model.CodeInvalid, "nodes and selector are both given").WithHint("give one of them")
				}
				if nodes = r.selectNodes(labelled.selector()); len(nodes) == 0 {
					return nil, model.Refuse(model.CodeNotFound, "no node has these labels").
						WithHint("list them with: outspan node ls -o wide")
				}
			}
			if r.by.Kind == model.SubjectAgent {
				if err := r.ownDrain(nodes[0], choices); err != nil {
					return nil, err
				}
			}
			return drainStart(choices, r, nodes)
		},
		answer: func(o *outcome, _ *I) (api.DrainReply, error) { return o.drainReply() },
	}
}

// ownDrain returns an error unless the node is the calling agent's own. It also refuses choices that force the drain,
// accept downtime, set a policy or belong to a roll. Codes: forbidden, not_found.
func (r *reading) ownDrain(node string, choices *api.DrainChoices) error {
	n, refusal := r.NamedNode(node)
	if refusal != nil {
		return refusal
	}
	if choices.Force || choices.ForceAtDeadline || len(choices.AcceptDowntime) > 0 || choices.Policy != "" {
		return model.Refuse(model.CodeForbidden, "an agent may not force the drain of its node")
	}
	if choices.Roll != nil { // whoever resumes a roll runs its command
		return model.Refuse(model.CodeForbidden, "an agent may not begin a roll")
	}
	return r.by.isNode(n.Name)
}

func drainStart(c *api.DrainChoices, r *reading, nodes []string) ([]fsm.Command, error) {
	if len(nodes) == 0 {
		return nil, model.Refuse(model.CodeInvalid, "no node is given").WithHint("name nodes, or a selector")
	}
	if c.Policy != "" && !slices.Contains(model.DrainPolicies(), c.Policy) {
		return nil, model.Refuse(model.CodeInvalid, "policy is unknown").
			WithHint("use one of: %s", strings.Join(model.DrainPolicies(), ", "))
	}
	id := c.ID
	if id == "" {
		id = model.DrainID(ulid.Make().String())
	}
	options := model.DrainOptions{
		Deadline: r.Settings.DrainDeadline, Force: c.Force, ForceAtDeadline: c.ForceAtDeadline,
		AcceptDowntime: c.AcceptDowntime,
		IgnoreSystem:   c.IgnoreSystem, MaxParallelNodes: c.MaxParallelNodes, Policy: c.Policy, Roll: c.Roll,
	}
	if c.Deadline != nil {
		options.Deadline = *c.Deadline
	}
	return []fsm.Command{&fsm.DrainStart{ID: id, Nodes: nodes, Message: c.Message, Options: options}}, nil
}

// selectNodes returns the sorted names of the nodes that have all of these labels, except disabled nodes.
func (r *reading) selectNodes(labels map[string]string) []string {
	var names []string
	for _, n := range r.Nodes.All() {
		matches := n.Intent != model.IntentDisabled
		for k, want := range labels {
			matches = matches && n.Shape.Labels[k] == want
		}
		if matches {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// drainReply builds the answer from the drain's row. So the answer to a repeated request differs at most in the
// forecast.
func (o *outcome) drainReply() (api.DrainReply, error) {
	reply := api.DrainReply{Written: o.Written, Started: []string{}, Rejected: []model.DrainRefusal{},
		Forecast: []api.DrainForecast{}}
	d := o.startedDrain()
	if d == nil {
		return reply, nil // the drain ended long ago and is no longer kept
	}
	reply.Drain, reply.Rejected = d.ID, o.veil.rejected(d.Rejected)
	for _, n := range d.Nodes {
		reply.Started = append(reply.Started, o.nodeName(n.Node))
	}
	for _, f := range o.planner.Forecast(o.question(), d.ID) {
		reply.Forecast = append(reply.Forecast, o.forecast(f))
	}
	return reply, nil
}

// startedDrain returns the drain that the write started, or nil if that drain is no longer kept. The command has the
// drain's id. A repeated request has no command, so startedDrain uses the index of the entry.
func (o *outcome) startedDrain() *fsm.Drain {
	for _, c := range o.commands {
		if start, ok := c.(*fsm.DrainStart); ok {
			d, _ := o.Drains.Get(start.ID)
			return d
		}
	}
	for _, d := range o.Drains.All() {
		if d.Index == o.Written.Index && o.Sees("drain/"+string(d.ID)) {
			return d
		}
	}
	return nil
}

func (r *reading) forecast(f model.Forecast) api.DrainForecast {
	v := api.DrainForecast{
		Node: r.nodeName(f.Node), NodeID: f.Node, Instance: f.Instance, Group: f.Group, Class: f.Class, Action: f.Action,
		Never: f.Never, Note: f.Note, After: f.After,
	}
	if i, ok := r.Instances.Get(f.Instance); ok {
		v.Member = r.member(i)
	}
	if f.Target != "" {
		v.Target = r.nodeName(f.Target)
	}
	if f.Blocker != nil {
		v.Blocker, v.Volume, v.Message, v.Unblock = f.Blocker.Code, f.Blocker.Volume, f.Blocker.Message, f.Blocker.Unblock
	}
	return r.veil.forecast(v)
}
