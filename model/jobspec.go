package model

// JobSpec is what the user wants, decoded from a job file. It is plain data: the CLI parses HCL, and servers take this.
type JobSpec struct {
	Name   JobName     `json:"name" cbor:"1,keyasint"`
	Class  ClassName   `json:"class,omitempty" cbor:"2,keyasint,omitempty"` // default production
	Groups []GroupSpec `json:"groups" cbor:"3,keyasint"`
}

// GroupSpec is N equal instances of one program. It has more fields than other structs, because it has one for each key
// of the job file's group block.
type GroupSpec struct {
	Name  string `json:"name" cbor:"1,keyasint"`
	Count int    `json:"count" cbor:"2,keyasint"` // default 1; system groups have one per eligible node
	Role  Role   `json:"role,omitempty" cbor:"3,keyasint,omitempty"`

	Exec      ExecSpec          `json:"exec" cbor:"4,keyasint"`
	Env       map[string]string `json:"env,omitempty" cbor:"5,keyasint,omitempty" debug:"secret"`
	Resources Resources         `json:"resources" cbor:"6,keyasint"`
	Ports     []PortSpec        `json:"ports,omitempty" cbor:"7,keyasint,omitempty"`
	Volumes   []VolumeSpec      `json:"volumes,omitempty" cbor:"8,keyasint,omitempty"`
	Services  []ServiceSpec     `json:"services,omitempty" cbor:"9,keyasint,omitempty"`
	Checks    []CheckSpec       `json:"checks,omitempty" cbor:"10,keyasint,omitempty"`
	Stop      StopSpec          `json:"stop" cbor:"11,keyasint"`
	Restart   RestartSpec       `json:"restart" cbor:"12,keyasint"`
	Exclusive *ExclusiveSpec    `json:"exclusive,omitempty" cbor:"16,keyasint,omitempty"` // nil: no lease
	RoleCheck *RoleCheckSpec    `json:"role_check,omitempty" cbor:"14,keyasint,omitempty"`
	Hooks     []HookSpec        `json:"hooks,omitempty" cbor:"15,keyasint,omitempty"`
	Peers     *PeersSpec        `json:"peers,omitempty" cbor:"17,keyasint,omitempty"`

	Reschedule  RetrySpec       `json:"reschedule" cbor:"20,keyasint"`
	Update      UpdateSpec      `json:"update" cbor:"21,keyasint"`
	Budget      *BudgetSpec     `json:"budget,omitempty" cbor:"22,keyasint,omitempty"`
	Budgets     []BudgetName    `json:"budgets,omitempty" cbor:"26,keyasint,omitempty"` // shared ones, besides its own
	Eviction    EvictionSpec    `json:"eviction" cbor:"23,keyasint"`
	Replacement ReplacementSpec `json:"replacement" cbor:"24,keyasint"`
	Toleration  TolerationSpec  `json:"toleration" cbor:"25,keyasint"`

	Constraints []Constraint `json:"constraints,omitempty" cbor:"30,keyasint,omitempty"`
	Affinities  []Affinity   `json:"affinities,omitempty" cbor:"31,keyasint,omitempty"`
	Spreads     []Spread     `json:"spreads,omitempty" cbor:"32,keyasint,omitempty"`
	// attributes whose values no two instances may share
	Distinct []string `json:"distinct,omitempty" cbor:"33,keyasint,omitempty"`
}

// ExecSpec is the program of a group. ${port.NAME}, ${node.id}, ${node.name} and ${slot} are filled in by the agent.
type ExecSpec struct {
	Command string            `json:"command" cbor:"1,keyasint"`
	Args    []string          `json:"args,omitempty" cbor:"2,keyasint,omitempty"`
	User    string            `json:"user,omitempty" cbor:"3,keyasint,omitempty"`
	Rlimits map[string]uint64 `json:"rlimits,omitempty" cbor:"4,keyasint,omitempty"`
}

// Resources are what an instance is promised: CPU in MHz-like shares (soft), memory in bytes (a hard cap), and
// processes. DiskBytes limits what it writes below its work directory. Placement ignores processes and disk.
type Resources struct {
	CPU         int64 `json:"cpu" cbor:"1,keyasint,omitempty"`                  // default 100
	MemoryBytes int64 `json:"memory_bytes" cbor:"2,keyasint,omitempty"`         // default 64 MiB
	Pids        int64 `json:"pids,omitempty" cbor:"3,keyasint,omitempty"`       // 0: 4096
	DiskBytes   int64 `json:"disk_bytes,omitempty" cbor:"4,keyasint,omitempty"` // 0: no limit
}

