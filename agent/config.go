package agent

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/bridge"
	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
)

// Shutdown says what happens to running programs when the agent is asked to stop.
type Shutdown string

// The ways to stop an agent. ShutdownKeep leaves everything running, and the next agent adopts it. ShutdownDrain asks
// the servers to drain the node first.
const (
	ShutdownKeep  Shutdown = "keep"
	ShutdownDrain Shutdown = "drain"
)

// Valid reports whether s is ShutdownKeep or ShutdownDrain.
func (s Shutdown) Valid() bool { return s == ShutdownKeep || s == ShutdownDrain }

// String returns s as it is written in the configuration.
func (s Shutdown) String() string { return string(s) }

// Config is what New needs. Name, DataDir, Servers and Node.Address are required. In other fields the zero value means
// the default.
type Config struct {
	// Name is the node's name: unique in the cluster, and the same as in the agent's certificate.
	Name string
	// DataDir keeps the node's identity, the journal of instances, logs and local volumes. It must be an absolute path,
	// and is made with mode 0700. An agent with another, empty directory is a new node, and does not adopt the instances
	// that run here.
	DataDir string
	// Node is what the node offers.
	Node NodeConfig
	// Exec says how programs are run. If Runtime is set, only the fields about users are used.
	Exec ExecConfig
	// OnShutdown says what happens to running programs when the agent stops; default ShutdownKeep.
	OnShutdown Shutdown
	// DrainTimeout is how long a stop with ShutdownDrain waits for the drain; default 5 min. Programs that still run after
	// this time continue.
	DrainTimeout time.Duration
	// Version is the program's version, shown in the node's row.
	Version string

	// BackupDir is where backups of volumes are written and read, usually on a shared mount. It must be an absolute path.
	// "" means that this node has no such directory.
	BackupDir string

	// SelfCheckEvery is how often the agent checks its own machine: free space in the data directory, writes there,
	// cgroups, the clock. Default 3 s; a negative value turns the checks off.
	SelfCheckEvery time.Duration

	// DiskCheckEvery is the least pause between two measurements of the space that instances' working directories take.
	// After a long measurement the pause is longer. Default 15 s; a negative value turns the measurements off.
	DiskCheckEvery time.Duration

	// Servers sends the agent's requests to the servers.
	Servers Servers
	// Runtime runs the processes. If it is nil, New uses the exec driver, which keeps its files in DataDir.
	Runtime Runtime
	// Containers says how containers are run. If it is nil, the agent runs none.
	Containers *ContainerConfig
	// Images is the container runtime. If it is nil, New uses the containerd that Containers names, if any.
	Images Images
	// Networks gives containers networks of their own. If it is nil, New uses a bridge if Containers is set.
	Networks *bridge.Keeper
	// Peers sends requests to other agents, to copy volumes from them. If it is nil, this agent can't copy volumes.
	Peers http.RoundTripper
	// Drain asks the servers to drain this node, and returns nil once they have accepted the drain. Required with
	// ShutdownDrain.
	Drain func(context.Context) error
	// Log receives the agent's log lines. If it is nil, they are dropped.
	Log hclog.Logger
}

// NodeConfig is what a node offers to the cluster.
type NodeConfig struct {
	// Address is the IP address on which instances and exposed services are reached. Each agent on one machine needs an
	// address of its own. Required.
	Address string
	// APIAddress is host:port of the agent's own API, through which servers read logs; "" means that the agent has no API.
	APIAddress string
	// OwnPorts are the ports on which this process listens, and those configured for a server on this machine. No instance
	// gets such a port, and the door does not open it.
	OwnPorts []int
	// Labels are for constraints, spread and ${node.label.X}. If Labels is nil, a registration does not change the node's
	// labels.
	Labels map[string]string
	// Capacity replaces the detected capacity in each field that isn't 0. CPU is in shares, 1000 for each core. Memory is
	// in bytes.
	Capacity model.Resources
	// Reserve is kept for the machine itself; instances can't use it.
	Reserve model.Resources
	// PortMin and PortMax are the lowest and the highest dynamic port. The default is 20000 to 29999, below the kernel's
	// own ephemeral range. Agents that share an address need ranges that don't overlap.
	PortMin, PortMax int
}

