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
	Cluster   string // name of the cluster, which certificates and gossip contain; default outspan
	DataDir   string // required; the process creates it with mode 0700
	Log       Log
	Server    *Server // nil if the process is no server
	Agent     *Agent  // nil if the process is no agent
	Listen    Listen
	Advertise string // IP address at which others reach this process; default the listen address
	TLS       TLS
	Gossip    Gossip
	Settings  *model.Settings // the first settings of a new cluster; nil means model.DefaultSettings
	Limits    Limits
	Auth      Auth
	Metrics   bool // serve /metrics; default true
	Audit     Audit
	UI        *UI // nil if the server serves no web page
}

// Log configures the log of this process.
type Log struct {
	Level  string // trace, debug, info (default), warn or error
	Format string // text (default) or json
}

// Server configures the server of this process.
type Server struct {
	BootstrapExpect int      // how many servers begin a new cluster together (1, 3, 5 or 7); 0 joins an existing cluster
	RetryJoin       []string // gossip addresses "host:port", or "exec:/path" of a program that prints such addresses
	RaftMultiplier  int      // factor of raft's timeouts, 1 (default) to 10
}

// Agent configures the agent of this process.
type Agent struct {
	Servers    []string // API addresses "host:port"; default the server of this process
	Labels     map[string]string
	Reserve    model.Resources // kept back for the machine itself
	Capacity   model.Resources // of the machine; if a resource is 0, the agent measures it itself
	OnShutdown string          // if the agent is stopped, keep (default) lets its instances run, drain empties the node
	Drivers    []string        // default ["exec"]
	AllowRoot  bool            // let instances run as uid 0; default false
	AllowUsers []string        // names or numbers of users that job files may name; see MinUID
	// VolumePaths are absolute directories. The agent creates a missing mount point of a volume only at or below one of
	// them. nil means driver.DefaultVolumePaths. If the list is empty but not nil, no mount point is created.
	VolumePaths []string
	// FirstUID and LastUID are a range of user ids. Each instance whose job file names no user gets an id of the range. If
	// both are 0 and SharedUser is false, an agent that runs as root uses agent.DefaultUIDs.
	FirstUID   int
	LastUID    int
	SharedUser bool // all instances whose job files name no user run as nobody (instance_uids = "off")
	// If MinUID is not 0, job files may also name users whose id is at least MinUID. If MinUID is 0 and AllowUsers is
	// empty, job files may name any user. Only AllowRoot decides about root.
	MinUID     int
	PortMin    int        // lowest port for instances; default 20000
	PortMax    int        // highest port for instances; default 29999
	BackupDir  string     // directory for backups of volumes, typically a shared mount; default none
	CgroupRoot string     // parent of the instances' cgroups; default outspan
	Container  *Container // nil if the agent runs no containers
}

// Container says how an agent runs containers. Without it, the agent runs none.
type Container struct {
	Socket       string         // of containerd; default /run/containerd/containerd.sock
	Runtime      string         // OCI runtime, a path or a name in the agent's PATH; default runc
	CertsDir     string         // directory with HOST/hosts.toml for each registry; default /etc/containerd/certs.d
	DockerConfig string         // docker's config.json, with credentials for registries; default none
	PullTimeout  model.Duration // how long a pull may take; default 15 min
	// While the disk of the images is fuller than DiskHigh percent, images that nothing needs are deleted until it is not
	// fuller than DiskLow. Defaults 85 and 80; a high mark of 0 means that no image is deleted.
	DiskHigh   int
	DiskLow    int
	Subnet     string // of containers with a network of their own; default a free one below 172.24.0.0/14
	CNIPlugins string // directory with the CNI plugins; default /usr/lib/cni or /opt/cni/bin
}

// Listen configures where the process listens.
type Listen struct {
	Address    string // default 127.0.0.1
	Port       int    // of the API and raft; default 7640; 0 means any free port
	GossipPort int    // default 7642; 0 means any free port
	Socket     string // unix socket of the API; default DATA_DIR/api.sock
}

// IssueProgram begins the value of TLS.Issue. The path of the program follows.
const IssueProgram = "exec:"

// TLS names the certificates: three files, or Dir, or Managed.
type TLS struct {
	CAFile, CertFile, KeyFile string
	Dir                       string // directory in which a cluster on a single machine creates its certificates
	// Managed means that certificates and gossip key are in DATA_DIR/tls, and that the cluster issues and renews them.
	// transport.ManagedDir names the files.
	Managed bool
	// Issue is IssueProgram and the absolute path of a program that makes the certificates of machines that join with a
	// token. Only servers with certificate files may have it.
	Issue string
}

// Gossip configures the gossip among servers and agents.
type Gossip struct {
	KeyFile string // required unless TLS.Dir or TLS.Managed is set
	Profile string // lan (default), wan or fast
}

// Auth says how callers of the API may prove who they are, besides by certificates.
type Auth struct {
	Tokens bool  // take access tokens, also over connections without a certificate; default false
	OIDC   *OIDC // nil if nobody may sign in with OpenID Connect; otherwise Tokens counts as true
}

// Limits are limits of the API.
type Limits struct {
	RequestsPerSecond int // of each client; default 200
	// Connections is how many connections of authenticated clients may be open at once. The default 16384 lets one server
	// alone serve people and 5,000 agents, each of which has one or two connections.
	Connections int
}

// Audit configures the audit log of the server of this process. Without a destination there is none.
type Audit struct {
	File     string // absolute path; it is rotated and has the mode 0600
	MaxBytes int64  // size at which File is rotated; default 64 MiB
	Keep     int    // how many rotated files are kept; default 10
	Stdout   bool   // also to the standard output
	Syslog   bool   // also to the syslog of this machine
	Required bool   // refuse what can't be recorded
}

// On reports whether there is an audit log.
func (a Audit) On() bool { return a.File != "" || a.Stdout || a.Syslog }

// Load reads files, and the *.hcl files of directories in the order of their names. Values of later files replace those
// of earlier files. If decoding fails, the error lists all mistakes that the decoder found, one per line. Otherwise
// Load checks the whole configuration, and returns the first mistake.
func Load(paths ...string) (*Config, error) {
	files, err := Files(paths...)
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

// Files returns the files that Load reads. Code: invalid if a path does not exist, or if a directory has no *.hcl file.
func Files(paths ...string) ([]string, error) {
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
		Audit:  Audit{MaxBytes: 64 << 20, Keep: 10},
	}
}
