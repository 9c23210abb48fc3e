package ui

import (
	"context"
	"encoding/json"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
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

// guard refuses requests that are not of this user's browser for this host, and sets the headers that all answers have.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		same, ok := r.Context().Value(userKey{}).(func() bool)
		switch {
		case r.Host != s.host:
			refuse(w, http.StatusMisdirectedRequest, model.Refuse(model.CodeForbidden, "this page is at %s only", s.host))
		case !ok || !same():
			refuse(w, http.StatusForbidden,
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
			refuse(w, http.StatusForbidden, model.Refuse(model.CodeForbidden, "another page may not call this one"))
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
		refuse(w, http.StatusBadRequest, model.Refuse(model.CodeInvalid, "the body must be JSON with a code"))
		return
	}
	secret, err := s.entry.exchange(body.Code)
	if err != nil {
		refuse(w, http.StatusUnauthorized, err)
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

// refuse answers with an error. A status of 0 means that of the error's code.
func refuse(w http.ResponseWriter, status int, err error) {
	p := *api.NewProblem(err)
	if status != 0 {
		p.Status, p.Title = status, http.StatusText(status)
	}
	w.Header().Set("Content-Type", api.ContentTypeProblem)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error means that the browser has gone
}
