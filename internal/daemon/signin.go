package daemon

import (
	"context"
	"encoding/pem"
	"os"
	"strings"

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
		if p.CAPEM, err = certificatesIn(cfg.CAFile); err != nil {
			return nil, err
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

// certificatesIn returns the certificates in a file, and nothing else of it: whoever wants to sign in gets them. Codes:
// file_error; invalid if the file has a private key.
func certificatesIn(path string) (all []byte, _ error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, model.Refuse(model.CodeFile, "auth.oidc.ca_file can't be read: %v", err).
			WithHint("the file has the CA of the provider's certificate; without ca_file, the CAs of the system count")
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.Contains(block.Type, "PRIVATE KEY") {
			return nil, model.Refuse(model.CodeInvalid, "auth.oidc.ca_file %s has a private key", path).
				WithHint("the servers show this file to everybody who signs in: leave only the CA's certificate in it")
		}
		if block.Type == "CERTIFICATE" {
			block.Headers = nil
			all = append(all, pem.EncodeToMemory(block)...)
		}
	}
	return all, nil
}
