package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Program is the running binary.
type Program struct {
	Version string
	Exit    func(code int) // exits the process at once
}

// RunServer loads the configuration from the files at paths and calls Run. The configuration must have a server block.
func (b Program) RunServer(ctx context.Context, paths []string) error {
	return b.runFiles(ctx, paths, func(c *config.Config) error {
		if c.Server == nil {
			return model.Refuse(model.CodeInvalid, "%s has no server block", strings.Join(paths, ", ")).
				WithHint("for a worker use: outspan agent run")
		}
		return nil
	})
}

// RunAgent loads the configuration from the files at paths and calls Run. The configuration must have an agent block.
func (b Program) RunAgent(ctx context.Context, paths []string) error {
	return b.runFiles(ctx, paths, func(c *config.Config) error {
		if c.Agent == nil {
			return model.Refuse(model.CodeInvalid, "%s has no agent block", strings.Join(paths, ", ")).
				WithHint("for a server use: outspan server run")
		}
		return nil
	})
}

func (b Program) runFiles(ctx context.Context, paths []string, accept func(*config.Config) error) error {
	cfg, err := config.Load(paths...)
	if err != nil {
		return err
	}
	if err := accept(cfg); err != nil {
		return err
	}
	return b.Run(ctx, cfg, func() (*config.Config, error) { return config.Load(paths...) })
}

// process is one running operating-system process: a server, an agent, or both.
type process struct {
	program  Program
	cfg      *config.Config
	log      hclog.Logger
	registry *prometheus.Registry
	ends     *certificateEnd
	revived  *tls.Certificate // a new certificate of the server that can't be written; see trust.Revive
	early    bool             // the certificate of the server is not valid yet, because the clock is behind
	own      string           // host:port of the server in this process; "" if the process runs only an agent
	parts    []part           // in the order in which they are opened; they stop in reverse order
}

// metrics returns the HTTP handler of the process's metrics, or nil if the configuration turns the metrics off.
func (p *process) metrics() http.Handler {
	if !p.cfg.Metrics {
		return nil
	}
	return promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{})
}

// part is the server or the agent of a process. run serves until its context is canceled or the part fails. It returns
// after all goroutines of the part have stopped and it has called release. reload applies what can change at run time.
// release closes what opening the part opened.
type part interface {
	run(ctx context.Context) error
	reload(*config.Config) error
	release()
}

// Run runs a server, an agent or both, as cfg says, until ctx is canceled, SIGTERM or SIGINT arrives, or the server or
// the agent fails. After a requested stop Run returns nil, unless a part failed to stop cleanly. On SIGHUP it calls
// read for the new configuration, and applies what can change at run time. If a server can't trust its disk or its
// state any more, Run exits the process at once.
func (b Program) Run(ctx context.Context, cfg *config.Config, read func() (*config.Config, error)) error {
	registry, err := newRegistry()
	if err != nil {
		return err
	}
	p := &process{program: b, cfg: cfg, log: newLogger(cfg), registry: registry, ends: newCertificateEnd()}
	for _, path := range readableKeys(cfg) {
		p.log.Warn("every user of this machine can read a private key", "file", path, "mend", "chmod 600 "+path)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := p.open(ctx); err != nil {
		return err
	}
	registry.MustRegister(p.ends)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	return p.run(ctx, hup, read)
}

func (p *process) open(ctx context.Context) error {
	if p.cfg.Server != nil {
		s, err := openServer(ctx, p)
		if err != nil {
			return err
		}
		p.parts = append(p.parts, s)
	}
	if p.cfg.Agent != nil {
		a, err := openAgent(ctx, p)
		if refusal, ok := errors.AsType[*model.Error](err); ok && refusal.Code == model.CodeCertificateInvalid &&
			p.cfg.TLS.Managed && len(p.parts) > 0 {
			p.log.Error("the agent of this machine does not start, so the server runs without it; mend its certificate, then "+
				"restart this process", "error", err)
			return nil
		}
		if err != nil {
			for _, opened := range p.parts {
				opened.release()
			}
			return err
		}
		p.parts = append(p.parts, a)
	}
	return nil
}

// run runs each part in a goroutine of its own, until ctx is canceled or a part returns. Then it stops the parts one
// after the other, in reverse order of p.parts.
func (p *process) run(ctx context.Context, hup <-chan os.Signal, read func() (*config.Config, error)) error {
	ended := make(chan error, len(p.parts))
	cancels := make([]context.CancelFunc, len(p.parts))
	dones := make([]chan struct{}, len(p.parts))
	for i, one := range p.parts {
		partCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancels[i], dones[i] = cancel, make(chan struct{})
		go func() {
			defer close(dones[i])
			ended <- one.run(partCtx)
		}()
	}
	notify("READY=1")
	failure := p.wait(ctx, ended, hup, read)
	notify("STOPPING=1")
	for i := len(p.parts) - 1; i >= 0; i-- {
		cancels[i]()
		<-dones[i]
	}
	close(ended)
	for err := range ended {
		if !errors.Is(err, context.Canceled) {
			failure = errors.Join(failure, err)
		}
	}
	return failure
}

func (p *process) wait(ctx context.Context, ended <-chan error, hup <-chan os.Signal,
	read func() (*config.Config, error)) error {
	for {
		select {
		case <-ctx.Done():
			p.log.Info("stopping on request")
			return nil
		case err := <-ended:
			if err == nil {
				err = errors.New("a part of the process ended by itself")
			}
			return err
		case <-hup:
			p.reload(read)
		}
	}
}

// reload applies what can change at run time: log level, certificates, limits, labels. If the configuration can't be
// read or has a mistake, nothing changes. If one part can't apply the configuration, the other part still applies it.
func (p *process) reload(read func() (*config.Config, error)) {
	cfg, err := read()
	if err != nil {
		p.log.Error("configuration not reloaded", "error", err)
		return
	}
	p.log.SetLevel(hclog.LevelFromString(cfg.Log.Level))
	var failed error
	for _, one := range p.parts {
		failed = errors.Join(failed, one.reload(cfg))
	}
	if failed != nil {
		p.log.Error("configuration only partly reloaded", "error", failed)
		return
	}
	if keys := needRestart(p.cfg, cfg); len(keys) > 0 {
		p.log.Warn("configuration reloaded, except what takes a restart", "changed", strings.Join(keys, ", "))
		return
	}
	p.log.Info("configuration reloaded")
}

// needRestart returns the keys of a newer configuration that differ from those of the running process, and that a
// reload does not apply.
func needRestart(running, newer *config.Config) (keys []string) {
	agents := [2]config.Agent{}
	for i, c := range [...]*config.Config{running, newer} {
		if c.Agent != nil {
			agents[i] = *c.Agent
			agents[i].Labels = nil
		}
	}
	for _, one := range []struct {
		key   string
		equal bool
	}{
		{"name", running.Name == newer.Name}, {"cluster", running.Cluster == newer.Cluster},
		{"data_dir", running.DataDir == newer.DataDir}, {"log.format", running.Log.Format == newer.Log.Format},
		{"server", reflect.DeepEqual(running.Server, newer.Server)},
		{"agent", (running.Agent == nil) == (newer.Agent == nil) && reflect.DeepEqual(agents[0], agents[1])},
		{"listen", running.Listen == newer.Listen}, {"advertise", running.Advertise == newer.Advertise},
		{"telemetry", running.Metrics == newer.Metrics}, {"audit", running.Audit == newer.Audit},
		{"auth", reflect.DeepEqual(running.Auth, newer.Auth)},
		{"ui", pageAddress(running) == pageAddress(newer)},
	} {
		if !one.equal {
			keys = append(keys, one.key)
		}
	}
	return keys
}

// fatal exits the process at once, because its server can't trust its disk or its state and must send nothing more to
// other servers.
func (p *process) fatal(err error) {
	p.log.Error("this server must not go on", "error", err)
	p.program.Exit(int(api.ExitInternal))
}

func newLogger(cfg *config.Config) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "outspan", Level: hclog.LevelFromString(cfg.Log.Level), JSONFormat: cfg.Log.Format == "json", Output: os.Stderr,
		TimeFormat: "2006-01-02T15:04:05.000Z07:00",
	})
}

