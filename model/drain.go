package model

// DrainPhase is the progress of a drain on one node. A drain begins as draining and ends as drained, failed or canceled
// (B8-B11).
type DrainPhase string

// The phases of a drain.
const (
	PhaseDraining DrainPhase = "draining"
	PhaseDrained  DrainPhase = "drained"
	PhaseFailed   DrainPhase = "failed"
	PhaseCanceled DrainPhase = "canceled"
)

// DrainOptions are the options with which a drain was started.
type DrainOptions struct {
	// time for each node, counted from the node's turn; Forever means no deadline
	Deadline Duration `cbor:"1,keyasint" json:"deadline"`
	// stop instances even if their role forbids it or no replacement is ready
	Force            bool     `cbor:"2,keyasint,omitempty" json:"force,omitempty"`
	ForceAtDeadline  bool     `cbor:"3,keyasint,omitempty" json:"force_at_deadline,omitempty"`
	AcceptDowntime   []string `cbor:"4,keyasint,omitempty" json:"accept_downtime,omitempty"` // "JOB/GROUP", or "*" for all
	IgnoreSystem     bool     `cbor:"5,keyasint,omitempty" json:"ignore_system,omitempty"`
	MaxParallelNodes int      `cbor:"6,keyasint,omitempty" json:"max_parallel_nodes,omitempty"` // 0 means all at once
	Policy           string   `cbor:"7,keyasint,omitempty" json:"policy,omitempty"`
	// the rolling maintenance that this drain is a step of
	Roll *Roll `cbor:"8,keyasint,omitempty" json:"roll,omitempty"`
}

// Roll is the rolling maintenance of many nodes, with one drain for each node. These drains record its progress, so any
// operator can continue it from any machine.
type Roll struct {
	ID    string   `cbor:"1,keyasint" json:"id"`
	Nodes []string `cbor:"2,keyasint" json:"nodes"` // names of all nodes, in order
	// shell command for the maintenance of one node, whose name replaces {node}; if Exec is empty, a person reboots the
	// node
	Exec     string `cbor:"3,keyasint,omitempty" json:"exec,omitempty"`
	Parallel int    `cbor:"4,keyasint,omitempty" json:"max_parallel_nodes,omitempty"` // default 1
	// true if Exec does not reboot the node, so the roll does not wait for a new boot id
	NoReboot bool `cbor:"5,keyasint,omitempty" json:"no_reboot,omitempty"`
}

// AcceptsDowntime reports whether the operator accepted that the drain stops instances of this group without a
// replacement.
func (o *DrainOptions) AcceptsDowntime(group GroupID) bool {
	for _, a := range o.AcceptDowntime {
		if a == "*" || a == string(group) {
			return true
		}
	}
	return false
}

// DrainRefusal is a node on which a drain could not start. Code is not_found, already_draining or disabled.
type DrainRefusal struct {
	Node    string `cbor:"1,keyasint" json:"node"`
	Code    Code   `cbor:"2,keyasint" json:"code"`
	Message string `cbor:"3,keyasint" json:"message"`
}

// DrainPolicy says what a drain does with the members of replicated groups on its nodes, and whether these members keep
// the drain from finishing (L1).
type DrainPolicy string

// The policies. A member is last if no other node has a member of its group that is ready, in sync and not leaving; see
// docs/drain-policies.md.
const (
	// no member keeps a drain from finishing
	PolicyAlwaysAllow  DrainPolicy = "always-allow"
	PolicyAllowStopped DrainPolicy = "allow-if-replica-is-stopped"    // a running last member keeps a drain from finishing
	PolicyBlockLast    DrainPolicy = "block-if-contains-last-replica" // any last member keeps a drain from finishing
	// any last member keeps a drain from finishing until its replacement on another node is ready
	PolicyEvictLast DrainPolicy = "block-for-eviction-if-contains-last-replica"
	PolicyEvictAll  DrainPolicy = "block-for-eviction" // the same as PolicyEvictLast, but for every member

	PolicyEvictLastAlias = "block-for-eviction-if-last-replica"
)

// DrainPolicies lists the values of the setting node_drain_policy. The last one is an alias.
func DrainPolicies() []string {
	return []string{string(PolicyBlockLast), string(PolicyEvictAll), string(PolicyEvictLast), string(PolicyAllowStopped),
		string(PolicyAlwaysAllow), PolicyEvictLastAlias}
}

// EvictOn says what triggers the eviction of members of replicated groups.
type EvictOn string

// The values of EvictOn.
const (
	EvictOnDrain  EvictOn = "drain"
	EvictOnCordon EvictOn = "cordon" // a cordon, even without a drain (L7)
)

// Valid reports whether e is one of these values.
func (e EvictOn) Valid() bool { return e == EvictOnDrain || e == EvictOnCordon }
