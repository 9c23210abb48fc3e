package ui

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
)

// signInServer serves the page as a server does to whoever has signed in. The function signIn returns the id of the
// sign-in, and forward answers the requests of the API.
func signInServer(t *testing.T, signIn func() string,
	forward func(context.Context, client.ForwardedRequest) (*http.Response, error)) *httptest.Server {
	t.Helper()
	files, err := NewFiles()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		SetHeaders(out.Header())
		switch {
		case r.URL.Path == "/ui/session":
			_, _ = io.WriteString(out, jsonOf(map[string]any{"id": signIn(), "subject": "me"}))
		case strings.HasPrefix(r.URL.Path, "/v1/"):
			body, _ := io.ReadAll(r.Body)
			got, err := forward(r.Context(),
				client.ForwardedRequest{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.Query(), Body: body})
			switch {
			case errors.Is(err, &model.Error{Code: codeNotEntered}):
				Refuse(out, http.StatusUnauthorized, err)
				return
			case err != nil:
				Refuse(out, 0, err)
				return
			}
			maps.Copy(out.Header(), got.Header)
			_, _ = io.Copy(out, got.Body)
		default:
			files.ServeHTTP(out, r)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// A page whose server does not know its sign-in any more says why, in the words of the server.
func TestSignInEndedSaysWhy(t *testing.T) {
	t.Parallel()
	c := newCluster()
	var forgotten atomic.Bool
	server := signInServer(t, func() string { return "first" },
		func(ctx context.Context, r client.ForwardedRequest) (*http.Response, error) {
			if forgotten.Load() {
				return nil, model.Refuse(codeNotEntered, "the server was restarted, or so")
			}
			return c.forward(ctx, r)
		})
	one, err := startBrowser(t).NewPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := &tab{Page: one, t: t}
	v.do(v.Open(t.Context(), server.URL+"/#/nodes/n1"))
	v.shows("outspan node status n1")
	forgotten.Store(true)
	v.shows("Your sign-in has ended")
	v.shows("The server was restarted, or so. Sign in again, and you are back where you were.")
}

// A tab that is loaded again goes on with the roll that it carried out, whatever it shows, but not for the next person
// who signs in.
func TestRollOfAnotherSignIn(t *testing.T) {
	t.Parallel()
	browser := startBrowser(t)
	drains, nodes := rolling()
	c := newCluster()
	c.answers["/v1/auth/whoami"] = `{"subject":"me","verbs":["server.read","node.read","node.drain","node.cordon"]}`
	c.answers["/v1/jobs"] = `{"items":[]}`
	w := &clusterOfRoll{cluster: c, drains: drains, nodes: nodes}
	var signIn atomic.Value
	signIn.Store("first")
	server := signInServer(t, func() string { return signIn.Load().(string) }, w.forward)
	one, err := browser.NewPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := &tab{Page: one, t: t}
	load := func(address string) {
		t.Helper()
		v.do(v.Open(t.Context(), server.URL+address))
	}
	// otherwise Chromium asks whether to leave
	leave := func() { t.Helper(); v.run("BeforeUnloadEvent.prototype.preventDefault = () => {}; 0") }
	load("/?1#/rolls/R1")
	v.click("Carry on in this page")
	v.shows("This page carries the roll out")
	leave()
	load("/?2#/fleet")
	c.change(func() { nodes[1]["boot_id"] = "after the reboot" })
	w.does(t, "uncordon n2")
	v.run("location.hash = '#/rolls/R1'")
	v.shows("This page carries the roll out")
	leave()
	signIn.Store("second")
	load("/?3#/rolls/R1")
	v.until(button("Carry on in this page"))
}
