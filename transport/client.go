package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

// ClientConfig configures a Client: the servers' addresses and the caller's identity.
type ClientConfig struct {
	// Addresses of servers: https://host:port or unix:///path. At least one is required. A call tries them in order,
	// beginning with the address that answered last.
	Addresses []string
	// Credentials are required for https.
	Credentials *Credentials
	// ServerName replaces the DNS name that the servers' certificates must have; see Dialer.
	ServerName string
	// RetryFor is how long a call is repeated while the servers elect a leader, start or are overloaded, or while the
	// outcome is unknown. Default 10 s; a negative value means that no call is repeated. The call's context limits it too.
	RetryFor time.Duration
	// Dial opens the connection below TLS; default net.Dialer. For a unix address, the parameter network is "unix".
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client calls the servers. Its own methods make the calls of an agent, and the embedded Caller makes HTTP requests. A
// call that is safe to repeat is retried. A Client is safe for concurrent use.
type Client struct {
	*reach.Caller
	dialer Dialer
	mu     sync.Mutex
	lines  map[string]*agentLine // by host:port, for the servers that an agent has called
}

// NewClient returns a Client. It checks the addresses and opens no connection. Codes: invalid, certificate_invalid.
func NewClient(cfg ClientConfig) (*Client, error) {
	d := Dialer{Credentials: cfg.Credentials, ServerName: cfg.ServerName, Dial: cfg.Dial}
	to := reach.Config{Addresses: cfg.Addresses, RetryFor: cfg.RetryFor, Dial: cfg.Dial}
	if cfg.Credentials != nil {
		to.Secure = d.HTTPTransport()
	}
	caller, err := reach.New(to)
	if err != nil {
		return nil, err
	}
	return &Client{Caller: caller, dialer: d, lines: map[string]*agentLine{}}, nil
}

// Follow adds servers at host:port, which are tried after the configured ones. They replace those of the last call.
// Running calls continue.
func (c *Client) Follow(hosts []string) {
	c.Caller.Follow(hosts)
	c.mu.Lock()
	defer c.mu.Unlock()
	for host, line := range c.lines {
		if !slices.ContainsFunc(c.Servers(), func(e reach.Endpoint) bool { return e.Host == host }) {
			line.close()
			delete(c.lines, host)
		}
	}
}

// line returns what makes the calls to a server.
func (c *Client) line(host string) *agentLine {
	c.mu.Lock()
	defer c.mu.Unlock()
	line, ok := c.lines[host]
	if !ok {
		line = newAgentLine(c.dialer, host)
		c.lines[host] = line
	}
	return line
}

// Close closes idle connections. Running calls continue on theirs, and later calls open new ones.
func (c *Client) Close() {
	c.Caller.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, line := range c.lines {
		line.close()
	}
}

func (c *Client) ask(ctx context.Context, server reach.Endpoint, limit time.Duration, call AgentCall,
	question []byte) ([]byte, error) {
	if server.Host == "" {
		return nil, model.Refuse(model.CodeInvalid, "%s is no address for an agent", server.Shown).
			WithHint("use host:port of a server")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, reach.ErrNoAnswer)
	defer cancel()
	answer, err := c.line(server.Host).ask(ctx, call, question)
	if err == nil {
		return answer, nil
	}
	if _, answered := errors.AsType[*api.Problem](err); answered {
		return nil, err
	}
	return nil, reach.Unanswered(server.Shown, err)
}
