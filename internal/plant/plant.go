// Package plant puts known bugs into the product, one at a time, to show that the tests find them.
//
// A build without the tag "planted" has none of the bugs: Is always returns false, so the compiler removes every branch
// that depends on Is. A process built with the tag has the bug that the environment variable OUTSPAN_PLANT names, or no
// bug if the variable is not set. `make plants` builds the tests with the tag. For each bug, a test must fail and name
// the invariant that the bug breaks.
package plant

// Bug is the name of a bug that can be planted.
type Bug string

// Traps of the libraries: what goes wrong if a library is used as its defaults suggest. Each trap was seen in a test,
// or found in the library's code. cluster/DESIGN.md describes how the product avoids the traps.
const (
	// WedgedFollower sends several requests to a follower before the first is answered, and continues after an error of
	// the log store. One failed append then blocks replication to that follower forever. Source: raft, MaxRPCsInFlight of
	// NetworkTransportConfig.
	WedgedFollower Bug = "wedged_follower"
	// HungDisk removes the watchdog of calls to the log store. A leader whose disk hangs then stays leader forever,
	// because its heartbeats need no disk. Source: raft, replicate.
	HungDisk Bug = "hung_disk"
	// VerifyLeader confirms a consistent read by raft's VerifyLeader instead of a Barrier. A leader that was paused
	// accepts answers from before the pause. Its read then misses what a newer leader wrote during the pause. Source:
	// raft, verifyLeader.
	VerifyLeader Bug = "verify_leader"
	// DivergentSnapshot does not report the log store as monotonic. When a server whose log has divergent entries gets a
	// snapshot, these entries stay in the log, and the snapshot is installed again and again. The bug only shows if the
	// log was truncated after a snapshot. Source: raft, installSnapshot.
	DivergentSnapshot Bug = "divergent_snapshot"
	// StuckTransfer lets a server run although raft reports forever that a leadership transfer is in progress. If a
	// transfer is interrupted, raft's flag for it outlives the term. When the server is elected again, it refuses every
	// write. Source: raft, leadershipTransfer.
	StuckTransfer Bug = "stuck_transfer"
	// UnreadNotify reads raft's notifications in the same goroutine that begins and stops terms. While that goroutine is
	// busy, nobody reads the notifications, and raft's main loop blocks. Source: raft, NotifyCh of Config.
	UnreadNotify Bug = "unread_notify"
)

// Bugs of our own. Each removes one rule on which the product's correctness depends.
const (
	// BudgetBeforeApply checks budgets only when a stop is decided or requested, and not when it is applied. Two stops
	// that are decided on the same state can then exceed the budget.
	BudgetBeforeApply Bug = "budget_before_apply"
	// StaleLastCopy treats a member as a healthy copy of the data if its last report said so, however old the report is,
	// and even if the member's node is offline.
	StaleLastCopy Bug = "stale_last_copy"
	// OfflineByGossip marks a node offline as soon as gossip declares the node dead, even if servers hear its heartbeats.
	OfflineByGossip Bug = "offline_by_gossip"
	// ReplaceBeforeFencing replaces a lost instance that is not known to have stopped, although only one instance of its
	// slot may run.
	ReplaceBeforeFencing Bug = "replace_before_fencing"
	// NotReadyAtOnce moves instances at once from a node whose agent reports troubles, without waiting for the tolerations
	// of their groups.
	NotReadyAtOnce Bug = "not_ready_at_once"
	// PlacedBeforePulled places a container on a node that does not have its image yet.
	PlacedBeforePulled Bug = "placed_before_pulled"
	// RoomNotHeld keeps no room for an instance whose image is being pulled. Another instance can take the room meanwhile.
	RoomNotHeld Bug = "room_not_held"
	// ResolvedTwice orders an image by its name, so that the agent asks the registry again what the name stands for. The
	// digest that the servers have stored is ignored.
	ResolvedTwice Bug = "resolved_twice"
	// MapOrder chooses between equally good nodes by the order of a map.
	MapOrder Bug = "map_order"
	// SkipUnknown skips a log entry that can't be read. The server should stop instead.
	SkipUnknown Bug = "skip_unknown"
	// RestoreForgives restores the rows of tokens and members with the rest of a snapshot. A member that was revoked since
	// is then good again, and a token that was spent since has its uses again.
	RestoreForgives Bug = "restore_forgives"
	// DroppedKey restores the rows of keys that were dropped since the snapshot was saved. A CA that a rotation has
	// removed, because its key was stolen, is then trusted again.
	DroppedKey Bug = "dropped_key"
	// EarlyDrop lets a rotation of the CA drop the old CA at once, without waiting until each member has a certificate of
	// the new one. Members with a certificate of the old CA are then locked out.
	EarlyDrop Bug = "early_drop"
	// SpentToken lets a join token admit members when it has no uses left.
	SpentToken Bug = "spent_token"
	// VoidCounts ignores fsm.TrustMember.VoidBefore. A stolen certificate of a server then counts again once that server
	// has returned.
	VoidCounts Bug = "void_counts"
	// ReplacedKey renews the certificate of an agent that shows a key which was replaced.
	ReplacedKey Bug = "replaced_key"
)

