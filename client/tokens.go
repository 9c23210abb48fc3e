package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/outspan/outspan/api"
)

// Tokens are the operations on join tokens, by which new machines get their certificates. They need a cluster that
// makes certificates itself; in any other cluster each has the code not_supported.
type Tokens struct{ calls }

// List returns the tokens, without their secrets. It reads all pages.
func (t Tokens) List(ctx context.Context, o ListOptions) (List[api.Token], error) {
	return list[api.Token](ctx, t.calls, route("tokens"), o.query())
}

// All yields the tokens and reads each page when it is needed. If a read fails, All yields the error and stops.
func (t Tokens) All(ctx context.Context, o ListOptions) iter.Seq2[api.Token, error] {
	return each[api.Token](ctx, t.calls, route("tokens"), o.query())
}

// Create makes a token. Only its answer has the secret text. A repeated request with the same id gets the code
// conflict, also if the answer to the first one was lost. Codes: invalid; conflict if there are too many tokens.
func (t Tokens) Create(ctx context.Context, body api.TokenBody, o WriteOptions) (Response[api.NewTokenReply], error) {
	return write[api.NewTokenReply](ctx, t.calls, http.MethodPost, route("tokens"), o.query(), body)
}

// Revoke revokes a token for ever. Servers and agents that it has admitted stay. Code: not_found.
func (t Tokens) Revoke(ctx context.Context, id string, o WriteOptions) (Response[api.TokenReply], error) {
	return write[api.TokenReply](ctx, t.calls, http.MethodPost, route("tokens", id, "revoke"), o.query(), nil)
}
