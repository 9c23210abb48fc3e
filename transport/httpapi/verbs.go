package httpapi

import "github.com/outspan/outspan/rights"

// noRight marks an operation that every caller with a certificate may call.
const noRight rights.Verb = ""

// verbExtension is the key of an operation's verb in the OpenAPI document. The verb is "" if everybody may call the
// operation, and absent if no person may.
const verbExtension = "x-outspan-verb"

// verbDocument returns what the OpenAPI document says about the operation's verb.
func (r route) verbDocument() map[string]any {
	verb, listed := verbs[r.id]
	if !listed {
		return nil
	}
	return map[string]any{verbExtension: verb}
}

// verbs has the verb of each operation that people call, by the operation's id. An operation that is not listed is
// refused to people.
var verbs = map[string]rights.Verb{
	"healthz": noRight, "readyz": noRight, "openapi": noRight, "metrics": "server.read",
	"whoami": noRight, "can-i": noRight,
	"list-providers": noRight, "login": noRight, "logout": noRight,

	"status": "server.read", "why": noRight, // why is judged by what it explains
	"events": "event.read", "page-stream": noRight, // the stream is filtered by what its caller may read

	"series": noRight, // each series has its verb

	"list-nodes": "node.read", "get-node": "node.read",
	"cordon-node": "node.cordon", "uncordon-node": "node.cordon",
	"disable-node": "node.enable", "enable-node": "node.enable",
	"drain-node": "node.drain", "ack-blockers-node": "node.ack", "confirm-dead-node": "node.confirm-dead",
	"label-node": "node.label", "forget-node": "node.forget", "revoke-node": "node.revoke",
	"list-images": "node.read", "prune-images": "node.prune",
	"list-drains": "node.read", "get-drain": "node.read", "start-drain": "node.drain",
	"pause-drain": "node.drain", "resume-drain": "node.drain", "cancel-drain": "node.drain",

	"list-jobs": "job.read", "get-job": "job.read", "list-job-versions": "job.read", "get-job-version": "job.read",
	"get-job-file": "job.read", "parse-job": "job.plan",
	"submit-job": rights.SubmitJob, "validate-job": "job.plan", "plan-job": "job.plan", "scale-job": "job.scale",
	"stop-job": "job.stop", "restart-job": "job.restart", "revert-job": rights.SubmitJob,
	"list-deployments": "job.read", "get-deployment": "job.read",
	"promote-deployment": "job.deploy", "fail-deployment": "job.deploy",

	"list-instances": "instance.read", "get-instance": "instance.read", "why-instance": "instance.read",
	"evict-instance": "instance.evict", "stop-instance": "instance.stop", "restart-instance": "instance.restart",
	"instance-stats": "instance.read", "job-stats": "instance.read",
	"instance-logs": "instance.logs", "job-logs": "instance.logs",
	"exec-instance": "instance.exec", "forward-instance": "instance.forward",
	"list-services": "instance.read", "get-service": "instance.read", "prometheus-discovery": "server.read",
	"unknown-instances":  "server.read",
	"forecast-rebalance": "cluster.rebalance", "rebalance": "cluster.rebalance",

	"list-volumes": "volume.read", "get-volume": "volume.read", "list-transfers": "volume.read",
	"get-transfer": "volume.read", "list-backups": "volume.read", "get-backup": "volume.read",
	"found-volumes": "server.read", "backup-volume": "volume.backup", "attach-volume": "volume.restore",
	"restore-backup": "volume.restore", "forget-backup": "volume.forget",
	"migrate-volume": "volume.migrate", "cancel-transfer": "volume.migrate",

	"list-budgets": "budget.read", "get-budget": "budget.read", "get-group-budget": "budget.read",
	"set-budget": "budget.set", "remove-budget": "budget.set",
	"list-classes": "class.read", "get-class": "class.read", "set-class": "class.set", "remove-class": "class.set",
	"get-settings": "settings.read", "set-settings": "settings.set",
	"pause-actuation": "cluster.pause", "resume-actuation": "cluster.pause",

	"list-members": "server.read", "verify-members": "server.read", "join-member": "server.manage",
	"promote-member": "server.manage", "remove-member": "server.manage", "transfer-leader-member": "server.manage",
	"save-snapshot": "snapshot.save", "restore-snapshot": "snapshot.restore",

	"list-tokens": "trust.read", "create-token": "token.create", "revoke-token": "token.revoke",
	"list-trust-members": "trust.read", "revoke-member": "server.revoke",
	"list-newcomers": "trust.read", "approve-newcomer": "node.approve", "reject-newcomer": "node.approve",
	"list-certificates": "trust.read", "create-certificate": "cert.create", "revoke-certificate": "cert.revoke",
	"get-ca": "trust.read", "rotate-ca": "trust.rotate",
	"list-gossip-keys": "trust.read", "rotate-gossip-key": "trust.rotate",
	"get-keyring": "trust.read", "rotate-keyring": "trust.rotate", "prune-keyring": "trust.rotate",
	"keyring-exported": "trust.rotate",

	"list-roles": "auth.read", "get-role": "auth.read", "set-role": "auth.set", "remove-role": "auth.set",
	"set-rights":    "auth.set",
	"list-bindings": "auth.read", "grant": "auth.set", "revoke-binding": "auth.set",
	"list-access-tokens": "auth.read", "create-access-token": "auth.token", "revoke-access-token": "auth.token",
}

// anyOf has, for operations without a verb whose answer depends on what the caller may read, the verbs of which the
// caller needs one.
var anyOf = map[string][]rights.Verb{
	"why": {"node.read", "job.read", "instance.read"}, "page-stream": {"node.read", "instance.read"},
	"series": {"node.read", "instance.read", "server.read", "job.read"},
}

// reveals lists the reads that the audit log records also if they are done, because they show secrets or what programs
// wrote, or let somebody into an instance: the whole state, logs, the environments of jobs, commands and forwards. The
// audit log records every write too.
var reveals = map[string]bool{
	"save-snapshot": true,
	"instance-logs": true, "job-logs": true, "exec-instance": true, "forward-instance": true,
	"get-job": true, "get-job-version": true, "list-job-versions": true, "get-job-file": true,
}
