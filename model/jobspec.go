package model

// JobSpec is a job as a user submits it. The command line reads it from a job file. Servers keep specs, and no HCL: for
// the web page they convert in both directions.
type JobSpec struct {
	Name   JobName     `json:"name" cbor:"1,keyasint"`
	Class  ClassName   `json:"class,omitempty" cbor:"2,keyasint,omitempty"` // default production
	Groups []GroupSpec `json:"groups" cbor:"3,keyasint"`
}

// GroupSpec describes Count equal instances of one program. It has a field for each key of the group block in a job
// file.
type GroupSpec struct {
	Name  string `json:"name" cbor:"1,keyasint"`
	Count int    `json:"count" cbor:"2,keyasint"` // default 1; a system group has one instance per eligible node instead
	Role  Role   `json:"role,omitempty" cbor:"3,keyasint,omitempty"`

	Exec      ExecSpec          `json:"exec,omitzero" cbor:"4,keyasint"`
	Container *ContainerSpec    `json:"container,omitempty" cbor:"18,keyasint,omitempty"` // in place of Exec
	Env       map[string]string `json:"env,omitempty" cbor:"5,keyasint,omitempty" debug:"secret"`
	Resources Resources         `json:"resources" cbor:"6,keyasint"`
	Ports     []PortSpec        `json:"ports,omitempty" cbor:"7,keyasint,omitempty"`
	Volumes   []VolumeSpec      `json:"volumes,omitempty" cbor:"8,keyasint,omitempty"`
	Services  []ServiceSpec     `json:"services,omitempty" cbor:"9,keyasint,omitempty"`
	Checks    []CheckSpec       `json:"checks,omitempty" cbor:"10,keyasint,omitempty"`
	Stop      StopSpec          `json:"stop" cbor:"11,keyasint"`
	Restart   RestartSpec       `json:"restart" cbor:"12,keyasint"`
	Exclusive *ExclusiveSpec    `json:"exclusive,omitempty" cbor:"16,keyasint,omitempty"` // nil means no lease
	RoleCheck *RoleCheckSpec    `json:"role_check,omitempty" cbor:"14,keyasint,omitempty"`
	Hooks     []HookSpec        `json:"hooks,omitempty" cbor:"15,keyasint,omitempty"`
	Peers     *PeersSpec        `json:"peers,omitempty" cbor:"17,keyasint,omitempty"`

	Reschedule  RetrySpec       `json:"reschedule" cbor:"20,keyasint"`
	Update      UpdateSpec      `json:"update" cbor:"21,keyasint"`
	Budget      *BudgetSpec     `json:"budget,omitempty" cbor:"22,keyasint,omitempty"`
	Budgets     []BudgetName    `json:"budgets,omitempty" cbor:"26,keyasint,omitempty"` // shared budgets
	Eviction    EvictionSpec    `json:"eviction" cbor:"23,keyasint"`
	Replacement ReplacementSpec `json:"replacement" cbor:"24,keyasint"`
	Toleration  TolerationSpec  `json:"toleration" cbor:"25,keyasint"`

	Constraints []Constraint `json:"constraints,omitempty" cbor:"30,keyasint,omitempty"`
	Affinities  []Affinity   `json:"affinities,omitempty" cbor:"31,keyasint,omitempty"`
	Spreads     []Spread     `json:"spreads,omitempty" cbor:"32,keyasint,omitempty"`
	// attributes; no two instances may have the same value of one of them
	Distinct []string `json:"distinct,omitempty" cbor:"33,keyasint,omitempty"`
}

// ExecSpec is the program of a group. In Command and Args, the agent replaces variables such as ${port.NAME}, ${slot},
// ${node.id} and ${node.name} with their values.
type ExecSpec struct {
	Command string            `json:"command" cbor:"1,keyasint"`
	Args    []string          `json:"args,omitempty" cbor:"2,keyasint,omitempty"`
	User    string            `json:"user,omitempty" cbor:"3,keyasint,omitempty"`
	Rlimits map[string]uint64 `json:"rlimits,omitempty" cbor:"4,keyasint,omitempty"`
}

