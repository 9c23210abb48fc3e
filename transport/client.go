package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// ClientConfig says where the servers are and who asks.
type ClientConfig struct {
	// Addresses are tried in order, the last one that answered first: https://host:port or unix:///path. Required.
	Addresses []string
	// Credentials are required for https.
	Credentials *Credentials
	// ServerName replaces the DNS name asked of the servers' certificates; see Dialer.
	ServerName string
	// RetryFor is how long a call is repeated while the servers change leaders; default 10 s, negative: not at all. A
	// call ends with its context in any case.
	RetryFor time.Duration
	// Waiting is told why a call is still repeated when that has taken a second, and for how long it may go on; once
	// for a call, from the caller's goroutine.
	Waiting func(why error, atMost time.Duration)
	// Dial opens the connection below TLS; default net.Dialer. For a unix address network is "unix".
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client calls the API of the servers. It goes on with another server when one does not answer, and repeats only what
// is safe to repeat: reads, and writes, because each of them carries a request id. Errors are *model.Error inside, and
// *Problem when a server answered. Safe for many goroutines.
type Client struct {
	servers  []endpoint
	retryFor time.Duration
	waiting  func(why error, atMost time.Duration)
	good     atomic.Int64 // the last one that answered
	close    []func()
}

// endpoint is one address of a server.
type endpoint struct {
	shown string // as configured
	base  string // of the URL
	via   http.RoundTripper
	line  *agentLine // for an agent's calls; nil at a unix socket
}

// NewClient checks the addresses; it connects to nobody. Codes: invalid, certificate_invalid.
func NewClient(cfg ClientConfig) (*Client, error) {
	if len(cfg.Addresses) == 0 {
		return nil, model.Refuse(model.CodeInvalid, "no server is given").WithHint("set OUTSPAN_ADDR, such as https://10.0.0.1:7640")
	}
	c := &Client{retryFor: cfg.RetryFor, waiting: cfg.Waiting}
	if c.retryFor == 0 {
		c.retryFor = 10 * time.Second
	}
	var secure *HTTPTransport
	for _, address := range cfg.Addresses {
		u, err := url.Parse(address)
		switch {
		case err == nil && u.Scheme == "unix" && u.Path != "" && u.Host == "":
			t := unixTransport(u.Path, cfg.Dial)
			c.servers = append(c.servers, endpoint{shown: address, base: "http://unix", via: t})
			c.close = append(c.close, t.CloseIdleConnections)
		case err == nil && u.Scheme == "https" && u.Port() != "" && strings.Trim(u.Path, "/") == "" && u.RawQuery == "":
			if cfg.Credentials == nil {
				return nil, model.Refuse(model.CodeCertificateInvalid, "%s needs a certificate", address).
					WithHint("set OUTSPAN_CACERT, OUTSPAN_CLIENT_CERT and OUTSPAN_CLIENT_KEY; make one with: outspan tls cert create --cli NAME")
			}
			d := Dialer{Credentials: cfg.Credentials, ServerName: cfg.ServerName, Dial: cfg.Dial}
			if secure == nil {
				secure = d.HTTPTransport()
				c.close = append(c.close, secure.CloseIdleConnections)
			}
			line := newAgentLine(d, u.Host)
			c.close = append(c.close, line.close)
			c.servers = append(c.servers, endpoint{address, "https://" + u.Host, secure, line})
		default:
			return nil, model.Refuse(model.CodeInvalid, "address %q is neither https://host:port nor unix:///path", clip(address)).
				WithHint("for example: OUTSPAN_ADDR=https://10.0.0.1:7640,https://10.0.0.2:7640")
		}
	}
	return c, nil
}

func unixTransport(path string, dial func(context.Context, string, string) (net.Conn, error)) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", path) },
		IdleConnTimeout: 90 * time.Second,
	}
}

// Addresses are those that the client was made with.
func (c *Client) Addresses() []string {
	var all []string
	for _, e := range c.servers {
		all = append(all, e.shown)
	}
	return all
}

// Close closes idle connections. Calls under way go on.
func (c *Client) Close() {
	for _, f := range c.close {
		f()
	}
}

// Request is one call.
type Request struct {
	Method string // default GET
	Path   string // escaped, from the root
	Query  url.Values
	Body   []byte
	Header http.Header // in addition
	// Content is the type of Body; default application/json.
	Content string
	// Limit bounds one attempt until its header is there; default 15 s, plus the query's wait. A stream has no limit
	// after that.
	Limit time.Duration
	agent bool // a call of the agents' protocol: another server may be of the lineage that the agent follows

	// Once forbids to send the request a second time.
	Once bool
}

// Answer is a whole answer.
type Answer struct {
	Body  []byte
	Index uint64 // Outspan-Index
	Stale time.Duration
}

// maxAnswer bounds what a client takes into memory.
const maxAnswer = 256 << 20

// Send makes a call and reads the whole answer. A write gets a request id if it has none, so that it can be repeated.
// It blocks until there is an answer, ctx ends, or no server can be reached. Codes: unreachable, no_leader,
// certificate_refused, and those of the operation.
func (c *Client) Send(ctx context.Context, r Request) (Answer, error) {
	var a Answer
	err := c.fetch(ctx, &r, func(resp *http.Response) error {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		if err != nil {
			return lostAnswer(r, err)
		}
		if len(body) > maxAnswer {
			return model.Refuse(model.CodeTooLarge, "the answer to %s is larger than %d bytes", r.Path, maxAnswer).WithHint("ask for less with limit or filter")
		}
		a.Body, a.Index = body, headerNumber(resp, api.HeaderIndex)
		a.Stale = time.Duration(headerNumber(resp, api.HeaderStale)) * time.Millisecond
		return nil
	})
	return a, err
}

// Do sends body as JSON (nil: none) and returns the JSON of the answer and its index. Blocking and codes as Send.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body any) (raw []byte, index uint64, err error) {
	r := Request{Method: method, Path: path, Query: query}
	if body != nil {
		if r.Body, err = json.Marshal(body); err != nil {
			return nil, 0, model.Refuse(model.CodeInternal, "can't encode the request: %v", err)
		}
	}
	a, err := c.Send(ctx, r)
	return a.Body, a.Index, err
}

// Open makes a call whose answer is a stream; the caller closes it. Repeated only until there is an answer.
func (c *Client) Open(ctx context.Context, r Request) (*http.Response, error) {
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

// prepare fills in what every attempt shares.
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
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, body)
	if err != nil {
		return nil, model.Refuse(model.CodeInvalid, "path %q is not usable", clip(r.Path))
	}
	for k, v := range r.Header {
		req.Header[k] = v
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", r.Content)
	}
	return req, nil
}
