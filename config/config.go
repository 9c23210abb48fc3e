package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/adhocore/gronx"
	"github.com/hashicorp/go-sockaddr/template"
	"github.com/hashicorp/hcl/v2"

	"github.com/outspan/outspan/model"
)

// Config is the configuration of one process. One process may be a server, an agent, or both.
type Config struct {
	Name      string // of this server or node; default the host's name
	Cluster   string // default outspan; part of certificates and gossip
	DataDir   string // required; 0700
	Log       Log
	Server    *Server // nil: not a server
	Agent     *Agent  // nil: not an agent
	Listen    Listen
	Advertise string // IP address that others use; default the listen address
	TLS       TLS
	Gossip    Gossip
	Settings  *model.Settings // seeds the replicated settings once
	Limits    Limits
	Metrics   bool // serve /metrics; default true
}

// Log says how much is logged, and in which form.
type Log struct {
	Level  string // trace, debug, info (default), warn, error
	Format string // text (default) or json
}

// Server is the control-plane part.
type Server struct {
	BootstrapExpect int      // how many servers begin a new cluster together: 1, 3 or 5; 0 = join one
	RetryJoin       []string // gossip addresses "host:port", or "exec:/path" that prints some
	RaftMultiplier  int      // stretches raft's timeouts; default 1
}

// Agent is the worker part.
type Agent struct {
	Servers    []string // API addresses "host:port"; default: this process's own server
	Labels     map[string]string
	Reserve    model.Resources // kept for the machine itself
	Capacity   model.Resources // overrides what is detected; 0 = detected
	OnShutdown string          // keep (default) or drain
	Drivers    []string        // default ["exec"]
	AllowRoot  bool            // let instances run as uid 0; default false
	AllowUsers []string        // names or numbers of users that a job file may name; default any but root
	// VolumePaths are absolute directories. A missing directory of a volume's path is made only below one of them.
	// Default: driver.DefaultVolumePaths. An empty list allows none.
	VolumePaths []string
	FirstUID    int // with LastUID: each instance that names no user gets a user id of this range; default: agent.DefaultUIDs
	LastUID     int
	SharedUser  bool   // instance_uids = "off": they all run as nobody
	MinUID      int    // from which on it may name any as well; default 0: none but AllowUsers
	PortMin     int    // of dynamic ports; default 20000
	PortMax     int    // default 29999
	BackupDir   string // of backups of volumes, typically a shared mount; default none
	CgroupRoot  string // parent of the instances' cgroups; default outspan
}

// Listen says where the process listens.
type Listen struct {
	Address    string // default 127.0.0.1
	Port       int    // API and raft; default 7640, 0 = any free port
	GossipPort int    // default 7642, 0 = any free port
	Socket     string // unix socket of the API; default DATA_DIR/api.sock
}

// TLS names the certificates: three files, or one directory for a cluster on a single machine.
type TLS struct {
	CAFile, CertFile, KeyFile string
	Dir                       string
}

// Gossip is the pool of servers and agents.
type Gossip struct {
	KeyFile string // required unless TLS.Dir is set
	Profile string // lan (default), wan or fast
}

// Limits protect the API.
type Limits struct {
	RequestsPerSecond int // of one client; default 200
	Connections       int // authenticated ones; default 16384: one server alone carries 5,000 agents with one or two each, and people
}

// Load reads files, and directories of *.hcl files in name order. Each file is decoded alone and overlaid on those
// before. What is required is checked at the end. Errors hold every mistake, a line each.
func Load(paths ...string) (*Config, error) {
	files, err := list(paths)
	if err != nil {
		return nil, err
	}
	c := defaults()
	d := &decoder{places: places{}}
	jobFile := ""
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, model.Refuse(model.CodeInvalid, "the configuration can't be read: %v", err).
				WithHint("see who may read it with: ls -l %s", file)
		}
		body, problems := parse(file, src)
		d.diags = append(d.diags, problems...)
		if !problems.HasErrors() {
			d.config(body, c)
			if has(body, "job") {
				jobFile = file
			}
		}
	}
	if err := asError(d.diags); err != nil {
		if jobFile != "" {
			err = hinted(err, jobFile+" is a job file; check it with: outspan job validate "+jobFile)
		}
		return nil, err
	}
	err = c.check(strings.Join(files, ", "), d.places)
	return c, err
}

func list(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, model.Refuse(model.CodeInvalid, "the configuration can't be read: %v", err).WithHint("name a file or a directory with --config")
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		found, err := filepath.Glob(filepath.Join(path, "*.hcl"))
		if err != nil || len(found) == 0 {
			return nil, model.Refuse(model.CodeInvalid, "there is no *.hcl file in %s", path).
				WithHint("name the file itself, or a directory such as /etc/outspan.d whose files end with .hcl")
		}
		slices.Sort(found)
		files = append(files, found...)
	}
	return files, nil
}

func defaults() *Config {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return &Config{
		Name: host, Cluster: "outspan", Metrics: true,
		Log:    Log{Level: "info", Format: "text"},
		Listen: Listen{Address: "127.0.0.1", Port: model.DefaultPort, GossipPort: model.DefaultGossipPort},
		Gossip: Gossip{Profile: "lan"},
		Limits: Limits{RequestsPerSecond: 200, Connections: 16384},
	}
}