// Bugs that the product once had. Each is planted where it was fixed.
const (
	// EpochAgain derives a node's next epoch from the node's row alone. After a restore, or after the node was forgotten,
	// another registration then gets an epoch that was used before.
	EpochAgain Bug = "epoch_again"
	// GenerationsOnly orders an instance's reports by generation alone, and not by the node's epoch first. The generation
	// can go back if an agent could not write its journal.
	GenerationsOnly Bug = "generations_only"
	// GuessedSize assumes that each command of a plan has 512 bytes. A command that names many nodes may have megabytes.
	// The log then refuses the plan's entry again and again.
	GuessedSize Bug = "guessed_size"
	// OldCopyByClock removes the old copy of a moved volume when the time volume_cooling is over, even if the old copy is
	// the only one.
	OldCopyByClock Bug = "old_copy_by_clock"
	// ForgottenVolume drops the rows of a forgotten node's volumes and keeps no record of them, so nothing shows that
	// their data was lost.
	ForgottenVolume Bug = "forgotten_volume"
	// DrainForgetsMoves marks a node as drained while a transfer still needs the node, such as while the only copy of a
	// volume is being attached there.
	DrainForgetsMoves Bug = "drain_forgets_moves"
	// PrefixInWrites accepts a prefix of a name in a write, where only the whole name is allowed.
	PrefixInWrites Bug = "prefix_in_writes"
	// AbsentNodesCount makes the rollout of a system group wait for nodes that are offline or cordoned.
	AbsentNodesCount Bug = "absent_nodes_count"
	// LeaseByRole gives a group with the role quorum a lease, even if its job file asks for no lease. A node that hears no
	// servers then kills its members of the group.
	LeaseByRole Bug = "lease_by_role"
	// OlderLineage lets servers communicate with servers of a lineage that a recovery replaced.
	OlderLineage Bug = "older_lineage"
	// ClonedMachine lets any machine take over a node, even if instances may still run on the previous machine.
	ClonedMachine Bug = "cloned_machine"
)

// All returns every bug: the traps first, then our own bugs, then those that the product once had.
func All() []Bug {
	return []Bug{
		WedgedFollower, HungDisk, VerifyLeader, DivergentSnapshot, StuckTransfer, UnreadNotify,
		BudgetBeforeApply, StaleLastCopy, OfflineByGossip, ReplaceBeforeFencing, NotReadyAtOnce,
		PlacedBeforePulled, RoomNotHeld, ResolvedTwice, MapOrder, SkipUnknown,
		RestoreForgives, DroppedKey, EarlyDrop, SpentToken, VoidCounts, ReplacedKey,
		EpochAgain, GenerationsOnly, GuessedSize, OldCopyByClock, ForgottenVolume, DrainForgetsMoves, PrefixInWrites,
		AbsentNodesCount, LeaseByRole, OlderLineage,
		ClonedMachine,
	}
}

// Valid reports whether b is one of All.
func (b Bug) Valid() bool {
	for _, one := range All() {
		if b == one {
			return true
		}
	}
	return false
}

// String returns the name of the bug, as in OUTSPAN_PLANT.
func (b Bug) String() string { return string(b) }
