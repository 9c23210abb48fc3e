package reach

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Config lists the servers and says how to call them.
type Config struct {
	// Addresses of servers: https://host:port or unix:///path. At least one is required. A call tries them in order,
	// beginning with the address that answered last.
	Addresses []string
	// Secure sends the requests to https addresses. It is required if Addresses contains an https address. Caller.Close
	// closes the idle connections of Secure.
	Secure *HTTPTransport
	// RetryFor is how long a call is repeated while the servers elect a leader, start or are overloaded, or while the
	// outcome is unknown. The default is 10 s. With a negative value, no call is repeated. A call also ends when its
	// context ends.
	RetryFor time.Duration
	// Waiting, if not nil, is called once for each call that is still being repeated after a second. It runs in the
	// goroutine that made the call. Its parameters are the reason, and for how long the call may still be repeated.
	Waiting func(why error, atMost time.Duration)
	// Token is the text of an access token, which each request carries; "" means none.
	Token string
	// Dial opens the connection to a unix address; default net.Dialer.
	Dial Dial
}

// Caller calls the servers. If a server can't answer, the Caller tries the next server. It repeats only what is safe to
// repeat: reads, and writes that carry a request id. If the context of a call is canceled, the error is the context's
// cause. All other errors wrap a *model.Error. An error that a server returned also wraps an *api.Problem, unless its
// code is unknown_outcome. A Caller is safe for concurrent use.
type Caller struct {
	servers  atomic.Pointer[[]Endpoint] // the configured ones, then those of Follow
	fixed    []Endpoint                 // the configured ones
	secure   http.RoundTripper          // nil without https
	token    string                     // of an access token, or ""
	retryFor time.Duration
	waiting  func(why error, atMost time.Duration)
	good     atomic.Pointer[string] // Endpoint.Shown of the server that answered last
	close    []func()
}

// Endpoint is one address of a server.
type Endpoint struct {
	Shown string // the address as configured
	Host  string // host:port of an https address; "" for a unix socket
	base  string // scheme and host, the beginning of each request's URL
	via   http.RoundTripper
}

// New returns a Caller. It checks the addresses and opens no connection. Codes: invalid, certificate_invalid.
func New(cfg Config) (*Caller, error) {
	if len(cfg.Addresses) == 0 {
		return nil, model.Refuse(model.CodeInvalid, "no server is given").
			WithHint("set OUTSPAN_ADDR, such as https://10.0.0.1:7640")
	}
	c := &Caller{retryFor: cfg.RetryFor, waiting: cfg.Waiting, token: cfg.Token}
	if c.retryFor == 0 {
		c.retryFor = 10 * time.Second
	}
	if cfg.Secure != nil {
		c.secure = cfg.Secure
		c.close = append(c.close, cfg.Secure.CloseIdleConnections)
	}
	for _, address := range cfg.Addresses {
		u, err := url.Parse(address)
		switch {
		case err == nil && u.Scheme == "unix" && u.Path != "" && u.Host == "":
			t := unixTransport(u.Path, cfg.Dial)
			c.fixed = append(c.fixed, Endpoint{Shown: address, base: "http://unix", via: t})
			c.close = append(c.close, t.CloseIdleConnections)
		case err == nil && u.Scheme == "https" && u.Port() != "" && strings.Trim(u.Path, "/") == "" && u.RawQuery == "":
			if cfg.Secure == nil {
				return nil, model.Refuse(model.CodeCertificateInvalid, "%s needs a certificate", address).
					WithHint("set OUTSPAN_CACERT, OUTSPAN_CLIENT_CERT and OUTSPAN_CLIENT_KEY; make one with: outspan tls cert " +
						"create --cli NAME")
			}
			c.fixed = append(c.fixed, Endpoint{Shown: address, Host: u.Host, base: "https://" + u.Host, via: cfg.Secure})
		default:
			return nil,
				model.Refuse(model.CodeInvalid, "address %q is neither https://host:port nor unix:///path", model.Clip(address)).
					WithHint("for example: OUTSPAN_ADDR=https://10.0.0.1:7640,https://10.0.0.2:7640")
		}
	}
	c.servers.Store(&c.fixed)
	return c, nil
}

// Follow adds servers at host:port, which are tried after the configured ones. They replace those of the last call.
// Calls that run may still use the earlier list. Without a certificate, Follow does nothing.
func (c *Caller) Follow(hosts []string) {
	all := slices.Clone(c.fixed)
	for _, host := range hosts {
		if c.secure != nil && !slices.ContainsFunc(all, func(e Endpoint) bool { return e.Host == host }) {
			all = append(all, Endpoint{Shown: "https://" + host, Host: host, base: "https://" + host, via: c.secure})
		}
	}
	c.servers.Store(&all)
}

// To returns a Caller for the one server at host:port. It makes only one attempt at each call. Close need not be
// called.
func To(hostport string, via http.RoundTripper) *Caller {
	c := &Caller{fixed: []Endpoint{{Shown: hostport, Host: hostport, base: "https://" + hostport, via: via}},
		retryFor: -1}
	c.servers.Store(&c.fixed)
	return c
}

func unixTransport(path string, dial Dial) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: DialTimeout}).DialContext
	}
	return &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", path) },
		IdleConnTimeout: 90 * time.Second,
	}
}

// Servers returns the servers, the configured ones first. The caller must not change them.
func (c *Caller) Servers() []Endpoint { return *c.servers.Load() }