// Resources are what an instance is promised, or what a node has. CPU is in shares: a node has 1,000 for each core, and
// an instance may use more than it was promised. MemoryBytes is a hard cap. DiskBytes limits the files below an
// instance's work directory; an excess is reported, not prevented. Placement ignores Pids and DiskBytes.
type Resources struct {
	CPU         int64 `json:"cpu" cbor:"1,keyasint,omitempty"`                  // default 100
	MemoryBytes int64 `json:"memory_bytes" cbor:"2,keyasint,omitempty"`         // default 64 MiB
	Pids        int64 `json:"pids,omitempty" cbor:"3,keyasint,omitempty"`       // processes and threads; 0 means 4096
	DiskBytes   int64 `json:"disk_bytes,omitempty" cbor:"4,keyasint,omitempty"` // 0 means no limit
}

// PortSpec asks for a TCP port of the node: the port Static, or a dynamic port if Static is 0.
type PortSpec struct {
	Name   string `json:"name" cbor:"1,keyasint"`
	Static int    `json:"static,omitempty" cbor:"2,keyasint,omitempty"`
	// To is the port inside a container with a network of its own, to which the node's port leads. 0 means the number of
	// the node's port.
	To int `json:"to,omitempty" cbor:"3,keyasint,omitempty"`
}

// VolumeKind says whether a volume's data has one copy, or a copy in each instance of the group.
type VolumeKind string

// The kinds of volumes.
const (
	VolumeLocal      VolumeKind = "local"
	VolumeReplicated VolumeKind = "replicated"
)

// VolumeSpec is per-instance data on a node. A local volume pins its instance to its home node.
type VolumeSpec struct {
	Name string     `json:"name" cbor:"1,keyasint"`
	Kind VolumeKind `json:"kind" cbor:"2,keyasint"`
	// Path is where the program and the checks of the instance find the data. It must be absolute, without symbolic links,
	// and outside /proc, /sys and /dev. It must not be / or overlap with another volume of the group. The agent mounts the
	// data there for this instance alone.
	//
	// An agent that is not root can't mount the data. A program that should run under any agent reads the variable
	// OUTSPAN_VOLUME_<NAME>. It contains Path, or the data's own directory if the data can't be mounted.
	Path string `json:"path" cbor:"3,keyasint"`
}

// ServiceSpec publishes a port under a name. If Expose is not 0, every agent listens on the port Expose and forwards to
// ready instances.
type ServiceSpec struct {
	Name   string `json:"name" cbor:"1,keyasint"`
	Port   string `json:"port" cbor:"2,keyasint"`
	Expose int    `json:"expose,omitempty" cbor:"3,keyasint,omitempty"`
}

// CheckKind is how a check probes an instance.
type CheckKind string

// The kinds of checks.
const (
	CheckHTTP CheckKind = "http"
	CheckTCP  CheckKind = "tcp"
	CheckExec CheckKind = "exec"
)

// CheckSpec is a check that decides whether an instance is ready. Defaults: Interval 10 s, Timeout 2 s, Grace 10 s,
// Successes 1, Failures 3. Failures within Grace after the start are ignored until the check first passes.
type CheckSpec struct {
	Name      string    `json:"name" cbor:"1,keyasint"`
	Kind      CheckKind `json:"type" cbor:"2,keyasint"`
	Port      string    `json:"port,omitempty" cbor:"3,keyasint,omitempty"`
	Path      string    `json:"path,omitempty" cbor:"4,keyasint,omitempty"`
	Command   []string  `json:"exec,omitempty" cbor:"5,keyasint,omitempty"`
	Interval  Duration  `json:"interval" cbor:"6,keyasint,omitempty"`
	Timeout   Duration  `json:"timeout" cbor:"7,keyasint,omitempty"`
	Grace     Duration  `json:"grace" cbor:"8,keyasint,omitempty"`
	Successes int       `json:"successes" cbor:"9,keyasint,omitempty"`
	Failures  int       `json:"failures" cbor:"10,keyasint,omitempty"`
	// RestartAfter is how long the check may fail before the agent restarts the program in place. RestartSpec limits these
	// restarts too. If RestartAfter is 0, a failing check restarts nothing.
	RestartAfter Duration `json:"restart_after,omitempty" cbor:"11,keyasint,omitempty"`
}

