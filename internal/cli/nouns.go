package cli

// noun is a thing that the command line knows, with what can be done to it.
type noun struct {
	name, short string
	verbs       []verb
	// bare runs when the word behind the noun is not a verb: outspan drain NODE.
	bare verb
}

// nouns is the table of `outspan NOUN VERB`.
func nouns() []noun {
	return []noun{
		{name: "agent", short: "the worker process of a node", verbs: []verb{agentRun, agentStatus}},
		{name: "budget", short: "what groups can lose at once and per window", verbs: []verb{budgetLs, budgetStatus, budgetSet, budgetRm}},
		{name: "class", short: "named priorities, the highest first", verbs: []verb{classLs, classSet, classRm}},
		{name: "config", short: "files of servers and agents", verbs: []verb{configValidate, configShow}},
		{name: "debug", short: "look into the data of a stopped server", verbs: []verb{debugLog, debugEntry, debugSnapshot, debugStateCommand, debugDiff}},
		{name: "deployment", short: "the way of a job from one version to the next", verbs: []verb{deploymentLs, deploymentStatus, deploymentPromote, deploymentFail}},
		{name: "drain", short: "empty nodes, and follow that", verbs: []verb{drainLs, drainStatus, drainWatch, drainPause, drainResume, drainCancel}, bare: nodeDrain},
		{name: "gossip", short: "the key of the gossip pool", verbs: []verb{gossipKey}},
		{name: "instance", short: "single runs of a group's program", verbs: []verb{instanceLs, instanceStatus, instanceWhy, instanceLogs, instanceEvict, instanceStop, instanceRestart}},
		{name: "job", short: "what is to run", verbs: []verb{jobInit, jobValidate, jobPlan, jobRun, jobLs, jobStatus, jobHistory, jobRevert, jobScale, jobRestart, jobStop, jobLogs}},
		{name: "node", short: "worker machines", verbs: []verb{nodeLs, nodeStatus, nodeDrain, nodeRoll, nodeCordon, nodeUncordon, nodeDisable, nodeEnable, nodeAckBlockers, nodeConfirmDead, nodeLabel, nodeForget}},
		{name: "server", short: "control-plane processes", verbs: []verb{serverRun, serverMembers, serverHealth, serverVerify, serverJoin, serverPromote, serverRemove, serverTransferLeader, serverSnapshot, serverRecover, serverInit}},
		{name: "service", short: "named ports and who serves them", verbs: []verb{serviceLs, serviceStatus}},
		{name: "settings", short: "policy of the whole cluster", verbs: []verb{settingsGet, settingsSet, settingsPause, settingsResume}},
		{name: "tls", short: "certificates", verbs: []verb{tlsCA, tlsCert}},
		{name: "volume", short: "data of instances on nodes", verbs: []verb{volumeLs, volumeStatus, volumeFind, volumeMigrate, volumeBackup, volumeBackups, volumeRestore, volumeAttach, volumeCancel, volumeForget}},
	}
}

// alone is the table of commands without a noun.
func alone() []verb {
	return []verb{
		statusCommand, whyCommand, eventsCommand, logsCommand,
		rebalanceCommand, aliasOf(jobRun, "run FILE"), aliasOf(jobPlan, "plan FILE"), aliasOf(jobStop, "stop JOB"),
		fmtCommand, completionCommand, versionCommand, devCommand, demoCommand, demoAppCommand, genDocsCommand,
	}
}
