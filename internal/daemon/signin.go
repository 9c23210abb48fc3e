package daemon

import (
	"context"
	"os"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/oidc"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport/httpapi"
)

// signIn returns the part that signs people in with the provider of a server's file, or nil if the file has none. It
// does not call the provider. Codes: file if ca_file can't be read; invalid if it has no certificate.
func signIn(cfg *config.OIDC) (*httpapi.SignIn, error) {
	if cfg == nil {
		return nil, nil
	}
	p := oidc.Provider{Issuer: cfg.Issuer, ClientID: cfg.ClientID, Scopes: cfg.Scopes}
	if cfg.CAFile != "" {
		var err error
		if p.CAPEM, err = os.ReadFile(cfg.CAFile); err != nil {
			return nil, model.Refuse(model.CodeFile, "auth.oidc.ca_file can't be read: %v", err).
				WithHint("the file has the CA of the provider's certificate; without the key, the CAs of the system count")
		}
	}
	verifier, err := oidc.NewVerifier(p, oidc.Claims{Groups: cfg.GroupsClaim, Name: cfg.NameClaim}, nil)
	if err != nil {
		return nil, err
	}
	return &httpapi.SignIn{
		Provider: api.Provider{Kind: "oidc", Issuer: p.Issuer, ClientID: p.ClientID, Scopes: p.Scopes,
			CAPEM: string(p.CAPEM)},
		Session: cfg.Session,
		Verify: func(ctx context.Context, idToken string) (httpapi.SignedIn, error) {
			who, err := verifier.Verify(ctx, idToken)
			return httpapi.SignedIn{Subject: who.Subject, Person: who.Name, Groups: who.Groups, Proof: who.Proof}, err
		},
	}, nil
}
