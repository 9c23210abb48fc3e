package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/agent"
	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/gauge"
	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

// agentPart is the agent part of a process: the agent itself, its gossip and heartbeats, and the API of the node.
type agentPart struct {
	p        *process
	creds    *transport.Credentials
	listener *transport.Listener
	unix     *transport.UnixListener // nil if the server part has the socket, or if no socket is configured
	agent    *agent.Agent
	gossip   *agentGossip
	beater   *cluster.Beater
	client   *transport.Client
	follower *trust.Follower // nil if the cluster issues no certificates
	taken    error           // why the first try to open the API's port failed; nil means that the port is open
}

func openAgent(ctx context.Context, p *process) (_ *agentPart, err error) {
	a := &agentPart{p: p}
	defer func() {
		if err != nil {
			a.release()
		}
	}()
	if a.creds, err = p.credentials(pki.RoleAgent); err != nil {
		return nil, err
	}
	if a.client, err = p.client(a.creds, p.cfg.Agent.Servers); err != nil {
		return nil, err
	}
	a.client.Follow(agent.KnownServers(a.dataDir()))
	port := p.cfg.Listen.Port
	if p.cfg.Server != nil {
		port = 0 // any free port, as the server part has the configured one; servers learn the port from the registration
	}
	if a.listener, err = a.listen(ctx, port); err != nil {
		return nil, err
	}
	if p.cfg.Server == nil && p.cfg.Listen.Socket != "" {
		if a.unix, err = transport.ListenUnix(p.cfg.Listen.Socket, p.cfg.Name); err != nil {
			return nil, err
		}
	}
	if a.agent, err = agent.New(a.config()); err != nil {
		return nil, err
	}
	if a.taken != nil {
		a.notePort(a.taken)
	}
	if err := a.openGossip(); err != nil {
		return nil, err
	}
	a.openFollower()
	p.registry.MustRegister(newUsage(a.agent.GroupUses))
	return a, nil
}

// listen opens the TLS port of the agent. While another process holds the port, the agent runs without the port, and
// the listener tries again to open it. Running instances need their agent more than people need the logs, which the
// agent serves on this port.
func (a *agentPart) listen(ctx context.Context, port int) (*transport.Listener, error) {
	if port == 0 {
		return a.p.listen(ctx, port, transport.ListenerConfig{Credentials: a.creds})
	}
	address := net.JoinHostPort(a.p.cfg.Listen.Address, strconv.Itoa(port))
	raw, err := transport.ListenPatiently(ctx, address, func(err error) {
		if a.agent == nil { // the first try is made before the agent exists, so openAgent reports the error later
			a.taken = err
			return
		}
		a.notePort(err)
	})
	if err != nil {
		return nil, err
	}
	return transport.NewListener(raw, transport.ListenerConfig{Credentials: a.creds, Logger: a.p.log.Named("listener")})
}

// notePort logs that the API's port is open if err is nil, or else why the port is not open. It reports the same to the
// agent.
func (a *agentPart) notePort(err error) {
	port := a.p.cfg.Listen.Port
	if err == nil {
		a.p.log.Info("port is open", "port", port)
		a.agent.NotePort(port, nil)
		return
	}
	reason := err.Error()
	var refused *model.Error
	if errors.As(err, &refused) {
		reason = refused.Message
	}
	a.p.log.Warn("port is not open, trying again", "port", port, "error", err)
	a.agent.NotePort(port, &model.PortProblem{Port: port, Code: model.PortTaken, Reason: reason})
}

// ownPorts returns the ports that the configuration gives to this process, even if another process holds them now. No
// instance gets one of these ports.
func (a *agentPart) ownPorts() []int { return []int{a.p.cfg.Listen.Port, a.p.cfg.Listen.GossipPort} }

// LetPass lets all users pass through a directory, but gives nobody the permission to list it. Instances that run as
// other users must pass through it to reach their own directories. If this process does not run as root, LetPass does
// nothing.
func LetPass(dir string) error {
	if os.Geteuid() != 0 {
		return nil // without root, all instances run as this process's user
	}
	info, err := os.Stat(dir)
	if err == nil {
		err = os.Chmod(dir, info.Mode().Perm()|0o111)
	}
	if err != nil {
		return fmt.Errorf("let instances pass through %s: %w", dir, err)
	}
	return nil
}

