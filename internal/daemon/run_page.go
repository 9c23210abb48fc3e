package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/oidc"
	"github.com/outspan/outspan/internal/ui/door"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// webPage is the web page that a server serves to people who sign in.
type webPage struct {
	listener *transport.Listener
	cert     *transport.PageCertificate
	hosts    atomic.Pointer[[]string] // of the configuration
	door     *door.Door
	log      hclog.Logger
}

// pageAddress returns where a configuration wants the page, or "".
func pageAddress(c *config.Config) string {
	if c.UI == nil {
		return ""
	}
	return c.UI.Address
}

// openPage opens the port of the page. It returns nil if the configuration has no page. Codes: file_error,
// certificate_invalid, address_in_use, listen_failed.
func (s *serverPart) openPage(ctx context.Context) (*webPage, error) {
	cfg := s.p.cfg.UI
	if cfg == nil {
		return nil, nil
	}
	p := &webPage{log: s.p.log.Named("page")}
	p.hosts.Store(&cfg.Hosts)
	var err error
	if p.cert, err = transport.LoadPageCertificate(pageFiles(cfg)); err != nil {
		return nil, err
	}
	d := door.Config{API: s.api, Host: p.isHost, Audit: s.audit, Proving: transport.Proving,
		Unproved: func(ctx context.Context) { transport.Unproved(ctx, unprovedTime) },
		Source:   func(address string) string { return transport.SourceOf(textAddr(address)) }}
	if s.signing != nil {
		d.Provider = pageProvider{oidc.NewCodeFlow(s.signing.verifier), s.signing}
	}
	if p.door, err = door.New(d); err != nil {
		return nil, err
	}
	raw, err := transport.ListenTCP(ctx, cfg.Address)
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		return nil, model.Refuse(refusal.Code, "%s", refusal.Message).WithHint("set another ui.address")
	} else if err != nil {
		return nil, err
	}
	p.listener = transport.NewPageListener(raw, p.cert, p.log)
	s.p.ends.page = p.cert
	p.log.Info("the page is served", "address", raw.Addr())
	p.warn(cfg)
	return p, nil
}

func pageFiles(cfg *config.UI) transport.PageFiles {
	return transport.PageFiles{Cert: cfg.CertFile, Key: cfg.KeyFile, Hosts: cfg.Hosts,
		CertAt: cfg.CertAt, KeyAt: cfg.KeyAt}
}

// unprovedTime is how long a connection to the page lives after a request without a session.
const unprovedTime = 30 * time.Second

// isHost reports whether the page is at a host.
func (p *webPage) isHost(host string) bool {
	if hosts := *p.hosts.Load(); len(hosts) > 0 {
		return slices.ContainsFunc(hosts, func(one string) bool { return strings.EqualFold(one, host) })
	}
	return p.cert.Covers(host)
}

// earlyWarning is how long before its end a certificate is worth a warning in the log.
const earlyWarning = 7 * 24 * time.Hour

// warn logs why browsers refuse the page, or soon will.
func (p *webPage) warn(cfg *config.UI) {
	if others := p.cert.NotFor(cfg.Hosts); len(others) > 0 {
		p.log.Warn("browsers refuse the page at hosts that its certificate is not for", "hosts", strings.Join(others, ", "),
			"mend", "issue ui.cert_file with them as subjectAltName, unless a proxy shows browsers another certificate")
	}
	if end := p.cert.NotAfter(); time.Until(end) < earlyWarning {
		p.log.Warn("browsers refuse the page once its certificate has ended", "end", end.UTC().Format(time.RFC3339),
			"mend", "replace ui.cert_file and ui.key_file, then send SIGHUP")
	}
}

// reload reads the certificate again, and takes the hosts. If it can't use them, the earlier ones stay. A nil page has
// none. Codes: file_error, certificate_invalid.
func (p *webPage) reload(cfg *config.UI) error {
	if p == nil || cfg == nil {
		return nil
	}
	if err := p.cert.Reload(pageFiles(cfg)); err != nil {
		return fmt.Errorf("the page keeps its earlier certificate and hosts: %w", err)
	}
	p.hosts.Store(&cfg.Hosts)
	p.warn(cfg)
	return nil
}

// run serves the page until ctx ends.
func (p *webPage) run(ctx context.Context) error {
	port, closePort := context.WithCancel(context.WithoutCancel(ctx))
	defer closePort()
	var others sync.WaitGroup
	var failed error // of the listener, once others are done
	others.Go(func() { failed = p.listener.Run(port) })
	others.Go(func() { p.door.Run(port) })
	err := transport.NewHTTPServer(http.Handler(p.door), transport.HTTPConfig{
		IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10, MaxStreams: 64, Logger: p.log,
	}).Run(ctx, p.listener.API())
	closePort()
	others.Wait()
	return errors.Join(failed, err)
}

// pageProvider is the provider of the cluster, for browsers.
type pageProvider struct {
	flow *oidc.CodeFlow
	part *signingIn
}

// Name implements door.Provider.
func (p pageProvider) Name() string { return p.flow.Name() }

// Begin implements door.Provider.
func (p pageProvider) Begin(ctx context.Context, redirect string) (string, door.Trip, error) {
	trip := oidc.NewTrip(redirect)
	address, err := p.flow.Address(ctx, trip)
	return address, door.Trip(trip), p.part.told(err)
}

// IDToken implements door.Provider.
func (p pageProvider) IDToken(ctx context.Context, t door.Trip, code string) (string, error) {
	text, err := p.flow.IDToken(ctx, oidc.Trip(t), code)
	return text, p.part.told(err)
}

// textAddr is the address of a request as a net.Addr.
type textAddr string

var _ net.Addr = textAddr("")

// Network implements net.Addr.
func (textAddr) Network() string { return "tcp" }

// String implements net.Addr.
func (a textAddr) String() string { return string(a) }
