package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Newcomers returns the machines that wait until a person approves them, with those that were approved or rejected and
// have not come yet. It reads all pages.
func (t Trust) Newcomers(ctx context.Context, o ListOptions) (List[api.Newcomer], error) {
	return list[api.Newcomer](ctx, t.calls, route("newcomers"), o.query())
}

// AllNewcomers yields what Newcomers returns, and reads each page when it is needed. If a read fails, AllNewcomers
// yields the error and stops.
func (t Trust) AllNewcomers(ctx context.Context, o ListOptions) iter.Seq2[api.Newcomer, error] {
	return each[api.Newcomer](ctx, t.calls, route("newcomers"), o.query())
}

// ApproveNewcomer lets a newcomer join if it asks again within an hour. Its subject is that of its server, or of its
// agent if it has no server. Codes: not_found; ambiguous if several newcomers of this name wait and body.Key is empty;
// conflict if it was approved or rejected already, or is a member; stale if it just asked with another key.
func (t Trust) ApproveNewcomer(ctx context.Context, who model.Subject, body api.NewcomerBody, o WriteOptions) (
	Response[api.NewcomerReply], error) {
	return write[api.NewcomerReply](ctx, t.calls, http.MethodPost, route("newcomers", who.String(), "approve"), o.query(),
		body)
}

// RejectNewcomer ends the wait of a newcomer for as long as its token lasts, at most a day. Codes: as of
// ApproveNewcomer.
func (t Trust) RejectNewcomer(ctx context.Context, who model.Subject, body api.NewcomerBody, o WriteOptions) (
	Response[api.NewcomerReply], error) {
	return write[api.NewcomerReply](ctx, t.calls, http.MethodPost, route("newcomers", who.String(), "reject"), o.query(),
		body)
}
