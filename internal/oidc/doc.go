// Package oidc signs people in with an OpenID Connect provider. Flow gets an id token by the device flow (RFC 8628), on
// the machine of the person. CodeFlow gets one by an authorization code with PKCE, on a server that the browser of the
// person talks to. Verifier checks an id token, on a server. None has a client secret. Requests to a provider go to
// https addresses, or to this machine, and have a time limit.
package oidc