// RoleCheckSpec is the role check, which asks each instance for its facts as one flat JSON object. Either the command
// Exec prints the object, or an HTTP GET from Port returns it; exactly one of Exec and Port is given. Defaults:
// Interval 5 s, Timeout 2 s, Path "/".
type RoleCheckSpec struct {
	Exec     []string `json:"exec,omitempty" cbor:"1,keyasint,omitempty"`
	Port     string   `json:"port,omitempty" cbor:"2,keyasint,omitempty"`
	Path     string   `json:"path,omitempty" cbor:"3,keyasint,omitempty"`
	Interval Duration `json:"interval" cbor:"4,keyasint,omitempty"`
	Timeout  Duration `json:"timeout" cbor:"5,keyasint,omitempty"`
}

// HookName says when a hook runs.
type HookName string

// The hooks.
const (
	HookBeforeStop HookName = "before_stop" // before a planned stop begins, while the instance still serves
	HookAfterStart HookName = "after_start" // after the program has started, before the instance can be ready
)

// HookFailure says what happens after a hook failed.
type HookFailure string

// The consequences of a failed hook. HookAbort postpones the stop (before_stop) or makes the start fail (after_start).
// HookContinue ignores the failure.
const (
	HookAbort    HookFailure = "abort"
	HookContinue HookFailure = "continue"
)

// HookSpec is a program that the agent runs beside an instance, with the instance's environment and user. Defaults:
// Timeout 30 s, OnFailure HookAbort.
type HookSpec struct {
	Name      HookName    `json:"name" cbor:"1,keyasint"`
	Exec      []string    `json:"exec" cbor:"2,keyasint"`
	Timeout   Duration    `json:"timeout" cbor:"3,keyasint,omitempty"`
	OnFailure HookFailure `json:"on_failure,omitempty" cbor:"4,keyasint,omitempty"`
}

// PeersSpec is for programs that read the file named by OUTSPAN_PEERS, which lists the instances of their group. In a
// group with a PeersSpec, the list has up to 1,000 instances instead of 100.
type PeersSpec struct {
	// Signal is SIGHUP, SIGUSR1 or SIGUSR2; "" means no signal. The agent sends it to the process group of a ready program
	// after an instance in the list, or its address, has changed. It may send the signal once more after the agent
	// restarts.
	Signal string `json:"signal,omitempty" cbor:"1,keyasint,omitempty"`
}

// StopSpec says how an instance is stopped. First its services stop using the instance. After DrainDelay (default 1 s)
// the instance gets Signal (default SIGTERM). Processes that still run after Grace (default 10 s) are killed (P13).
type StopSpec struct {
	Signal     string   `json:"signal" cbor:"1,keyasint,omitempty"`
	Grace      Duration `json:"grace" cbor:"2,keyasint,omitempty"`
	DrainDelay Duration `json:"drain_delay" cbor:"3,keyasint,omitempty"`
}

// RestartSpec says how the agent restarts a failed program in the same instance. If the program fails more than
// Attempts times within Interval, the instance fails. Delay is the wait before the first restart, and doubles with each
// failure. Defaults: 3 attempts in 10 min, delay 5 s.
type RestartSpec struct {
	Attempts int      `json:"attempts" cbor:"1,keyasint,omitempty"`
	Interval Duration `json:"interval" cbor:"2,keyasint,omitempty"`
	Delay    Duration `json:"delay" cbor:"3,keyasint,omitempty"`
}

// RetrySpec limits how fast failed instances are replaced (P26). If more than Attempts instances of a version have
// failed recently, the next replacement waits for Interval. Each further failure doubles the wait, up to 1 h. Defaults:
// 3 attempts, interval 10 min.
type RetrySpec struct {
	Attempts int      `json:"attempts" cbor:"1,keyasint,omitempty"`
	Interval Duration `json:"interval" cbor:"2,keyasint,omitempty"`
}

