// Package plant puts known bugs back into the product, one at a time, to show that the tests of whole clusters are able
// to fail.
//
// A build without the tag "planted" has none of it: Is is a constant false there, so the compiler drops every branch
// that asks. A build with the tag has at most the one bug that the environment variable OUTSPAN_PLANT names; without
// it, it behaves as the normal one. `make plants` builds the tests so, and wants each bug to be caught by a failure
// that names the invariant which it breaks.
package plant

// Bug is the name of a bug that can be planted.
type Bug string

// Traps of the engines: what the libraries do when they are used as their defaults suggest. Each was measured or read
// in them. cluster/DESIGN.md tells what was done about it.
const (
	// WedgedFollower sends several requests to a follower before the first is answered, and goes on after a log store's
	// error. One failed append then wedges the replication to that follower for ever. Source: raft, MaxRPCsInFlight of
	// NetworkTransportConfig.
	WedgedFollower Bug = "wedged_follower"
	// HungDisk has no watchdog over calls of the log store. A leader whose disk hangs stays leader for ever, as its
	// heartbeats need no disk. Source: raft, replicate.
	HungDisk Bug = "hung_disk"
	// VerifyLeader confirms a consistent read by raft's VerifyLeader instead of a Barrier. A leader that was paused
	// takes answers from before the pause for fresh ones, and shows what a newer leader has changed since. Source:
	// raft, verifyLeader.
	VerifyLeader Bug = "verify_leader"
	// DivergentSnapshot does not say that the log store is monotonic. A snapshot that is installed onto a divergent
	// tail leaves the tail, and is installed again and again. Source: raft, installSnapshot; it takes a log that is cut
	// short behind a snapshot.
	DivergentSnapshot Bug = "divergent_snapshot"
	// StuckTransfer goes on although raft answers for ever that a leadership transfer is in progress. The flag outlives
	// the term in which the transfer was interrupted, and refuses every write once that server is elected again.
	// Source: raft, leadershipTransfer.
	StuckTransfer Bug = "stuck_transfer"
	// UnreadNotify reads raft's notifications in the function that leads, so that they are not read while it works.
	// raft's main loop blocks until they are. Source: raft, NotifyCh of Config.
	UnreadNotify Bug = "unread_notify"
)

// Bugs of our own: each takes away one rule that the product's correctness rests on.
const (
	// BudgetBeforeApply checks budgets when a stop is decided or requested, and no more when it is applied. Two who
	// decide on the same state overshoot.
	BudgetBeforeApply Bug = "budget_before_apply"
	// StaleLastCopy takes a member for a healthy copy of the data by what it said last, however long ago, even if its
	// node is offline.
	StaleLastCopy Bug = "stale_last_copy"
	// OfflineByGossip marks a node offline as soon as gossip declares it dead, whoever hears its heartbeats.
	OfflineByGossip Bug = "offline_by_gossip"
	// ReplaceBeforeFencing replaces a lost instance of an exclusive group as any other: before it is known to have
	// stopped.
	ReplaceBeforeFencing Bug = "replace_before_fencing"
	// NotReadyAtOnce empties a machine as soon as its agent calls it degraded, whatever the groups on it tolerate.
	NotReadyAtOnce Bug = "not_ready_at_once"
	// MapOrder breaks ties between nodes that are equally good by the order in which a map is walked.
	MapOrder Bug = "map_order"
	// SkipUnknown skips an entry of the log that can't be read instead of ending the server.
	SkipUnknown Bug = "skip_unknown"
)

// Bugs that the product had, each where its mend is.
const (
	// EpochAgain counts registrations of a node by its row. After a restore, or once the node was forgotten, the same
	// epoch names another registration.
	EpochAgain Bug = "epoch_again"
	// GenerationsOnly orders what agents say of an instance by generation alone, which goes back when an agent's
	// journal refused to write.
	GenerationsOnly Bug = "generations_only"
	// GuessedSize takes each command of a plan for 512 bytes. What names many nodes has megabytes, and the log refuses
	// it again and again.
	GuessedSize Bug = "guessed_size"
	// OldCopyByClock removes the old copy of a moved volume when its time is over, whether or not there is another one.
	OldCopyByClock Bug = "old_copy_by_clock"
	// ForgottenVolume drops the rows of a forgotten node's volumes: nothing tells that their data was lost.
	ForgottenVolume Bug = "forgotten_volume"
	// DrainForgetsMoves calls a node drained although the only copy of a volume is being put to use on it.
	DrainForgetsMoves Bug = "drain_forgets_moves"
	// PrefixInWrites takes the beginning of a name for the whole in what changes something.
	PrefixInWrites Bug = "prefix_in_writes"
	// AbsentNodesCount waits in the rollout of a system group for nodes that are dead or cordoned.
	AbsentNodesCount Bug = "absent_nodes_count"
	// LeaseByRole runs a quorum group under a lease that nobody asked for: its members are killed when servers can't be
	// heard.
	LeaseByRole Bug = "lease_by_role"
	// OlderLineage lets servers speak with those that a recovery left behind.
	OlderLineage Bug = "older_lineage"
	// ClonedMachine lets any machine take over a node, whatever may run on the one before.
	ClonedMachine Bug = "cloned_machine"
)

// All lists every bug: the traps first.
func All() []Bug {
	return []Bug{
		WedgedFollower, HungDisk, VerifyLeader, DivergentSnapshot, StuckTransfer, UnreadNotify,
		BudgetBeforeApply, StaleLastCopy, OfflineByGossip, ReplaceBeforeFencing, NotReadyAtOnce, MapOrder, SkipUnknown,
		EpochAgain, GenerationsOnly, GuessedSize, OldCopyByClock, ForgottenVolume, DrainForgetsMoves, PrefixInWrites,
		AbsentNodesCount, LeaseByRole, OlderLineage,
		ClonedMachine,
	}
}

// Valid reports whether b is in the closed set.
func (b Bug) Valid() bool {
	for _, one := range All() {
		if b == one {
			return true
		}
	}
	return false
}

// String is the name, as OUTSPAN_PLANT takes it.
func (b Bug) String() string { return string(b) }
