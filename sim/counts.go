package sim

// Counter names one number that a history counts, such as placements or failovers. TestSeeds fails if such a number is
// 0 in all of its histories.
type Counter int

// The counters; counterNames describes them.
const (
	CountSteps Counter = iota
	CountEntries
	CountDecisions
	CountAhead
	CountPlanRefused
	CountDigests
	CountSnapshots
	CountRestores
	CountFailovers
	CountSurvivors
	CountLostEntries
	CountIsolations
	CountServerCrashes
	CountStaleTerm
	CountRetries
	CountReplays
	CountUnknown
	CountAccepted
	CountRefused
	CountRegistrations
	CountAssignments
	CountReports
	CountLostReports
	CountLostMessages
	CountRepeated
	CountStaleReports
	CountPrograms
	CountStarts
	CountFailures
	CountFenced
	CountHooks
	CountAborted
	CountFacts
	CountPowerLosses
	CountAgentCrashes
	CountFreezes
	CountCuts
	CountLossy
	CountSuspected
	CountSick
	CountOffline
	CountReturned
	CountDegraded
	CountHolds
	CountConfirmed
	CountForgotten
	CountReused
	CountPlacements
	CountReplacements
	CountLost
	CountGoneFromNode
	CountStops
	CountDrainStops
	CountUserStops
	CountRolloutStops
	CountScaleStops
	CountBypassed
	CountBudgetRefused
	CountRateRefused
	CountForced
	CountKills
	CountPreemptions
	CountEqualPreemptions
	CountMoves
	CountMovesDone
	CountPolicyStops
	CountSickStops
	CountDrains
	CountDrained
	CountDrainFailed
	CountDrainCanceled
	CountEvictions
	CountLastCopies
	CountRoleRefused
	CountSucceeded
	CountDeployFailed
	CountReverted
	CountPurged
	CountQuotaRefused
	CountMinutes
	CountOfflineProved
	CountPulls

	counters // number of counters
)

// counterNames has the description of each counter, in the order of the constants.
var counterNames = [counters]string{
	"steps",
	"entries applied",
	"decisions",
	"decisions on entries under way",
	"planned groups refused by the log",
	"replicas compared",
	"snapshots written and read back",
	"replicas restored from a snapshot",
	"failovers",
	"uncommitted entries that survived",
	"uncommitted entries lost",
	"leaders isolated",
	"servers crashed",
	"entries refused as of an old term",
	"requests tried again",
	"requests answered from memory",
	"unknown outcomes",
	"requests accepted",
	"requests refused",
	"registrations",
	"assignments acted on",
	"reports sent",
	"reports not acknowledged",
	"messages lost",
	"messages repeated",
	"reports of an old epoch refused",
	"changes of programs",
	"programs started",
	"programs failed",
	"programs fenced",
	"stops prepared",
	"preparations aborted",
	"changes of facts",
	"power losses",
	"agents crashed",
	"nodes frozen",
	"nodes cut off",
	"spells of lossy network",
	"nodes suspected for nothing",
	"machines that their agents found sick",
	"nodes marked offline",
	"nodes back from an outage",
	"nodes degraded",
	"holds begun",
	"nodes confirmed dead",
	"nodes forgotten",
	"names used again",
	"placements",
	"replacements",
	"instances lost",
	"instances gone from their node",
	"stops begun",
	"stops of drains",
	"stops of operators",
	"stops of rollouts",
	"stops of scale-downs",
	"stops past the budget",
	"stops refused by a budget",
	"stops refused by a rate",
	"stops at a forced deadline",
	"kills after the grace",
	"preemptions",
	"preemptions within a class",
	"moves begun",
	"moves finished",
	"stops of a cordon's policy",
	"stops on sick machines",
	"drains begun",
	"nodes drained",
	"nodes whose drain failed",
	"nodes whose drain was canceled",
	"evictions marked",
	"stops refused for the last copy",
	"stops refused by a role or gate",
	"deployments succeeded",
	"deployments failed",
	"automatic reverts",
	"jobs purged",
	"placements refused by a quota",
	"minutes of cluster time",
	"nodes found offline in time in the end",
	"images pulled",
}

// String implements fmt.Stringer.
func (c Counter) String() string { return counterNames[c] }

// Valid reports whether c is a known counter.
func (c Counter) Valid() bool { return c >= 0 && c < counters }

// Counters returns all counters.
func Counters() []Counter {
	list := make([]Counter, counters)
	for i := range list {
		list[i] = Counter(i)
	}
	return list
}

// Counts has one number for each Counter.
type Counts [counters]int

// Add adds the counts of another history.
func (c *Counts) Add(other *Counts) {
	for i := range c {
		c[i] += other[i]
	}
}
