package transport

import (
	"context"
	"errors"
	"net"
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
	lines []*agentLine // one for each of Servers, in the same order; nil for a unix socket
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
	c := &Client{Caller: caller}
	for _, server := range caller.Servers() {
		var line *agentLine
		if server.Host != "" {
			line = newAgentLine(d, server.Host)
		}
		c.lines = append(c.lines, line)
	}
	return c, nil
}

// Close closes idle connections. Running calls continue on theirs, and later calls open new ones.
func (c *Client) Close() {
	c.Caller.Close()
	for _, line := range c.lines {
		if line != nil {
			line.close()
		}
	}
}

func (c *Client) ask(ctx context.Context, server int, limit time.Duration, call AgentCall,
	question []byte) ([]byte, error) {
	shown, line := c.Servers()[server].Shown, c.lines[server]
	if line == nil {
		return nil, model.Refuse(model.CodeInvalid, "%s is no address for an agent", shown).
			WithHint("use host:port of a server")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, reach.ErrNoAnswer)
	defer cancel()
	answer, err := line.ask(ctx, call, question)
	if err == nil {
		return answer, nil
	}
	if _, answered := errors.AsType[*api.Problem](err); answered {
		return nil, err
	}
	return nil, reach.Unanswered(shown, err)
}
