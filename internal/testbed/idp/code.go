package idp

import (
	"context"
	"crypto/rand"
	"errors"
	"html"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// visit is a person who signs in with a browser, by an authorization code.
type visit struct {
	*oidc.AuthRequest
	id      string
	subject string
	done    bool
}

// GetID implements op.AuthRequest, as do all others.
func (v *visit) GetID() string                      { return v.id }
func (v *visit) GetACR() string                     { return "" }
func (v *visit) GetAMR() []string                   { return nil }
func (v *visit) GetAudience() []string              { return []string{v.ClientID} }
func (v *visit) GetAuthTime() time.Time             { return time.Now() }
func (v *visit) GetClientID() string                { return v.ClientID }
func (v *visit) GetNonce() string                   { return v.Nonce }
func (v *visit) GetRedirectURI() string             { return v.RedirectURI }
func (v *visit) GetScopes() []string                { return v.Scopes }
func (v *visit) GetState() string                   { return v.State }
func (v *visit) GetSubject() string                 { return v.subject }
func (v *visit) Done() bool                         { return v.done }
func (v *visit) GetResponseType() oidc.ResponseType { return v.ResponseType }
func (v *visit) GetResponseMode() oidc.ResponseMode { return v.ResponseMode }
func (v *visit) GetCodeChallenge() *oidc.CodeChallenge {
	return &oidc.CodeChallenge{Challenge: v.CodeChallenge, Method: v.CodeChallengeMethod}
}

var errNoVisit = errors.New("nobody signs in with that")

// CreateAuthRequest implements op.AuthStorage.
func (s *storage) CreateAuthRequest(_ context.Context, r *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &visit{AuthRequest: r, id: rand.Text()}
	s.visits[v.id] = v
	return v, nil
}

// AuthRequestByID implements op.AuthStorage.
func (s *storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.visits[id]; ok {
		return v, nil
	}
	return nil, errNoVisit
}

// AuthRequestByCode implements op.AuthStorage.
func (s *storage) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	s.mu.Lock()
	id := s.visitOf[code]
	s.mu.Unlock()
	return s.AuthRequestByID(ctx, id)
}

// SaveAuthCode implements op.AuthStorage.
func (s *storage) SaveAuthCode(_ context.Context, id, code string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visitOf[code] = id
	return nil
}

// DeleteAuthRequest implements op.AuthStorage.
func (s *storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.visits, id)
	return nil
}

// loginPath is where a browser chooses who it is.
const loginPath = "/login"

// serveLogin shows a link for each person whom the provider knows, and one to deny. It believes whoever follows it.
func (p *Provider) serveLogin(w http.ResponseWriter, r *http.Request, callback func(context.Context, string) string) {
	id, as := r.URL.Query().Get("id"), r.URL.Query().Get("as")
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.visits[id]
	switch {
	case !ok:
		http.NotFound(w, r)
	case r.URL.Query().Has("deny"):
		to := v.RedirectURI + "?" + url.Values{"state": {v.State}, "error": {"access_denied"}}.Encode()
		http.Redirect(w, r, to, http.StatusFound)
	case as != "":
		v.subject, v.done = as, true
		http.Redirect(w, r, callback(op.ContextWithIssuer(r.Context(), p.Issuer()), id), http.StatusFound)
	default:
		var b strings.Builder
		b.WriteString("<!doctype html><title>provider</title><link rel=icon href='data:,'><h1>Who are you?</h1>")
		for sub, u := range p.users {
			to := loginPath + "?" + url.Values{"id": {id}, "as": {sub}}.Encode()
			b.WriteString("<p><a href='" + html.EscapeString(to) + "'>" + html.EscapeString(u.Email) + "</a>")
		}
		b.WriteString("<p><a href='" + loginPath + "?deny&amp;id=" + html.EscapeString(id) + "'>deny</a>")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(b.String())) // a browser that has gone needs no answer
	}
}
