package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/outspan/outspan/api"
)

// Nodes are the operations on nodes, the worker machines. A node is named by its id, its name or, in reads, a unique
// prefix of its id.
type Nodes struct{ calls }

// List returns the nodes. It reads all pages.
func (n Nodes) List(ctx context.Context, o ListOptions) (List[api.Node], error) {
	return list[api.Node](ctx, n.calls, route("nodes"), o.query())
}

// All yields the nodes and reads each page when it is needed. If a read fails, All yields the error and stops.
func (n Nodes) All(ctx context.Context, o ListOptions) iter.Seq2[api.Node, error] {
	return each[api.Node](ctx, n.calls, route("nodes"), o.query())
}

// Get returns one node. Codes: not_found, ambiguous.
func (n Nodes) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.Node], error) {
	return read[api.Node](ctx, n.calls, route("nodes", ref), o.query())
}

// Cordon keeps new instances off a node. Running instances stay.
func (n Nodes) Cordon(
	ctx context.Context, ref string, body api.IntentBody, o WriteOptions,
) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, n.calls, http.MethodPost, route("nodes", ref, "cordon"), o.query(), body)
}

// Uncordon allows new instances on a cordoned or draining node again, and cancels the node's part of a drain. Code:
// conflict if the node is disabled; Enable is for disabled nodes.
func (n Nodes) Uncordon(
	ctx context.Context, ref string, body api.IntentBody, o WriteOptions,
) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, n.calls, http.MethodPost, route("nodes", ref, "uncordon"), o.query(), body)
}

// Disable treats a node as removed, and evicts its instances at once.
func (n Nodes) Disable(
	ctx context.Context, ref string, body api.IntentBody, o WriteOptions,
) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, n.calls, http.MethodPost, route("nodes", ref, "disable"), o.query(), body)
}

// Enable makes a disabled node active again. Code: conflict if the node is cordoned or draining; Uncordon is for such
// nodes.
func (n Nodes) Enable(
	ctx context.Context, ref string, body api.IntentBody, o WriteOptions,
) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, n.calls, http.MethodPost, route("nodes", ref, "enable"), o.query(), body)
}

// Drain starts a drain of one node; Drains.Start drains several.
func (n Nodes) Drain(
	ctx context.Context, ref string, body api.DrainChoices, o WriteOptions,
) (Response[api.DrainReply], error) {
	return write[api.DrainReply](ctx, n.calls, http.MethodPost, route("nodes", ref, "drain"), o.query(), body)
}

// AckBlockers acknowledges that some instances stay running on a draining or disabled node, so that a drain need not
// wait for them. If body.Instances is empty, AckBlockers acknowledges every instance on the node that can't move now.
// Code: conflict if the node is neither draining nor disabled.
func (n Nodes) AckBlockers(
	ctx context.Context, ref string, body api.AckBody, o WriteOptions,
) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, n.calls, http.MethodPost, route("nodes", ref, "ack-blockers"), o.query(), body)
}

// ConfirmDead confirms that nothing runs on an offline node any more. Its instances are then considered stopped and can
// be replaced. body.Force is required if the node may still run an instance of which only one may run at a time. Codes:
// conflict if the node is not offline; node_offline_unconfirmed_stop or lease_held if body.Force is required.
func (n Nodes) ConfirmDead(
	ctx context.Context, ref string, body api.DeadBody, o WriteOptions,
) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, n.calls, http.MethodPost, route("nodes", ref, "confirm-dead"), o.query(), body)
}

// Label sets labels of a node. An empty value removes a label. Labels that body does not name stay as they are.
func (n Nodes) Label(
	ctx context.Context, ref string, body api.LabelBody, o WriteOptions,
) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, n.calls, http.MethodPost, route("nodes", ref, "label"), o.query(), body)
}

// ForgetOptions are the options of Nodes.Forget.
type ForgetOptions struct {
	WriteOptions
	// LoseData names groups, as job/group, whose data on the node is given up. Slots that lose data start empty elsewhere.
	LoseData []string
}

// Forget removes an offline node that will not return. Codes: not_found; conflict if the node is not offline, still has
// instances, or has data that o.LoseData does not give up.
func (n Nodes) Forget(ctx context.Context, ref string, o ForgetOptions) (Response[api.ForgetReply], error) {
	query := o.query()
	if len(o.LoseData) > 0 {
		query["lose_data"] = o.LoseData
	}
	return write[api.ForgetReply](ctx, n.calls, http.MethodDelete, route("nodes", ref), query, nil)
}
