package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/agent"
	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/model"
)

// The directories of a machine that outspan sets up.
const (
	defaultConfigDir = "/etc/outspan.d"
	defaultDataDir   = "/var/lib/outspan"
)

// configFile is the name of the file that outspan writes into the configuration directory of a machine.
const configFile = "outspan.hcl"

// readyWait limits how long up and join wait for a process that they have started.
const readyWait = time.Minute

// SetupCalls are the parts of the commands up and join that need the API, which this package can't call.
type SetupCalls struct {
	// Ready blocks until the server at a unix socket knows a leader. It fails when ctx ends.
	Ready func(ctx context.Context, socket string) error
	// JoinSteps returns the commands with which further machines join. If socket is that of a running server, they have
	// new join tokens, and address is where newcomers reach that server. Without a socket, they make the tokens.
	JoinSteps func(ctx context.Context, socket, address string) []string
}

// setupStage is how far a machine is on its way to be a member of a cluster.
type setupStage int

const (
	stageNew     setupStage = iota // there may be files of a command that was interrupted, but not all
	stageWritten                   // all files are there, but the process has never worked
	stageMember
)

// setupFlags are the flags of up and join.
type setupFlags struct {
	command            string // "up" or "join"
	name, advertise    string // "" means the default
	configDir, dataDir string
	dataGiven          bool // --data is on the command line
	noAgent, noStart   bool
	system             systemd
}

func (o *setupFlags) register(cmd *cobra.Command) {
	o.command, o.system = cmd.Name(), thisSystemd()
	fs := cmd.Flags()
	fs.StringVar(&o.name, "name", "", "name of this machine: of its server and of its node (default: the host's name)")
	fs.StringVar(&o.advertise, "advertise", "",
		"IP address at which other machines reach this one (default: its IPv4 address, if it has exactly one)")
	fs.StringVar(&o.configDir, "config", defaultConfigDir, "directory for the configuration")
	fs.StringVar(&o.dataDir, "data", defaultDataDir, "directory for data and keys")
	fs.BoolVar(&o.noAgent, "no-agent", false, "be a server only, and run no instances")
	fs.BoolVar(&o.noStart, "no-start", false, "start nothing, and print the command that starts it")
}

// complete makes the directories absolute. It must be called before any other method, after the flags are parsed.
func (o *setupFlags) complete(cmd *cobra.Command) error {
	o.dataGiven = cmd.Flags().Changed("data")
	for _, dir := range []*string{&o.configDir, &o.dataDir} {
		path, err := filepath.Abs(*dir)
		if err != nil {
			return fmt.Errorf("find %s: %w", *dir, err)
		}
		*dir = path
	}
	return nil
}

// configured returns the configuration that outspan has written on this machine, or that ca adopt has changed. It
// returns nil if the configuration directory is empty. Codes: conflict if the directory belongs to something else, or
// if --data contradicts the configuration; invalid.
func (o *setupFlags) configured() (*config.Config, error) {
	files, err := filepath.Glob(filepath.Join(o.configDir, "*.hcl"))
	if err != nil {
		return nil, model.Refuse(model.CodeInvalid, "--config %s: %v", o.configDir, err).
			WithHint("name a directory without the characters *, ?, [ and \\")
	}
	if len(files) == 0 {
		return nil, nil
	}
	foreign := model.Refuse(model.CodeConflict, "%s has a configuration already: %s", o.configDir,
		filepath.Base(files[0])).
		WithHint("start what it describes, or choose other directories: --config DIR --data DIR")
	cfg, err := config.Load(o.configDir)
	own := slices.Contains(files, filepath.Join(o.configDir, configFile)) // otherwise it may be that of ca adopt
	if err != nil && own {
		return nil, err
	}
	if err != nil || !cfg.TLS.Managed && (o.command != "join" || !hasJoinFiles(cfg)) {
		return nil, foreign
	}
	if o.dataGiven && filepath.Clean(cfg.DataDir) != o.dataDir {
		return nil, o.differs("data_dir", cfg.DataDir, o.dataDir)
	}
	return cfg, nil
}