func (d *decoder) config(body hcl.Body, c *Config) {
	d.body(body,
		text("name", &c.Name), text("cluster", &c.Cluster), text("data_dir", &c.DataDir),
		block("log", func(d *decoder, b *hcl.Block) {
			d.body(b.Body, text("level", &c.Log.Level), text("format", &c.Log.Format))
		}),
		block("server", func(d *decoder, b *hcl.Block) {
			if c.Server == nil {
				c.Server = &Server{RaftMultiplier: 1}
			}
			d.body(b.Body, number("bootstrap_expect", &c.Server.BootstrapExpect), texts("retry_join", &c.Server.RetryJoin), number("raft_multiplier", &c.Server.RaftMultiplier))
		}),
		block("agent", func(d *decoder, b *hcl.Block) { d.agent(b.Body, c) }),
		block("listen", func(d *decoder, b *hcl.Block) {
			d.body(b.Body, text("address", &c.Listen.Address), number("port", &c.Listen.Port), number("gossip_port", &c.Listen.GossipPort), text("socket", &c.Listen.Socket))
		}),
		block("advertise", func(d *decoder, b *hcl.Block) { d.body(b.Body, address("address", &c.Advertise)) }),
		block("tls", func(d *decoder, b *hcl.Block) {
			d.body(b.Body, text("ca_file", &c.TLS.CAFile), text("cert_file", &c.TLS.CertFile), text("key_file", &c.TLS.KeyFile), text("dir", &c.TLS.Dir))
		}),
		block("gossip", func(d *decoder, b *hcl.Block) {
			d.body(b.Body, text("key_file", &c.Gossip.KeyFile), text("profile", &c.Gossip.Profile))
		}),
		block("settings", func(d *decoder, b *hcl.Block) { d.settings(b.Body, c) }),
		block("telemetry", func(d *decoder, b *hcl.Block) { d.body(b.Body, flag("prometheus", &c.Metrics)) }),
		block("limits", func(d *decoder, b *hcl.Block) {
			d.body(b.Body, number("requests_per_second", &c.Limits.RequestsPerSecond), number("connections", &c.Limits.Connections))
		}),
	)
}

func (d *decoder) agent(body hcl.Body, c *Config) {
	if c.Agent == nil {
		c.Agent = &Agent{OnShutdown: "keep", Drivers: []string{"exec"}, PortMin: 20000, PortMax: 29999, CgroupRoot: "outspan"}
	}
	a := c.Agent
	resources := func(r *model.Resources) func(*decoder, *hcl.Block) {
		return func(d *decoder, b *hcl.Block) { d.body(b.Body, number("cpu", &r.CPU), size("memory", &r.MemoryBytes)) }
	}
	d.body(body,
		texts("servers", &a.Servers), textMap("labels", &a.Labels), block("reserve", resources(&a.Reserve)), block("capacity", resources(&a.Capacity)),
		text("on_shutdown", &a.OnShutdown), texts("drivers", &a.Drivers), flag("allow_root", &a.AllowRoot), texts("allow_users", &a.AllowUsers),
		number("min_uid", &a.MinUID), uidRange("instance_uids", &a.FirstUID, &a.LastUID, &a.SharedUser), text("cgroup_root", &a.CgroupRoot), text("backup_dir", &a.BackupDir),
		directories("volume_paths", &a.VolumePaths),
		block("ports", func(d *decoder, b *hcl.Block) { d.body(b.Body, number("min", &a.PortMin), number("max", &a.PortMax)) }),
	)
}

func (d *decoder) settings(body hcl.Body, c *Config) {
	if c.Settings == nil {
		s := model.DefaultSettings()
		c.Settings = &s
	}
	s := c.Settings
	d.body(body,
		rate("rate_drain", &s.RateDrain), rate("rate_preemption", &s.RatePreemption), rate("rate_rescheduler", &s.RateRescheduler), rate("rate_operator", &s.RateOperator),
		durationTo("offline_after", &s.OfflineAfter), text("node_drain_policy", &s.NodeDrainPolicy), word("evict_on", &s.EvictOn), durationTo("drain_deadline", &s.DrainDeadline),
		text("rescheduler", &s.Rescheduler), text("failure_domain_label", &s.FailureDomainLabel), flag("place_on_degraded", &s.PlaceOnDegraded),
		text("placement_algorithm", &s.Algorithm), number("cpu_overcommit_percent", &s.CPUOvercommit), size("instance_overhead", &s.InstanceOverhead),
		durationTo("start_timeout", &s.StartTimeout), number("event_limit", &s.EventLimit), durationTo("event_age", &s.EventAge), durationTo("volume_cooling", &s.VolumeCooling),
		durationTo("rescheduler_min_age", &s.MoveMinAge), durationTo("rescheduler_cooldown", &s.MoveCooldown), durationTo("rescheduler_cycle", &s.MoveCycle),
		number("rescheduler_moves", &s.MovesPerCycle), number("rescheduler_gain", &s.MoveGain), cron("rescheduler_window", &s.MoveWindow))
}

// cron is a cron expression of five fields, or empty.
func cron(name string, to *string) field {
	return field{name: name, kind: "cron expression", set: func(d *decoder, a *hcl.Attribute) {
		text(name, to).set(d, a)
		if *to != "" && !gronx.IsValid(*to) {
			d.fail(a.Expr.Range(), "No cron expression", fmt.Sprintf("%s: write minute, hour, day, month and weekday in UTC, such as \"* 1-5 * * *\".", name))
		}
	}}
}

// address is an IP address, or a template such as "{{ GetPrivateIP }}" that finds one.
func address(name string, to *string) field {
	return field{name: name, kind: "address or template", set: func(d *decoder, a *hcl.Attribute) {
		text(name, to).set(d, a)
		if !strings.Contains(*to, "{{") {
			return
		}
		found, err := template.Parse(*to)
		if err != nil || strings.TrimSpace(found) == "" {
			d.fail(a.Expr.Range(), "No address", fmt.Sprintf("%s: the template finds no address on this machine (%v).", name, err))
			return
		}
		*to = strings.TrimSpace(found)
	}}
}
