package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/outspan/outspan/api"
)

// Nodes are the machines of the cluster. A node is named by its id, its name or, in reads, a unique prefix of either.
type Nodes struct{ calls }

// List reads the nodes, all pages in one.
func (x Nodes) List(ctx context.Context, o ListOptions) (List[api.Node], error) {
	return list[api.Node](ctx, x.calls, route("nodes"), o.query())
}

// All yields the nodes; pages are read as they are needed. After an error it ends.
func (x Nodes) All(ctx context.Context, o ListOptions) iter.Seq2[api.Node, error] {
	return each[api.Node](ctx, x.calls, route("nodes"), o.query())
}

// Get reads one node. Codes: not_found, ambiguous.
func (x Nodes) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.Node], error) {
	return read[api.Node](ctx, x.calls, route("nodes", ref), o.query())
}

// Cordon takes no new instances onto a node; what runs there stays.
func (x Nodes) Cordon(ctx context.Context, ref string, body api.IntentBody, o WriteOptions) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, x.calls, http.MethodPost, route("nodes", ref, "cordon"), o.query(), body)
}

// Uncordon ends a cordon.
func (x Nodes) Uncordon(ctx context.Context, ref string, body api.IntentBody, o WriteOptions) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, x.calls, http.MethodPost, route("nodes", ref, "uncordon"), o.query(), body)
}

// Disable takes a node out of service.
func (x Nodes) Disable(ctx context.Context, ref string, body api.IntentBody, o WriteOptions) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, x.calls, http.MethodPost, route("nodes", ref, "disable"), o.query(), body)
}

// Enable takes a disabled node into service again.
func (x Nodes) Enable(ctx context.Context, ref string, body api.IntentBody, o WriteOptions) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, x.calls, http.MethodPost, route("nodes", ref, "enable"), o.query(), body)
}

// Drain starts a drain of one node; Drains.Start drains several.
func (x Nodes) Drain(ctx context.Context, ref string, body api.DrainChoices, o WriteOptions) (Response[api.DrainReply], error) {
	return write[api.DrainReply](ctx, x.calls, http.MethodPost, route("nodes", ref, "drain"), o.query(), body)
}

// AckBlockers acknowledges what blocks the drain of a node: it stays there.
func (x Nodes) AckBlockers(ctx context.Context, ref string, body api.AckBody, o WriteOptions) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, x.calls, http.MethodPost, route("nodes", ref, "ack-blockers"), o.query(), body)
}

// ConfirmDead says that a machine is off, so that what only one may run starts elsewhere.
func (x Nodes) ConfirmDead(ctx context.Context, ref string, body api.DeadBody, o WriteOptions) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, x.calls, http.MethodPost, route("nodes", ref, "confirm-dead"), o.query(), body)
}

// Label changes labels; an empty value removes one.
func (x Nodes) Label(ctx context.Context, ref string, body api.LabelBody, o WriteOptions) (Response[api.NodeReply], error) {
	return write[api.NodeReply](ctx, x.calls, http.MethodPost, route("nodes", ref, "label"), o.query(), body)
}

// ForgetOptions are those of Nodes.Forget.
type ForgetOptions struct {
	WriteOptions
	// LoseData names groups, as job/group, whose data on the node is given up: their slots start empty elsewhere.
	LoseData []string
}

// Forget removes a node that is gone for good. Codes: not_found, and those of what still needs it.
func (x Nodes) Forget(ctx context.Context, ref string, o ForgetOptions) (Response[api.ForgetReply], error) {
	query := o.query()
	if len(o.LoseData) > 0 {
		query["lose_data"] = o.LoseData
	}
	return write[api.ForgetReply](ctx, x.calls, http.MethodDelete, route("nodes", ref), query, nil)
}
