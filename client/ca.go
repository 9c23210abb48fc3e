package client

import (
	"context"
	"net/http"

	"github.com/outspan/outspan/api"
)

// CA are the operations on the CA of a cluster that makes certificates itself; in any other cluster each has the code
// not_supported.
type CA struct{ calls }

// Status returns the CAs, and how far the replacement of one by another has come.
func (c CA) Status(ctx context.Context, o ReadOptions) (Response[api.CA], error) {
	return read[api.CA](ctx, c.calls, route("ca"), o.query())
}

// Rotate begins to replace the CA, and returns before that is done; see Status. During a rotation it begins nothing.
// With body.Force it leaves members behind that the rotation would wait for. Codes: not_found for a name that no member
// has; conflict if too few servers would be left.
func (c CA) Rotate(ctx context.Context, body api.RotateCABody, o WriteOptions) (Response[api.CAReply], error) {
	return write[api.CAReply](ctx, c.calls, http.MethodPost, route("ca", "rotate"), o.query(), body)
}
