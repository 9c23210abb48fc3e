package oidc_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/oidc"
	"github.com/outspan/outspan/internal/testbed/idp"
	"github.com/outspan/outspan/model"
)

const redirect = "https://page.example.org:7643/ui/callback"

// visit signs alice in at the provider as a browser does, and returns the code.
func visit(t *testing.T, p *idp.Provider, address string) (code, state string) {
	t.Helper()
	via := p.Browser()
	via.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), redirect) || r.URL.Path == "/login" {
			return http.ErrUseLastResponse
		}
		return nil
	}
	get := func(at string) *url.URL {
		resp, err := via.Get(at)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		to, err := resp.Location()
		if err != nil {
			t.Fatalf("%s: %s, %v", at, resp.Status, err)
		}
		return to
	}
	to := get(get(address).String() + "&as=" + url.QueryEscape(alice.Sub))
	return to.Query().Get("code"), to.Query().Get("state")
}

// A browser brings a code back, which is good once, with the texts of its trip.
func TestCodeFlow(t *testing.T) {
	p := idp.Start(t, idp.Options{Redirects: []string{redirect}})
	p.AddUser(alice)
	v := verifierOf(t, p, nil)
	flow := oidc.NewCodeFlow(v)
	if flow.Name() != p.Host() {
		t.Errorf("the provider is called %q", flow.Name())
	}
	for name, try := range map[string]struct {
		change func(*oidc.Trip)
		twice  bool
		code   model.Code
		text   string
	}{
		"works": {},
		"another nonce": {change: func(t *oidc.Trip) { t.Nonce = "other" }, code: model.CodeForbidden,
			text: "another sign-in"},
		"another verifier": {change: func(t *oidc.Trip) { t.Verifier = strings.Repeat("a", 43) }, code: model.CodeForbidden},
		"another redirect": {change: func(t *oidc.Trip) { t.Redirect += "x" }, code: model.CodeForbidden},
		"twice":            {twice: true, code: model.CodeForbidden, text: "refuses the code"},
	} {
		t.Run(name, func(t *testing.T) {
			trip := oidc.NewTrip(redirect)
			address, err := flow.Address(within(t), trip)
			if err != nil {
				t.Fatal(err)
			}
			code, state := visit(t, p, address)
			if state != trip.State {
				t.Errorf("the state is %q", state)
			}
			if try.change != nil {
				try.change(&trip)
			}
			text, err := flow.IDToken(within(t), trip, code)
			if try.twice && err == nil {
				_, err = flow.IDToken(within(t), trip, code)
			}
			if try.code != "" {
				wantCode(t, err, try.code, try.text)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			who, err := v.Verify(within(t), text)
			if err != nil || who.Name != alice.Email || len(who.Groups) != 2 || time.Since(who.Issued) > time.Minute {
				t.Errorf("%+v, %v", who, err)
			}
		})
	}
	p.Stop()
	_, err := flow.IDToken(within(t), oidc.NewTrip(redirect), "code")
	wantCode(t, err, model.CodeProviderUnreachable, "does not answer")
}
