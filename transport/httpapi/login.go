package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport"
)

// SignIn signs people in with an OpenID Connect provider.
type SignIn struct {
	Provider api.Provider
	Session  model.Duration // how long a login lasts
	// Verify returns whom an id token identifies. It may call the provider, and blocks until ctx ends at most. Codes:
	// invalid, forbidden, provider_unreachable, busy, not_supported.
	Verify func(ctx context.Context, idToken string) (SignedIn, error)
}

// SignedIn is somebody whom an id token identifies.
type SignedIn struct {
	Subject model.Subject // oidc:ISSUER#SUB
	Person  string        // a readable name
	Groups  []string
	Proof   string // see fsm.LoginName
}

// verifyLimit is how long a login waits for the provider.
const verifyLimit = 20 * time.Second

// loginRates allows each source 20 logins at once, and then one every 3 s. Logins that succeed don't count, because
// many people may share an address.
func loginRates() *rates { return newRates(1.0/3, 20) }

// providerRates allows each source 100 requests for the list of providers at once, and then 5 a second.
func providerRates() *rates { return newRates(5, 100) }

type loginInput struct {
	WriteParams
	Input api.LoginBody

	who  SignedIn        // set by prove
	made pki.AccessToken // set by prepare
}

func (in *loginInput) body() any { return &in.Input }

type logoutInput struct{ WriteParams }

func (s *Server) loginOperations() []operation {
	providers := getRoute("list-providers", "/v1/auth/providers", "auth", "List the providers at which people can sign in")
	providers.open, providers.allow, providers.run = true, forAll, runHere
	handle := func(context.Context, *struct{}) (*body[api.Providers], error) {
		all := api.Providers{Items: []api.Provider{}, Index: s.cfg.Store.Current().Index}
		if s.cfg.SignIn != nil {
			all.Items = append(all.Items, s.cfg.SignIn.Provider)
		}
		return &body[api.Providers]{Index: decimal(all.Index), Body: all}, nil
	}
	return []operation{
		{route: providers, register: func(a huma.API) { huma.Register(a, providers.huma(), handle) }},
		write(s, route{id: "login", path: "/v1/auth/login", tag: "auth", open: true, allow: forAll,
			summary: "Sign in with an id token of a provider: it is answered with an access token"}, s.login()),
		write(s, route{id: "logout", path: "/v1/auth/logout", tag: "auth",
			summary: "Revoke the access token of the caller's own login"}, logout()),
	}
}

// anonymous returns the caller of an operation that takes no identity, and counts the request against the rate of its
// source. Servers that forward such a request have counted it. Code: rate_limited.
func (s *Server) anonymous(rt route, r *http.Request) (caller, error) {
	peer, _ := transport.SubjectFrom(r.Context())
	if peer.Kind == model.SubjectServer {
		return caller{Subject: peer, via: peer.Name}, nil
	}
	source := transport.SourceOf(remote(r.RemoteAddr))
	rates := s.providers
	if rt.write {
		rates = s.logins
	}
	if !rates.take(model.Subject{Name: source}) {
		return caller{}, model.Refuse(model.CodeRateLimited, "%s signs in too often", source).WithHint("wait a few seconds")
	}
	return caller{Subject: model.Subject{Name: source}}, nil
}

func (s *Server) login() change[loginInput, api.LoginReply] {
	return change[loginInput, api.LoginReply]{
		prove: func(ctx context.Context, in *loginInput) (caller, error) {
			if s.cfg.SignIn == nil {
				return caller{}, noProvider()
			}
			ctx, cancel := context.WithTimeout(ctx, verifyLimit)
			defer cancel()
			var err error
			in.who, err = s.cfg.SignIn.Verify(ctx, in.Input.IDToken)
			return caller{Subject: in.who.Subject, login: true}, err
		},
		prepare: func(_ *reading, in *loginInput) ([]fsm.Command, error) {
			in.made = pki.NewAccessToken()
			hash := in.made.Hash()
			return []fsm.Command{&fsm.AccessLogin{ID: in.made.ID(), Name: fsm.LoginName(in.who.Proof), Subject: in.who.Subject,
				Hash: hash[:], TTL: s.cfg.SignIn.Session, Groups: in.who.Groups, Person: in.who.Person}}, nil
		},
		answer: func(o *outcome, in *loginInput) (api.LoginReply, error) {
			if o.commands == nil {
				return api.LoginReply{}, refusedAt(model.Refuse(model.CodeConflict,
					"an earlier request with this id signed in, and only the answer to that one had the access token").
					WithHint("sign in again: outspan login"), o.Written.Index)
			}
			c := caller{Subject: in.who.Subject, token: in.made.ID(), clock: s.clock}
			reply := api.LoginReply{Written: o.Written, Identity: s.judge.identity(o.reading, c)}
			if !o.DryRun {
				reply.Text = in.made.Reveal()
			}
			return reply, nil
		},
	}
}

func noProvider() *model.Error {
	return model.Refuse(model.CodeNotSupported, "nobody can sign in to this cluster: its servers have no provider").
		WithHint("set auth { oidc { issuer and client_id } } in the configuration of every server")
}

func logout() change[logoutInput, api.LogoutReply] {
	return change[logoutInput, api.LogoutReply]{
		prepare: func(r *reading, _ *logoutInput) ([]fsm.Command, error) {
			t, ok := r.by.accessToken(&r.State)
			if !ok || !t.IsLogin() {
				return nil, model.Refuse(model.CodeConflict, "%s has not signed in with a provider", r.by.Subject).
					WithHint("certificates and access tokens of scripts are revoked with: outspan cert revoke, " +
						"outspan auth token revoke")
			}
			return []fsm.Command{&fsm.AccessTokenRevoke{ID: t.ID}}, nil
		},
		answer: func(o *outcome, _ *logoutInput) (api.LogoutReply, error) {
			return api.LogoutReply{Written: o.Written}, nil
		},
	}
}

// identity returns who a caller is, and what it may do.
func (j *judge) identity(r *reading, c caller) api.Identity {
	who, _ := c.person(&r.State)
	book := j.books.of(&r.State)
	v := api.Identity{Subject: c.String(), Roles: book.RolesOf(who), Verbs: []rights.Verb{}, Local: who.Local}
	for _, verb := range rights.Verbs() {
		if book.MayAny(who, verb.Verb) {
			v.Verbs = append(v.Verbs, verb.Verb)
		}
	}
	v.Grants = heldGrants(book.For(who))
	if t, ok := c.accessToken(&r.State); ok {
		token := r.accessToken(t)
		v.Token = &token
	}
	return v
}
