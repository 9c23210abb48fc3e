package jobfile

import "github.com/outspan/outspan/internal/hclfile"

var jobTexts = map[string]hclfile.KeyText{
	"class": {
		Means:   "what is placed first and may push others out; see `outspan class ls`",
		Default: `"production"`, Example: `"batch"`,
	},
}

var groupTexts = map[string]hclfile.KeyText{
	"count": {
		Means:   "instances; a group of the role system has one on each node that can take it",
		Default: "1", Example: "3",
	},
	"role": {
		Means: "a preset of `eviction`, `replacement` and `toleration`: see [roles](roles.md). Default: " +
			"`local` or `replicated` if it has such a volume, else `service`",
		Example: `"front"`,
	},
	"env": {
		Means: "environment of the program, its checks and hooks; names that begin with `OUTSPAN_` are the " +
			"agent's and are refused",
		Example: `{ LOG = "info" }`,
	},
	"budget": {
		Means:   "shared budgets, by name, beside its own block",
		Example: `["payments"]`,
	},
	"exclusive": {
		Means:   "true: as the block `exclusive {}`",
		Default: "false", Example: "true",
	},
}

var execTexts = map[string]hclfile.KeyText{
	"command": {
		Means: "the program: its absolute path, or a name that is looked up in `PATH` of its `env`, by default the " +
			"usual directories", Example: `"/opt/web/bin/web"`},
	"args": {
		Means: "its arguments; `${port.NAME}`, `${slot}`, `${node.id}` and `${node.name}` are filled in, and `$${` stands " +
			"for `${`. The variables below are for a shell: `sh` with `[\"-c\", \"exec web -l $OUTSPAN_IP\"]`",
		Example: `["--listen", ":${port.http}"]`, Beside: `command = "/bin/web"`, With: withPort,
	},
	"user": {
		Means: "whose user it runs as. Default: an agent as root runs it as a user of its own, without " +
			"an account; another agent as its own user. Name one if the program needs an account",
		Example: `"web"`, Beside: `command = "/bin/web"`,
	},
	"rlimits": {
		Means:   "limits of the kernel for each process, by their names in `ulimit`",
		Example: `{ nofile = 4096 }`, Beside: `command = "/bin/web"`,
	},
}

var resourceTexts = map[string]hclfile.KeyText{
	"cpu": {
		Means:   "MHz-like shares: a promise, not a cap",
		Default: "100", Example: "250",
	},
	"memory": {
		Means:   "bytes, a hard cap: above it the program is killed",
		Default: `"64MiB"`, Example: `"128MiB"`,
	},
	"pids": {Means: "processes and threads at once. Default: 4096", Example: "512"},
	"disk": {
		Means: "bytes that the instance may have below its work directory, at least 1 MiB; volumes and logs do not " +
			"count, and placement does not look at it. It is watched, not enforced: `outspan status` names an " +
			"instance that is above it. Default: no limit",
		Example: `"2GiB"`,
	},
}

var portTexts = map[string]hclfile.KeyText{
	"static": {
		Means:   "a fixed port of the node; without it the agent picks a free one",
		Example: "8080",
	},
	"to": {
		Means: "the port in a container with `network = \"bridge\"` to which the port of the node leads. Default: the same " +
			"number as that of the node",
		Example: "80", With: "container {\n" + besideImage + "\nnetwork = \"bridge\"\n}",
	},
}

var serviceTexts = map[string]hclfile.KeyText{
	"port": {
		Means:   "the name of one of the group's ports",
		Example: `"http"`, With: withPort,
	},
	"expose": {
		Means:   "a port on which every agent forwards to ready instances; 0: none",
		Default: "0", Example: "8080", Beside: `port = "http"`, With: withPort,
	},
}

var checkTexts = map[string]hclfile.KeyText{
	"type": {
		Means:   "`http` (2xx or 3xx is well), `tcp` (it connects) or `exec` (exit code 0)",
		Example: `"tcp"`, Beside: `port = "http"`, With: withPort,
	},
	"port": {
		Means:   "the name of a port, for http and tcp",
		Example: `"http"`, Beside: `type = "tcp"`, With: withPort,
	},
	"path": {
		Means:   "what an http check asks for",
		Default: `"/"`, Example: `"/healthz"`, Beside: "type = \"http\"\nport = \"http\"", With: withPort,
	},
	"exec": {
		Means:   "program and arguments of an exec check",
		Example: `["/opt/web/live"]`, Beside: `type = "exec"`,
	},
	"interval": {
		Means:   "from the end of one check to the next",
		Default: `"10s"`, Example: `"2s"`, Beside: tcpCheck, With: withPort,
	},
	"timeout": {
		Means:   "a check that takes longer has failed",
		Default: `"2s"`, Example: `"1s"`, Beside: tcpCheck, With: withPort,
	},
	"grace": {
		Means:   "after the start, in which failures don't count",
		Default: `"10s"`, Example: `"30s"`, Beside: tcpCheck, With: withPort,
	},
	"successes": {
		Means:   "in a row that make it ready",
		Default: "1", Example: "2", Beside: tcpCheck, With: withPort,
	},
	"failures": {
		Means:   "in a row that end that",
		Default: "3", Example: "5", Beside: tcpCheck, With: withPort,
	},
	"restart_after": {
		Means:   "restart the program in place when the check has failed for so long; 0s: never",
		Default: `"0s"`, Example: `"1m"`, Beside: tcpCheck, With: withPort,
	},
}

var volumeTexts = map[string]hclfile.KeyText{
	"kind": {
		Means: "`local`: one copy, where it was first made; `replicated`: the program copies it among its " +
			"instances",
		Default: `"local"`, Example: `"replicated"`, Beside: `path = "/data"`, With: withFacts,
	},
	"path": {
		Means: "where the program finds it: absolute, no symbolic links, and there already or below one of " +
			"`volume_paths` of the agent; see `OUTSPAN_VOLUME_NAME`",
		Example: `"/data"`,
	},
}

var roleCheckTexts = map[string]hclfile.KeyText{
	"exec": {
		Means:   "prints one flat JSON object of facts",
		Example: `["/opt/db/facts"]`,
	},
	"port": {
		Means:   "or: the name of a port that answers with it over HTTP",
		Example: `"http"`, With: withPort,
	},
	"path": {
		Means:   "of that request",
		Default: `"/"`, Example: `"/facts"`, Beside: `port = "http"`, With: withPort,
	},
	"interval": {
		Means:   "from one to the next",
		Default: `"5s"`, Example: `"2s"`, Beside: `exec = ["/opt/db/facts"]`,
	},
	"timeout": {
		Means:   "one that takes longer has failed",
		Default: `"2s"`, Example: `"1s"`, Beside: `exec = ["/opt/db/facts"]`,
	},
}

var peersTexts = map[string]hclfile.KeyText{
	"signal": {
		Means: "sent to the program when the list in `OUTSPAN_PEERS` has changed: `SIGHUP`, `SIGUSR1` or " +
			"`SIGUSR2`",
		Example: `"SIGHUP"`,
	},
}

var hookTexts = map[string]hclfile.KeyText{
	"exec": {
		Means:   "program and arguments; it runs as the instance's user, in its environment",
		Example: `["/opt/db/resign"]`,
	},
	"timeout": {
		Means:   "it is killed then, and has failed",
		Default: `"30s"`, Example: `"2m"`, Beside: `exec = ["/opt/db/resign"]`,
	},
	"on_failure": {
		Means:   "`abort`: the stop is put off, or the start has failed; `continue`",
		Default: `"abort"`, Example: `"continue"`, Beside: `exec = ["/opt/db/resign"]`,
	},
}
