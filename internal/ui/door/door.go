package door

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/internal/ui"
	"github.com/outspan/outspan/model"
)

// Config says what a Door leads to.
type Config struct {
	// API answers requests below /v1/ and is the judge of access tokens. Required.
	API http.Handler
	// Host reports whether the page is at a host, which is a name or an IP address without a port. Required.
	Host func(host string) bool
	// Provider signs people in; nil if they sign in by access tokens alone.
	Provider Provider
	// Audit records sign-ins and sign-outs; nil if the server has no audit log.
	Audit *audit.Log
	// Proving is called for a request that may become a sign-in and that may take for d: its connection must not end
	// before that. Optional.
	Proving func(ctx context.Context, d time.Duration)
	// Unproved is called for a request without a session: its connection must end soon, unless it shows a good access
	// token. Optional.
	Unproved func(ctx context.Context)
	// Source returns what identifies the address of a request to limits. Required.
	Source func(remoteAddr string) string
	// Now returns the time. Default time.Now.
	Now func() time.Time
}

// Provider is the OpenID Connect provider of the cluster. Its methods block until ctx ends at most.
type Provider interface {
	// Name is what people call the provider.
	Name() string
	// Begin returns where the browser begins a sign-in, and what the sign-in is bound to. redirect is where the provider
	// sends the browser afterwards.
	Begin(ctx context.Context, redirect string) (address string, t Trip, err error)
	// IDToken exchanges a code that the provider made on this trip for an id token.
	IDToken(ctx context.Context, t Trip, code string) (string, error)
}

// Door is the http.Handler of the page. It is safe for concurrent use.
type Door struct {
	cfg      Config
	files    *ui.Files
	sessions *sessions
	sealer   *sealer
	attempts *attempts
	signing  chan struct{} // has an element for each sign-in that is under way
	origins  *http.CrossOriginProtection
}

// New returns a Door. Code: internal.
func New(cfg Config) (*Door, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Proving == nil {
		cfg.Proving = func(context.Context, time.Duration) {}
	}
	if cfg.Unproved == nil {
		cfg.Unproved = func(context.Context) {}
	}
	files, err := ui.NewFiles()
	if err != nil {
		return nil, err
	}
	seals, err := newSealer(cfg.Now)
	if err != nil {
		return nil, model.Refuse(model.CodeInternal, "make a key for the page: %v", err)
	}
	d := &Door{cfg: cfg, files: files, sealer: seals, attempts: newAttempts(cfg.Now),
		signing: make(chan struct{}, maxSigning), origins: http.NewCrossOriginProtection()}
	d.sessions = newSessions(cfg.Now, d.recordEnd)
	return d, nil
}

// sweepEvery is how late a session ends at most, if nobody asks for it.
const sweepEvery = 10 * time.Second

// Run ends sessions when their time is over. It blocks until ctx ends, and then ends all sessions.
func (d *Door) Run(ctx context.Context) { d.sessions.run(ctx, sweepEvery) }

// Bounds of one request for the page itself.
const (
	readTime  = 10 * time.Second // for the body of a request
	writeTime = 30 * time.Second // for a file, or an answer to a sign-in
)

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ui.SetHeaders(w.Header())
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	if !d.cfg.Host(host) {
		// A stranger learns no name here: those of the certificate are in each handshake, and those of ui.hosts are not.
		ui.RefuseHost(w, r, model.Refuse(model.CodeForbidden, "this page is not at %q", model.Clip(host)).
			WithHint("ask those who run this cluster for its address: ui.hosts in the configuration of the server names where "+
				"the page is; without it, the page is at the names of its certificate, which the browser shows"))
		return
	}
	if d.session(r) == nil {
		d.cfg.Unproved(r.Context())
	}
	// An earlier request on the same connection may have set a limit. The API sets its own.
	limits := http.NewResponseController(w)
	_ = limits.SetWriteDeadline(time.Time{}) // an error shows in the next write
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		d.own(d.pass)(w, r)
		return
	}
	_ = limits.SetWriteDeadline(time.Now().Add(writeTime))
	switch r.Method + " " + r.URL.Path {
	case "GET /ui/session":
		d.own(d.tell)(w, r)
	case "POST /ui/session":
		d.own(d.limited(d.byToken))(w, r)
	case "POST /ui/sign-in":
		d.own(d.limited(d.toProvider))(w, r)
	case "POST /ui/sign-in/finish":
		d.own(d.limited(d.fromProvider))(w, r)
	case "DELETE /ui/session":
		d.own(d.signOut)(w, r)
	case "GET " + callbackPath:
		d.files.Index(w, r)
	default:
		d.files.ServeHTTP(w, r)
	}
}

// own refuses requests that another page makes. Browsers say so in Origin and Sec-Fetch-Site.
func (d *Door) own(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
		if origin != "" && origin != "https://"+r.Host || site != "" && site != "same-origin" || d.origins.Check(r) != nil {
			ui.Refuse(w, http.StatusForbidden, model.Refuse(model.CodeForbidden, "another page may not call this one"))
			return
		}
		next(w, r)
	}
}

// The names of cookies begin with __Host-, so that browsers take them from this very host alone, and only over TLS.
// They end with the port: cookies of all ports of a host lie in one jar.
func cookieName(purpose string, r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil || port == "" {
		return "__Host-outspan-" + purpose
	}
	return "__Host-outspan-" + purpose + "-" + port
}

// setCookie sets a cookie that ends with the browser, or removes it if text is empty.
func setCookie(w http.ResponseWriter, r *http.Request, purpose, text string) {
	c := &http.Cookie{Name: cookieName(purpose, r), Value: text, Path: "/", Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode}
	if text == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// cookie returns the text of a cookie. It returns "" if there is none, or more than one.
func cookie(r *http.Request, purpose string) string {
	all := r.CookiesNamed(cookieName(purpose, r))
	if len(all) != 1 {
		return ""
	}
	return all[0].Value
}

// The purposes of cookies.
const (
	forSession = "session"
	forTrip    = "sign-in"
)

// session returns the session of a request, or nil.
func (d *Door) session(r *http.Request) *session {
	text := cookie(r, forSession)
	if text == "" {
		return nil
	}
	return d.sessions.with(text)
}
