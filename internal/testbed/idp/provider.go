package idp

import (
	"context"
	"crypto/rand"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/crypto"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// ClientID is the id of the only client.
const ClientID = "outspan"

// User is somebody whom the provider knows.
type User struct {
	Sub    string
	Email  string
	Groups []string
}

// Options change the provider. The zero value is a provider with https that answers as usual.
type Options struct {
	Plain      bool          // http instead of https
	NoDevice   bool          // the metadata has no device flow
	CodeTime   time.Duration // how long a code is good; default 5 min
	TokenTime  time.Duration // how long an id token is good; default 5 min
	ClockAhead time.Duration // of the provider
	Redirects  []string      // where browsers may be sent after a sign-in
	Address    string        // IP:PORT to listen on; default a free port of a loopback address
}

// Provider is a running provider. It is safe for concurrent use.
type Provider struct {
	*storage
	server *httptest.Server
}

// Start starts a provider, which ends with the test.
func Start(t testing.TB, o Options) *Provider {
	t.Helper()
	if o.CodeTime == 0 {
		o.CodeTime = 5 * time.Minute
	}
	if o.TokenTime == 0 {
		o.TokenTime = 5 * time.Minute
	}
	p := &Provider{storage: newStorage(t, o)}
	var handler http.Handler
	var callback func(context.Context, string) string
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == loginPath {
			p.serveLogin(w, r, callback)
			return
		}
		if o.NoDevice && strings.HasPrefix(path.Base(r.URL.Path), "openid-configuration") {
			serveWithoutDevice(handler, w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	if o.Address != "" {
		l, err := net.Listen("tcp", o.Address)
		if err != nil {
			t.Fatal(err)
		}
		_ = p.server.Listener.Close() // nothing has used it
		p.server.Listener = l
	}
	options := []op.Option{}
	if o.Plain {
		options = append(options, op.WithAllowInsecure())
	}
	config := &op.Config{DeviceAuthorization: op.DeviceAuthorizationConfig{Lifetime: o.CodeTime, PollInterval: time.Second,
		UserFormPath: "/device", UserCode: op.UserCodeBase20}}
	rand.Read(config.CryptoKey[:])
	scheme := "https://"
	if o.Plain {
		scheme = "http://"
	}
	issuer := scheme + p.server.Listener.Addr().String()
	provider, err := op.NewProvider(config, p.storage, op.StaticIssuer(issuer), options...)
	if err != nil {
		t.Fatal(err)
	}
	handler, callback = provider, op.AuthCallbackURL(provider)
	if o.Plain {
		p.server.Start()
	} else {
		p.server.StartTLS()
	}
	t.Cleanup(p.server.Close)
	return p
}

// Issuer returns the URL of the provider.
func (p *Provider) Issuer() string { return p.server.URL }

// CAPEM returns the certificate that signs that of the provider. It is empty with http.
func (p *Provider) CAPEM() []byte {
	if cert := p.server.Certificate(); cert != nil {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	}
	return nil
}

// Stop ends the provider before the test ends.
func (p *Provider) Stop() { p.server.Close() }

// Token runs the device flow for somebody who approves at once, with the scope openid, and returns the id token.
func (p *Provider) Token(t testing.TB, u User) string {
	t.Helper()
	ctx := op.ContextWithIssuer(context.Background(), p.Issuer())
	p.AddUser(u)
	state := &op.DeviceAuthorizationState{ClientID: p.audience(), Subject: u.Sub, Scopes: []string{"openid", "email"},
		AuthTime: time.Now()}
	text, err := op.CreateIDToken(ctx, p.Issuer(), state, p.options.TokenTime, "", "", p.storage, client{p.options})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// AccessToken returns an access token in the form of RFC 9068 that the provider made for another client.
func (p *Provider) AccessToken(t testing.TB, u User, client string, audience ...string) string {
	t.Helper()
	claims := oidc.NewAccessTokenClaims(p.Issuer(), u.Sub, audience, time.Now().Add(time.Hour), "id", client, 0)
	claims.Claims = map[string]any{"groups": u.Groups}
	key := jose.SigningKey{Algorithm: jose.ES256, Key: &jose.JSONWebKey{Key: p.key.pair, KeyID: p.key.id}}
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("at+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := crypto.Sign(claims, signer)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Host returns the address of the provider.
func (p *Provider) Host() string {
	u, err := url.Parse(p.server.URL)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(u.Hostname(), u.Port())
}

// Browser returns an HTTP client that trusts the provider's certificate.
func (p *Provider) Browser() *http.Client { return p.server.Client() }
