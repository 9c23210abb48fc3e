package model

import "strings"

// Codes of refusals and blockers. The section "Codes" of docs/model.md says where each code is used.
const (
	CodeVolumeLocal        Code = "volume_local"
	CodeRoleNever          Code = "role_never"
	CodeBudgetMinReady     Code = "budget_min_ready"
	CodeBudgetRate         Code = "budget_rate"
	CodeReplacementPending Code = "replacement_pending"
	CodeNodeOffline        Code = "node_offline_unconfirmed_stop"
	CodeAckRequired        Code = "ack_required"
	CodePaused             Code = "actuation_paused"
	CodeHold               Code = "mass_offline_hold"
	CodeStopping           Code = "stopping"
	CodeLastHealthy        Code = "replica_last_healthy"
	CodeReplicaEvicting    Code = "replica_evicting"
	CodeNoCandidate        Code = "replica_no_candidate"
	CodeIsLeader           Code = "role_is_leader"
	CodeNotDrained         Code = "role_not_drained"
	CodeNoInSyncFollower   Code = "role_no_in_sync_follower"
	CodeQuorumNotHealthy   Code = "quorum_not_healthy"
	CodeFactsUnknown       Code = "facts_unknown"
	CodeActorRate          Code = "actor_rate"
	CodeHookFailed         Code = "hook_failed"
	CodeBackupRunning      Code = "backup_running"
	CodeRestoreUnconfirmed Code = "restore_unconfirmed"
	CodeInventoryMissing   Code = "inventory_missing"
	CodeUnknownInstance    Code = "unknown_instance"

	CodeNoMemory      Code = "no_capacity_memory"
	CodeNoPorts       Code = "no_capacity_ports"
	CodeNoNodes       Code = "no_nodes_active"
	CodeConstraint    Code = "constraint_unmatched"
	CodeVolumeNoNode  Code = "volume_locality_no_node"
	CodeVolumeInUse   Code = "volume_in_use"
	CodeAntiAffinity  Code = "anti_affinity_unsatisfied"
	CodeRetryLimit    Code = "retry_limit"
	CodeVolumeOffline Code = "volume_home_node_offline"
	CodeNoDisk        Code = "no_capacity_disk"
	CodeNoRuntime     Code = "no_container_runtime" // the node can't run containers
	CodeRuntimeDown   Code = "runtime_down"         // the node can't run containers now
	CodeNoNetwork     Code = "no_container_network" // the node can't give containers a network of their own

	CodeInvalid          Code = "invalid"
	CodeNotSupported     Code = "not_supported"
	CodeNotFound         Code = "not_found"
	CodeAmbiguous        Code = "ambiguous"
	CodeConflict         Code = "conflict"
	CodeStale            Code = "stale"
	CodeStaleTerm        Code = "stale_term"
	CodeNodeNotEligible  Code = "node_not_eligible"
	CodeSlotTaken        Code = "slot_taken"
	CodeNameTaken        Code = "name_taken"
	CodeNodeTaken        Code = "node_taken" // another agent is registered for the node
	CodeServiceTaken     Code = "service_taken"
	CodeUnknownClass     Code = "unknown_class"
	CodeUnknownBudget    Code = "unknown_budget"
	CodeAlreadyDraining  Code = "already_draining"
	CodeDisabled         Code = "disabled"
	CodeGraceRunning     Code = "grace_running"
	CodeLeaseHeld        Code = "lease_held"
	CodeRequestConflict  Code = "request_id_conflict"
	CodeBusy             Code = "busy"
	CodeForbidden        Code = "forbidden"
	CodeUnauthenticated  Code = "unauthenticated" // the request proves no identity: it has no good access token
	CodeNoLeader         Code = "no_leader"
	CodeUnknownOutcome   Code = "unknown"
	CodeTimeout          Code = "timeout"
	CodeNeedsFormat      Code = "needs_format"
	CodeInternal         Code = "internal"
	CodeDiskFull         Code = "disk_full"
	CodeLastCopy         Code = "last_copy"
	CodeInUse            Code = "in_use"
	CodeIntegrity        Code = "integrity_check_failed"
	CodeCleanup          Code = "cleanup_failed"
	CodeStalled          Code = "stalled"
	CodeAgentUnreachable Code = "agent_unreachable"
	CodeNotRunning       Code = "not_running" // the instance has ended, or has not started
	CodeCanceled         Code = "canceled"
	CodeStateDiffers     Code = "state_differs"
	CodeTooLarge         Code = "too_large"
)

// Codes of images.
const (
	CodeImageUnresolved Code = "image_unresolved"     // nobody could tell the digest of an image
	CodeRegistrySilent  Code = "registry_unreachable" // the registry of an image does not answer now
	CodeImagePull       Code = "image_pull_failed"    // a node could not pull an image
	CodeImagePulling    Code = "image_pulling"        // the image is not on the node yet
)

