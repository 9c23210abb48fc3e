package httpapi

import (
	"crypto/x509"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Defaults of a join token.
const (
	defaultTokenTTL  = model.Hour
	defaultTokenUses = 1
)

type tokenList struct{ ListParams }

type newTokenInput struct {
	WriteParams
	Input api.TokenBody

	made pki.JoinToken // by prepare, for answer
}

func (in *newTokenInput) body() any { return &in.Input }

type tokenInput struct {
	WriteParams
	ID string `path:"id"`
}

func (s *Server) tokenOperations() []operation {
	tokens := getRoute("list-tokens", "/v1/tokens", "trust", "List join tokens, without their secrets")
	tokens.allow = forCLI
	return []operation{
		list(s, tokens, listing[tokenList, api.Token]{topics: topics[tokenList]("tokens"), rows: listTokens}),
		write(s, route{id: "create-token", path: "/v1/tokens", tag: "trust",
			summary: "Make a join token; only this answer has its text"}, s.createToken()),
		write(s, route{id: "revoke-token", path: "/v1/tokens/{id}/revoke", tag: "trust",
			summary: "Revoke a join token; what it has admitted stays"}, revokeToken()),
	}
}

// notManaged returns the refusal of everything about tokens and members in a cluster that makes no certificates.
func notManaged() *model.Error {
	return model.Refuse(model.CodeNotSupported,
		"this cluster does not make certificates itself").
		WithHint("make the certificate of a new machine with: outspan tls cert create --agent NAME, or --server NAME; a " +
			"cluster that outspan up has just begun needs a moment: then try again")
}

// noCAYet refuses a call to a managed cluster that has just begun. Its first leader is about to put the CA into the
// state, so callers try again.
func noCAYet() *model.Error {
	return model.Refuse(model.CodeBusy, "the cluster has no CA yet").
		WithHint("try again in a moment; if it stays so, the log of the leading server says why")
}

// certificateNeeded returns the refusal of join tokens in a cluster whose CA is the operator's, if no program asks it.
func certificateNeeded() *model.Error {
	return model.Refuse(model.CodeCertificateNeeded,
		"certificate needed: this cluster does not make certificates itself, so nothing joins by token").
		WithHint("make the certificate of a new machine with: outspan tls cert create --agent NAME, or --server NAME; with " +
			"tls { issue = \"exec:/PROGRAM\" } on every server, a program asks your CA for it")
}

// admits refuses a call about join tokens and newcomers if this cluster has none. Code: not_supported.
func admits(r *reading) error {
	if !r.Managed() && !r.issues {
		return notManaged()
	}
	return nil
}

// joinRoot returns the root that a join token names. Codes: busy, certificate_needed, certificate_invalid, internal.
func joinRoot(cfg Config, r *reading) (*x509.Certificate, error) {
	switch {
	case r.Managed():
		return rootOf(&r.State)
	case cfg.Renew != nil:
		return nil, noCAYet()
	case cfg.JoinRoot == nil:
		return nil, certificateNeeded()
	}
	return cfg.JoinRoot()
}

// rootOf returns the certificate of the CA that the cluster uses. Codes: not_supported if there is none; internal if
// the state has a damaged one.
func rootOf(s *fsm.State) (*x509.Certificate, error) {
	ca, ok := s.ActiveKey(model.KeyCA)
	if !ok {
		return nil, notManaged()
	}
	root, err := x509.ParseCertificate(ca.Public)
	if err != nil {
		return nil, model.Refuse(model.CodeInternal, "the certificate of the key %s is damaged: %v", ca.Name, err)
	}
	return root, nil
}

func listTokens(r *reading, _ *tokenList, from string, yield func(string, api.Token) bool) error {
	if err := admits(r); err != nil {
		return err
	}
	scan(r.JoinTokens, from, r.token, yield)
	return nil
}

func (r *reading) token(t *fsm.JoinToken) api.Token {
	v := api.Token{
		ID: t.ID, Role: t.Role, State: api.TokenActive, Expires: r.wallAt(t.Expires), Uses: t.Uses, Used: t.Used,
		NodeName: t.NodeName, Labels: notNilMap(t.Labels), CreatedBy: t.Creator, CreatedIndex: t.CreatedIndex,
		RevokedIndex: t.RevokedIndex,
	}
	names, known := r.CAAt(t.CreatedIndex)
	switch {
	case t.RevokedIndex != 0:
		v.State = api.TokenRevoked
	case t.Used >= t.Uses:
		v.State = api.TokenUsed
	case r.now >= t.Expires:
		v.State = api.TokenExpired
	case r.Managed() && (!known || names.Phase != model.KeyActive):
		v.State = api.TokenCAReplaced
	}
	return v
}

func (s *Server) createToken() change[newTokenInput, api.NewTokenReply] {
	return change[newTokenInput, api.NewTokenReply]{
		prepare: func(r *reading, in *newTokenInput) ([]fsm.Command, error) {
			root, err := joinRoot(s.cfg, r)
			if err != nil {
				return nil, err
			}
			c, err := in.draw(root)
			if err != nil {
				return nil, err
			}
			return []fsm.Command{c}, nil
		},
		answer: func(o *outcome, in *newTokenInput) (api.NewTokenReply, error) {
			if o.commands == nil {
				return api.NewTokenReply{}, textIsGone(o)
			}
			reply := api.NewTokenReply{TokenReply: o.tokenReply(model.TokenID(in.made.ID()))}
			if !o.DryRun {
				reply.Text = in.made.Reveal()
			}
			return reply, nil
		},
	}
}

// draw makes a token with a new secret, and returns the command that stores its hash. Code: invalid.
func (in *newTokenInput) draw(root *x509.Certificate) (*fsm.TokenCreate, error) {
	b := &in.Input
	switch pki.Role(b.Role) {
	case pki.RoleServer, pki.RoleAgent:
	default:
		return nil, model.Refuse(model.CodeInvalid, "role is neither server nor agent").
			WithHint("say what the token admits, such as \"role\": \"agent\"")
	}
	var err error
	if in.made, err = pki.NewJoinToken(pki.Role(b.Role), root); err != nil {
		return nil, err
	}
	verifier := in.made.Verifier()
	c := &fsm.TokenCreate{ID: model.TokenID(in.made.ID()), Role: b.Role, Verifier: verifier[:], TTL: defaultTokenTTL,
		Uses: defaultTokenUses, NodeName: b.NodeName, Labels: b.Labels}
	if b.TTL != nil {
		c.TTL = *b.TTL
	}
	if b.Uses != nil {
		c.Uses = *b.Uses
	}
	return c, nil
}

// textIsGone returns the answer to a repeated request for a token. The state has no secret, so only the answer to the
// first request had the text.
func textIsGone(o *outcome) error {
	var id model.TokenID
	for _, t := range o.JoinTokens.All() {
		if t.CreatedIndex == o.Written.Index {
			id = t.ID
		}
	}
	if id == "" {
		return refusedAt(model.Refuse(model.CodeConflict, "the join token of the earlier request with this id has ended").
			WithHint("make another token, with another request id"), o.Written.Index)
	}
	return refusedAt(model.Refuse(model.CodeConflict,
		"an earlier request with this id made join token %s, and only the answer to that one had its text", id).
		WithHint("if the text is lost, outspan token revoke %s, then make another token with another request id", id),
		o.Written.Index)
}

func revokeToken() change[tokenInput, api.TokenReply] {
	return change[tokenInput, api.TokenReply]{
		prepare: func(r *reading, in *tokenInput) ([]fsm.Command, error) {
			if err := admits(r); err != nil {
				return nil, err
			}
			return []fsm.Command{&fsm.TokenRevoke{ID: model.TokenID(in.ID)}}, nil
		},
		answer: func(o *outcome, in *tokenInput) (api.TokenReply, error) {
			return o.tokenReply(model.TokenID(in.ID)), nil
		},
	}
}

func (o *outcome) tokenReply(id model.TokenID) api.TokenReply {
	reply := api.TokenReply{Written: o.Written}
	if t, ok := o.JoinTokens.Get(id); ok {
		v := o.token(t)
		reply.Token = &v
	}
	return reply
}
