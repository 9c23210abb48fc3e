package model

// Role is a named preset. It says which instances may be evicted, when, and what replaces them.
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

// Mode says whether and when an instance is evicted or replaced.
type Mode string

// The modes of eviction and replacement.
const (
	ModeAlways  Mode = "always"
	ModeNever   Mode = "never"
	ModeWhen    Mode = "when"    // only while all gates in When hold
	ModeRestart Mode = "restart" // replacement only: the new instance starts on the same node
	// ModeLast is for evictions only, and is the preset of RoleSystem. That role, not the mode, keeps an instance on its
	// node until all others have left. With another role it is like ModeAlways, except that an instance that stays
	// unready is not replaced. It is accepted for each role, because old logs may have it.
	ModeLast Mode = "last"
)

// Order says which comes first when an instance is replaced: the new instance, or the stop of the old one.
type Order string

// The orders.
const (
	OrderSurge     Order = "surge"      // create the new instance, wait as SurgeWait says, then stop the old one (P6)
	OrderStopFirst Order = "stop_first" // stop the old instance, then create the new one
)

// SurgeWait says what a new instance must have reached before a surge stops the old one (P5).
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
	When      []string  `json:"when,omitempty" cbor:"4,keyasint,omitempty"` // gates that must all hold (for ModeWhen)
}

// ReplacementSpec says whether and how an instance is replaced by another one.
type ReplacementSpec struct {
	Mode     Mode     `json:"mode,omitempty" cbor:"1,keyasint,omitempty"`
	Identity string   `json:"identity,omitempty" cbor:"2,keyasint,omitempty"` // "new" or "same"
	Data     string   `json:"data,omitempty" cbor:"3,keyasint,omitempty"`     // "empty" or "keep"
	When     []string `json:"when,omitempty" cbor:"4,keyasint,omitempty"`     // gates that must all hold (for ModeWhen)
}

// TolerationSpec is how long an instance stays before it is replaced. Unreachable begins when the node goes offline.
// NotReady begins when the instance stops being ready, or when its node begins to report troubles. A field that is nil
// has the default of the role.
type TolerationSpec struct {
	Unreachable *Duration `json:"unreachable,omitempty" cbor:"1,keyasint,omitempty"`
	NotReady    *Duration `json:"not_ready,omitempty" cbor:"2,keyasint,omitempty"`
}
