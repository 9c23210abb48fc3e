package oidc

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/outspan/outspan/model"
)

// Bounds of what a Verifier accepts and does.
const (
	maxAge      = 5 * time.Minute // since the provider made the id token
	clockAhead  = time.Minute     // of the provider
	refreshed   = time.Hour       // after which the provider's metadata is read again
	maxAtOnce   = 8               // id tokens that are checked at the same time, because a check may wait for the provider
	maxIDToken  = 32 << 10        // bytes
	maxSubject  = 240             // bytes of issuer and sub together, so that a binding can name them
	maxGroups   = 256
	maxGroup    = 256 // bytes
	maxPerson   = 200 // bytes
	defaultName = "email"
	groupsClaim = "groups"
)

// Claims names the claims of an id token that a Verifier reads.
type Claims struct {
	Groups string // a list of names, or one name; default groups
	Name   string // the readable name of the person; default email
}

// Person is what an id token says about a person.
type Person struct {
	Subject model.Subject // its name is "ISSUER#SUB"
	Name    string        // readable; it gives no rights
	Groups  []string
	Issued  time.Time // when the provider made the id token
	// Proof is a hash of what the provider signed, in lower case letters and digits. It is the same for all texts of the
	// same id token.
	Proof string
}

// Verifier checks id tokens of one provider. It reads the provider's metadata at the first id token, and its keys when
// a token names one that it does not know. It is safe for concurrent use.
type Verifier struct {
	provider Provider
	claims   Claims
	via      *http.Client
	now      func() time.Time
	busy     chan struct{} // has an element for each check in progress

	mu    sync.Mutex // never held while the provider is asked
	found *oidc.IDTokenVerifier
	read  time.Time // when found was made
}

// NewVerifier returns a Verifier. It does not call the provider. now returns the present time; nil means time.Now.
// Code: invalid.
func NewVerifier(p Provider, c Claims, now func() time.Time) (*Verifier, error) {
	if refusal := CheckIssuer(p.Issuer); refusal != nil {
		return nil, refusal
	}
	via, err := p.client()
	if err != nil {
		return nil, err
	}
	if c.Groups == "" {
		c.Groups = groupsClaim
	}
	if c.Name == "" {
		c.Name = defaultName
	}
	if now == nil {
		now = time.Now
	}
	return &Verifier{provider: p, claims: c, via: via, now: now, busy: make(chan struct{}, maxAtOnce)}, nil
}

// Verify returns whom an id token identifies. The token must be of this provider and for this client, at most five
// minutes old, and signed by a key of the provider. Verify may call the provider, and blocks until ctx ends at most.
// Codes: invalid; forbidden; provider_unreachable; busy if too many are checked already; not_supported.
func (v *Verifier) Verify(ctx context.Context, idToken string) (Person, error) {
	if len(idToken) > maxIDToken || strings.Count(idToken, ".") != 2 || strings.ContainsFunc(idToken, notCompact) {
		return Person{}, model.Refuse(model.CodeInvalid, "id_token is not a signed JSON Web Token of at most %d bytes",
			maxIDToken)
	}
	select {
	case v.busy <- struct{}{}:
		defer func() { <-v.busy }()
	default:
		return Person{}, model.Refuse(model.CodeBusy, "too many people sign in at this moment").
			WithHint("try again in a few seconds")
	}
	with, err := v.verifier(ctx)
	if err != nil {
		return Person{}, err
	}
	token, err := with.Verify(ctx, idToken)
	if err != nil {
		return Person{}, v.refused(err)
	}
	if refusal := checkType(idToken); refusal != nil {
		return Person{}, refusal
	}
	return v.person(token)
}

// checkType refuses a token that its header calls something else than an id token. Providers sign access tokens with
// the same keys (RFC 9068: at+jwt).
func checkType(signed string) error {
	var header struct {
		Type string `json:"typ"`
	}
	first, _, _ := strings.Cut(signed, ".")
	text, err := base64.RawURLEncoding.DecodeString(first)
	if err == nil {
		err = json.Unmarshal(text, &header)
	}
	if err != nil || header.Type != "" && !strings.EqualFold(header.Type, "JWT") {
		return model.Refuse(model.CodeForbidden, "the token is no id token: its type is %q", oneLine(header.Type))
	}
	return nil
}

// Check asks the provider who it is, whatever is known of it. It blocks for some seconds at most, and until ctx ends.
// Codes: invalid, provider_unreachable, not_supported.
func (v *Verifier) Check(ctx context.Context) error {
	_, err := v.provider.discover(ctx, v.via)
	return err
}

// verifier returns the verifier of go-oidc, which knows the keys of the provider. While the metadata can't be read
// again, the earlier one counts.
func (v *Verifier) verifier(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	v.mu.Lock()
	known, fresh := v.found, v.now().Sub(v.read) < refreshed
	v.mu.Unlock()
	if known != nil && fresh {
		return known, nil
	}
	found, err := v.provider.discover(ctx, v.via)
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case err == nil:
		v.found = found.VerifierContext(oidc.ClientContext(context.Background(), v.via),
			&oidc.Config{ClientID: v.provider.ClientID, Now: v.now})
	case known == nil:
		return nil, err
	}
	v.read = v.now()
	return v.found, nil
}

