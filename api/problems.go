package api

import (
	"github.com/outspan/outspan/model"
)

// ProblemRow is a problem that needs a person's attention, and what to do about it.
type ProblemRow struct {
	Code    ProblemCode `json:"code" doc:"what kind of problem"`
	Subject string      `json:"subject" doc:"where: server/NAME, node/NAME, drain/ID, job/NAME, group/JOB/GROUP, instance/ID or cluster"`
	Message string      `json:"message" doc:"what is wrong"`
	Next    string      `json:"next" doc:"the way out, most often a command"`
}

// ProblemCode is a kind of problem. The set is closed.
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
	ProblemRuntime           ProblemCode = "runtime_down"
	ProblemImageGone         ProblemCode = "image_gone"
	ProblemDeployment        ProblemCode = "deployment_failed"
	ProblemRetryLimit        ProblemCode = "retry_limit"
	ProblemCrashLoop         ProblemCode = "crash_loop"
	ProblemUnplaced          ProblemCode = "unschedulable"
	ProblemDrainBlocked      ProblemCode = "drain_blocked"
	ProblemDrainFailed       ProblemCode = "drain_failed"
	ProblemBackup            ProblemCode = "backup_old"
	ProblemNoVote            ProblemCode = "server_no_vote"
	ProblemKeyring           ProblemCode = "keyring_not_exported"
	ProblemNewcomerWaiting   ProblemCode = "newcomer_waiting"
	ProblemGossipRotation    ProblemCode = "gossip_rotation_waits"
	ProblemCARotation        ProblemCode = "ca_rotation_waits"
	ProblemNodeTwice         ProblemCode = "node_twice"
	ProblemCACertificate     ProblemCode = "ca_certificate"
	ProblemAudit             ProblemCode = "audit_failing"
	ProblemAuditDiffers      ProblemCode = "audit_differs"
	ProblemProvider          ProblemCode = "provider_failing"
)

// PortProblem is a port on which a node's agent should listen and can't.
type PortProblem struct {
	Port    int               `json:"port"`
	Service model.ServiceName `json:"service" doc:"that exposes it; empty: the port is one of the agent's own"`
	Code    model.PortCode    `json:"code" doc:"port_taken, port_reserved or port_failed"`
	Reason  string            `json:"reason"`
}

// ServiceProblem is a node on which an exposed port is not open.
type ServiceProblem struct {
	Node   string         `json:"node"`
	NodeID model.NodeID   `json:"node_id"`
	Port   int            `json:"port"`
	Code   model.PortCode `json:"code" doc:"port_taken, port_reserved or port_failed"`
	Reason string         `json:"reason"`
}

// InstanceDisk is an instance's disk limit, and whether the instance uses more.
type InstanceDisk struct {
	LimitBytes int64 `json:"limit_bytes" doc:"0: the job file sets none"`
	Above      bool  `json:"above" doc:"the last measurement found more than the limit"`
	UsedBytes  int64 `json:"used_bytes" doc:"below its work directory; 0 unless it is above its limit"`
	AtLeast    bool  `json:"at_least" doc:"the agent could not measure everything there"`

	Next string `json:"next" doc:"the way out; empty unless it is above its limit"`
}