// Addresses returns the addresses as configured.
func (c *Caller) Addresses() []string {
	var all []string
	for _, e := range c.fixed {
		all = append(all, e.Shown)
	}
	return all
}

// Close closes idle connections. Running calls continue.
func (c *Caller) Close() {
	for _, f := range c.close {
		f()
	}
}

// Request is one call.
type Request struct {
	Method string // default GET
	Path   string // escaped, beginning with a slash
	Query  url.Values
	Body   []byte
	// Upload, if not nil, is sent in place of Body. It is not read into memory as a whole.
	Upload *io.SectionReader
	// Duplex, if not nil, returns the body of an attempt, in place of Body. It is sent as it is read, also while the
	// answer is read already. Each attempt gets its own. When ctx ends, reading must not block any more.
	Duplex func(ctx context.Context) io.Reader
	Header http.Header
	// Content is the media type of Body or Upload; default application/json.
	Content string
	// Limit limits the time of one attempt until the header of its answer arrives. Reading the body has no limit. The
	// default is 15 s for a read and 40 s for a write, plus the duration in the query's parameter "wait".
	Limit time.Duration
	// Once means that each server is tried at most once. If a server may have carried out the request, no further server
	// is tried.
	Once bool
	// Lineage means that the servers may belong to different lineages. If a server refuses the call with the code
	// conflict, the next server is tried. Without Lineage, such a refusal is final.
	Lineage bool
}

// Answer is what a server answered, with the whole body.
type Answer struct {
	Body  []byte
	Index uint64        // from the header Outspan-Index
	Stale time.Duration // how long ago the server last heard from the leader; 0 unless the read was stale
}

// MaxAnswer is the maximum number of bytes of an answer that a client reads into memory.
const MaxAnswer = 256 << 20

// Send makes a call and reads the whole answer. A write of JSON without a request id gets one, so that it can be
// repeated. Send blocks until a server gives a final answer, Config.RetryFor has passed, or ctx ends. If no server can
// be reached at all, Send fails after it has tried each server once. Codes: unreachable, no_leader, unknown_outcome,
// timeout, too_large, certificate_refused, not_tls, and those of the operation.
func (c *Caller) Send(ctx context.Context, r Request) (Answer, error) {
	var a Answer
	err := c.fetch(ctx, &r, func(resp *http.Response) error {
		body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
		if err != nil {
			return lostAnswer(r, err)
		}
		if len(body) > MaxAnswer {
			return model.Refuse(model.CodeTooLarge, "the answer to %s is larger than %d bytes", r.Path, MaxAnswer).
				WithHint("ask for less with limit or filter")
		}
		a.Body, a.Index = body, headerNumber(resp, api.HeaderIndex)
		a.Stale = time.Duration(headerNumber(resp, api.HeaderStale)) * time.Millisecond
		return nil
	})
	return a, err
}

// Do sends body as JSON; if body is nil, the request has no body. It returns the JSON of the answer and its index. It
// blocks and fails as Send does.
func (c *Caller) Do(ctx context.Context, method, path string, query url.Values, body any) (raw []byte,
	index uint64, err error) {
	r := Request{Method: method, Path: path, Query: query}
	if body != nil {
		if r.Body, err = json.Marshal(body); err != nil {
			return nil, 0, model.Refuse(model.CodeInternal, "can't encode the request: %v", err)
		}
	}
	a, err := c.Send(ctx, r)
	return a.Body, a.Index, err
}

// Open makes a call whose answer is a stream. The caller closes the answer's body. The call is repeated only until the
// answer begins. Open blocks and fails as Send does.
func (c *Caller) Open(ctx context.Context, r Request) (*http.Response, error) {
	var kept *http.Response
	err := c.fetch(ctx, &r, func(resp *http.Response) error {
		kept = resp
		return nil
	})
	return kept, err
}

func headerNumber(resp *http.Response, name string) uint64 {
	n, _ := strconv.ParseUint(resp.Header.Get(name), 10, 64)
	return n
}

// prepare sets the defaults. It gives a write of JSON a request id if the write has none, so that all attempts have the
// same id.
func (r *Request) prepare() {
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.Content == "" {
		r.Content = "application/json"
	}
	if r.Limit == 0 {
		r.Limit = 15 * time.Second
		if r.Method != http.MethodGet {
			r.Limit = 40 * time.Second
		}
		if wait, err := model.ParseDuration(r.Query.Get("wait")); err == nil {
			r.Limit += time.Duration(wait) * time.Millisecond
		}
	}
	if r.Method != http.MethodGet && r.Content == "application/json" && r.Query.Get("request_id") == "" {
		query := url.Values{}
		for k, v := range r.Query {
			query[k] = v
		}
		query.Set("request_id", ulid.Make().String())
		r.Query = query
	}
}

func (r *Request) build(ctx context.Context, base string) (*http.Request, error) {
	target := base + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	var body io.Reader
	switch {
	case r.Upload != nil: // each attempt gets its own reader, because an abandoned attempt may still be reading
		body = io.NewSectionReader(r.Upload, 0, r.Upload.Size())
	case r.Duplex != nil:
		body = r.Duplex(ctx)
	case r.Body != nil:
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, body)
	if err != nil {
		return nil, model.Refuse(model.CodeInvalid, "path %q is not usable", model.Clip(r.Path))
	}
	for k, v := range r.Header {
		req.Header[k] = v
	}
	if r.Upload != nil {
		req.ContentLength = r.Upload.Size()
	}
	if body != nil {
		req.Header.Set("Content-Type", r.Content)
	}
	return req, nil
}