// notify reports the state of the process to systemd (sd_notify). Without systemd it does nothing.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if strings.HasPrefix(path, "@") {
		path = "\x00" + path[1:]
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, state) // best effort
}

// credentials loads the certificate with which this process proves that it has the role. It also adds the certificate
// to the metric p.ends.
func (p *process) credentials(role pki.Role) (*transport.Credentials, error) {
	creds, err := p.loadCredentials(role)
	if err == nil {
		p.ends.creds[role] = creds
	}
	return creds, err
}

// loadCredentials loads the certificate of a role. A managed agent may have one that has expired: it keeps its
// instances running, and uses the next certificate as soon as it has one. A server starts although its clock is behind.
func (p *process) loadCredentials(role pki.Role) (*transport.Credentials, error) {
	c := p.cfg
	if c.TLS.Managed {
		dir := transport.ManagedDir(c.DataDir)
		switch {
		case role == pki.RoleAgent || p.early:
			return dir.CredentialsAnyTime(c.Cluster, role, c.Name)
		case role == pki.RoleServer && p.revived != nil:
			creds, err := dir.CredentialsAnyTime(c.Cluster, role, c.Name)
			if err == nil {
				err = creds.Use(*p.revived, nil)
			}
			return creds, err
		}
		return dir.Credentials(c.Cluster, role, c.Name)
	}
	return transport.LoadCredentials(transport.CredentialsConfig{CAFile: c.TLS.CAFile, CertFile: c.TLS.CertFile,
		KeyFile: c.TLS.KeyFile, Dir: c.TLS.Dir, Cluster: c.Cluster, Role: role, Name: c.Name})
}

func (p *process) gossipKeys() ([]transport.GossipKey, error) {
	switch {
	case p.cfg.TLS.Managed:
		return transport.ManagedDir(p.cfg.DataDir).GossipKeys()
	case p.cfg.TLS.Dir != "":
		_, key, err := transport.OpenDir(p.cfg.TLS.Dir, p.cfg.Cluster)
		return []transport.GossipKey{key}, err
	}
	return transport.LoadGossipKeys(p.cfg.Gossip.KeyFile)
}

// bare returns gossip keys as bytes.
func bare(keys []transport.GossipKey) [][]byte {
	var all [][]byte
	for _, key := range keys {
		all = append(all, key)
	}
	return all
}

// listen opens a TLS port on the configured address. Port 0 means any free port. It sets the logger of cfg.
func (p *process) listen(ctx context.Context, port int, cfg transport.ListenerConfig) (*transport.Listener, error) {
	raw, err := transport.ListenTCP(ctx, net.JoinHostPort(p.cfg.Listen.Address, fmt.Sprint(port)))
	if err != nil {
		return nil, err
	}
	cfg.Logger = p.log.Named("listener")
	return transport.NewListener(raw, cfg)
}

// advertised returns the host:port at which other machines reach a listener of this process.
func (p *process) advertised(l *transport.Listener) string {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		port = fmt.Sprint(p.cfg.Listen.Port)
	}
	return net.JoinHostPort(p.cfg.Advertise, port)
}