// ExecConfig says how the exec driver runs programs.
type ExecConfig struct {
	// AllowRoot lets instances run as uid 0; by default they can't.
	AllowRoot bool
	// A job file may name the users in AllowUsers, by name or number, and the users whose number is at least MinUID. If
	// both are unset, it may name any user. DefaultUser is not restricted by them.
	AllowUsers []string
	MinUID     int
	// VolumePaths are the directories at or below which missing mount points of volumes are made. Nil means
	// driver.DefaultVolumePaths.
	VolumePaths []string
	// UIDs is a range of user ids for instances whose job files name no user. Each instance gets an id of its own; a slot
	// with volumes keeps its id. A range needs an agent that runs as root. For such an agent the default is DefaultUIDs.
	UIDs driver.UIDRange
	// If SharedUser is true and UIDs is zero, all instances that name no user run as DefaultUser.
	SharedUser bool
	// If the agent runs as root, DefaultUser is the user of instances that name no user and get no user id of their own;
	// default nobody.
	DefaultUser string
	// CgroupParent is a path below each cgroup mount. Only this agent's instances may use it. Default outspan/NODE-ID.
	// "none" turns cgroups off, so memory is not limited.
	CgroupParent string
	// Binary is the program from which shims and the door are started. By default it is the running program.
	Binary string
}

func (c NodeConfig) ownPorts() []int {
	_, text, err := net.SplitHostPort(c.APIAddress)
	if port, bad := strconv.Atoi(text); err == nil && bad == nil {
		return append([]int{port}, c.OwnPorts...)
	}
	return c.OwnPorts
}

const (
	defaultPortMin = 20000
	defaultPortMax = 29999
)

func (c Config) withDefaults() Config {
	if c.OnShutdown == "" {
		c.OnShutdown = ShutdownKeep
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 5 * time.Minute
	}
	if c.Node.PortMin == 0 && c.Node.PortMax == 0 {
		c.Node.PortMin, c.Node.PortMax = defaultPortMin, defaultPortMax
	}
	if c.SelfCheckEvery == 0 {
		c.SelfCheckEvery = selfCheckEvery
	}
	if c.DiskCheckEvery == 0 {
		c.DiskCheckEvery = diskCheckEvery
	}
	if c.Peers == nil {
		c.Peers = noPeers{}
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	return c
}

func (c Config) validate() error {
	bad := func(format string, args ...any) error { return model.Refuse(model.CodeInvalid, format, args...) }
	if !model.ValidName(c.Name) {
		return bad("node name %q is not 1 to 63 letters, digits, '-', '_' or '.'", c.Name)
	}
	if !filepath.IsAbs(c.DataDir) {
		return bad("data_dir %q of the agent is not an absolute path", c.DataDir)
	}
	if c.BackupDir != "" && !filepath.IsAbs(c.BackupDir) {
		return bad("backup_dir %q of the agent is not an absolute path", c.BackupDir)
	}
	if addr, err := netip.ParseAddr(c.Node.Address); err != nil || addr.IsUnspecified() {
		return bad("advertised address %q of node %s is not one IP address that others can reach", c.Node.Address, c.Name)
	}
	if p := c.Node; p.PortMin < 1 || p.PortMax > 65535 || p.PortMin > p.PortMax {
		return bad("port range %d-%d of node %s is not within 1-65535", p.PortMin, p.PortMax, c.Name)
	}
	if !c.OnShutdown.Valid() {
		return bad("on_shutdown = %q is neither \"keep\" nor \"drain\"", c.OnShutdown)
	}
	if c.OnShutdown == ShutdownDrain && c.Drain == nil {
		return bad("on_shutdown = \"drain\" needs a way to ask for the drain")
	}
	if c.Servers == nil {
		return bad("agent %s has no servers to talk to", c.Name)
	}
	if refusal := model.CheckAgentLabels(c.Node.Labels); refusal != nil {
		return refusal
	}
	return nil
}

func (c ExecConfig) binary() string {
	if c.Binary != "" {
		return c.Binary
	}
	return "/proc/self/exe"
}

// noPeers refuses every request to another agent.
type noPeers struct{}

// RoundTrip implements http.RoundTripper.
func (noPeers) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, model.Refuse(model.CodeAgentUnreachable, "this agent has no way to other agents")
}
