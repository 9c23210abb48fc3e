package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/outspan/outspan/api"
)

// Drains are the operations on drains, which move instances away from nodes. A drain is named by its id or, in reads, a
// unique prefix.
type Drains struct{ calls }

// List returns the drains. It reads all pages.
func (d Drains) List(ctx context.Context, o ListOptions) (List[api.Drain], error) {
	return list[api.Drain](ctx, d.calls, route("drains"), o.query())
}

// All yields the drains and reads each page when it is needed. If a read fails, All yields the error and stops.
func (d Drains) All(ctx context.Context, o ListOptions) iter.Seq2[api.Drain, error] {
	return each[api.Drain](ctx, d.calls, route("drains"), o.query())
}

// Get returns one drain. Codes: not_found, ambiguous.
func (d Drains) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.Drain], error) {
	return read[api.Drain](ctx, d.calls, route("drains", ref), o.query())
}

// GetWithLanes returns one drain with its lanes, which say when what happened to each instance. Servers that don't know
// lanes refuse the request with the code invalid. Codes: not_found, ambiguous.
func (d Drains) GetWithLanes(ctx context.Context, ref string, o ReadOptions) (Response[api.Drain], error) {
	q := o.query()
	q.Set("lanes", "true")
	return read[api.Drain](ctx, d.calls, route("drains", ref), q)
}

// Start starts a drain of nodes. The answer has a forecast for each instance on these nodes.
func (d Drains) Start(ctx context.Context, body api.DrainBody, o WriteOptions) (Response[api.DrainReply], error) {
	return write[api.DrainReply](ctx, d.calls, http.MethodPost, route("drains"), o.query(), body)
}

// Cancel cancels a running drain. Stops that have begun are completed. Unless body.Uncordon is set, the nodes still get
// no new instances. Code: conflict if the drain has ended.
func (d Drains) Cancel(
	ctx context.Context, ref string, body api.CancelBody, o WriteOptions,
) (Response[api.DrainWriteReply], error) {
	return write[api.DrainWriteReply](ctx, d.calls, http.MethodPost, route("drains", ref, "cancel"), o.query(), body)
}

// Pause keeps a drain from starting evictions. It does not extend the drain's deadline. Code: conflict if the drain has
// ended.
func (d Drains) Pause(ctx context.Context, ref string, o WriteOptions) (Response[api.DrainWriteReply], error) {
	return write[api.DrainWriteReply](ctx, d.calls, http.MethodPost, route("drains", ref, "pause"), o.query(), nil)
}

// Resume continues a paused drain. Code: conflict if the drain has ended.
func (d Drains) Resume(ctx context.Context, ref string, o WriteOptions) (Response[api.DrainWriteReply], error) {
	return write[api.DrainWriteReply](ctx, d.calls, http.MethodPost, route("drains", ref, "resume"), o.query(), nil)
}
