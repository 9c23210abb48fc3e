// Package plant puts known bugs into the product, one at a time, to show that the tests of whole clusters find them.
//
// A build without the tag "planted" has none of the bugs: Is always returns false there, so the compiler removes every
// branch that depends on it. A build with the tag has the one bug that the environment variable OUTSPAN_PLANT names, or
// none without that variable. `make plants` builds the tests with the tag. For each bug, a test must fail and name the
// invariant that the bug breaks.
package plant

// Bug is the name of a bug that can be planted.
type Bug string

// Traps of the libraries: how they fail if they are used as their defaults suggest. Each trap was measured, or found in
// the library's code. cluster/DESIGN.md describes how the product avoids it.
const (
	// WedgedFollower sends several requests to a follower before the first is answered, and continues after an error of
	// the log store. One failed append then blocks replication to that follower forever. Source: raft, MaxRPCsInFlight of
	// NetworkTransportConfig.
	WedgedFollower Bug = "wedged_follower"
	// HungDisk removes the watchdog of calls to the log store. A leader whose disk hangs stays leader forever, because its
	// heartbeats need no disk. Source: raft, replicate.
	HungDisk Bug = "hung_disk"
	// VerifyLeader confirms a consistent read by raft's VerifyLeader instead of a Barrier. A leader that was paused
	// accepts answers from before the pause. It then shows a state that a newer leader has changed. Source: raft,
	// verifyLeader.
	VerifyLeader Bug = "verify_leader"
	// DivergentSnapshot does not report the log store as monotonic. When a snapshot is installed on a server with
	// divergent entries, these stay in the log, and the snapshot is installed again and again. It needs a log that was
	// truncated after a snapshot. Source: raft, installSnapshot.
	DivergentSnapshot Bug = "divergent_snapshot"
	// StuckTransfer continues although raft reports forever that a leadership transfer is in progress. That flag outlives
	// the term in which the transfer was interrupted. Once the server is elected again, it refuses every write. Source:
	// raft, leadershipTransfer.
	StuckTransfer Bug = "stuck_transfer"
	// UnreadNotify reads raft's notifications in the function that leads, so they are not read while that function works.
	// raft's main loop blocks until then. Source: raft, NotifyCh of Config.
	UnreadNotify Bug = "unread_notify"
)

// Bugs of our own. Each removes one rule on which the product's correctness depends.
const (
	// BudgetBeforeApply checks budgets only when a stop is decided or requested, and not when it is applied. Two decisions
	// on the same state then exceed the budget.
	BudgetBeforeApply Bug = "budget_before_apply"
	// StaleLastCopy counts a member as a healthy copy of the data by its last report, however old that is, even if the
	// member's node is offline.
	StaleLastCopy Bug = "stale_last_copy"
	// OfflineByGossip marks a node offline as soon as gossip declares it dead, even if servers hear its heartbeats.
	OfflineByGossip Bug = "offline_by_gossip"
	// ReplaceBeforeFencing replaces a lost instance of an exclusive group like any other: before the lost one has surely
	// stopped.
	ReplaceBeforeFencing Bug = "replace_before_fencing"
	// NotReadyAtOnce empties a degraded node at once, without waiting for the tolerations of the groups on it.
	NotReadyAtOnce Bug = "not_ready_at_once"
	// MapOrder chooses between equally good nodes by the order of a map.
	MapOrder Bug = "map_order"
	// SkipUnknown skips a log entry that can't be read instead of stopping the server.
	SkipUnknown Bug = "skip_unknown"
)

// Bugs that the product once had. Each is planted where it was fixed.
const (
	// EpochAgain takes a node's next epoch from its row. After a restore, or after the node was forgotten, the same epoch
	// then names another registration.
	EpochAgain Bug = "epoch_again"
	// GenerationsOnly orders an instance's reports by generation alone. The generation goes back when an agent's journal
	// could not be written.
	GenerationsOnly Bug = "generations_only"
	// GuessedSize assumes that each command of a plan has 512 bytes. A command that names many nodes has megabytes, and
	// the log refuses it again and again.
	GuessedSize Bug = "guessed_size"
	// OldCopyByClock removes the old copy of a moved volume when its time is over, even if it is the only copy.
	OldCopyByClock Bug = "old_copy_by_clock"
	// ForgottenVolume drops the rows of a forgotten node's volumes, so nothing shows that their data was lost.
	ForgottenVolume Bug = "forgotten_volume"
	// DrainForgetsMoves calls a node drained while the only copy of a volume is being attached on it.
	DrainForgetsMoves Bug = "drain_forgets_moves"
	// PrefixInWrites accepts the prefix of a name in writes.
	PrefixInWrites Bug = "prefix_in_writes"
	// AbsentNodesCount makes the rollout of a system group wait for nodes that are offline or cordoned.
	AbsentNodesCount Bug = "absent_nodes_count"
	// LeaseByRole gives a group with the role quorum a lease that its job file does not ask for. If its node hears no
	// servers, its members are killed.
	LeaseByRole Bug = "lease_by_role"
	// OlderLineage lets servers communicate with servers that a recovery left behind.
	OlderLineage Bug = "older_lineage"
	// ClonedMachine lets any machine take over a node, even if instances may still run on the previous machine.
	ClonedMachine Bug = "cloned_machine"
)

// All lists every bug, the traps first.
func All() []Bug {
	return []Bug{
		WedgedFollower, HungDisk, VerifyLeader, DivergentSnapshot, StuckTransfer, UnreadNotify,
		BudgetBeforeApply, StaleLastCopy, OfflineByGossip, ReplaceBeforeFencing, NotReadyAtOnce, MapOrder, SkipUnknown,
		EpochAgain, GenerationsOnly, GuessedSize, OldCopyByClock, ForgottenVolume, DrainForgetsMoves, PrefixInWrites,
		AbsentNodesCount, LeaseByRole, OlderLineage,
		ClonedMachine,
	}
}

// Valid reports whether b is one of the bugs above.
func (b Bug) Valid() bool {
	for _, one := range All() {
		if b == one {
			return true
		}
	}
	return false
}

// String returns the name, as in OUTSPAN_PLANT.
func (b Bug) String() string { return string(b) }
