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
	DataDir   string // required; the process creates it with mode 0700
	Log       Log
	Server    *Server // nil if the process is no server
	Agent     *Agent  // nil if the process is no agent
	Listen    Listen
	Advertise string // IP address at which others reach this process; default the listen address
	TLS       TLS
	Gossip    Gossip
	Settings  *model.Settings // the first settings of a new cluster; the API changes them later
	Limits    Limits
	Metrics   bool // serve /metrics; default true
}

// Log says how much is logged, and in which form.
type Log struct {
	Level  string // trace, debug, info (default), warn, error
	Format string // text (default) or json
}

// Server configures the server of this process.
type Server struct {
	BootstrapExpect int      // how many servers begin a new cluster together: 1, 3, 5 or 7; 0 to join an existing one
	RetryJoin       []string // gossip addresses "host:port", or "exec:/path" of a program that prints some
	RaftMultiplier  int      // lengthens raft's timeouts; default 1
}

// Agent configures the agent of this process.
type Agent struct {
	Servers    []string // API addresses "host:port"; default: this process's own server
	Labels     map[string]string
	Reserve    model.Resources // kept back for the machine itself
	Capacity   model.Resources // of the machine; a resource that is 0 is detected
	OnShutdown string          // keep (default) or drain
	Drivers    []string        // default ["exec"]
	AllowRoot  bool            // let instances run as uid 0; default false
	AllowUsers []string        // see MinUID
	// VolumePaths are absolute directories. If the directory at which a volume is to be mounted is missing, the agent
	// creates it only at or below one of VolumePaths. nil means driver.DefaultVolumePaths. An empty list allows none.
	VolumePaths []string
	// FirstUID and LastUID are a range of user ids. Each instance whose job file names no user gets one of them. 0 means
	// agent.DefaultUIDs.
	FirstUID   int
	LastUID    int
	SharedUser bool // instance_uids = "off": instances whose job files name no user all run as nobody
	// If AllowUsers or MinUID is set, a job file may name only the users in AllowUsers (names or numbers) and, if MinUID
	// is set, users whose id is at least MinUID. AllowRoot alone decides about root.
	MinUID     int
	PortMin    int    // of dynamic ports; default 20000
	PortMax    int    // default 29999
	BackupDir  string // directory for backups of volumes, typically a shared mount; default none
	CgroupRoot string // parent of the instances' cgroups; default outspan
}

// Listen configures where the process listens.
type Listen struct {
	Address    string // default 127.0.0.1
	Port       int    // API and raft; default 7640, 0 = any free port
	GossipPort int    // default 7642, 0 = any free port
	Socket     string // unix socket of the API; default DATA_DIR/api.sock
}

// TLS names the certificates: either the three files, or a directory in which a cluster on a single machine makes its
// own.
type TLS struct {
	CAFile, CertFile, KeyFile string
	Dir                       string
}

// Gossip configures the gossip among servers and agents.
type Gossip struct {
	KeyFile string // required unless TLS.Dir is set
	Profile string // lan (default), wan or fast
}

// Limits are limits of the API.
type Limits struct {
	RequestsPerSecond int // of each client; default 200
	// Connections is how many connections of authenticated clients may be open at once; default 16384. If only one server
	// is left, it must serve people and 5,000 agents, each of which has one or two connections.
	Connections int
}

// Load reads files, and the *.hcl files of directories in name order. Values of later files replace those of earlier
// ones. If files can't be decoded, the error has every such mistake, one per line. Otherwise the whole configuration is
// checked, and the error has the first mistake.
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
