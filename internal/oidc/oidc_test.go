package oidc_test

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/internal/oidc"
	"github.com/outspan/outspan/internal/testbed/idp"
	"github.com/outspan/outspan/model"
)

var alice = idp.User{Sub: "a|1", Email: "alice@example.org", Groups: []string{"shop", "ops"}}

// limit is the longest time that a test waits for a call.
const limit = 30 * time.Second

func clientOf(p *idp.Provider) oidc.Provider {
	return oidc.Provider{Issuer: p.Issuer(), ClientID: idp.ClientID, Scopes: []string{"email"}, CAPEM: p.CAPEM()}
}

func verifierOf(t *testing.T, p *idp.Provider, now func() time.Time) *oidc.Verifier {
	t.Helper()
	v, err := oidc.NewVerifier(clientOf(p), oidc.Claims{}, now)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func wantCode(t *testing.T, err error, code model.Code, text string) {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message+" "+e.Hint, text) {
		t.Errorf("got %v, want the code %s and %q", err, code, text)
	}
}

// A person approves a code at the provider, and a server learns who it is.
func TestDeviceFlow(t *testing.T) {
	for _, plain := range []bool{false, true} {
		p := idp.Start(t, idp.Options{Plain: plain})
		p.AddUser(alice)
		flow, err := oidc.Begin(within(t), clientOf(p))
		if err != nil {
			t.Fatal(err)
		}
		address, filled, code := flow.Page()
		if address != p.Issuer()+"/device" || filled != address+"?user_code="+code {
			t.Errorf("the person is sent to %q, or %q with the code %q", address, filled, code)
		}
		if err := p.Approve(code, alice.Sub); err != nil {
			t.Fatal(err)
		}
		text, err := flow.Wait(within(t))
		if err != nil {
			t.Fatal(err)
		}
		who, err := verifierOf(t, p, nil).Verify(within(t), text)
		if err != nil {
			t.Fatal(err)
		}
		want := oidc.Person{Subject: model.Subject{Kind: model.SubjectOIDC, Name: p.Issuer() + "#a|1"},
			Name: alice.Email, Groups: alice.Groups, Issued: who.Issued, Proof: who.Proof}
		if diff := cmp.Diff(want, who); diff != "" {
			t.Error(diff)
		}
	}
}

