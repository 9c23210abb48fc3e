package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/outspan/outspan/internal/reach"
)

// ForwardedRequest is a request of another program, which Client.Forward passes on.
type ForwardedRequest struct {
	Method string
	Path   string // escaped, beginning with /v1/
	Query  url.Values
	Body   []byte // JSON; nil means none
	Header http.Header
}

// Forward sends a request to the servers by the identity of this client, and returns the answer as a stream. The caller
// closes the answer's body. It is for proxies: a request of a program that has no identity of its own. Forward blocks,
// repeats and fails as any other call does. An answer that is an error is returned as an error, which wraps an
// *api.Problem.
func (c *Client) Forward(ctx context.Context, r ForwardedRequest) (*http.Response, error) {
	return c.caller.Open(ctx, reach.Request{
		Method: r.Method, Path: r.Path, Query: r.Query, Body: r.Body, Header: r.Header,
	})
}
