package model

// DrainPolicy says what a drain does with the members of replicated groups on its node, and whether they keep it from
// ending (L1).
type DrainPolicy string

// The policies.
const (
	PolicyAlwaysAllow  DrainPolicy = "always-allow"                                // the data never keeps a drain from ending
	PolicyAllowStopped DrainPolicy = "allow-if-replica-is-stopped"                 // a running member that is last does
	PolicyBlockLast    DrainPolicy = "block-if-contains-last-replica"              // any member that is last does
	PolicyEvictLast    DrainPolicy = "block-for-eviction-if-contains-last-replica" // as before, and those that are last are built elsewhere
	PolicyEvictAll     DrainPolicy = "block-for-eviction"                          // every member is built elsewhere

	PolicyEvictLastAlias = "block-for-eviction-if-last-replica"
)

// DrainPolicies are the values of the setting node_drain_policy; the last is an alias.
func DrainPolicies() []string {
	return []string{string(PolicyBlockLast), string(PolicyEvictAll), string(PolicyEvictLast), string(PolicyAllowStopped), string(PolicyAlwaysAllow), PolicyEvictLastAlias}
}

// EvictOn says what sets the eviction of members off.
type EvictOn string

// What sets evictions off.
const (
	EvictOnDrain  EvictOn = "drain"
	EvictOnCordon EvictOn = "cordon" // also a cordon without a drain (L7)
)

// Valid reports whether e is in the closed set.
func (e EvictOn) Valid() bool { return e == EvictOnDrain || e == EvictOnCordon }