// Codes of join tokens and of the members that they admit.
const (
	CodeTokenInvalid  Code = "token_invalid"  // there is no such token, or its secret is another one
	CodeTokenExpired  Code = "token_expired"  // the token's time is over
	CodeTokenUsed     Code = "token_used"     // all uses of the token are spent
	CodeTokenRevoked  Code = "token_revoked"  // an operator revoked the token
	CodeTokenRole     Code = "token_role"     // the token admits another role
	CodeTokenName     Code = "token_name"     // the token admits other names
	CodeMemberRevoked Code = "member_revoked" // an operator revoked the server or agent, or the key that it shows

	CodeApprovalPending  Code = "approval_pending"  // the newcomer waits until a person approves it
	CodeApprovalRejected Code = "approval_rejected" // a person rejected the newcomer

	CodeCertificateNeeded Code = "certificate_needed" // the cluster's CA is not outspan's, and nothing calls it
	CodeIssueFailed       Code = "issue_failed"       // the program of tls { issue } made no usable certificate

	CodeProviderUnreachable Code = "provider_unreachable" // the OpenID Connect provider does not answer
)

// Codes of the HTTP API and of connections.
const (
	CodeMediaType Code = "unsupported_media_type" // the operation does not take the media type of the request's body
	CodeNoRoute   Code = "no_such_operation"      // no operation has this path and method
	// a caller sends requests more often than the server allows
	CodeRateLimited Code = "rate_limited"
	// the events after the given id are no longer kept, or the id is newer than all events
	CodeEventCollected Code = "event_collected"
	CodeUnreachable    Code = "unreachable" // no server could be reached, so a write was not carried out
	// this server's state is too old for the request, or may be; another server may have a newer state
	CodeNotCaughtUp Code = "not_caught_up"
	// one end of a connection refused the certificate of the other end, or the role in it
	CodeCertificateRefused Code = "certificate_refused"
	// this process's certificate, key or CA file is missing, unreadable or expired, or they don't match
	CodeCertificateInvalid Code = "certificate_invalid"
	CodeNotTLS             Code = "not_tls"          // the process at the address doesn't speak TLS 1.3 or our protocol
	CodeShutdownTimeout    Code = "shutdown_timeout" // requests were cut off because they delayed a stop
	// the server can't write its audit log, and its configuration says that it must
	CodeAuditUnavailable Code = "audit_unavailable"
)

// Codes of the files and ports of one process.
const (
	CodeFileExists       Code = "file_exists"        // a file would be overwritten
	CodeFile             Code = "file_error"         // a file or directory can't be read or written
	CodeGossipKeyInvalid Code = "gossip_key_invalid" // the gossip key file is missing, unreadable or invalid
	CodeKeyringInvalid   Code = "keyring_invalid"    // the keyring file has a wrong mode, is damaged or of a newer format
	CodeAddressInUse     Code = "address_in_use"     // another process listens on the port or socket
	CodeListen           Code = "listen_failed"      // the port or socket can't be opened, or was closed unexpectedly
)

// Gated returns the code for a gate that does not hold and has no code of its own. It contains the gate, as in
// "gate:group.ready >= 2".
func Gated(name string) Code { return "gate:" + Code(name) }

// QuotaExceeded returns the code for a quota of a class, or a limit of all jobs, that is used up, such as
// "quota_exceeded:memory". The parameter dimension says what is limited.
func QuotaExceeded(dimension string) Code { return "quota_exceeded:" + Code(dimension) }

// Unplaceable reports whether c says why an instance can't be placed: it fits on no node, or a quota is used up.
func (c Code) Unplaceable() bool {
	switch c {
	case CodeNoMemory, CodeNoPorts, CodeNoNodes, CodeNoRuntime, CodeRuntimeDown, CodeNoNetwork, CodeImagePull,
		CodeImagePulling, CodeConstraint, CodeVolumeNoNode, CodeVolumeInUse, CodeVolumeOffline, CodeAntiAffinity:
		return true
	}
	return strings.HasPrefix(string(c), string(QuotaExceeded("")))
}

// Unschedulable returns the code of a blocker whose replacement can't be placed, such as
// "replacement_unschedulable:no_capacity_memory". The parameter code says why.
func Unschedulable(code Code) Code { return "replacement_unschedulable:" + code }

// The causes of decisions.
const (
	CauseScaleUp      Cause = "scale_up"
	CauseScaleDown    Cause = "scale_down"
	CauseRollout      Cause = "rollout"
	CauseNodeDraining Cause = "node_draining"
	CauseNodeDisabled Cause = "node_disabled"
	CauseNodeOffline  Cause = "node_offline"
	CauseNodeNotReady Cause = "node_not_ready" // the node's agent reports troubles of the machine
	CauseUser         Cause = "user_requested"
	CauseCrashLoop    Cause = "crash_loop"
	CauseStartTimeout Cause = "start_timeout"
	CauseOOM          Cause = "oom_killed"
	CauseCheckFailed  Cause = "check_failed"
	CauseDrainTimeout Cause = "drain_timeout"
	CauseJobStopped   Cause = "job_stopped"
	CauseFenced       Cause = "fenced"
	CauseRestored     Cause = "restored" // entries that a restore lost had placed or stopped the instance

	CausePreempted       Cause = "preempted"
	CauseRebalance       Cause = "rebalance"
	CauseAffinity        Cause = "affinity"
	CauseRoleReplacement Cause = "role_replacement"
)
