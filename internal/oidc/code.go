package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/outspan/outspan/model"
)

// maxCode is the largest length of an authorization code in bytes.
const maxCode = 4 << 10

// CodeFlow signs people in with their browser, by an authorization code with PKCE. It has no client secret. It is safe
// for concurrent use.
type CodeFlow struct {
	verifier *Verifier

	mu    sync.Mutex // never held while the provider is asked
	found *oauth2.Config
}

// NewCodeFlow returns the flow for the provider of a Verifier. It does not call the provider.
func NewCodeFlow(v *Verifier) *CodeFlow { return &CodeFlow{verifier: v} }

// Trip is what one sign-in is bound to. Each text is random, except Redirect, the address to which the provider sends
// the browser.
type Trip struct{ Redirect, State, Nonce, Verifier string }

// NewTrip returns a Trip with fresh texts.
func NewTrip(redirect string) Trip {
	return Trip{Redirect: redirect, State: oauth2.GenerateVerifier(), Nonce: oauth2.GenerateVerifier(),
		Verifier: oauth2.GenerateVerifier()}
}

// Name returns the host of the provider, for people.
func (f *CodeFlow) Name() string {
	u, err := url.Parse(f.verifier.provider.Issuer)
	if err != nil {
		return f.verifier.provider.Issuer
	}
	return u.Host
}

// Address returns where the browser begins. It may call the provider, and blocks until ctx ends at most. Codes:
// provider_unreachable, not_supported.
func (f *CodeFlow) Address(ctx context.Context, t Trip) (string, error) {
	config, err := f.config(ctx, t)
	if err != nil {
		return "", err
	}
	return config.AuthCodeURL(t.State, oidc.Nonce(t.Nonce), oauth2.S256ChallengeOption(t.Verifier)), nil
}

// IDToken exchanges a code of the provider for an id token, and checks that it was made for this trip. It blocks until
// ctx ends at most. Codes: forbidden, and those of Verifier.Verify.
func (f *CodeFlow) IDToken(ctx context.Context, t Trip, code string) (string, error) {
	provider := f.verifier.provider
	if code == "" || len(code) > maxCode {
		return "", model.Refuse(model.CodeInvalid, "the provider %s sent no usable code", provider.Issuer)
	}
	config, err := f.config(ctx, t)
	if err != nil {
		return "", err
	}
	token, err := config.Exchange(oidc.ClientContext(ctx, f.verifier.via), code, oauth2.VerifierOption(t.Verifier))
	if err != nil {
		return "", f.refused(err)
	}
	text, _ := token.Extra("id_token").(string)
	if text == "" {
		return "", model.Refuse(model.CodeNotSupported, "the provider %s sent no id token", provider.Issuer).
			WithHint("let the client %s have the scope openid", provider.ClientID)
	}
	with, err := f.verifier.verifier(ctx)
	if err != nil {
		return "", err
	}
	good, err := with.Verify(ctx, text)
	if err != nil {
		return "", f.verifier.refused(err)
	}
	if subtle.ConstantTimeCompare([]byte(good.Nonce), []byte(t.Nonce)) != 1 {
		return "", model.Refuse(model.CodeForbidden, "the id token was made for another sign-in").
			WithHint("begin again")
	}
	return text, nil
}

// config returns the configuration of the client for a trip. It reads the metadata of the provider once.
func (f *CodeFlow) config(ctx context.Context, t Trip) (*oauth2.Config, error) {
	f.mu.Lock()
	known := f.found
	f.mu.Unlock()
	if known == nil {
		p := f.verifier.provider
		found, err := p.discover(ctx, f.verifier.via)
		if err != nil {
			return nil, err
		}
		known = &oauth2.Config{ClientID: p.ClientID, Endpoint: found.Endpoint(), Scopes: p.scopes()}
		known.Endpoint.AuthStyle = oauth2.AuthStyleInParams // a client without a secret sends only its id
		at, err := url.Parse(known.Endpoint.AuthURL)
		if err != nil || !secure(at) {
			return nil, model.Refuse(model.CodeNotSupported, "the provider %s has no address with https to sign in at", p.Issuer)
		}
		f.mu.Lock()
		f.found = known
		f.mu.Unlock()
	}
	config := *known
	config.RedirectURL = t.Redirect
	return &config, nil
}

// refused returns the error for an answer to a code. The next sign-in reads the metadata again, in case an address in
// it has changed.
func (f *CodeFlow) refused(err error) error {
	f.mu.Lock()
	f.found = nil
	f.mu.Unlock()
	p := f.verifier.provider
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch _, silent := errors.AsType[*url.Error](err); {
	case silent, ok && answer.Response != nil && answer.Response.StatusCode >= http.StatusInternalServerError:
		return p.unreachable(err)
	case !ok:
		return model.Refuse(model.CodeNotSupported, "the provider %s sent an answer that is not understood: %s", p.Issuer,
			oneLine(err.Error()))
	}
	why := strings.TrimSuffix(answer.ErrorCode+": "+answer.ErrorDescription, ": ")
	return model.Refuse(model.CodeForbidden, "the provider %s refuses the code: %s", p.Issuer, oneLine(why)).
		WithHint("sign in again; at the provider, %q must be a public client with authorization codes (PKCE) and the "+
			"redirect URI of this page", p.ClientID)
}