// PortSpec asks for a TCP port of the node: a dynamic one, or Static.
type PortSpec struct {
	Name   string `json:"name" cbor:"1,keyasint"`
	Static int    `json:"static,omitempty" cbor:"2,keyasint,omitempty"`
}

// VolumeKind says how many copies of a volume's data there are.
type VolumeKind string

// The kinds of volumes.
const (
	VolumeLocal      VolumeKind = "local"
	VolumeReplicated VolumeKind = "replicated"
)

// VolumeSpec is per-instance data on a node; a local volume pins its instance to its home node.
//
// Path is where the program and the checks of the instance find the data. It is an absolute path without symbolic
// links. It is not /, not below /proc, /sys or /dev, and not inside the path of another volume of the group. No other
// process on the node sees the data there; an empty directory of that name stays on the node. An agent that is not root
// can't mount it. A program that works everywhere reads OUTSPAN_VOLUME_<NAME>, which names Path or else the directory
// of the data itself.
type VolumeSpec struct {
	Name string     `json:"name" cbor:"1,keyasint"`
	Kind VolumeKind `json:"kind" cbor:"2,keyasint"`
	Path string     `json:"path" cbor:"3,keyasint"`
}

// ServiceSpec publishes a port under a name; with Expose every agent forwards that port to ready instances.
type ServiceSpec struct {
	Name   string `json:"name" cbor:"1,keyasint"`
	Port   string `json:"port" cbor:"2,keyasint"`
	Expose int    `json:"expose,omitempty" cbor:"3,keyasint,omitempty"`
}

// CheckKind is how a check asks an instance.
type CheckKind string

// The kinds of checks.
const (
	CheckHTTP CheckKind = "http"
	CheckTCP  CheckKind = "tcp"
	CheckExec CheckKind = "exec"
)

// CheckSpec decides readiness. Defaults: interval 10 s, timeout 2 s, start grace 10 s, 1 success, 3 failures.
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
	// RestartAfter is how long the check may fail before the program is restarted in place. Such a restart counts towards
	// the attempts of the restart block. 0: a failing check restarts nothing.
	RestartAfter Duration `json:"restart_after,omitempty" cbor:"11,keyasint,omitempty"`
}

// RoleCheckSpec asks each instance for its part in its own system: exec prints, or an HTTP GET returns, one flat JSON
// object of facts. Exactly one of Exec and Port is given. Defaults: interval 5 s, timeout 2 s, path /.
type RoleCheckSpec struct {
	Exec     []string `json:"exec,omitempty" cbor:"1,keyasint,omitempty"`
	Port     string   `json:"port,omitempty" cbor:"2,keyasint,omitempty"`
	Path     string   `json:"path,omitempty" cbor:"3,keyasint,omitempty"`
	Interval Duration `json:"interval" cbor:"4,keyasint,omitempty"`
	Timeout  Duration `json:"timeout" cbor:"5,keyasint,omitempty"`
}

// HookName says when a hook runs.
type HookName string

// The hooks. before_stop runs before a planned stop begins, while the instance still serves. after_start runs once the
// program runs, before it can be ready.
const (
	HookBeforeStop HookName = "before_stop"
	HookAfterStart HookName = "after_start"
)

// HookFailure says what follows from a failed hook.
type HookFailure string

// The consequences of a failed hook.
const (
	HookAbort    HookFailure = "abort"    // the stop is given up for now, or the start has failed
	HookContinue HookFailure = "continue" // as if it had succeeded
)

// HookSpec is a program that the agent runs beside an instance, with its environment and user. Defaults: timeout 30 s,
// on_failure abort.
type HookSpec struct {
	Name      HookName    `json:"name" cbor:"1,keyasint"`
	Exec      []string    `json:"exec" cbor:"2,keyasint"`
	Timeout   Duration    `json:"timeout" cbor:"3,keyasint,omitempty"`
	OnFailure HookFailure `json:"on_failure,omitempty" cbor:"4,keyasint,omitempty"`
}

// PeersSpec is for programs that use OUTSPAN_PEERS, the list of their group's instances. With it the list has up to
// 1,000 of them instead of 100.
type PeersSpec struct {
	// Signal is sent to the program's process group, once it is ready, after an instance has come, gone or moved: SIGHUP,
	// SIGUSR1 or SIGUSR2. It may be sent once more after a restart of the agent. Default: none, so the program reads the
	// file when it wants to.
	Signal string `json:"signal,omitempty" cbor:"1,keyasint,omitempty"`
}

// StopSpec is how an instance ends: readiness is withdrawn, DrainDelay passes (default 1 s), Signal is sent (default
// SIGTERM), and after Grace (default 10 s, P13) what is left is killed.
type StopSpec struct {
	Signal     string   `json:"signal" cbor:"1,keyasint,omitempty"`
	Grace      Duration `json:"grace" cbor:"2,keyasint,omitempty"`
	DrainDelay Duration `json:"drain_delay" cbor:"3,keyasint,omitempty"`
}