func (a *agentPart) config() agent.Config {
	cfg := a.p.cfg
	return agent.Config{
		Name: cfg.Name, DataDir: a.dataDir(), Version: a.p.program.Version,
		Node: agent.NodeConfig{
			Address: cfg.Advertise, APIAddress: a.p.advertised(a.listener), Labels: cfg.Agent.Labels,
			Capacity: cfg.Agent.Capacity, Reserve: cfg.Agent.Reserve, PortMin: cfg.Agent.PortMin, PortMax: cfg.Agent.PortMax,
			OwnPorts: a.ownPorts(),
		},
		Exec: agent.ExecConfig{
			AllowRoot: cfg.Agent.AllowRoot, AllowUsers: cfg.Agent.AllowUsers, MinUID: cfg.Agent.MinUID,
			UIDs: driver.UIDRange{First: cfg.Agent.FirstUID, Last: cfg.Agent.LastUID}, SharedUser: cfg.Agent.SharedUser,
			CgroupParent: cfg.Agent.CgroupRoot + "/" + cfg.Name,
			VolumePaths:  cfg.Agent.VolumePaths,
		},
		Containers: containers(cfg.Agent.Container),
		OnShutdown: agent.Shutdown(cfg.Agent.OnShutdown),
		Servers:    a.registrar(),
		BackupDir:  cfg.Agent.BackupDir,
		Peers:      transport.NewAgentTransport(transport.Dialer{Credentials: a.creds}),
		Drain:      a.drain,
		Log:        a.p.log.Named("agent"),
	}
}

func containers(c *config.Container) *agent.ContainerConfig {
	if c == nil {
		return nil
	}
	subnet, _ := netip.ParsePrefix(c.Subnet) // config has checked it; without one, the agent chooses
	return &agent.ContainerConfig{Socket: c.Socket, Runtime: c.Runtime, CertsDir: c.CertsDir, DockerConfig: c.DockerConfig,
		PullTimeout: time.Duration(c.PullTimeout) * time.Millisecond,
		DiskHigh:    c.DiskHigh, DiskLow: c.DiskLow, Plugins: c.CNIPlugins, Subnet: subnet}
}

func (a *agentPart) dataDir() string { return AgentDataDir(a.p.cfg) }

// AgentDataDir returns the data directory of the agent of a configuration. A process that is both server and agent has
// two data directories, because other users may not pass through the server's directory, but instances must reach their
// directories in the agent's.
func AgentDataDir(c *config.Config) string {
	dir := c.DataDir
	if c.Server != nil {
		dir = filepath.Clean(dir) + "-agent"
	}
	if absolute, err := filepath.Abs(dir); err == nil {
		return absolute
	}
	return dir
}

func (a *agentPart) openGossip() error {
	keys, err := a.p.gossipKeys()
	if err != nil {
		return err
	}
	id := a.agent.Identity()
	cfg := a.p.cfg
	port := cfg.Listen.GossipPort
	if cfg.Server != nil {
		port = 0
	}
	a.gossip, err = openAgentGossip(cluster.PoolConfig{
		Name: string(id.Node), Cluster: cfg.Cluster, Key: keys[0], OtherKeys: bare(keys[1:]),
		Profile: cluster.Profile(cfg.Gossip.Profile),
		Bind:    cfg.Listen.Address, Port: port, Advertise: cfg.Advertise, Logger: a.p.log.Named("gossip"),
		Meta: cluster.Meta{Role: pki.RoleAgent, BootID: id.BootID, Incarnation: id.Incarnation,
			API: a.p.advertised(a.listener), Name: id.Name},
	}, a.agent.NotePort)
	if err != nil {
		return err
	}
	a.beater = cluster.NewBeater(cluster.BeaterConfig{
		Node: id.Node, BootID: id.BootID, Incarnation: id.Incarnation, Pool: a.gossip, Use: gauge.New().Use,
		Logger: a.p.log.Named("heartbeat"),
	})
	a.agent.UseHeartbeats(a.beater)
	return nil
}

// registrar calls the servers for the agent. After each registration it also joins the gossip of the servers.
type registrar struct {
	*transport.Client
	joined func([]transport.ServerInfo)
	// managed says that the cluster makes the certificates, and name is that of the node.
	managed bool
	name    string
}

// Register implements agent.Servers.
func (r *registrar) Register(ctx context.Context, request transport.RegisterRequest) (transport.RegisterReply, error) {
	reply, err := r.Client.Register(ctx, request)
	if err == nil {
		r.joined(reply.Servers)
	}
	return reply, r.explain(err)
}

