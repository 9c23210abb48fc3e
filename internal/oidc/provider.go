package oidc

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/outspan/outspan/model"
)

// Bounds of one request to a provider.
const (
	requestTime = 10 * time.Second
	maxAnswer   = 1 << 20 // bytes
)

// maxIssuer is the largest length of an issuer in bytes. It leaves room for the person in a binding.
const maxIssuer = 128

// Provider says which provider signs people in, and as which client.
type Provider struct {
	Issuer   string // URL, as the provider writes it in its id tokens
	ClientID string
	Scopes   []string // asked for by the device flow; openid is added if it is missing
	CAPEM    []byte   // certificates of CAs that sign the provider's certificate; none means those of the system
}

// wellKnown begins what is appended to an issuer to find its configuration.
const wellKnown = "/.well-known"

// CheckIssuer refuses an issuer that is no https URL. A provider on this machine may use http. Code: invalid.
func CheckIssuer(issuer string) *model.Error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(issuer, "?# "):
		return model.Refuse(model.CodeInvalid, "%q is not the URL of an issuer", model.ClipText(issuer, maxIssuer)).
			WithHint("write it as the provider's /.well-known/openid-configuration does, such as https://id.example.org")
	case strings.Contains(u.Path, wellKnown):
		before, _, _ := strings.Cut(issuer, wellKnown)
		return model.Refuse(model.CodeInvalid, "%q is the URL of the provider's configuration, not of the issuer",
			model.ClipText(issuer, maxIssuer)).WithHint("write only what comes before it: %s", model.ClipText(before, maxIssuer))
	case len(issuer) > maxIssuer:
		return model.Refuse(model.CodeInvalid, "the URL of the issuer is longer than %d bytes", maxIssuer)
	case !secure(u):
		return model.Refuse(model.CodeInvalid, "the issuer %s does not use https", issuer).
			WithHint("only a provider at a loopback address, such as http://127.0.0.1:5556, may use http")
	}
	return nil
}

// secure reports whether nobody between this machine and the address can change what is sent.
func secure(u *url.URL) bool {
	if u.Scheme == "https" {
		return true
	}
	at, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && at.IsLoopback())
}

// client returns the client for requests to the provider. Code: invalid.
func (p Provider) client() (*http.Client, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if len(p.CAPEM) > 0 {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(p.CAPEM) {
			return nil, model.Refuse(model.CodeInvalid, "the CA of the provider %s has no certificate in PEM", p.Issuer)
		}
		base.TLSClientConfig.RootCAs = roots
	}
	return &http.Client{Transport: guarded{base}, Timeout: requestTime}, nil
}

// guarded refuses requests to addresses that are not secure, also those of redirects, and answers that are too large.
type guarded struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if !secure(r.URL) {
		return nil, fmt.Errorf("the provider refers to %s, which does not use https", r.URL.Redacted())
	}
	resp, err := g.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxAnswer {
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp, nil
}

// discover reads the metadata of the provider. Codes: invalid; provider_unreachable; not_supported if the answer is not
// that of this issuer.
func (p Provider) discover(ctx context.Context, via *http.Client) (*oidc.Provider, error) {
	if refusal := CheckIssuer(p.Issuer); refusal != nil {
		return nil, refusal
	}
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, via), p.Issuer)
	switch _, failed := errors.AsType[*url.Error](err); {
	case err == nil:
		return found, nil
	case failed:
		return nil, p.unreachable(err)
	}
	return nil, model.Refuse(model.CodeNotSupported, "%s is no OpenID Connect provider: %s", p.Issuer,
		oneLine(err.Error())).
		WithHint("compare auth.oidc.issuer with: curl %s/.well-known/openid-configuration", strings.TrimSuffix(p.Issuer, "/"))
}

func (p Provider) unreachable(err error) *model.Error {
	return model.Refuse(model.CodeProviderUnreachable, "the provider %s does not answer: %s", p.Issuer,
		oneLine(err.Error())).
		WithHint("try again in a moment; the provider's certificate must be signed by a CA of the system " +
			"or of auth.oidc.ca_file")
}

// scopes returns Scopes with openid, without which a provider sends no id token.
func (p Provider) scopes() []string {
	if slices.Contains(p.Scopes, oidc.ScopeOpenID) {
		return p.Scopes
	}
	return append([]string{oidc.ScopeOpenID}, p.Scopes...)
}

// maxShown is how many bytes of a provider's text an error shows.
const maxShown = 300

// oneLine returns text of a provider for an error: with blanks for what can't be printed, and cut.
func oneLine(text string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	return model.ClipText(clean, maxShown)
}
