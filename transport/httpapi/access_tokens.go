package httpapi

import (
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// defaultAccessTTL is how long an access token counts unless the request says otherwise.
const defaultAccessTTL = 30 * 24 * model.Hour

type accessTokenList struct{ ListParams }

type newAccessTokenInput struct {
	WriteParams
	Input api.AccessTokenBody

	made pki.AccessToken // by prepare, for answer
}

func (in *newAccessTokenInput) body() any { return &in.Input }

type accessTokenInput struct {
	WriteParams
	Name string `path:"name"`

	id model.TokenID // by prepare, for answer
}

func accessTokenOperations(s *Server) []operation {
	tokens := getRoute("list-access-tokens", "/v1/access-tokens", "auth", "List access tokens, without their secrets")
	tokens.allow = forCLI
	return []operation{
		list(s, tokens, listing[accessTokenList, api.AccessToken]{topics: topics[accessTokenList]("access"),
			rows: listAccessTokens}),
		write(s, route{id: "create-access-token", path: "/v1/access-tokens", tag: "auth",
			summary: "Make an access token; only this answer has its text"}, createAccessToken(s.cfg.Tokens)),
		write(s, route{id: "revoke-access-token", path: "/v1/access-tokens/{name}/revoke", tag: "auth",
			summary: "Revoke an access token, by its name or id"}, revokeAccessToken()),
	}
}

func listAccessTokens(r *reading, _ *accessTokenList, from string, yield func(string, api.AccessToken) bool) error {
	scan(r.AccessTokens, from, r.accessToken, yield)
	return nil
}

func (r *reading) accessToken(t *fsm.AccessToken) api.AccessToken {
	v := api.AccessToken{ID: t.ID, Name: t.Name, Subject: t.Subject.String(), State: api.AccessActive,
		Ends: time.Unix(0, t.Ends).UTC(), Roles: notNil(t.Roles), Groups: notNil(t.Groups), Person: t.Person,
		CreatedBy: t.Creator, CreatedIndex: t.Index, RevokedIndex: t.RevokedIndex}
	switch {
	case t.RevokedIndex != 0:
		v.State = api.AccessRevoked
	case !t.CountsAt(r.wall.UnixNano()):
		v.State = api.AccessEnded
	}
	return v
}

// createAccessToken returns the functions of the write that makes an access token. taken says whether this server,
// which answers as the leader, takes access tokens.
func createAccessToken(taken bool) change[newAccessTokenInput, api.NewAccessTokenReply] {
	return change[newAccessTokenInput, api.NewAccessTokenReply]{
		prepare: func(r *reading, in *newAccessTokenInput) ([]fsm.Command, error) {
			for _, role := range in.Input.Roles {
				if _, err := r.role(role); err != nil {
					return nil, err
				}
			}
			in.made = pki.NewAccessToken()
			hash := in.made.Hash()
			c := &fsm.AccessTokenCreate{ID: in.made.ID(), Name: in.Input.Name, Hash: hash[:], TTL: defaultAccessTTL,
				Subject: model.Subject{Kind: model.SubjectToken, Name: in.Input.Name},
				Roles:   in.Input.Roles, Groups: in.Input.Groups}
			if in.Input.TTL != nil {
				c.TTL = *in.Input.TTL
			}
			return []fsm.Command{c}, nil
		},
		answer: func(o *outcome, in *newAccessTokenInput) (api.NewAccessTokenReply, error) {
			if o.commands == nil {
				return api.NewAccessTokenReply{}, refusedAt(model.Refuse(model.CodeConflict,
					"an earlier request with this id made the access token %s, and only the answer to that one had its text",
					clip(in.Input.Name)).
					WithHint("if the text is lost, outspan auth token revoke %s, then make another token with another request id",
						clip(in.Input.Name)), o.Written.Index)
			}
			reply := api.NewAccessTokenReply{AccessTokenReply: o.accessTokenReply(in.made.ID()), Taken: taken}
			if !o.DryRun {
				reply.Text = in.made.Reveal()
			}
			return reply, nil
		},
	}
}

func revokeAccessToken() change[accessTokenInput, api.AccessTokenReply] {
	return change[accessTokenInput, api.AccessTokenReply]{
		prepare: func(r *reading, in *accessTokenInput) ([]fsm.Command, error) {
			t, err := r.accessTokenNamed(in.Name)
			if err != nil {
				return nil, err
			}
			in.id = t.ID
			return []fsm.Command{&fsm.AccessTokenRevoke{ID: t.ID}}, nil
		},
		answer: func(o *outcome, in *accessTokenInput) (api.AccessTokenReply, error) {
			if t, err := o.accessTokenNamed(in.Name); in.id == "" && err == nil { // a repeated request
				in.id = t.ID
			}
			return o.accessTokenReply(in.id), nil
		},
	}
}

// accessTokenNamed returns an access token by its name or its id. Code: not_found.
func (r *reading) accessTokenNamed(name string) (*fsm.AccessToken, error) {
	for _, t := range r.AccessTokens.All() {
		if t.Name == name {
			return t, nil
		}
	}
	if t, ok := r.AccessTokens.Get(model.TokenID(name)); ok {
		return t, nil
	}
	return nil, model.Refuse(model.CodeNotFound, "there is no access token %q", clip(name)).
		WithHint("list them with: outspan auth token ls")
}

func (o *outcome) accessTokenReply(id model.TokenID) api.AccessTokenReply {
	reply := api.AccessTokenReply{Written: o.Written}
	if t, ok := o.AccessTokens.Get(id); ok {
		v := o.accessToken(t)
		reply.Token = &v
	}
	return reply
}
