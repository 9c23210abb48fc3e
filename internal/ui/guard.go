package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// policy is what the page may do: load files and call this server. It has no inline script, no inline style, and frames
// of no other page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// userKey is the key of the user check of a connection in the contexts of its requests.
type userKey struct{}

// withUser returns the context of a connection. The other end's user is looked up at the first request, outside of the
// loop that accepts connections.
func withUser(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, userKey{}, sync.OnceValue(func() bool {
		from, errFrom := netip.ParseAddrPort(c.RemoteAddr().String())
		to, errTo := netip.ParseAddrPort(c.LocalAddr().String())
		if errFrom != nil || errTo != nil {
			return false
		}
		uid, err := userAt(from, to)
		return err == nil && uid == os.Getuid()
	}))
}

// SetHeaders sets the headers that all answers have.
func SetHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// guard refuses requests that are not of this user's browser for this host.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetHeaders(w.Header())
		same, ok := r.Context().Value(userKey{}).(func() bool)
		switch {
		case r.Host != s.host:
			RefuseHost(w, r, model.Refuse(model.CodeForbidden, "this page is at %s only", s.host).
				WithHint("open it there, or open a page of your own: outspan ui"))
		case !ok || !same():
			Refuse(w, http.StatusForbidden,
				model.Refuse(model.CodeForbidden, "this page belongs to another user of this machine").
					WithHint("open a page of your own: outspan ui"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ownOnly refuses requests that another page makes. Browsers say so in Origin and Sec-Fetch-Site.
func (s *Server) ownOnly(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
		if origin != "" && origin != "http://"+s.host || site != "" && site != "same-origin" {
			Refuse(w, http.StatusForbidden, model.Refuse(model.CodeForbidden, "another page may not call this one"))
			return
		}
		next(w, r)
	}
}

// enter exchanges the code of the link for the secret.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Code string `json:"code"`
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" || json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&body) != nil {
		Refuse(w, http.StatusBadRequest, model.Refuse(model.CodeInvalid, "the body must be JSON with a code"))
		return
	}
	secret, err := s.entry.exchange(body.Code)
	if err != nil {
		Refuse(w, http.StatusUnauthorized, err)
		return
	}
	select {
	case s.entered <- struct{}{}:
	default:
	}
	s.touch()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"secret": secret}) // an error means that the browser has gone
}

// Refuse answers with an error. A status of 0 means that of the error's code.
func Refuse(w http.ResponseWriter, status int, err error) {
	p := *api.NewProblem(err)
	if status != 0 {
		p.Status, p.Title = status, http.StatusText(status)
	}
	w.Header().Set("Content-Type", api.ContentTypeProblem)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error means that the browser has gone
}

// RefuseHost answers a request that names a host at which the page is not. Whoever opens it in a browser gets
// sentences, as plain text. Scripts and other programs get the error as Refuse answers it.
func RefuseHost(w http.ResponseWriter, r *http.Request, err *model.Error) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		Refuse(w, http.StatusMisdirectedRequest, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusMisdirectedRequest)
	// an error means that the browser has gone
	_, _ = fmt.Fprintf(w, "outspan: %s.\n\nWhat to do: %s.\n", err.Message, err.Hint)
}
