package daemon

import (
	"context"
	"encoding/pem"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/oidc"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport/httpapi"
)

// signingIn signs people in with the provider of a server's file.
type signingIn struct {
	server   string
	verifier *oidc.Verifier
	log      hclog.Logger
	every    time.Duration // between two looks at the provider

	mu     sync.Mutex
	warned time.Time
	away   string // why nobody can sign in, by the last look; "" if somebody can
}

// providerLooks is the time between two looks at the provider.
const providerLooks = 30 * time.Second

// signIn returns the part that signs people in with the provider of a server's file, or nil if the file has none. Id
// tokens are judged by the clock now; nil means time.Now. signIn does not call the provider. Codes: file if ca_file
// can't be read; invalid if it has no certificate.
func signIn(server string, cfg *config.OIDC, now func() time.Time, log hclog.Logger) (*signingIn, *httpapi.SignIn,
	error) {
	if cfg == nil {
		return nil, nil, nil
	}
	p := oidc.Provider{Issuer: cfg.Issuer, ClientID: cfg.ClientID, Scopes: cfg.Scopes}
	if cfg.CAFile != "" {
		var err error
		if p.CAPEM, err = certificatesIn(cfg.CAFile); err != nil {
			return nil, nil, err
		}
	}
	verifier, err := oidc.NewVerifier(p, oidc.Claims{Groups: cfg.GroupsClaim, Name: cfg.NameClaim}, now)
	if err != nil {
		return nil, nil, err
	}
	part := &signingIn{server: server, verifier: verifier, log: log, every: providerLooks}
	return part, &httpapi.SignIn{
		Provider: api.Provider{Kind: "oidc", Issuer: p.Issuer, ClientID: p.ClientID, Scopes: p.Scopes,
			CAPEM: string(p.CAPEM)},
		Session: cfg.Session,
		Verify:  part.verify,
	}, nil
}

// certificatesIn returns the certificates in a file, and nothing else of it: whoever wants to sign in gets them. Codes:
// file_error; invalid if the file has a private key, or no certificate.
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
	if len(all) == 0 {
		return nil, model.Refuse(model.CodeInvalid, "auth.oidc.ca_file %s has no certificate", path).
			WithHint("it has the CA of the provider's certificate, as PEM; without ca_file, the CAs of the system count")
	}
	return all, nil
}

func (s *signingIn) verify(ctx context.Context, idToken string) (httpapi.SignedIn, error) {
	who, err := s.verifier.Verify(ctx, idToken)
	return httpapi.SignedIn{Subject: who.Subject, Person: who.Name, Groups: who.Groups, Proof: who.Proof}, s.told(err)
}

// run looks at the provider again and again until ctx ends, so that the log and the status say early that nobody can
// sign in. The server works without its provider, so run returns nil.
func (s *signingIn) run(ctx context.Context) error {
	next := time.NewTicker(s.every)
	defer next.Stop()
	for {
		s.look(ctx)
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look asks the provider once. It notes what came of it, unless ctx has ended meanwhile.
func (s *signingIn) look(ctx context.Context) {
	away, err := "", s.verifier.Check(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		away = model.Reason(err)
	}
	s.mu.Lock()
	before := s.away
	s.away = away
	s.mu.Unlock()
	switch {
	case before == "" && away != "":
		_ = s.told(err)
	case before != "" && away == "":
		s.log.Info("the provider answers again: people can sign in")
	}
}

// failing returns why nobody can sign in through this server, or "". A nil part never fails.
func (s *signingIn) failing() string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// providerWarnings is the shortest time between two warnings about the provider.
const providerWarnings = 10 * time.Second

// told returns an error of the verifier for the person who signs in. If it is about the provider, the error names this
// server, which has asked the provider, and is logged too.
func (s *signingIn) told(err error) error {
	known, ok := errors.AsType[*model.Error](err)
	if !ok || known.Code != model.CodeProviderUnreachable && known.Code != model.CodeNotSupported {
		return err
	}
	s.mu.Lock()
	warn := time.Since(s.warned) > providerWarnings
	if warn {
		s.warned = time.Now()
	}
	s.mu.Unlock()
	if warn {
		s.log.Warn("nobody can sign in", "reason", known.Message, "hint", known.Hint)
	}
	return model.Refuse(known.Code, "server %s: %s", s.server, known.Message).WithHint("%s", known.Hint)
}
