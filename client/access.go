package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/outspan/outspan/api"
)

// AccessTokens returns the access tokens, without their secrets. It reads all pages.
func (a Auth) AccessTokens(ctx context.Context, o ListOptions) (List[api.AccessToken], error) {
	return list[api.AccessToken](ctx, a.calls, route("access-tokens"), o.query())
}

// AllAccessTokens yields the access tokens, and reads each page when it is needed. If a read fails, AllAccessTokens
// yields the error and stops.
func (a Auth) AllAccessTokens(ctx context.Context, o ListOptions) iter.Seq2[api.AccessToken, error] {
	return each[api.AccessToken](ctx, a.calls, route("access-tokens"), o.query())
}

// CreateAccessToken makes an access token. Only its answer has the secret text. A repeated request with the same id
// gets the code conflict, also if the answer to the first one was lost. Codes: invalid; not_found if there is no such
// role; name_taken; conflict if there are too many.
func (a Auth) CreateAccessToken(ctx context.Context, body api.AccessTokenBody, o WriteOptions) (
	Response[api.NewAccessTokenReply], error) {
	return write[api.NewAccessTokenReply](ctx, a.calls, http.MethodPost, route("access-tokens"), o.query(), body)
}

// RevokeAccessToken revokes an access token for ever, by its name or id. Code: not_found.
func (a Auth) RevokeAccessToken(ctx context.Context, name string, o WriteOptions) (Response[api.AccessTokenReply],
	error) {
	return write[api.AccessTokenReply](ctx, a.calls, http.MethodPost, route("access-tokens", name, "revoke"), o.query(),
		nil)
}
