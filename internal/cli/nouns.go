package cli

import (
	"github.com/spf13/cobra"

	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
)

// noun is a kind of object on the command line, with its verbs.
type noun struct {
	name, short string
	verbs       []verb
	// bare is the command that runs if the word after the noun is not a verb, as in outspan drain NODE. It may be nil.
	bare verb
}

// nouns is the table of the commands `outspan NOUN VERB`.
func nouns() []noun {
	return []noun{
		{name: "agent", short: "the worker process of a node", verbs: []verb{agentRun, agentStatus}},
		{name: "auth", short: "who may do what", verbs: []verb{authWhoAmI, authCanI, authLs, authGrant, authRevoke,
			authToken}},
		{name: "budget", short: "what groups can lose at once and per window",
			verbs: []verb{budgetLs, budgetStatus, budgetSet, budgetRm}},
		{name: "ca", short: "the CA that signs the certificates of members",
			verbs: []verb{caStatus, caRotate, here(local.CAAdopt)}},
		{name: "cert", short: "certificates of people, made by the servers", verbs: []verb{certCreate, certLs, certRevoke}},
		{name: "class", short: "named priorities, the highest first", verbs: []verb{classLs, classSet, classRm}},
		{name: "config", short: "files of servers and agents",
			verbs: []verb{here(local.ConfigValidate), here(local.ConfigShow)}},
		{name: "debug", short: "look into the data of a stopped server",
			verbs: []verb{here(local.DebugLog), here(local.DebugEntry), here(local.DebugSnapshot), here(local.DebugState),
				here(local.DebugDiff)}},
		{name: "deployment", short: "the way of a job from one version to the next",
			verbs: []verb{deploymentLs, deploymentStatus, deploymentPromote, deploymentFail}},
		{name: "drain", short: "empty nodes, and follow that",
			verbs: []verb{drainLs, drainStatus, drainWatch, drainPause, drainResume, drainCancel}, bare: nodeDrain},
		{name: "gossip", short: "the key of the gossip pool", verbs: []verb{gossipKey}},
		{name: "image", short: "images of containers on nodes", verbs: []verb{imageLs, imagePrune}},
		{name: "instance", short: "single runs of a group's program",
			verbs: []verb{instanceLs, instanceStatus, instanceWhy, instanceLogs, instanceStats, instanceExec, instanceForward,
				instanceEvict, instanceStop, instanceRestart}},
		{name: "job", short: "what is to run",
			verbs: []verb{jobInit, jobValidate, jobPlan, jobRun, jobLs, jobStatus, jobHistory, jobRevert, jobScale,
				jobRestart, jobStop, jobLogs, jobStats}},
		{name: "node", short: "worker machines",
			verbs: []verb{nodeLs, nodeStatus, nodeDrain, nodeRoll, nodeCordon, nodeUncordon, nodeDisable, nodeEnable,
				nodeAckBlockers, nodeConfirmDead, nodeLabel, nodeForget, nodeRevoke,
				nodeApprove, nodeReject}},
		{name: "role", short: "named lists of what one may do",
			verbs: []verb{roleLs, roleShow, roleSet, roleRm, roleVerbs}},
		{name: "server", short: "control-plane processes",
			verbs: []verb{serverRun, serverMembers, serverHealth, serverVerify, serverJoin, serverPromote, serverRemove,
				serverRevoke, serverTransferLeader, serverSnapshot, here(local.ServerRecover), here(local.ServerInit),
				serverKeyring, serverApprove, serverReject}},
		{name: "service", short: "named ports and who serves them", verbs: []verb{serviceLs, serviceStatus}},
		{name: "settings", short: "policy of the whole cluster",
			verbs: []verb{settingsGet, settingsSet, settingsPause, settingsResume}},
		{name: "tls", short: "certificates", verbs: []verb{here(local.TLSCA), here(local.TLSCert)}},
		{name: "token", short: "join tokens, by which new machines get their certificates",
			verbs: []verb{tokenCreate, tokenLs, tokenRevoke, tokenWaiting}},
		{name: "volume", short: "data of instances on nodes",
			verbs: []verb{volumeLs, volumeStatus, volumeFind, volumeMigrate, volumeBackup, volumeBackups, volumeRestore,
				volumeAttach, volumeCancel, volumeForget}},
	}
}

// alone is the table of commands without a noun.
func alone() []verb {
	return []verb{
		statusCommand, whyCommand, eventsCommand, logsCommand, instanceExec,
		uiCommand, rebalanceCommand, aliasOf(jobRun, "run FILE"), aliasOf(jobPlan, "plan FILE"), aliasOf(jobStop, "stop JOB"),
		here(local.Fmt), upCommand, joinCommand, loginCommand, logoutCommand, completionCommand,
		ofProgram(local.Version), ofProgram(local.Dev),
		here(local.Demo), here(local.DemoApp), genDocsCommand,
	}
}

// here converts a command of package local, which needs no cluster, to a verb.
func here(command func(*term.Console) *cobra.Command) verb {
	return func(a *app) *cobra.Command { return command(&a.Console) }
}

// ofProgram converts a command of package local that needs the daemon.Program to a verb.
func ofProgram(command func(*term.Console, daemon.Program) *cobra.Command) verb {
	return func(a *app) *cobra.Command { return command(&a.Console, a.program) }
}
