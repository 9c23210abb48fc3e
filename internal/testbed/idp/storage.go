package idp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// storage keeps what the provider knows. It has only the methods of op.Storage that the device flow, authorization
// codes and id tokens need; the others panic.
type storage struct {
	op.Storage
	options Options

	mu     sync.Mutex
	users  map[string]User // by Sub
	codes  map[string]*op.DeviceAuthorizationState
	device map[string]string // code of the device by the code of the user
	key    signingKey
	forged *signingKey // signs id tokens instead of key, without being published
	client string      // for whom id tokens are made instead of ClientID

	visits  map[string]*visit // by id
	visitOf map[string]string // id of the visit by its code
}

func newStorage(t testing.TB, o Options) *storage {
	return &storage{options: o, users: map[string]User{}, codes: map[string]*op.DeviceAuthorizationState{},
		device: map[string]string{}, key: newKey(t, "key1"), visits: map[string]*visit{}, visitOf: map[string]string{}}
}

// AddUser makes somebody known, or changes what is known of them.
func (s *storage) AddUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[u.Sub] = u
}

// Forge makes the provider sign with a key that it does not publish, under the id of the one that it publishes.
func (s *storage) Forge(t testing.TB) {
	key := newKey(t, "key1")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forged = &key
}

// Rotate replaces the key of the provider.
func (s *storage) Rotate(t testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = newKey(t, s.key.id+"x")
}

// For makes the provider issue id tokens for another client.
func (s *storage) For(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = client
}

func (s *storage) audience() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != "" {
		return s.client
	}
	return ClientID
}

// Waiting returns the codes that nobody has approved or denied yet.
func (s *storage) Waiting() (codes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for user, device := range s.device {
		if c := s.codes[device]; !c.Done && !c.Denied {
			codes = append(codes, user)
		}
	}
	slices.Sort(codes)
	return codes
}

// Approve lets somebody approve a code.
func (s *storage) Approve(code, sub string) error {
	return s.decide(code, func(c *op.DeviceAuthorizationState) {
		c.Done, c.Subject, c.AuthTime = true, sub, time.Now()
	})
}

// Deny denies a code.
func (s *storage) Deny(code string) error {
	return s.decide(code, func(c *op.DeviceAuthorizationState) { c.Denied = true })
}

func (s *storage) decide(code string, change func(*op.DeviceAuthorizationState)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.codes[s.device[code]]
	if !ok {
		return errors.New("there is no code " + strconv.Quote(code))
	}
	change(c)
	return nil
}

// StoreDeviceAuthorization implements op.DeviceAuthorizationStorage.
func (s *storage) StoreDeviceAuthorization(_ context.Context, client, device, user string, expires time.Time,
	scopes []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[device] = &op.DeviceAuthorizationState{ClientID: client, Scopes: scopes, Expires: expires}
	s.device[user] = device
	return nil
}

// GetDeviceAuthorizatonState implements op.DeviceAuthorizationStorage.
func (s *storage) GetDeviceAuthorizatonState(_ context.Context, client, device string) (
	*op.DeviceAuthorizationState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.codes[device]
	if !ok || c.ClientID != client {
		return nil, errors.New("there is no such code")
	}
	state := *c
	return &state, nil
}

// GetClientByClientID implements op.OPStorage.
func (s *storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	if id != ClientID {
		return nil, oidc.ErrInvalidClient().WithDescription("there is no such client")
	}
	return client{s.options}, nil
}

// CreateAccessToken implements op.AuthStorage.
func (s *storage) CreateAccessToken(context.Context, op.TokenRequest) (string, time.Time, error) {
	return rand.Text(), time.Now().Add(time.Minute), nil
}

// SetUserinfoFromScopes implements op.OPStorage.
func (s *storage) SetUserinfoFromScopes(_ context.Context, info *oidc.UserInfo, sub, _ string, _ []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.users[sub]
	if !ok {
		return errors.New("there is no user " + sub)
	}
	info.Subject, info.Email = sub, u.Email
	if u.Groups != nil {
		info.AppendClaims("groups", u.Groups)
	}
	return nil
}

// SigningKey implements op.AuthStorage.
func (s *storage) SigningKey(context.Context) (op.SigningKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forged != nil {
		return *s.forged, nil
	}
	return s.key, nil
}

// SignatureAlgorithms implements op.AuthStorage.
func (s *storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.ES256}, nil
}

// KeySet implements op.AuthStorage.
func (s *storage) KeySet(context.Context) ([]op.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []op.Key{publicKey{s.key}}, nil
}

// Health implements op.Storage.
func (s *storage) Health(context.Context) error { return nil }

type signingKey struct {
	id   string
	pair *ecdsa.PrivateKey
}

func newKey(t testing.TB, id string) signingKey {
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signingKey{id, pair}
}

// SignatureAlgorithm implements op.SigningKey.
func (k signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.ES256 }

// Key implements op.SigningKey.
func (k signingKey) Key() any { return k.pair }

// ID implements op.SigningKey and op.Key.
func (k signingKey) ID() string { return k.id }

type publicKey struct{ signingKey }

// Algorithm implements op.Key.
func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.ES256 }

// Use implements op.Key.
func (k publicKey) Use() string { return "sig" }

// Key implements op.Key.
func (k publicKey) Key() any { return &k.pair.PublicKey }

// client is the only client: public, with the device flow, and with authorization codes if it has redirect URIs.
type client struct{ options Options }

func (client) GetID() string                       { return ClientID }
func (c client) RedirectURIs() []string            { return c.options.Redirects }
func (client) PostLogoutRedirectURIs() []string    { return nil }
func (client) ApplicationType() op.ApplicationType { return op.ApplicationTypeNative }
func (client) AuthMethod() oidc.AuthMethod         { return oidc.AuthMethodNone }
func (client) ResponseTypes() []oidc.ResponseType  { return []oidc.ResponseType{oidc.ResponseTypeCode} }
func (client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeDeviceCode, oidc.GrantTypeCode}
}
func (client) LoginURL(id string) string            { return loginPath + "?id=" + id }
func (client) AccessTokenType() op.AccessTokenType  { return op.AccessTokenTypeBearer }
func (c client) IDTokenLifetime() time.Duration     { return c.options.TokenTime }
func (client) DevMode() bool                        { return false }
func (client) IsScopeAllowed(string) bool           { return true }
func (client) IDTokenUserinfoClaimsAssertion() bool { return true }
func (c client) ClockSkew() time.Duration           { return -c.options.ClockAhead }
func (client) RestrictAdditionalIdTokenScopes() func([]string) []string { //nolint:revive // of op.Client
	return func(scopes []string) []string { return scopes }
}
func (client) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}

// serveWithoutDevice answers with the metadata of the provider, without the device flow.
func serveWithoutDevice(handler http.Handler, w http.ResponseWriter, r *http.Request) {
	recorded := httptest.NewRecorder()
	handler.ServeHTTP(recorded, r)
	fields := map[string]any{}
	if err := json.Unmarshal(recorded.Body.Bytes(), &fields); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	delete(fields, "device_authorization_endpoint")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(fields) // a client that has gone needs no answer
}