// worked reports whether a process has worked as a member with this configuration.
func worked(cfg *config.Config) bool {
	if cfg.Server != nil {
		return cluster.Started(cfg.DataDir)
	}
	return len(agent.KnownServers(daemon.AgentDataDir(cfg))) > 0
}

// contradiction refuses flags that differ from a configuration that is there.
func (o *setupFlags) contradiction(cfg *config.Config) error {
	for _, one := range [...]struct{ key, flag, value string }{
		{"name", o.name, cfg.Name}, {"advertise.address", o.advertise, cfg.Advertise},
	} {
		if one.flag != "" && one.flag != one.value {
			return o.differs(one.key, one.value, one.flag)
		}
	}
	if o.noAgent && cfg.Agent != nil {
		return model.Refuse(model.CodeConflict, "%s has an agent block", filepath.Join(o.configDir, configFile)).
			WithHint("edit the file, or remove it and run outspan %s again", o.command)
	}
	return nil
}

func (o *setupFlags) differs(key, has, given string) error {
	return model.Refuse(model.CodeConflict, "%s says %s = %q, and the command line says %q",
		filepath.Join(o.configDir, configFile), key, has, given).
		WithHint("leave the flag out; to begin again, remove that file and then run outspan %s again", o.command)
}

func (o *setupFlags) orphaned(format string) error {
	return model.Refuse(model.CodeConflict, format, o.dataDir, o.configDir).
		WithHint("put %s back from a backup, name its directory with --config, or choose another --data", configFile)
}

// startCommand returns the arguments with which the process of a configuration is started.
func (o *setupFlags) startCommand(cfg *config.Config) []string {
	role := "server"
	if cfg.Server == nil {
		role = "agent"
	}
	return []string{role, "run", "--config", o.configDir}
}

// process is what a machine runs of a configuration before a command changes its files.
type process struct {
	server, agent bool
	registered    time.Time // of the agent; see agent.LastRegistration
	outdated      bool      // it has to be started again to use the changed files
}

func processOf(cfg *config.Config) (p process) {
	p.server = cfg.Server != nil && cluster.Running(cfg.DataDir)
	if cfg.Agent != nil {
		dir := daemon.AgentDataDir(cfg)
		p.agent, p.registered = agent.Running(dir), agent.LastRegistration(dir)
	}
	return p
}

// start starts the unit of this machine, or starts it again if its process is outdated, and waits at most readyWait
// until the process works. Without systemd, or with --no-start, it starts nothing. Codes: file_error, start_failed.
func (o *setupFlags) start(ctx context.Context, t *term.Console, ready func(context.Context, string) error,
	cfg *config.Config, before process) (started bool, err error) {
	if o.noStart || !o.system.usable() {
		return false, nil
	}
	binary, err := os.Executable()
	if err != nil {
		return false, fmt.Errorf("find this program: %w", err)
	}
	t.Note("starting %s", unitName)
	verb := "start"
	if before.outdated {
		verb = "restart"
	}
	if err := o.system.start(ctx, verb, append([]string{binary}, o.startCommand(cfg)...)...); err != nil {
		return false, err
	}
	if cfg.Server == nil {
		return true, before.waitRegistered(ctx, cfg)
	}
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	if err := ready(ctx, socketOf(cfg)); err != nil {
		return true, startFailed("the server was started, but does not answer: %v", err)
	}
	return true, nil
}

// waitRegistered waits at most readyWait until the agent of this machine has registered at a server since before. Code:
// start_failed.
func (before process) waitRegistered(ctx context.Context, cfg *config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !agent.LastRegistration(daemon.AgentDataDir(cfg)).After(before.registered) {
		select {
		case <-ctx.Done():
			return startFailed("the agent runs, but has not registered at a server")
		case <-tick.C:
		}
	}
	return nil
}

