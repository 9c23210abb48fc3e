package client

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/outspan/outspan/internal/reach"
)

// Config says where the servers are and which certificate the client uses.
type Config struct {
	// Addresses of servers: https://host:port, or unix:///path for the socket of a server on this machine. At least one is
	// required. A call tries them in order, beginning with the address that answered last.
	Addresses []string
	// TLS returns the configuration for one new connection; the client may modify the returned value. TLS is called for
	// every connection, from any goroutine, so it can return renewed certificates. Required for https addresses. LoadTLS
	// returns such a function.
	TLS func() *tls.Config
	// Token is the text of an access token, which each call sends. It counts before a certificate. With it, TLS may return
	// a configuration without a certificate, as LoadRoots does.
	Token string
	// RetryFor is how long a call is repeated while the servers elect a leader, start or are overloaded, or while its
	// outcome is unknown. 0 means 10 s; a negative value means that calls are not repeated. When the context of a call
	// ends, the call is no longer repeated.
	RetryFor time.Duration
	// Waiting is called if a call is still being repeated after a second, at most once for each call and in the caller's
	// goroutine. Its arguments are the reason, and for how long the call may still be repeated.
	Waiting func(why error, atMost time.Duration)
	// Dial opens the TCP connection under TLS, or the connection to a socket (network "unix"). nil means a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client calls the API of a cluster. Each field has the operations on one kind of object. A Client is safe for
// concurrent use.
type Client struct {
	caller *reach.Caller

	Backups      Backups
	Budgets      Budgets
	CA           CA
	Certificates Certificates
	Auth         Auth
	Classes      Classes
	Cluster      Cluster
	Deployments  Deployments
	Drains       Drains
	Events       Events
	Images       Images
	Instances    Instances
	Jobs         Jobs
	Members      Members
	Nodes        Nodes
	Page         Page
	Series       Series
	Services     Services
	Settings     Settings
	Snapshots    Snapshots
	Tokens       Tokens
	Transfers    Transfers
	Trust        Trust
	Volumes      Volumes
}

// New returns a Client. It checks the configuration and opens no connection. Codes: invalid, certificate_invalid.
func New(cfg Config) (*Client, error) {
	to := reach.Config{Addresses: cfg.Addresses, RetryFor: cfg.RetryFor, Waiting: cfg.Waiting, Dial: cfg.Dial,
		Token: cfg.Token}
	if cfg.TLS != nil {
		to.Secure = reach.NewHTTPTransport(cfg.dialTLS, nil)
	}
	caller, err := reach.New(to)
	if err != nil {
		return nil, err
	}
	via := calls{caller}
	return &Client{
		caller:  caller,
		Backups: Backups{via}, Budgets: Budgets{via}, CA: CA{via}, Certificates: Certificates{via}, Classes: Classes{via},
		Auth:        Auth{via},
		Cluster:     Cluster{via},
		Deployments: Deployments{via}, Drains: Drains{via}, Events: Events{via}, Images: Images{via},
		Instances: Instances{via},
		Jobs:      Jobs{via}, Members: Members{via}, Nodes: Nodes{via}, Page: Page{via}, Series: Series{via},
		Services: Services{via},
		Settings: Settings{via}, Snapshots: Snapshots{via}, Tokens: Tokens{via}, Transfers: Transfers{via},
		Trust: Trust{via}, Volumes: Volumes{via},
	}, nil
}

// dialTLS opens a TLS connection to a server. The server chooses one of protos, by ALPN.
func (cfg Config) dialTLS(ctx context.Context, network, addr string, protos ...string) (*tls.Conn, error) {
	below := cfg.Dial
	if below == nil {
		below = (&net.Dialer{}).DialContext
	}
	with := cfg.TLS()
	with.NextProtos = protos
	return reach.DialTLS(ctx, network, addr, with, below)
}

// Addresses returns the addresses of the servers, as configured.
func (c *Client) Addresses() []string { return c.caller.Addresses() }

// Close closes idle connections. Running calls continue.
func (c *Client) Close() { c.caller.Close() }