// refused returns the error for an id token that go-oidc refuses.
func (v *Verifier) refused(err error) error {
	if expired, ok := errors.AsType[*oidc.TokenExpiredError](err); ok {
		return model.Refuse(model.CodeForbidden, "the id token expired at %s", expired.Expiry.UTC().Format(time.RFC3339)).
			WithHint("%s", compareClocks)
	}
	if strings.Contains(err.Error(), "fetching keys") {
		return v.provider.unreachable(err)
	}
	return model.Refuse(model.CodeForbidden, "the id token is not accepted: %s",
		oneLine(strings.TrimPrefix(err.Error(), "oidc: "))).
		WithHint("it must be of %s, for the client %q, and signed by a key of the provider", v.provider.Issuer,
			v.provider.ClientID)
}

// compareClocks is the hint about an id token whose times don't fit the clock of this server.
const compareClocks = "sign in again; if that does not help, compare the clock of the servers with that of the provider"

// person reads the claims of an id token whose signature, issuer, audience and end are good.
func (v *Verifier) person(token *oidc.IDToken) (Person, error) {
	if err := v.checkTimes(token); err != nil {
		return Person{}, err
	}
	var payload json.RawMessage
	var all map[string]json.RawMessage
	if err := errors.Join(token.Claims(&payload), token.Claims(&all)); err != nil {
		return Person{}, model.Refuse(model.CodeForbidden, "the claims of the id token can't be read: %s",
			oneLine(err.Error()))
	}
	if err := v.checkClient(token, all); err != nil {
		return Person{}, err
	}
	p := Person{Issued: token.IssuedAt, Proof: proofOf(payload),
		Subject: model.Subject{Kind: model.SubjectOIDC, Name: v.provider.Issuer + "#" + token.Subject}}
	switch {
	case token.Subject == "" || strings.ContainsFunc(token.Subject, notPrinted):
		return Person{}, model.Refuse(model.CodeForbidden, "the id token names no usable subject (claim sub)")
	case len(p.Subject.Name) > maxSubject:
		return Person{}, model.Refuse(model.CodeForbidden, "issuer and sub have more than %d bytes together", maxSubject)
	}
	var err error
	if p.Groups, err = v.groups(all[v.claims.Groups]); err != nil {
		return Person{}, err
	}
	var name string
	if raw, ok := all[v.claims.Name]; !ok || json.Unmarshal(raw, &name) != nil || name == "" {
		name = token.Subject
	}
	p.Name = model.ClipText(oneLine(name), maxPerson)
	return p, nil
}

// checkClient refuses a token that the provider made for another client. The audience alone does not tell: it may list
// several clients. Then the claim azp must name this one. Access tokens have a claim typ (Keycloak) or client_id (RFC
// 9068).
func (v *Verifier) checkClient(token *oidc.IDToken, all map[string]json.RawMessage) error {
	text := func(claim string) (value string, ok bool) {
		raw, ok := all[claim]
		if ok && json.Unmarshal(raw, &value) != nil {
			return "", true
		}
		return value, ok
	}
	for _, claim := range []string{"azp", "client_id"} {
		client, ok := text(claim)
		if claim == "azp" && len(token.Audience) > 1 {
			ok = true
		}
		if ok && client != v.provider.ClientID {
			return model.Refuse(model.CodeForbidden, "the id token was made for the client %q, not for %q",
				oneLine(client), v.provider.ClientID)
		}
	}
	if kind, ok := text("typ"); ok && kind != "ID" {
		return model.Refuse(model.CodeForbidden, "the token is no id token: its type is %q", oneLine(kind))
	}
	return nil
}

func (v *Verifier) checkTimes(token *oidc.IDToken) error {
	switch age := v.now().Sub(token.IssuedAt); {
	case age > maxAge:
		return model.Refuse(model.CodeForbidden, "the id token was made %s ago, more than %s", age.Round(time.Second),
			maxAge).
			WithHint("%s", compareClocks)
	case age < -clockAhead:
		return model.Refuse(model.CodeForbidden, "the id token is from the future, by %s", (-age).Round(time.Second)).
			WithHint("%s", compareClocks)
	}
	return nil
}

// groups reads the claim with the groups. Without the claim there are none.
func (v *Verifier) groups(raw json.RawMessage) ([]string, error) {
	var all []string
	var one string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case json.Unmarshal(raw, &one) == nil:
		all = []string{one}
	case json.Unmarshal(raw, &all) != nil:
		return nil, model.Refuse(model.CodeForbidden, "the claim %q of the id token is no list of names", v.claims.Groups).
			WithHint("set auth.oidc.groups_claim to the claim with the groups, or change its form at the provider")
	}
	if len(all) > maxGroups {
		return nil, model.Refuse(model.CodeForbidden, "the id token names %d groups, more than %d", len(all), maxGroups).
			WithHint("let the provider name only the groups that have to do with this client")
	}
	for _, g := range all {
		if g == "" || len(g) > maxGroup || strings.ContainsFunc(g, notPrinted) {
			return nil, model.Refuse(model.CodeForbidden, "the id token names a group that is empty, longer than %d bytes or "+
				"has control characters: %s", maxGroup, fmt.Sprintf("%q", model.ClipText(g, maxGroup)))
		}
	}
	return all, nil
}

// proofOf returns Person.Proof. The text of an id token is no proof: its signature and its base64 have other forms that
// are as good.
func proofOf(payload []byte) string {
	sum := sha256.Sum256(payload)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20]))
}

// notCompact reports whether a character is not of the compact form of a JSON Web Token.
func notCompact(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r))
}

func notPrinted(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }
