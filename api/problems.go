package api

// ProblemRow is something that a person should look at, and the way out.
type ProblemRow struct {
	Code    ProblemCode `json:"code" doc:"what kind of problem"`
	Subject string      `json:"subject" doc:"where: server/NAME, node/NAME, job/NAME, group/JOB/GROUP, instance/ID or cluster"`
	Message string      `json:"message" doc:"what is wrong"`
	Next    string      `json:"next" doc:"the way out, most often a command"`
}

// ProblemCode names, in a closed set, a kind of problem.
type ProblemCode string

// The kinds of problems.
const (
	ProblemNoLeader          ProblemCode = "no_leader"
	ProblemServerSilent      ProblemCode = "server_silent"
	ProblemServerDisk        ProblemCode = "server_disk"
	ProblemServerClock       ProblemCode = "server_clock"
	ProblemServerCertificate ProblemCode = "server_certificate"
	ProblemVoters            ProblemCode = "voters"
	ProblemStateDiffers      ProblemCode = "state_differs"
	ProblemHold              ProblemCode = "hold"
	ProblemRestore           ProblemCode = "restore_unconfirmed"
	ProblemPaused            ProblemCode = "paused"
	ProblemNodeOffline       ProblemCode = "node_offline"
	ProblemNodeUnreachable   ProblemCode = "node_unreachable"
	ProblemNodeDegraded      ProblemCode = "node_degraded"
	ProblemNodeCertificate   ProblemCode = "node_certificate"
	ProblemNodeFormat        ProblemCode = "node_format"
	ProblemInstanceDisk      ProblemCode = "instance_disk"
	ProblemPort              ProblemCode = "port_closed"
	ProblemDeployment        ProblemCode = "deployment_failed"
	ProblemRetryLimit        ProblemCode = "retry_limit"
	ProblemCrashLoop         ProblemCode = "crash_loop"
	ProblemUnplaced          ProblemCode = "unschedulable"
	ProblemBackup            ProblemCode = "backup_old"
)
