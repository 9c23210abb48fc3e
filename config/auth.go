package config

import (
	"path/filepath"
	"strings"
	"unicode"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/internal/oidc"
	"github.com/outspan/outspan/model"
)

// TakesTokens reports whether the server takes access tokens. People who signed in have some.
func (a Auth) TakesTokens() bool { return a.Tokens || a.OIDC != nil }

// OIDC is the OpenID Connect provider at which people sign in. All servers need the same.
type OIDC struct {
	Issuer      string   // URL; required
	ClientID    string   // of a public client with the device flow, and authorization codes for the page; required
	CAFile      string   // PEM file of the CA of the provider's certificate; default the CAs of the system
	GroupsClaim string   // default groups
	NameClaim   string   // default email
	Scopes      []string // default openid and email
	// Session is how long somebody stays signed in, 15 min to 30 days; default 12 h. Groups that are taken away at the
	// provider are known at the next sign-in, so they count for that long.
	Session model.Duration
}

// Bounds of OIDC.Session. An id token is accepted for a few minutes, which must be less.
const (
	minSession = 15 * model.Minute
	maxSession = 30 * 24 * model.Hour
)

func oidcKeys(o *OIDC) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Text("issuer", &o.Issuer), hclfile.Text("client_id", &o.ClientID), hclfile.Text("ca_file", &o.CAFile),
		hclfile.Text("groups_claim", &o.GroupsClaim), hclfile.Text("name_claim", &o.NameClaim),
		hclfile.Texts("scopes", &o.Scopes), hclfile.Duration("session", &o.Session),
	}
}

func (c *Config) checkAuth(invalid refuse) *model.Error {
	o := c.Auth.OIDC
	if o == nil {
		return nil
	}
	if c.Server == nil {
		return invalid("auth.oidc", "auth.oidc is for servers").WithHint("remove it: agents sign nobody in")
	}
	if refusal := oidc.CheckIssuer(o.Issuer); refusal != nil {
		return invalid("auth.oidc.issuer", "auth.oidc.issuer: %s", refusal.Message).WithHint("%s", refusal.Hint)
	}
	badWord := func(text string) bool {
		return text == "" || len(text) > 256 || strings.ContainsFunc(text, func(r rune) bool {
			return unicode.IsControl(r) || unicode.IsSpace(r)
		})
	}
	switch {
	case badWord(o.ClientID):
		return invalid("auth.oidc.client_id", "auth.oidc.client_id is %q", o.ClientID).
			WithHint("write the id of the client as the provider knows it, such as \"outspan\"")
	case o.CAFile != "" && !filepath.IsAbs(o.CAFile):
		return invalid("auth.oidc.ca_file", "auth.oidc.ca_file is %q, which depends on the directory that the program is "+
			"started in", o.CAFile).WithHint("write the whole path")
	case o.GroupsClaim == "" || o.NameClaim == "":
		return invalid("auth.oidc", "auth.oidc.groups_claim and auth.oidc.name_claim can't be empty")
	case o.Session < minSession || o.Session > maxSession:
		return invalid("auth.oidc.session", "auth.oidc.session is %s; it must be %s to %s", o.Session, minSession, maxSession)
	}
	for _, scope := range o.Scopes {
		if badWord(scope) {
			return invalid("auth.oidc.scopes", "auth.oidc.scopes has %q; a scope has no blanks", scope)
		}
	}
	return nil
}

var oidcTexts = map[string]hclfile.KeyText{
	"issuer": {
		Means: "the URL of an OpenID Connect provider, as in its `/.well-known/openid-configuration`. People sign in " +
			"there with `outspan login`. All servers need the same block. See [rights](rights.md#sign-in-with-openid-connect)",
		Example: `"https://id.example.org/realms/main"`,
	},
	"client_id": {Means: "the id of a public client of the provider, with the device flow", Example: `"outspan"`},
	"ca_file": {Means: "a PEM file with the CA of the provider's certificate. Default: the CAs of the system",
		Example: `"/etc/outspan.d/tls/idp-ca.pem"`},
	"groups_claim": {Means: "the claim of the id token with the names of the person's groups",
		Default: `"groups"`, Example: `"roles"`},
	"name_claim": {Means: "the claim with a readable name. It gives no rights", Default: `"email"`,
		Example: `"preferred_username"`},
	"scopes": {Means: "the scopes to ask for; `openid` is always among them", Default: `["openid", "email"]`,
		Example: `["openid", "email", "groups"]`},
	"session": {
		Means: "how long somebody stays signed in, 15m to 30d. For that long, groups that are taken away at the provider " +
			"still count", Default: `"12h"`, Example: `"8h"`,
	},
}
