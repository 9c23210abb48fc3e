package local

import (
	"fmt"
	"os"
	"strings"

	"github.com/outspan/outspan/jobfile"
)

// variable is one OUTSPAN_ variable in the reference. NAME in its name stands for a name from the job file in upper
// case, with _ for each character that is neither a letter nor a digit.
type variable struct{ name, means string }

// variableGroup is a list of variables that the same programs read.
type variableGroup struct {
	title string
	list  []variable
}

// variables lists the OUTSPAN_ variables that outspan sets for programs and commands, and those that its users may set.
// It omits variables for the development of outspan, such as OUTSPAN_PROFILE.
func variables() []variableGroup {
	return []variableGroup{
		{"In a program, its checks, its role check and its hooks", []variable{
			{"OUTSPAN_INSTANCE_ID", "the id of the instance; a replacement has another one"},
			{"OUTSPAN_JOB", "the name of its job"},
			{"OUTSPAN_GROUP", "the name of its group"},
			{"OUTSPAN_SLOT", "its place in the group, from 0; a replacement has the same"},
			{"OUTSPAN_MEMBER_ID", "JOB-GROUP-SLOT: a name that stays the same when the instance is replaced"},
			{"OUTSPAN_ATTEMPT", "how many instances of the group were placed before it; 0: it is the first one"},
			{"OUTSPAN_NODE", "the name of its node"},
			{"OUTSPAN_NODE_ID", "the id of its node"},
			{"OUTSPAN_IP", "the address where it should listen: that of its node, or its own with `network = \"bridge\"`"},
			{"OUTSPAN_PORT_NAME", "the number of the port NAME there; with `network = \"bridge\"` it is `to`, if that is given"},
			{"OUTSPAN_HOST_IP", "only with `network = \"bridge\"`: the address of its node, where others reach it"},
			{"OUTSPAN_HOST_PORT_NAME", "only with `network = \"bridge\"`: the number of the port NAME there"},
			{"OUTSPAN_SERVICE_NAME",
				"HOST:PORT at which this node forwards to the service NAME of any job, if it is exposed"},
			{"OUTSPAN_VOLUME_NAME", "the directory with the data of the volume NAME"},
			{"OUTSPAN_PEERS",
				"a file that lists the instances of its group: see [roles](roles.md#who-else-is-in-the-" +
					"group)"},
			{"OUTSPAN_FENCING_EPOCH",
				"of a group with `exclusive`, a volume or the same identity for each slot: a number that grows with " +
					"each holder of the slot; storage that checks it refuses an older one. Only `exclusive` makes sure that the " +
					"older holder has ended"},
			{"OUTSPAN_DIR", "its working directory, which goes with it"},
			{"OUTSPAN_RUN", "random for each run; the agent finds by it what a program left behind"},
		}},
		{"In hooks, beside those", []variable{
			{"OUTSPAN_HOOK", "`before_stop` or `after_start`"},
			{"OUTSPAN_STOP_CAUSE", "before a stop: why, such as `node_draining` or `rollout`"},
		}},
		{"In the command of node roll --exec", []variable{
			{"OUTSPAN_NODE", "the name of the node whose turn it is"},
			{"OUTSPAN_NODE_ADDRESS", "its address"},
		}},
		{"Read by the command line; a flag wins over its variable", []variable{
			{"OUTSPAN_ADDR",
				"servers, with commas between them: `https://HOST:7640` or `unix:///PATH`. Default: the " +
					"socket of a server on this machine"},
			{"OUTSPAN_CACERT", "file with the CA's certificate"},
			{"OUTSPAN_TOKEN", "an access token, in place of a certificate"},
			{"OUTSPAN_TOKEN_FILE", "file with an access token; it may be `-`, the standard input"},
			{"OUTSPAN_CLIENT_CERT", "file with the caller's certificate"},
			{"OUTSPAN_CLIENT_KEY", "file with its key"},
			{"OUTSPAN_TLS_SERVER_NAME",
				"the name that the servers' certificates must have, where it is not `server.outspan`"},
		}},
	}
}

// WriteJobDocs writes the reference of the job file and of the variables to path.
func WriteJobDocs(path string) error {
	var b strings.Builder
	b.WriteString("# The job file\n\nMade from the program by `make docs`; a test parses every example " +
		"and compares every default.\n\n" +
		"A duration is a number with a unit, `\"30s\"`, `\"5m\"`, `\"1h\"`, `\"7d\"`, or " +
		"`\"forever\"`. A size is `\"128MiB\"` or `\"2GiB\"`. Nothing is converted:\n" +
		"`memory = 128` is an error. `outspan job init` writes a file to begin with, `outspan " +
		"job validate FILE` prints the job with all defaults.\n" +
		"Every key is there since the first version.\n")
	b.WriteString(jobfile.Reference())
	b.WriteString("\n## Which role for a store with data\n\n" +
		"A member of a Raft store (etcd, Consul, NATS JetStream) fills its data again from the " +
		"others: role `quorum`. Its place is taken by one\n" +
		"of the same name with an empty volume, once the old one has stopped for certain. " +
		"`replicated` keeps its copies: a `role_check` tells\n" +
		"which are `in_sync`, and a copy goes only as the drain policy says. A database without" +
		" copies is `local`.\n\n" +
		"The gate `!self.leader` of `quorum` does not keep the hook `before_stop` from running." +
		" The hook runs first and may hand leadership over;\n" +
		"the gates are looked at after it, and again right before the signal. See " +
		"[roles](roles.md) and [examples](../examples/).\n\n" +
		"## Whose user a program runs as\n\n" +
		"An agent that runs as root runs each instance that names no `user` as a user of its " +
		"own, and each slot with volumes as one that\n" +
		"stays. Such a user has no account: `USER` is not set, and `HOME` is the working " +
		"directory. With `instance_uids = \"off\"` these\n" +
		"instances share `nobody`, and can read each other's environment and files. An agent " +
		"of another user runs everything as itself.\n")
	b.WriteString("\n# Variables\n\nNAME stands for a name of the job file in upper case, with `_` for " +
		"what is no letter and no digit.\n")
	for _, group := range variables() {
		b.WriteString("\n## " + group.title + "\n\n| variable | meaning |\n|---|---|\n")
		for _, v := range group.list {
			fmt.Fprintf(&b, "| `%s` | %s |\n", v.name, v.means)
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write the reference: %w", err)
	}
	return nil
}
