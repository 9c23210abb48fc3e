package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/transport"
)

// The directories of a machine that outspan sets up.
const (
	defaultConfigDir = "/etc/outspan.d"
	defaultDataDir   = "/var/lib/outspan"
)

// readyWait limits how long up waits for the new server to answer.
const readyWait = time.Minute

// UpCalls are the parts of the command up that need the API, which this package can't call.
type UpCalls struct {
	// Ready blocks until the server at a unix socket knows a leader. It fails when ctx ends.
	Ready func(ctx context.Context, socket string) error
	// JoinSteps returns the commands with which further machines join the cluster.
	JoinSteps func() []string
}

// upOptions are the flags of the command up.
type upOptions struct {
	name, advertise, cluster string // "" means the default
	configDir, dataDir       string
	dataGiven                bool // --data is on the command line
	noAgent, noStart         bool
	system                   systemd
}

// Up returns the command up.
func Up(t *term.Console, calls UpCalls) *cobra.Command {
	o := upOptions{system: thisSystemd()}
	cmd := &cobra.Command{
		Use: "up", Short: "make this machine the first server of a new cluster", Args: term.Exactly(),
		Example: "sudo outspan up\nsudo outspan up --name s1 --advertise 10.0.0.1 --no-agent\n" +
			"outspan up --config ./conf --data ./data --advertise 127.0.0.1 --no-start",
		Long: `Sets up this machine as a cluster of one server, and as its first worker unless --no-agent. Then further machines join it.

It makes the cluster's CA, the certificates of this machine, the key of the gossip pool and the keyring below the data directory, and writes
outspan.hcl into the configuration directory. The cluster issues and renews all certificates from then on (tls { managed = true }).

As root on a machine with systemd it also installs, enables and starts the unit outspan.service, and waits until the server answers. Otherwise, and
with --no-start, it prints the command that starts the server.

It changes nothing on a machine that is a member of a cluster already. If it was interrupted, run it again.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.dataGiven = cmd.Flags().Changed("data")
			return runUp(cmd.Context(), t, calls, o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.name, "name", "", "name of this server and of this node (default: the host's name)")
	fs.StringVar(&o.advertise, "advertise", "",
		"IP address at which other machines reach this one (default: its IPv4 address, if it has exactly one)")
	fs.StringVar(&o.cluster, "cluster", "", "name of the new cluster (default: "+transport.DefaultCluster+")")
	fs.StringVar(&o.configDir, "config", defaultConfigDir, "directory for the configuration")
	fs.StringVar(&o.dataDir, "data", defaultDataDir, "directory for data and keys")
	fs.BoolVar(&o.noAgent, "no-agent", false, "be a server only, and run no instances")
	fs.BoolVar(&o.noStart, "no-start", false, "start nothing, and print the command that starts the server")
	return cmd
}

// upResult is the result of the command up.
type upResult struct {
	Name    string   `json:"name"`
	Cluster string   `json:"cluster"`
	Address string   `json:"address"`
	Config  string   `json:"config"`
	DataDir string   `json:"data_dir"`
	Server  bool     `json:"server"`
	Agent   bool     `json:"agent"`
	Member  bool     `json:"member_already"` // the machine was a member before, and nothing was changed
	Started bool     `json:"started"`
	Next    []string `json:"next"` // commands, in order
}

func runUp(ctx context.Context, t *term.Console, calls UpCalls, o upOptions) error {
	for _, dir := range []*string{&o.configDir, &o.dataDir} {
		path, err := filepath.Abs(*dir)
		if err != nil {
			return fmt.Errorf("find %s: %w", *dir, err)
		}
		*dir = path
	}
	// The first look makes no directory, so a refusal leaves nothing behind.
	found, err := o.look()
	if err != nil {
		return err
	}
	if found.stage == stageMember {
		return showUp(t, found.cfg, o, upResult{Member: true, Next: calls.JoinSteps()})
	}
	if err := checkPorts(ctx, found.cfg); err != nil {
		return err
	}
	if err := makeDirs(found.cfg.DataDir, o.configDir); err != nil {
		return err
	}
	err = transport.ManagedDir(found.cfg.DataDir).Lock(ctx, func() (err error) {
		if found, err = o.look(); err != nil || found.stage != stageNew {
			return err
		}
		return o.found(found.cfg)
	})
	if err != nil {
		return err
	}
	if found.stage == stageMember { // another up was faster
		return showUp(t, found.cfg, o, upResult{Member: true, Next: calls.JoinSteps()})
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if o.noStart || !o.system.usable() {
		start := fmt.Sprintf("outspan server run --config %s", o.configDir)
		return showUp(t, found.cfg, o, upResult{Next: append([]string{start}, calls.JoinSteps()...)})
	}
	t.Note("starting %s", unitName)
	if err := o.system.start(ctx, binary, "server", "run", "--config", o.configDir); err != nil {
		return err
	}
	if err := waitReady(ctx, calls, found.cfg); err != nil {
		return err
	}
	return showUp(t, found.cfg, o, upResult{Started: true, Next: calls.JoinSteps()})
}

// waitReady waits until the server answers and knows a leader, at most readyWait. Code: start_failed.
func waitReady(ctx context.Context, calls UpCalls, cfg *config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	if err := calls.Ready(ctx, socketOf(cfg)); err != nil {
		return startFailed("the server was started, but does not answer: %v", err)
	}
	return nil
}

// socketOf returns the unix socket of the server of a configuration.
func socketOf(cfg *config.Config) string {
	return term.First(cfg.Listen.Socket, filepath.Join(cfg.DataDir, "api.sock"))
}

// showUp fills the fields of r that follow from cfg, and shows r.
func showUp(t *term.Console, cfg *config.Config, o upOptions, r upResult) error {
	r.Name, r.Cluster, r.Address = cfg.Name, cfg.Cluster, cfg.Advertise
	r.Config, r.DataDir = filepath.Join(o.configDir, configFile), cfg.DataDir
	r.Server, r.Agent = cfg.Server != nil, cfg.Agent != nil
	s, err := term.ResultOf(r, []string{r.Name}, func(p *term.Page) {
		who := fmt.Sprintf("%s of the cluster %s", roleText(cfg), cfg.Cluster)
		next := r.Next
		switch {
		case r.Member:
			p.Line("this machine is a member already: %s (%s); nothing was changed", who, r.Config)
		case r.Started:
			p.Line("%s runs at %s", who, r.Address)
			p.Line("  configuration: %s; data and keys: %s; log: journalctl -u outspan", r.Config, r.DataDir)
		default:
			p.Line("%s is set up: configuration %s, data and keys in %s", who, r.Config, r.DataDir)
			p.Line("  next: start it with: %s", next[0])
			next = next[1:]
		}
		if len(next) > 0 {
			p.Line("  to let further machines join, with the server running:")
		}
		for _, step := range next {
			p.Line("    %s", step)
		}
	})
	if err != nil {
		return err
	}
	if transport.IsLoopback(r.Address) && !r.Member {
		t.Note("warning: no other machine can reach %s, so none can join", r.Address)
	}
	return t.Show(s)
}
