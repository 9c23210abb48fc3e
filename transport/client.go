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
	// Dial opens the connection below TLS; default net.Dialer. For a unix address network is "unix".
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client calls the servers as an agent does, and as package client does, with the retries of both. Safe for many
// goroutines.
type Client struct {
	*reach.Caller
	lines []*agentLine // one for each server; nil at a unix socket
}

// NewClient checks the addresses; it connects to nobody. Codes: invalid, certificate_invalid.
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

// Close closes idle connections. Calls under way go on.
func (c *Client) Close() {
	c.Caller.Close()
	for _, line := range c.lines {
		if line != nil {
			line.close()
		}
	}
}

// ask is one call of an agent to one server.
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
