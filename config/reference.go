package config

import "maps"

// KeyText is what people should know of an attribute of a job file. Default and Example are written as in the file,
// with their units.
type KeyText struct {
	Means   string
	Default string // empty: there is none, or Means says it
	Example string

	beside string // what else its block needs so that the example stands
	with   string // and its group
}

// What examples need beside them.
const (
	withPort   = `port "http" {}`
	tcpCheck   = "type = \"tcp\"\nport = \"http\""
	withFacts  = `role_check { exec = ["/opt/db/facts"] }`
	withQuorum = "role = \"quorum\"\n" + withFacts
	onDisk     = `attribute = "node.label.disk"`
	onSSD      = onDisk + "\nvalue = \"ssd\""
)

// JobTexts has a text for each attribute that JobKeys lists.
func JobTexts() map[string]KeyText { return maps.Clone(jobTexts) }

var jobTexts = map[string]KeyText{
	"job.class": {
		Means:   "what is placed first and may push others out; see `outspan class ls`",
		Default: `"production"`, Example: `"batch"`,
	},
	"job.group.count": {
		Means:   "instances; a group of the role system has one on each node that can take it",
		Default: "1", Example: "3",
	},
	"job.group.role": {
		Means: "a preset of `eviction`, `replacement` and `toleration`: see [roles](roles.md). Default: " +
			"`local` or `replicated` if it has such a volume, else `service`",
		Example: `"front"`,
	},
	"job.group.env": {
		Means: "environment of the program, its checks and hooks; names that begin with `OUTSPAN_` are the " +
			"agent's",
		Example: `{ LOG = "info" }`,
	},
	"job.group.budget": {
		Means:   "shared budgets, by name, beside its own block",
		Example: `["payments"]`,
	},
	"job.group.exclusive": {
		Means:   "true: as the block `exclusive {}`",
		Default: "false", Example: "true",
	},
	"job.group.exec.command": {Means: "the program, by its absolute path", Example: `"/opt/web/bin/web"`},
	"job.group.exec.args": {
		Means:   "its arguments; `${port.NAME}`, `${slot}`, `${node.id}` and `${node.name}` are filled in",
		Example: `["--listen", ":${port.http}"]`, beside: `command = "/bin/web"`, with: withPort,
	},
	"job.group.exec.user": {
		Means: "whose user it runs as. Default: an agent as root runs it as `nobody`, or with " +
			"`instance_uids` as a user of its own; another agent as its own " +
			"user. Groups with volumes should name one",
		Example: `"web"`, beside: `command = "/bin/web"`,
	},
	"job.group.exec.rlimits": {
		Means:   "limits of the kernel for each process, by their names in `ulimit`",
		Example: `{ nofile = 4096 }`, beside: `command = "/bin/web"`,
	},

	"job.group.resources.cpu": {
		Means:   "MHz-like shares: a promise, not a cap",
		Default: "100", Example: "250",
	},
	"job.group.resources.memory": {
		Means:   "bytes, a hard cap: above it the program is killed",
		Default: `"64MiB"`, Example: `"128MiB"`,
	},
	"job.group.resources.pids": {Means: "processes and threads at once. Default: 4096", Example: "512"},

	"job.group.port.static": {
		Means:   "a fixed port of the node; without it the agent picks a free one",
		Example: "8080",
	},
	"job.group.service.port": {
		Means:   "the name of one of the group's ports",
		Example: `"http"`, with: withPort,
	},
	"job.group.service.expose": {
		Means:   "a port on which every agent forwards to ready instances; 0: none",
		Default: "0", Example: "8080", beside: `port = "http"`, with: withPort,
	},

	"job.group.check.type": {
		Means:   "`http` (2xx or 3xx is well), `tcp` (it connects) or `exec` (exit code 0)",
		Example: `"tcp"`, beside: `port = "http"`, with: withPort,
	},
	"job.group.check.port": {
		Means:   "the name of a port, for http and tcp",
		Example: `"http"`, beside: `type = "tcp"`, with: withPort,
	},
	"job.group.check.path": {
		Means:   "what an http check asks for",
		Default: `"/"`, Example: `"/healthz"`, beside: "type = \"http\"\nport = \"http\"", with: withPort,
	},
	"job.group.check.exec": {
		Means:   "program and arguments of an exec check",
		Example: `["/opt/web/live"]`, beside: `type = "exec"`,
	},
	"job.group.check.interval": {
		Means:   "from the end of one check to the next",
		Default: `"10s"`, Example: `"2s"`, beside: tcpCheck, with: withPort,
	},
	"job.group.check.timeout": {
		Means:   "a check that takes longer has failed",
		Default: `"2s"`, Example: `"1s"`, beside: tcpCheck, with: withPort,
	},
	"job.group.check.grace": {
		Means:   "after the start, in which failures don't count",
		Default: `"10s"`, Example: `"30s"`, beside: tcpCheck, with: withPort,
	},
	"job.group.check.successes": {
		Means:   "in a row that make it ready",
		Default: "1", Example: "2", beside: tcpCheck, with: withPort,
	},
	"job.group.check.failures": {
		Means:   "in a row that end that",
		Default: "3", Example: "5", beside: tcpCheck, with: withPort,
	},
	"job.group.check.restart_after": {
		Means:   "restart the program in place when the check has failed for so long; 0s: never",
		Default: `"0s"`, Example: `"1m"`, beside: tcpCheck, with: withPort,
	},

	"job.group.volume.kind": {
		Means: "`local`: one copy, where it was first made; `replicated`: the program copies it among its " +
			"instances",
		Default: `"local"`, Example: `"replicated"`, beside: `path = "/data"`, with: withFacts,
	},
	"job.group.volume.path": {
		Means:   "where the program finds it: absolute, no symbolic links, and there already or below one of `volume_paths` of the agent; see `OUTSPAN_VOLUME_NAME`",
		Example: `"/data"`,
	},

	"job.group.stop.signal": {
		Means:   "asks the program to end",
		Default: `"SIGTERM"`, Example: `"SIGINT"`,
	},
	"job.group.stop.grace": {
		Means:   "after the signal; what is left then is killed",
		Default: `"10s"`, Example: `"1m"`,
	},
	"job.group.stop.drain_delay": {
		Means:   "between its withdrawal from services and the signal",
		Default: `"1s"`, Example: `"5s"`,
	},

	"job.group.restart.attempts": {
		Means:   "restarts in place within the interval; after that it has failed",
		Default: "3", Example: "5",
	},
	"job.group.restart.interval": {
		Means:   "the time in which they count",
		Default: `"10m"`, Example: `"30m"`,
	},
	"job.group.restart.delay": {
		Means:   "before the first restart; it grows",
		Default: `"5s"`, Example: `"1s"`,
	},
	"job.group.reschedule.attempts": {
		Means:   "replacements of failed instances within the interval, for each version",
		Default: "3", Example: "10",
	},
	"job.group.reschedule.interval": {
		Means:   "the time in which they count",
		Default: `"10m"`, Example: `"1h"`,
	},

	"job.group.update.max_surge": {
		Means:   "further instances during a rollout. Default: 1, or 0 where `max_unavailable` is given",
		Example: "2",
	},
	"job.group.update.max_unavailable": {
		Means:   "instances that may be missing during a rollout",
		Default: "0", Example: "1",
	},
	"job.group.update.order": {
		Means:   "`surge` or `stop_first`. Default: that of `eviction`",
		Example: `"stop_first"`,
	},
	"job.group.update.min_healthy": {
		Means:   "how long a new instance must stay ready",
		Default: `"0s"`, Example: `"30s"`,
	},
	"job.group.update.deadline": {
		Means:   "without progress for so long the rollout has failed",
		Default: `"10m"`, Example: `"30m"`,
	},
	"job.group.update.auto_revert": {
		Means:   "go back to the last good version then",
		Default: "false", Example: "true",
	},
	"job.group.update.canary": {
		Means:   "instances of the new version that wait for `outspan deployment promote`",
		Default: "0", Example: "1",
	},

	"job.group.budget.min_ready": {
		Means:   "instances that stay ready during planned stops: a number, or a percentage of `count`",
		Example: `"50%"`,
	},
	"job.group.budget.max_down": {Means: "instances that may be down at once", Example: "1"},
	"job.group.budget.blocking": {
		Means:   "accept that it allows nothing: see [budgets](budgets.md)",
		Default: "false", Example: "true", beside: "max_down = 1",
	},
	"job.group.budget.rate.max": {
		Means:   "planned stops within the window",
		Example: "1", beside: `window = "1m"`,
	},
	"job.group.budget.rate.window": {Means: "of the rate", Example: `"5m"`, beside: "max = 1"},

	"job.group.eviction.mode": {
		Means: "may an instance leave its node: `always`, `never`, `when` (all gates hold), `last`. Default:" +
			" by role",
		Example: `"never"`,
	},
	"job.group.eviction.order": {
		Means:   "`surge` (the new one first) or `stop_first`. Default: by role",
		Example: `"stop_first"`,
	},
	"job.group.eviction.surge_wait": {
		Means:   "the new one must be `ready`, or only `started`",
		Default: `"ready"`, Example: `"started"`,
	},
	"job.group.eviction.when": {
		Means:   "gates: see [facts and gates](roles.md#facts-and-gates). Default: by role",
		Example: `["!self.leader"]`, with: withQuorum,
	},
	"job.group.replacement.mode": {
		Means:   "is a lost one replaced: `always`, `never`, `when`, `restart`. Default: by role",
		Example: `"never"`,
	},
	"job.group.replacement.identity": {
		Means:   "`new` or `same` slot and member id. Default: by role",
		Example: `"same"`,
	},
	"job.group.replacement.data": {
		Means:   "with a local volume: `empty`, so that a replacement may begin anew on another machine, filled by the others; or `keep`. Default: by role",
		Example: `"keep"`,
	},
	"job.group.replacement.when": {
		Means:   "gates. Default: by role",
		Example: `["old.confirmed_stopped"]`, with: withQuorum,
	},
	"job.group.toleration.unreachable": {
		Means:   "how long an instance on an offline node is waited for. Default: by role",
		Example: `"5m"`,
	},
	"job.group.toleration.not_ready": {
		Means:   "how long it stays on a sick node; `forever`: always. Default: by role",
		Example: `"1m"`,
	},
	"job.group.exclusive.lease": {
		Means:   "the program ends by itself so long after its node has lost the servers; at least 10s",
		Default: `"1m"`, Example: `"30s"`,
	},

	"job.group.constraint.attribute": {
		Means:   "`node.id`, `node.name`, `node.label.X` or `node.attr.X`",
		Example: `"node.label.disk"`, beside: `value = "ssd"`,
	},
	"job.group.constraint.operator": {
		Means:   "`=`, `!=`, `<`, `<=`, `>`, `>=`, `regexp`, `in`, `not_in`, `is_set`, `is_not_set`",
		Default: `"="`, Example: `"!="`, beside: onSSD,
	},
	"job.group.constraint.value": {
		Means:   "what it is compared with; for in and not_in a list with commas",
		Example: `"ssd"`, beside: onDisk,
	},
	"job.group.affinity.attribute": {
		Means:   "as of a constraint; nodes that fit are preferred",
		Example: `"node.label.disk"`, beside: `value = "ssd"`,
	},
	"job.group.affinity.operator": {
		Means:   "as of a constraint",
		Default: `"="`, Example: `"!="`, beside: onSSD,
	},
	"job.group.affinity.value": {Means: "as of a constraint", Example: `"ssd"`, beside: onDisk},
	"job.group.affinity.weight": {
		Means:   "-100 to 100; below 0 such nodes are avoided",
		Default: "50", Example: "-20", beside: onSSD,
	},
	"job.group.spread.attribute": {
		Means:   "instances are spread evenly over its values",
		Example: `"node.label.rack"`,
	},
	"job.group.distinct.attribute": {Means: "no two instances share its value", Example: `"node.id"`},

	"job.group.role_check.exec": {
		Means:   "prints one flat JSON object of facts",
		Example: `["/opt/db/facts"]`,
	},
	"job.group.role_check.port": {
		Means:   "or: the name of a port that answers with it over HTTP",
		Example: `"http"`, with: withPort,
	},
	"job.group.role_check.path": {
		Means:   "of that request",
		Default: `"/"`, Example: `"/facts"`, beside: `port = "http"`, with: withPort,
	},
	"job.group.role_check.interval": {
		Means:   "from one to the next",
		Default: `"5s"`, Example: `"2s"`, beside: `exec = ["/opt/db/facts"]`,
	},
	"job.group.role_check.timeout": {
		Means:   "one that takes longer has failed",
		Default: `"2s"`, Example: `"1s"`, beside: `exec = ["/opt/db/facts"]`,
	},
	"job.group.peers.signal": {
		Means: "sent to the program when the list in `OUTSPAN_PEERS` has changed: `SIGHUP`, `SIGUSR1` or " +
			"`SIGUSR2`",
		Example: `"SIGHUP"`,
	},
	"job.group.hook.exec": {
		Means:   "program and arguments; it runs as the instance's user, in its environment",
		Example: `["/opt/db/resign"]`,
	},
	"job.group.hook.timeout": {
		Means:   "it is killed then, and has failed",
		Default: `"30s"`, Example: `"2m"`, beside: `exec = ["/opt/db/resign"]`,
	},
	"job.group.hook.on_failure": {
		Means:   "`abort`: the stop is put off, or the start has failed; `continue`",
		Default: `"abort"`, Example: `"continue"`, beside: `exec = ["/opt/db/resign"]`,
	},
}
