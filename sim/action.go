package sim

// The kinds of actions: first what people do, then faults.
const (
	ActSubmit ActionKind = iota
	ActScale
	ActStopJob
	ActPurge
	ActRestartJob
	ActRevert
	ActPromote
	ActDrain
	ActDrainMany
	ActCancelDrain
	ActPauseDrain
	ActUncordon
	ActCordon
	ActDisable
	ActEnable
	ActAck
	ActConfirmDead
	ActForget
	ActReplaceMachine
	ActEvict
	ActEvictPair
	ActStopInstance
	ActRestartInstance
	ActLabel
	ActBudget
	ActBudgetRemove
	ActPolicy
	ActRates
	ActPauseAll
	ActHold
	ActClass
	ActClassRemove
	ActJobClass
	ActRescheduler
	ActAskMoves
	ActPowerLoss
	ActAgentCrash
	ActFreeze
	ActCutNode
	ActCutOne
	ActFailover
	ActIsolateLeader
	ActServerCrash
	ActSlowServer
	ActKillProgram
	ActBlip
	ActLossy
	ActSuspect
	ActRoleFlip
	ActMassCut
	ActOutage
	ActSick
)

// actionNames describes the kinds, in order.
var actionNames = [...]string{
	"submit a job",
	"scale a group",
	"stop a job",
	"purge a job",
	"restart a job",
	"revert a job",
	"promote canaries",
	"drain a node",
	"drain several nodes",
	"cancel a drain",
	"pause or resume a drain",
	"uncordon a node",
	"cordon a node",
	"disable a node",
	"enable a node",
	"acknowledge blockers",
	"confirm a node dead",
	"forget a node",
	"replace a machine",
	"evict an instance",
	"evict two instances of a group at once",
	"stop an instance with options",
	"restart an instance",
	"label a node",
	"set a shared budget",
	"remove a shared budget",
	"change the drain policy",
	"change the rates of actors",
	"pause actuation",
	"begin or end a hold",
	"change a class",
	"remove a class",
	"move a job to another class",
	"change the rescheduler",
	"ask for moves now",
	"cut a node's power",
	"crash an agent",
	"freeze a node",
	"cut a node from all servers",
	"cut a node from one server",
	"change the leader",
	"isolate the leader",
	"crash a server",
	"slow a server down",
	"kill a program",
	"fail a program's check",
	"lose and repeat messages",
	"let gossip suspect a node",
	"change who leads or withdraw facts",
	"cut many nodes",
	"stop all leading for a while",
	"fail a check of a node's own machine",
}

// String implements fmt.Stringer.
func (k ActionKind) String() string { return actionNames[k] }

// Valid reports whether k is a known kind.
func (k ActionKind) Valid() bool { return int(k) < len(actionNames) }
