package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/outspan/outspan/api"
)

// Drains move what runs away from nodes. A drain is named by its id or, in reads, a unique prefix.
type Drains struct{ calls }

// List reads the drains, all pages in one.
func (d Drains) List(ctx context.Context, o ListOptions) (List[api.Drain], error) {
	return list[api.Drain](ctx, d.calls, route("drains"), o.query())
}

// All yields the drains; pages are read as they are needed. After an error it ends.
func (d Drains) All(ctx context.Context, o ListOptions) iter.Seq2[api.Drain, error] {
	return each[api.Drain](ctx, d.calls, route("drains"), o.query())
}

// Get reads one drain. Codes: not_found, ambiguous.
func (d Drains) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.Drain], error) {
	return read[api.Drain](ctx, d.calls, route("drains", ref), o.query())
}

// Start drains nodes; the answer says what will happen to what runs there.
func (d Drains) Start(ctx context.Context, body api.DrainBody, o WriteOptions) (Response[api.DrainReply], error) {
	return write[api.DrainReply](ctx, d.calls, http.MethodPost, route("drains"), o.query(), body)
}

// Cancel cancels what has not begun; the cordon stays unless Uncordon is set.
func (d Drains) Cancel(
	ctx context.Context, ref string, body api.CancelBody, o WriteOptions,
) (Response[api.DrainWriteReply], error) {
	return write[api.DrainWriteReply](ctx, d.calls, http.MethodPost, route("drains", ref, "cancel"), o.query(), body)
}

// Pause begins no more evictions; the deadline goes on.
func (d Drains) Pause(ctx context.Context, ref string, o WriteOptions) (Response[api.DrainWriteReply], error) {
	return write[api.DrainWriteReply](ctx, d.calls, http.MethodPost, route("drains", ref, "pause"), o.query(), nil)
}

// Resume goes on with a paused drain.
func (d Drains) Resume(ctx context.Context, ref string, o WriteOptions) (Response[api.DrainWriteReply], error) {
	return write[api.DrainWriteReply](ctx, d.calls, http.MethodPost, route("drains", ref, "resume"), o.query(), nil)
}