// Renew is transport.Client.Renew, and explains a refused certificate.
func (r *registrar) Renew(ctx context.Context, request transport.RenewRequest) (transport.RenewReply, error) {
	reply, err := r.Client.Renew(ctx, request)
	return reply, r.explain(err)
}

// explain says why the servers refuse a managed certificate, and what to do. The peer of a TLS handshake is not told
// why. But such a certificate is of this cluster and has not expired, so only two reasons are left.
func (r *registrar) explain(err error) error {
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok || !r.managed || refusal.Code != model.CodeCertificateRefused ||
		!strings.HasSuffix(refusal.Message, "refused this certificate") {
		return err
	}
	return model.Refuse(refusal.Code,
		"%s: it was revoked, or a newer one has replaced it, perhaps on a copy of this machine", refusal.Message).
		WithHint("if outspan status on a server shows a copy, stop the copy. Then, on a server: outspan node revoke %s "+
			"--yes, outspan token create --role agent; and on this machine: outspan join --token-file FILE ADDRESS", r.name)
}

func (a *agentPart) registrar() *registrar {
	return &registrar{Client: a.client, joined: a.joinGossip, managed: a.p.cfg.TLS.Managed, name: a.p.cfg.Name}
}

func (a *agentPart) joinGossip(servers []transport.ServerInfo) {
	var addresses []string
	for _, s := range servers {
		if s.Gossip != "" {
			addresses = append(addresses, s.Gossip)
		}
	}
	if len(addresses) == 0 {
		return
	}
	if err := a.gossip.Join(addresses...); err != nil {
		a.p.log.Warn("gossip of the servers not joined", "error", err)
	}
}

// drain asks the servers to drain this node. The agent calls it if on_shutdown is "drain".
func (a *agentPart) drain(ctx context.Context) error {
	_, _, err := a.client.Do(ctx, http.MethodPost, "/v1/nodes/"+string(a.agent.Identity().Node)+"/drain", nil,
		map[string]string{"message": "its agent was told to stop"})
	return err
}

func (a *agentPart) run(ctx context.Context) error {
	defer a.release()
	handler := a.agent.Handler(a.p.metrics())
	server := transport.NewHTTPServer(handler, transport.HTTPConfig{Logger: a.p.log.Named("http")})
	listeners := []net.Listener{a.listener.API()}
	if a.unix != nil {
		listeners = append(listeners, a.unix)
	}
	// The agent needs the listeners, gossip and heartbeats until it has stopped. So their context is canceled only after
	// a.agent.Run has returned.
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var wg sync.WaitGroup
	failed := make(chan error, 6)
	parts := []func(context.Context) error{
		a.listener.Run, a.gossip.run, a.beater.Run, func(ctx context.Context) error { return server.Run(ctx, listeners...) },
	}
	if renewal := a.renewal(); renewal != nil {
		parts = append(parts, renewal, a.follower.Run)
	}
	for _, run := range parts {
		wg.Go(func() {
			if err := run(below); err != nil && below.Err() == nil {
				failed <- err
			}
		})
	}
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	var early error
	wg.Go(func() {
		select {
		case early = <-failed:
			cancel()
		case <-below.Done():
		}
	})
	err := a.agent.Run(working)
	stop()
	wg.Wait()
	return errors.Join(err, early)
}

func (a *agentPart) reload(cfg *config.Config) error {
	if cfg.Agent != nil {
		a.agent.SetLabels(cfg.Agent.Labels)
	}
	return a.listener.Reload()
}

// release closes what openAgent opened, in reverse order.
func (a *agentPart) release() {
	if a.gossip != nil {
		_ = a.gossip.Close() // its error does not matter any more
	}
	if a.unix != nil {
		_ = a.unix.Close() // its error does not matter any more
	}
	if a.listener != nil {
		_ = a.listener.API().Close() // its error does not matter any more
	}
}

// client returns a client that calls servers with the certificate in creds. If servers is empty, the client uses the
// address of this process's own server instead.
func (p *process) client(creds *transport.Credentials, servers []string) (*transport.Client, error) {
	if len(servers) == 0 {
		servers = []string{p.own}
	}
	var urls []string
	for _, s := range servers {
		urls = append(urls, "https://"+s)
	}
	return transport.NewClient(transport.ClientConfig{Addresses: urls, Credentials: creds})
}