// UpdateSpec says how a new version is rolled out.
type UpdateSpec struct {
	// default 1, or 0 if MaxUnavailable is given
	MaxSurge       int `json:"max_surge" cbor:"1,keyasint,omitempty"`
	MaxUnavailable int `json:"max_unavailable" cbor:"2,keyasint,omitempty"`
	// how long a new instance must stay ready; default 0 s, but up to 5 s with AutoRevert and no check
	MinHealthy Duration `json:"min_healthy" cbor:"3,keyasint,omitempty"`
	// the deployment fails after this long without progress; default 10 min
	Deadline   Duration `json:"deadline" cbor:"4,keyasint,omitempty"`
	AutoRevert bool     `json:"auto_revert,omitempty" cbor:"5,keyasint,omitempty"`
	Canary     int      `json:"canary,omitempty" cbor:"6,keyasint,omitempty"`
	Order      Order    `json:"order,omitempty" cbor:"7,keyasint,omitempty"` // default: the order of the eviction block
}

// Constraint is a rule that a node must satisfy. Attribute is node.id, node.name, node.label.X or node.attr.X.
type Constraint struct {
	Attribute string `json:"attribute" cbor:"1,keyasint"`
	Operator  string `json:"operator" cbor:"2,keyasint"` // = != < <= > >= regexp in not_in is_set is_not_set
	Value     string `json:"value,omitempty" cbor:"3,keyasint,omitempty"`
}

// Affinity is a preference for nodes that satisfy the constraint. Weight is -100 to 100 and not 0. A negative weight
// means that such nodes are avoided.
type Affinity struct {
	Constraint `cbor:"1,keyasint"`
	Weight     int `json:"weight" cbor:"2,keyasint"`
}

// Spread asks for an even distribution of instances over the values of an attribute.
type Spread struct {
	Attribute string `json:"attribute" cbor:"1,keyasint"`
}

// StopsFirst reports whether an eviction stops an instance of the group before its replacement is created. A budget
// that allows no instance to be down would block such a stop forever. If instances of the group are never evicted,
// StopsFirst returns false.
func (g *GroupSpec) StopsFirst() bool {
	return g.Eviction.Order == OrderStopFirst && g.Eviction.Mode != ModeNever
}

// Template returns the part of a group that can't change while an instance runs. If a new version changes the template,
// the instances must be replaced. The template omits the count, budgets, the role and what it presets, limits of
// rollouts and restarts, services, and soft placement. But it includes the identity of replacements, because servers
// and agents read from an instance's own version whether its slot may have only one holder.
func (g GroupSpec) Template() GroupSpec {
	g.Count, g.Budget, g.Budgets, g.Role = 0, nil, nil, ""
	g.Update, g.Reschedule, g.Restart = UpdateSpec{}, RetrySpec{}, RestartSpec{}
	g.Eviction, g.Replacement, g.Toleration = EvictionSpec{},
		ReplacementSpec{Identity: g.Replacement.Identity}, TolerationSpec{}
	g.Affinities, g.Spreads, g.Services = nil, nil, nil
	if g.Container != nil { // the platforms of an image with a digest never change, but a server may not know them
		c := *g.Container
		c.Platforms, g.Container = nil, &c
	}
	return g
}

// The values of ReplacementSpec.Data.
const (
	dataEmpty = "empty"
	dataKeep  = "keep"
)

// refillsByRole reports whether programs of this role copy data from the other members to a new, empty member.
func refillsByRole(role Role) bool {
	return role == RoleQuorum || role == RoleShardedData || role == RoleLeaderFollower
}

// Refills reports whether the other members copy their data to a member that starts empty. If so, a replacement may
// start empty on another node, and the slot's old local volumes are left behind (A8).
func (g *GroupSpec) Refills() bool {
	mode := g.Replacement.Mode
	return g.HasVolume(VolumeLocal) && g.Replacement.Data == dataEmpty && (mode == ModeAlways || mode == ModeWhen)
}

// Replicated reports whether each instance of the group has its own copy of the data.
func (g *GroupSpec) Replicated() bool { return g.HasVolume(VolumeReplicated) }