// RestartSpec is the restart on the same node by the agent: at most Attempts within Interval, after a Delay that grows.
// Defaults: 3 in 10 min, 5 s.
type RestartSpec struct {
	Attempts int      `json:"attempts" cbor:"1,keyasint,omitempty"`
	Interval Duration `json:"interval" cbor:"2,keyasint,omitempty"`
	Delay    Duration `json:"delay" cbor:"3,keyasint,omitempty"`
}

// RetrySpec is the replacement elsewhere after failure. Default 3 in 10 min per group and version (P26).
type RetrySpec struct {
	Attempts int      `json:"attempts" cbor:"1,keyasint,omitempty"`
	Interval Duration `json:"interval" cbor:"2,keyasint,omitempty"`
}

// UpdateSpec is how a new version is rolled out. Defaults: surge 1 if unavailable is 0 too, min healthy time 0 s (5 s
// with AutoRevert in a group without a check), deadline 10 min.
type UpdateSpec struct {
	MaxSurge       int      `json:"max_surge" cbor:"1,keyasint,omitempty"`
	MaxUnavailable int      `json:"max_unavailable" cbor:"2,keyasint,omitempty"`
	MinHealthy     Duration `json:"min_healthy" cbor:"3,keyasint,omitempty"` // how long a new instance must stay ready
	// the deployment fails after this long without progress
	Deadline   Duration `json:"deadline" cbor:"4,keyasint,omitempty"`
	AutoRevert bool     `json:"auto_revert,omitempty" cbor:"5,keyasint,omitempty"`
	Canary     int      `json:"canary,omitempty" cbor:"6,keyasint,omitempty"`
	Order      Order    `json:"order,omitempty" cbor:"7,keyasint,omitempty"` // default: that of the eviction block
}

// Constraint is a hard placement rule over node attributes: node.id, node.name, node.label.X, node.attr.X.
type Constraint struct {
	Attribute string `json:"attribute" cbor:"1,keyasint"`
	Operator  string `json:"operator" cbor:"2,keyasint"` // = != < <= > >= regexp in not_in is_set is_not_set
	Value     string `json:"value,omitempty" cbor:"3,keyasint,omitempty"`
}

// Affinity is a soft placement rule; Weight is -100..100.
type Affinity struct {
	Constraint `cbor:"1,keyasint"`
	Weight     int `json:"weight" cbor:"2,keyasint"`
}

// Spread asks for instances to be spread evenly over the values of an attribute.
type Spread struct {
	Attribute string `json:"attribute" cbor:"1,keyasint"`
}

// StopsFirst reports whether instances of the group that must leave are stopped before they are replaced. A budget that
// lets no instance be down would block such a stop forever.
func (g *GroupSpec) StopsFirst() bool {
	return g.Eviction.Order == OrderStopFirst && g.Eviction.Mode != ModeNever
}

// Template returns the part of a group that can't change under a running instance. Counts, budgets, the role, limits of
// restarts, services and soft placement can change, so they are left out. The identity of replacements stays in:
// servers and agents read from an instance's own version whether its slot may have only one holder.
func (g GroupSpec) Template() GroupSpec {
	g.Count, g.Budget, g.Budgets, g.Role = 0, nil, nil, ""
	g.Update, g.Reschedule, g.Restart = UpdateSpec{}, RetrySpec{}, RestartSpec{}
	g.Eviction, g.Replacement, g.Toleration = EvictionSpec{},
		ReplacementSpec{Identity: g.Replacement.Identity}, TolerationSpec{}
	g.Affinities, g.Spreads, g.Services = nil, nil, nil
	return g
}

// The values of ReplacementSpec.Data.
const (
	dataEmpty = "empty"
	dataKeep  = "keep"
)

// refillsByRole reports whether the members of a role copy their data to a new, empty member on their own.
func refillsByRole(role Role) bool {
	return role == RoleQuorum || role == RoleShardedData || role == RoleLeaderFollower
}

// Refills reports whether the other members copy their data to a member that starts empty. Then a slot may leave its
// local volumes behind (A8).
func (g *GroupSpec) Refills() bool {
	mode := g.Replacement.Mode
	return g.HasVolume(VolumeLocal) && g.Replacement.Data == dataEmpty && (mode == ModeAlways || mode == ModeWhen)
}

// Replicated reports whether each instance of the group is a replica that holds a copy of the data.
func (g *GroupSpec) Replicated() bool { return g.HasVolume(VolumeReplicated) }
