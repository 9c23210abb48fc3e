package oidc

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/outspan/outspan/model"
)

// maxFlow is how long a person has for the approval, if the provider does not say less.
const maxFlow = 30 * time.Minute

// Flow is one run of the device flow. It is not safe for concurrent use.
type Flow struct {
	provider Provider
	via      *http.Client
	oauth    oauth2.Config
	device   *oauth2.DeviceAuthResponse
}

// Begin asks the provider for a code. The person then approves it at the address of Page. Begin blocks for the time of
// two requests. Codes: invalid; provider_unreachable; not_supported if the provider has no device flow; forbidden if it
// does not let the client use it.
func Begin(ctx context.Context, p Provider) (*Flow, error) {
	via, err := p.client()
	if err != nil {
		return nil, err
	}
	found, err := p.discover(ctx, via)
	if err != nil {
		return nil, err
	}
	f := &Flow{provider: p, via: via,
		oauth: oauth2.Config{ClientID: p.ClientID, Endpoint: found.Endpoint(), Scopes: p.scopes()}}
	f.oauth.Endpoint.AuthStyle = oauth2.AuthStyleInParams // a client without a secret sends only its id
	if f.oauth.Endpoint.DeviceAuthURL == "" {
		return nil, model.Refuse(model.CodeNotSupported, "the provider %s has no device flow (RFC 8628)", p.Issuer).
			WithHint("switch it on at the provider, for the client %s", p.ClientID)
	}
	if f.device, err = f.oauth.DeviceAuth(oidc.ClientContext(ctx, via)); err != nil {
		return nil, f.refused(err)
	}
	if f.device.DeviceCode == "" || f.device.UserCode == "" || f.device.VerificationURI == "" {
		return nil, model.Refuse(model.CodeNotSupported, "the provider %s sent no code", p.Issuer)
	}
	if limit := time.Now().Add(maxFlow); f.device.Expiry.IsZero() || f.device.Expiry.After(limit) {
		f.device.Expiry = limit
	}
	return f, nil
}

// Page is where the person approves, and the code to enter there. Filled is the address with the code in it, or "".
// Texts of the provider have no control characters.
func (f *Flow) Page() (address, filled, code string) {
	return oneLine(f.device.VerificationURI), oneLine(f.device.VerificationURIComplete), oneLine(f.device.UserCode)
}

// Until is when the code expires.
func (f *Flow) Until() time.Time { return f.device.Expiry }

// Wait returns the id token once the person has approved. It asks the provider at the interval that the provider wants,
// until the code expires or ctx ends. While the provider does not answer, it goes on asking. Codes: forbidden if the
// person denied; timeout if the code expired; not_supported without an id token.
func (f *Flow) Wait(ctx context.Context) (idToken string, err error) {
	ctx = oidc.ClientContext(ctx, f.via)
	for {
		token, err := f.oauth.DeviceAccessToken(ctx, f.device)
		switch _, silent := errors.AsType[*url.Error](err); {
		case err == nil:
			text, ok := token.Extra("id_token").(string)
			if !ok || text == "" {
				return "", model.Refuse(model.CodeNotSupported, "the provider %s sent no id token", f.provider.Issuer).
					WithHint("let the client %s have the scope openid", f.provider.ClientID)
			}
			return text, nil
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case !time.Now().Before(f.device.Expiry):
			return "", f.expired()
		case silent: // each turn waits for the provider's interval first
			continue
		}
		return "", f.refused(err)
	}
}

func (f *Flow) expired() *model.Error {
	return model.Refuse(model.CodeTimeout, "the code has expired before anybody approved it").
		WithHint("begin again: outspan login")
}

// refused returns the error for an answer of the provider.
func (f *Flow) refused(err error) error {
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		if _, silent := errors.AsType[*url.Error](err); silent {
			return f.provider.unreachable(err)
		}
		return model.Refuse(model.CodeNotSupported, "the provider %s sent an answer that is not understood: %s",
			f.provider.Issuer, oneLine(err.Error()))
	}
	why := answer.ErrorCode
	if answer.ErrorDescription != "" {
		why += ": " + answer.ErrorDescription
	}
	switch {
	case answer.ErrorCode == "access_denied":
		return model.Refuse(model.CodeForbidden, "the sign-in was denied at the provider").
			WithHint("begin again and approve the code: outspan login")
	case answer.ErrorCode == "expired_token":
		return f.expired()
	case answer.Response != nil && answer.Response.StatusCode >= http.StatusInternalServerError:
		return f.provider.unreachable(err)
	case why == "":
		why = answer.Response.Status
	}
	return model.Refuse(model.CodeForbidden, "the provider %s refuses the client %q: %s", f.provider.Issuer,
		f.provider.ClientID, oneLine(why)).
		WithHint("at the provider, %q must be a public client with the device flow and the scopes %v", f.provider.ClientID,
			f.oauth.Scopes)
}