func TestFlowEnds(t *testing.T) {
	t.Run("denied", func(t *testing.T) {
		p := idp.Start(t, idp.Options{})
		flow, err := oidc.Begin(within(t), clientOf(p))
		if err != nil {
			t.Fatal(err)
		}
		_, _, code := flow.Page()
		if err := p.Deny(code); err != nil {
			t.Fatal(err)
		}
		_, err = flow.Wait(within(t))
		wantCode(t, err, model.CodeForbidden, "denied")
	})
	t.Run("expired", func(t *testing.T) {
		p := idp.Start(t, idp.Options{CodeTime: 2 * time.Second})
		flow, err := oidc.Begin(within(t), clientOf(p))
		if err != nil {
			t.Fatal(err)
		}
		_, err = flow.Wait(within(t))
		wantCode(t, err, model.CodeTimeout, "expired")
	})
	t.Run("interrupted", func(t *testing.T) {
		p := idp.Start(t, idp.Options{})
		flow, err := oidc.Begin(within(t), clientOf(p))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(within(t))
		cancel()
		if _, err = flow.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestBeginRefuses(t *testing.T) {
	good, noDevice := idp.Start(t, idp.Options{}), idp.Start(t, idp.Options{NoDevice: true})
	with := func(p *idp.Provider, change func(*oidc.Provider)) oidc.Provider {
		c := clientOf(p)
		change(&c)
		return c
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	tests := []struct {
		name string
		to   oidc.Provider
		code model.Code
		text string
	}{
		{"no device flow", clientOf(noDevice), model.CodeNotSupported, "no device flow"},
		{"unknown client", with(good, func(c *oidc.Provider) { c.ClientID = "other" }), model.CodeForbidden,
			"no such client"},
		{"unknown CA", with(good, func(c *oidc.Provider) { c.CAPEM = nil }), model.CodeProviderUnreachable, "certificate"},
		{"no PEM", with(good, func(c *oidc.Provider) { c.CAPEM = []byte("x") }), model.CodeInvalid, "PEM"},
		{"another path", with(good, func(c *oidc.Provider) { c.Issuer += "/realm" }), model.CodeNotSupported, "404"},
		{"no provider", with(good, func(c *oidc.Provider) { c.Issuer = other.URL }), model.CodeNotSupported, "404"},
		{"nobody listens", with(good, func(c *oidc.Provider) { c.Issuer = "https://" + free.Addr().String() }),
			model.CodeProviderUnreachable, "does not answer"},
		{"http", with(good, func(c *oidc.Provider) { c.Issuer = "http://id.example.org" }), model.CodeInvalid, "https"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := oidc.Begin(within(t), tt.to)
			wantCode(t, err, tt.code, tt.text)
		})
	}
}

func TestCheckIssuer(t *testing.T) {
	for issuer, good := range map[string]bool{
		"https://id.example.org": true, "https://id.example.org/realms/a": true, "http://127.0.0.1:5556/dex": true,
		"http://localhost:5556": true, "http://[::1]:1": true,
		"": false, "id.example.org": false, "http://id.example.org": false, "http://10.0.0.1": false,
		"http://localhost.example.org": false, "ftp://127.0.0.1": false, "https://id.example.org?a=b": false,
		"https://id.example.org/.well-known/openid-configuration": false,
		"https://id.example.org#a":                                false, "https://u:p@id.example.org": false,
		"https://" + strings.Repeat("a", 200): false,
	} {
		if refusal := oidc.CheckIssuer(issuer); (refusal == nil) != good {
			t.Errorf("%q: %v", issuer, refusal)
		}
	}
}

// An access token of another client is signed by the same provider, and its audience may name this client too.
func TestVerifyRefusesAccessTokens(t *testing.T) {
	p := idp.Start(t, idp.Options{})
	for _, client := range []string{"grafana", idp.ClientID} {
		_, err := verifierOf(t, p, nil).Verify(within(t), p.AccessToken(t, alice, client, "grafana", idp.ClientID))
		wantCode(t, err, model.CodeForbidden, "no id token")
	}
}

func TestVerifyRefuses(t *testing.T) {
	many := idp.User{Sub: "m"}
	for range 300 {
		many.Groups = append(many.Groups, "g")
	}
	tests := []struct {
		name   string
		change func(*testing.T, *idp.Provider)
		user   idp.User
		later  time.Duration // how much later the token is checked
		with   func(string) string
		code   model.Code
		text   string
	}{
		{name: "another client", change: func(_ *testing.T, p *idp.Provider) { p.For("other") },
			code: model.CodeForbidden, text: "audience"},
		{name: "forged", change: func(t *testing.T, p *idp.Provider) { p.Forge(t) },
			code: model.CodeForbidden, text: "signature"},
		{name: "another issuer", with: func(string) string {
			return idp.Start(t, idp.Options{}).Token(t, alice)
		}, code: model.CodeForbidden, text: "signature"},
		{name: "expired", later: 6 * time.Minute, code: model.CodeForbidden, text: "expired at"},
		{name: "old", change: func(t *testing.T, p *idp.Provider) {}, later: 290 * time.Second},
		{name: "future", later: -2 * time.Minute, code: model.CodeForbidden, text: "from the future"},
		{name: "a little ahead", later: -30 * time.Second},
		{name: "unsigned", with: func(text string) string {
			parts := strings.Split(text, ".")
			return "eyJhbGciOiJub25lIn0." + parts[1] + "."
		}, code: model.CodeForbidden, text: "not accepted"},
		{name: "changed", with: func(text string) string {
			parts := strings.Split(text, ".")
			return parts[0] + "." + parts[1][:20] + "A" + parts[1][21:] + "." + parts[2]
		}, code: model.CodeForbidden, text: "not accepted"},
		{name: "no token", with: func(string) string { return "abc" }, code: model.CodeInvalid, text: "JSON Web Token"},
		{name: "not compact", with: func(text string) string {
			parts := strings.Split(text, ".")
			return `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","header":{"a":".."},"signature":"` + parts[2] + `"}`
		}, code: model.CodeInvalid},
		{name: "blank", with: func(text string) string { return text + "\n" }, code: model.CodeInvalid},
		{name: "huge", with: func(s string) string { return s + strings.Repeat("a", 40000) }, code: model.CodeInvalid},
		{name: "many groups", user: many, code: model.CodeForbidden, text: "300 groups"},
		{name: "strange group", user: idp.User{Sub: "s", Groups: []string{"a\nb"}}, code: model.CodeForbidden,
			text: "control"},
		{name: "long sub", user: idp.User{Sub: strings.Repeat("s", 250)}, code: model.CodeForbidden, text: "bytes"},
		{name: "control in sub", user: idp.User{Sub: "a\nb"}, code: model.CodeForbidden, text: "no usable subject"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := idp.Start(t, idp.Options{TokenTime: 5 * time.Minute})
			if tt.change != nil {
				tt.change(t, p)
			}
			user := tt.user
			if user.Sub == "" {
				user = alice
			}
			text := p.Token(t, user)
			if tt.with != nil {
				text = tt.with(text)
			}
			v := verifierOf(t, p, func() time.Time { return time.Now().Add(tt.later) })
			_, err := v.Verify(within(t), text)
			if tt.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantCode(t, err, tt.code, tt.text)
		})
	}
}

// An id token that is good for hours is accepted only in the first minutes.
func TestVerifyRefusesOldTokens(t *testing.T) {
	p := idp.Start(t, idp.Options{TokenTime: 10 * time.Hour})
	v := verifierOf(t, p, func() time.Time { return time.Now().Add(10 * time.Minute) })
	_, err := v.Verify(within(t), p.Token(t, alice))
	wantCode(t, err, model.CodeForbidden, "ago")
}

// The verifier survives new keys of the provider, and a provider that is off while its keys are known.
func TestVerifyKeys(t *testing.T) {
	p := idp.Start(t, idp.Options{})
	v := verifierOf(t, p, nil)
	rotate := func() {
		t.Helper()
		keysAreRead(t)
		p.Rotate(t)
	}
	for range 2 {
		if _, err := v.Verify(within(t), p.Token(t, alice)); err != nil {
			t.Fatal(err)
		}
		rotate()
	}
	unknown := p.Token(t, alice)
	rotate()
	if _, err := v.Verify(within(t), unknown); err == nil {
		t.Error("a token of a key that is not published any more was accepted")
	}
	p.Stop()
	if _, err := v.Verify(within(t), p.Token(t, alice)); err != nil {
		t.Errorf("the provider is off, and its keys are known: %v", err)
	}
	rotate()
	_, err := v.Verify(within(t), p.Token(t, alice))
	wantCode(t, err, model.CodeProviderUnreachable, "does not answer")
	_, err = verifierOf(t, p, nil).Verify(within(t), unknown)
	wantCode(t, err, model.CodeProviderUnreachable, "does not answer")
}

// keysAreRead waits until no goroutine of go-oidc reads keys. Such a goroutine hands out the keys before it ends, and
// until then they are also the answer to whoever asks for newer ones.
func keysAreRead(t *testing.T) {
	t.Helper()
	for ctx := within(t); ; {
		var all bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(all.String(), "keysFromRemote.func") {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("the keys are still being read")
		case <-time.After(time.Millisecond):
		}
	}
}

// A provider that never answers holds up a few checks, and no others.
func TestVerifyIsBounded(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	to := oidc.Provider{Issuer: "http://" + silent.Addr().String(), ClientID: "c"}
	v, err := oidc.NewVerifier(to, oidc.Claims{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	ended := make(chan error, 50)
	for range 50 {
		go func() {
			_, err := v.Verify(ctx, "a.b.c")
			ended <- err
		}()
	}
	for range 42 {
		wantCode(t, <-ended, model.CodeBusy, "too many")
	}
	cancel()
	for range 8 {
		wantCode(t, <-ended, model.CodeProviderUnreachable, "")
	}
}

// Each text of the same id token has the same proof, so that none of them can be used twice.
func TestProof(t *testing.T) {
	p := idp.Start(t, idp.Options{})
	v := verifierOf(t, p, nil)
	proof := func(text string) string {
		who, err := v.Verify(within(t), text)
		if err != nil {
			t.Fatal(err)
		}
		return who.Proof
	}
	text := p.Token(t, alice)
	first, other := proof(text), proof(p.Token(t, idp.User{Sub: "bob"}))
	if first == other || len(first) != 32 {
		t.Errorf("proofs %q and %q", first, other)
	}
	parts := strings.Split(text, ".")
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	s := new(big.Int).SetBytes(signature[32:]) // the negative of s is as good a signature
	new(big.Int).Sub(elliptic.P256().Params().N, s).FillBytes(signature[32:])
	twin := parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(signature)
	if got := proof(twin); twin == text || got != first {
		t.Errorf("another text of the token has the proof %q, not %q", got, first)
	}
}
