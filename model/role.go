package model

// Role is a named preset that says which instances may be evicted, when, and what replaces them.
type Role string

// The roles.
const (
	RoleService        Role = "service"
	RoleProbe          Role = "probe"
	RoleFront          Role = "front"
	RoleWorker         Role = "worker"
	RoleShardedData    Role = "sharded-data"
	RoleQuorum         Role = "quorum"
	RoleSingleton      Role = "singleton"
	RoleLeaderFollower Role = "leader-follower"
	RoleLocal          Role = "local"
	RoleReplicated     Role = "replicated"
	RoleSystem         Role = "system"
)

// Mode says whether an eviction or a replacement is done.
type Mode string

// The modes of eviction and replacement.
const (
	ModeAlways  Mode = "always"
	ModeNever   Mode = "never"
	ModeWhen    Mode = "when"    // while all gates hold
	ModeRestart Mode = "restart" // replacement only: start again on the same node
	ModeLast    Mode = "last"    // eviction only: after all others on the node
)

// Order says what comes first when an instance is replaced.
type Order string

// The orders.
const (
	OrderSurge     Order = "surge"      // create the new one, wait, then drain the old one (P6)
	OrderStopFirst Order = "stop_first" // drain the old one, then create the new one
)

// SurgeWait says what a surge waits for before the old instance is drained (P5).
type SurgeWait string

// The values of SurgeWait.
const (
	WaitReady   SurgeWait = "ready"
	WaitStarted SurgeWait = "started"
)

// EvictionSpec says when an instance may leave its node for a cause from outside its job.
type EvictionSpec struct {
	Mode      Mode      `json:"mode,omitempty" cbor:"1,keyasint,omitempty"`
	Order     Order     `json:"order,omitempty" cbor:"2,keyasint,omitempty"`
	SurgeWait SurgeWait `json:"surge_wait,omitempty" cbor:"3,keyasint,omitempty"`
	When      []string  `json:"when,omitempty" cbor:"4,keyasint,omitempty"` // gates, with mode when: all must hold
}

// ReplacementSpec says whether another instance takes over.
type ReplacementSpec struct {
	Mode     Mode     `json:"mode,omitempty" cbor:"1,keyasint,omitempty"`
	Identity string   `json:"identity,omitempty" cbor:"2,keyasint,omitempty"` // new | same
	Data     string   `json:"data,omitempty" cbor:"3,keyasint,omitempty"`     // empty | keep
	When     []string `json:"when,omitempty" cbor:"4,keyasint,omitempty"`     // gates, with mode when: all must hold
}

// TolerationSpec is extra time before an instance is replaced: after its node went offline, and after it stopped being
// ready. A nil field means the role's default.
type TolerationSpec struct {
	Unreachable *Duration `json:"unreachable,omitempty" cbor:"1,keyasint,omitempty"`
	NotReady    *Duration `json:"not_ready,omitempty" cbor:"2,keyasint,omitempty"`
}
