package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// Config is the configuration of one process. One process may be a server, an agent, or both.
type Config struct {
	Name      string // of this server or node; default the host's name
	Cluster   string // default outspan; certificates and gossip contain it
	DataDir   string // required; 0700
	Log       Log
	Server    *Server // nil: not a server
	Agent     *Agent  // nil: not an agent
	Listen    Listen
	Advertise string // IP address at which others reach this process; default the listen address
	TLS       TLS
	Gossip    Gossip
	Settings  *model.Settings // the cluster's first settings; later they are changed by the API
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
	BootstrapExpect int      // how many servers found a new cluster together: 1, 3 or 5; 0: join an existing one
	RetryJoin       []string // gossip addresses "host:port", or "exec:/path" that prints some
	RaftMultiplier  int      // lengthens raft's timeouts; default 1
}

// Agent is the worker part.
type Agent struct {
	Servers    []string // API addresses "host:port"; default: this process's own server
	Labels     map[string]string
	Reserve    model.Resources // kept back for the machine itself
	Capacity   model.Resources // overrides what is detected; 0 = detected
	OnShutdown string          // keep (default) or drain
	Drivers    []string        // default ["exec"]
	AllowRoot  bool            // let instances run as uid 0; default false
	AllowUsers []string        // names or numbers of users that a job file may name; default any but root
	// VolumePaths are absolute directories. If the directory of a volume's path is missing, the agent makes it only below
	// one of these. Default: driver.DefaultVolumePaths. An empty list allows none.
	VolumePaths []string
	// FirstUID and LastUID: each instance without a user in its job file gets a user id of this range; default:
	// agent.DefaultUIDs
	FirstUID   int
	LastUID    int
	SharedUser bool   // instance_uids = "off": all of these instances run as nobody
	MinUID     int    // lowest user id that a job file may name beside AllowUsers; default 0: none
	PortMin    int    // of dynamic ports; default 20000
	PortMax    int    // default 29999
	BackupDir  string // directory for backups of volumes, typically a shared mount; default none
	CgroupRoot string // parent of the instances' cgroups; default outspan
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

// Gossip configures the gossip among servers and agents.
type Gossip struct {
	KeyFile string // required unless TLS.Dir is set
	Profile string // lan (default), wan or fast
}

// Limits protect the API.
type Limits struct {
	RequestsPerSecond int // of each client; default 200
	// open at the same time, of authenticated clients; default 16384. A single remaining server must serve people and
	// 5,000 agents with one or two connections each.
	Connections int
}

// Load reads files, and directories of *.hcl files in name order. Values of later files replace those of earlier ones.
// Required keys are checked at the end. The error has every mistake, one per line.
func Load(paths ...string) (*Config, error) {
	files, err := list(paths)
	if err != nil {
		return nil, err
	}
	c := defaults()
	d := &hclfile.Decoder{}
	jobFile := ""
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, model.Refuse(model.CodeInvalid, "the configuration can't be read: %v", err).
				WithHint("see who may read it with: ls -l %s", file)
		}
		if body := d.File(file, src, keys(c)...); hclfile.Has(body, "job") {
			jobFile = file
		}
	}
	if err := d.Err(); err != nil {
		if jobFile != "" {
			err = hclfile.Hinted(err, jobFile+" is a job file; check it with: outspan job validate "+jobFile)
		}
		return nil, err
	}
	err = c.check(strings.Join(files, ", "), d.PlaceOf)
	return c, err
}

func list(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, model.Refuse(model.CodeInvalid, "the configuration can't be read: %v", err).
				WithHint("name a file or a directory with --config")
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
