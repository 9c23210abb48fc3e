package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// headerForwardedToken carries the id of the original caller's access token, next to headerForwarded. The secret is
// never forwarded: the leader looks the token up again.
const headerForwardedToken = "Outspan-Forwarded-Token"

// wrongTokenRates allows each source 20 requests without a good access token at once, and then one a second.
func wrongTokenRates() *rates { return newRates(1, 20) }

// identify returns who sent a request. An access token counts before a certificate, and before the unix socket: whoever
// sends one means it. For a forwarded request, identify returns the original caller. Codes: unauthenticated, forbidden,
// rate_limited, busy.
func (s *Server) identify(r *http.Request) (caller, error) {
	peer, known := transport.SubjectFrom(r.Context())
	if given := r.Header.Values("Authorization"); len(given) > 0 {
		return s.byToken(r, peer, given)
	}
	if !known {
		return caller{}, s.unproved(r, model.Refuse(model.CodeUnauthenticated, "the request proves no identity").
			WithHint("set OUTSPAN_TOKEN_FILE or OUTSPAN_TOKEN, or send the header Authorization: Bearer osa1...; %s", makeOne))
	}
	header := r.Header.Get(headerForwarded)
	if header == "" {
		return caller{Subject: peer}, nil
	}
	if peer.Kind != model.SubjectServer {
		return caller{}, model.Refuse(model.CodeForbidden, "only a server may send %s; %s did", headerForwarded, peer)
	}
	text, err := url.PathUnescape(header)
	subject, ok := model.ParseSubject(text)
	if err != nil || !ok {
		return caller{}, model.Refuse(model.CodeForbidden, "%s from %s is not a subject", headerForwarded, peer)
	}
	c := caller{Subject: subject, token: model.TokenID(r.Header.Get(headerForwardedToken)), via: peer.Name,
		clock: s.clock}
	return c, c.counts(s.cfg.Store.Current())
}

// byToken returns the caller with the access token in the header Authorization. If the token has ended or was revoked,
// or if its subject has too many connections, byToken returns both the caller and a refusal.
func (s *Server) byToken(r *http.Request, peer model.Subject, given []string) (caller, error) {
	if peer.Kind == model.SubjectServer || peer.Kind == model.SubjectAgent {
		return caller{}, model.Refuse(model.CodeForbidden, "%s has a certificate of its own, and may send no access token",
			peer)
	}
	if !s.cfg.Tokens {
		return caller{}, s.unproved(r, model.Refuse(model.CodeUnauthenticated, "server %s takes no access tokens",
			s.cfg.Name).
			WithHint("set auth { tokens = true } in the configuration of every server; with a certificate, send no token"))
	}
	scheme, text, _ := strings.Cut(given[0], " ")
	if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return caller{}, s.unproved(r,
			model.Refuse(model.CodeUnauthenticated, "the header Authorization has no access token").
				WithHint("send it once, as: Authorization: Bearer osa1..."))
	}
	token, err := pki.ParseAccessToken(strings.TrimSpace(text))
	if err != nil {
		return caller{}, s.unproved(r, model.Refuse(model.CodeUnauthenticated, "%s", model.Reason(err)).
			WithHint("%s", anotherAccessToken))
	}
	row, ok := s.cfg.Store.Current().AccessTokens.Get(token.ID())
	if !ok {
		refusal := s.unproved(r, noAccessToken(token.ID()))
		if _, leads, _ := s.cfg.Consensus.Leader(); leads || api.NewProblem(refusal).Code == model.CodeRateLimited {
			return caller{}, refusal
		}
		if row, ok = s.newTokens.await(r.Context(), s.cfg.Store, token.ID()); !ok {
			return caller{}, refusal
		}
	}
	if !token.Matches(row.Hash) {
		return caller{}, s.unproved(r, noAccessToken(token.ID()))
	}
	c := caller{Subject: row.Subject, token: row.ID, clock: s.clock}
	if err := c.counts(s.cfg.Store.Current()); err != nil {
		return c, s.unproved(r, err)
	}
	return c, transport.Proved(r.Context(), c.Subject)
}

// newTokens waits for access tokens that were just made and that this server does not have yet. The channel has an
// element for each request that waits.
type newTokens chan struct{}

// Bounds of newTokens.
const (
	newTokenWait  = 500 * time.Millisecond
	newTokenWaits = 64
)

// await returns the row of an access token once this server has it. ok is false after newTokenWait, and at once while
// too many requests wait.
func (n newTokens) await(ctx context.Context, store Store, id model.TokenID) (row *fsm.AccessToken, ok bool) {
	select {
	case n <- struct{}{}:
		defer func() { <-n }()
	default:
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, newTokenWait)
	defer cancel()
	for {
		woken, leave := store.WatchTopic("access")
		if row, ok = store.Current().AccessTokens.Get(id); ok {
			leave()
			return row, true
		}
		select {
		case <-woken:
			leave()
		case <-ctx.Done():
			leave()
			return nil, false
		}
	}
}

const anotherAccessToken = "ask an administrator for another one: outspan auth token create NAME --role ROLE"

func noAccessToken(id model.TokenID) error {
	return model.Refuse(model.CodeUnauthenticated, "there is no access token %s", id).
		WithHint("if it was made a moment ago, try again; otherwise %s", anotherAccessToken)
}

// unproved returns the refusal of a request that proves no identity, or rate_limited if its source sends too many.
func (s *Server) unproved(r *http.Request, refusal error) error {
	source := transport.SourceOf(remote(r.RemoteAddr))
	if s.wrongTokens.take(model.Subject{Name: source}) {
		return refusal
	}
	return model.Refuse(model.CodeRateLimited, "%s sends too many requests without a good access token", source).
		WithHint("slow down; the last refusal was: %s", model.Reason(refusal))
}

// remote is the address of a request as a net.Addr.
type remote string

// Network implements net.Addr.
func (remote) Network() string { return "tcp" }

// String implements net.Addr.
func (r remote) String() string { return string(r) }

// accessToken returns the row of the caller's access token. ok is false if the caller has none, or if its row is gone
// or is of another subject.
func (c caller) accessToken(state *fsm.State) (t *fsm.AccessToken, ok bool) {
	if c.token == "" {
		return nil, false
	}
	t, ok = state.AccessTokens.Get(c.token)
	return t, ok && t.Subject == c.Subject
}

// counts refuses a caller whose access token has ended or was revoked, and a caller that needs a token and has none.
// Code: unauthenticated.
func (c caller) counts(state *fsm.State) error {
	t, ok := c.accessToken(state)
	switch {
	case c.login || c.token == "" && c.Kind != model.SubjectToken && c.Kind != model.SubjectOIDC:
		return nil
	case !ok:
		return noAccessToken(model.TokenID(clip(string(c.token))))
	case t.RevokedIndex != 0:
		return model.Refuse(model.CodeUnauthenticated, "the access token %s (%s) was revoked", t.Name, t.ID).
			WithHint("%s", afterEnd(t))
	case !t.CountsAt(c.clock.time().UnixNano()):
		return model.Refuse(model.CodeUnauthenticated, "the access token %s (%s) ended at %s", t.Name, t.ID,
			time.Unix(0, t.Ends).UTC().Format(time.RFC3339)).WithHint("%s", afterEnd(t))
	}
	return nil
}

// afterEnd is the hint about a token that has ended.
func afterEnd(t *fsm.AccessToken) string {
	if t.IsLogin() {
		return "sign in again: outspan login"
	}
	return anotherAccessToken
}