// socketOf returns the unix socket of the server of a configuration.
func socketOf(cfg *config.Config) string {
	return term.First(cfg.Listen.Socket, filepath.Join(cfg.DataDir, "api.sock"))
}

// leaving returns the steps by which a machine leaves its cluster.
func (o *setupFlags) leaving(cfg *config.Config) string {
	revoke := "outspan node revoke " + cfg.Name
	if cfg.Server != nil {
		revoke = "outspan server revoke --force " + cfg.Name
	}
	return fmt.Sprintf("on a server: %s; then stop outspan here, and remove %s and %s", revoke,
		filepath.Join(o.configDir, configFile), cfg.DataDir)
}

// setupResult is the result of the commands up and join.
type setupResult struct {
	Name    string   `json:"name"`
	Cluster string   `json:"cluster"`
	Address string   `json:"address"`
	Config  string   `json:"config"`
	DataDir string   `json:"data_dir"`
	Server  bool     `json:"server"`
	Agent   bool     `json:"agent"`
	Member  bool     `json:"member_already"` // the machine was a member before, and nothing was changed
	Started bool     `json:"started"`
	Running bool     `json:"running"` // a process that ran before goes on, and uses new certificates
	Next    []string `json:"next"`    // commands, in order

	kept    bool // it was set up before, and this join asked no server
	restart bool // a process that runs must be stopped before it is started again
}

// show fills the fields of r that follow from cfg, and shows r. r.Next has the commands after the start.
func (o *setupFlags) show(t *term.Console, cfg *config.Config, r setupResult) error {
	r.Name, r.Cluster, r.Address = cfg.Name, cfg.Cluster, cfg.Advertise
	r.Config, r.DataDir = filepath.Join(o.configDir, configFile), cfg.DataDir
	r.Server, r.Agent = cfg.Server != nil, cfg.Agent != nil
	steps := r.Next
	before := processOf(cfg)
	stopped := !before.server && !before.agent
	if !r.Started && !r.Running && (!r.Member || stopped) {
		r.Next = append([]string{"outspan " + strings.Join(o.startCommand(cfg), " ")}, steps...)
	} else if r.Next == nil {
		r.Next = []string{}
	}
	s, err := term.ResultOf(r, []string{r.Name}, func(p *term.Page) {
		who := fmt.Sprintf("%s of the cluster %s", roleText(cfg), cfg.Cluster)
		switch {
		case r.Member:
			p.Line("this machine is a member already: %s (%s); nothing was changed", who, r.Config)
			switch {
			case stopped:
				p.Line("  next: it does not run; start it with: %s", r.Next[0])
			case o.command == "join":
				p.Line("  next: nothing, it runs; to make it another member: %s", o.leaving(cfg))
			}
		case r.Running:
			p.Line("%s has a new certificate, and its process uses it within seconds", who)
		case r.Started:
			p.Line("%s runs at %s", who, r.Address)
			p.Line("  configuration: %s; data and keys: %s; log: journalctl -u outspan", r.Config, r.DataDir)
		case r.restart:
			p.Line("%s has a new certificate", who)
			p.Line("  next: stop its process, then start it again with: %s", r.Next[0])
		case r.kept:
			p.Line("%s is set up already, and the token was not used: configuration %s, data and keys in %s", who, r.Config,
				r.DataDir)
			p.Line("  next: start it with: %s", r.Next[0])
		default:
			p.Line("%s is set up: configuration %s, data and keys in %s", who, r.Config, r.DataDir)
			p.Line("  next: start it with: %s", r.Next[0])
		}
		if len(steps) > 0 {
			p.Line("  to let further machines join, with the server running:")
		}
		for _, step := range steps {
			p.Line("    %s", step)
		}
	})
	if err != nil {
		return err
	}
	return t.Show(s)
}
