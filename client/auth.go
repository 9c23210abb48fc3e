package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/rights"
)

// Auth are the operations on who may do what.
type Auth struct{ calls }

// Roles returns all roles, the built-in ones too.
func (a Auth) Roles(ctx context.Context, o ListOptions) (List[api.Role], error) {
	return list[api.Role](ctx, a.calls, route("roles"), o.query())
}

// AllRoles yields all roles, and reads each page when it is needed. If a read fails, AllRoles yields the error and
// stops.
func (a Auth) AllRoles(ctx context.Context, o ListOptions) iter.Seq2[api.Role, error] {
	return each[api.Role](ctx, a.calls, route("roles"), o.query())
}

// Role returns one role. Code: not_found.
func (a Auth) Role(ctx context.Context, name rights.RoleName, o ReadOptions) (Response[api.Role], error) {
	return read[api.Role](ctx, a.calls, route("roles", string(name)), o.query())
}

// SetRole makes a role, or replaces it. Codes: invalid; conflict if there are too many.
func (a Auth) SetRole(ctx context.Context, name rights.RoleName, body api.RoleBody, o WriteOptions) (
	Response[api.RoleReply], error) {
	return write[api.RoleReply](ctx, a.calls, http.MethodPut, route("roles", string(name)), o.query(), body)
}

// RemoveRole removes a role. Codes: not_found; in_use if a binding gives it; invalid for a built-in role.
func (a Auth) RemoveRole(ctx context.Context, name rights.RoleName, o WriteOptions) (Response[api.RoleReply], error) {
	return write[api.RoleReply](ctx, a.calls, http.MethodDelete, route("roles", string(name)), o.query(), nil)
}

// SetRights makes or replaces roles, and then gives roles, all at once or not at all. Codes: invalid; not_found if
// there is no such role; conflict if there are too many.
func (a Auth) SetRights(ctx context.Context, body api.RightsBody, o WriteOptions) (
	Response[api.RightsReply], error) {
	return write[api.RightsReply](ctx, a.calls, http.MethodPost, route("auth", "rights"), o.query(), body)
}

// Bindings returns all bindings of roles to people and groups.
func (a Auth) Bindings(ctx context.Context, o ListOptions) (List[api.Binding], error) {
	return list[api.Binding](ctx, a.calls, route("bindings"), o.query())
}

// AllBindings yields all bindings, and reads each page when it is needed. If a read fails, AllBindings yields the error
// and stops.
func (a Auth) AllBindings(ctx context.Context, o ListOptions) iter.Seq2[api.Binding, error] {
	return each[api.Binding](ctx, a.calls, route("bindings"), o.query())
}

// Grant gives a role to people or to a group. Codes: invalid; not_found if there is no such role.
func (a Auth) Grant(ctx context.Context, body api.BindingBody, o WriteOptions) (Response[api.BindingReply], error) {
	return write[api.BindingReply](ctx, a.calls, http.MethodPost, route("bindings"), o.query(), body)
}

// Revoke takes a role away again. Code: not_found.
func (a Auth) Revoke(ctx context.Context, body api.BindingBody, o WriteOptions) (Response[api.BindingReply], error) {
	return write[api.BindingReply](ctx, a.calls, http.MethodPost, route("bindings", "revoke"), o.query(), body)
}

// WhoAmI returns who the caller is, and what it may do.
func (a Auth) WhoAmI(ctx context.Context, o ReadOptions) (Response[api.Identity], error) {
	return read[api.Identity](ctx, a.calls, route("auth", "whoami"), o.query())
}

// Providers returns the providers at which people can sign in. It needs neither a certificate nor an access token.
func (a Auth) Providers(ctx context.Context) (Response[api.Providers], error) {
	return read[api.Providers](ctx, a.calls, route("auth", "providers"), nil)
}

// Login signs somebody in with an id token, and returns an access token. It needs neither a certificate nor an access
// token. Codes: forbidden if the id token is not good; conflict if it was used before; provider_unreachable;
// rate_limited; not_supported without a provider.
func (a Auth) Login(ctx context.Context, body api.LoginBody, o WriteOptions) (Response[api.LoginReply], error) {
	return write[api.LoginReply](ctx, a.calls, http.MethodPost, route("auth", "login"), o.query(), body)
}

// Logout revokes the access token of the caller's login. Code: conflict if the caller has not signed in.
func (a Auth) Logout(ctx context.Context, o WriteOptions) (Response[api.LogoutReply], error) {
	return write[api.LogoutReply](ctx, a.calls, http.MethodPost, route("auth", "logout"), o.query(), nil)
}

// CanIOptions say what CanI asks about. The zero values of Object and As mean anything at all, and the caller.
type CanIOptions struct {
	ReadOptions
	Object string       // such as node/n1 or job/web
	As     string       // another subject, such as cert:alice; it takes the right auth.read
	Asks   []rights.Ask // with rights.SubmitJob and a job: what one group of it asks for
}

func (o CanIOptions) query(verb rights.Verb) url.Values {
	q := o.ReadOptions.query()
	q.Set("verb", string(verb))
	if o.Object != "" {
		q.Set("object", o.Object)
	}
	if o.As != "" {
		q.Set("as", o.As)
	}
	for _, a := range o.Asks {
		q.Add("ask", a.List+"="+a.Name)
	}
	return q
}

// CanI says whether somebody may do something. Codes: invalid if there is no such verb; forbidden.
func (a Auth) CanI(ctx context.Context, verb rights.Verb, o CanIOptions) (Response[api.Permission], error) {
	return read[api.Permission](ctx, a.calls, route("auth", "can-i"), o.query(verb))
}
