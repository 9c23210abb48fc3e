package config

import (
	"strings"

	"github.com/outspan/outspan/internal/hclfile"
)

// Reference returns the Markdown reference of the files of servers and agents. It has a section for each block, except
// for the block settings, whose keys SettingTexts describes.
func Reference() string {
	var b strings.Builder
	all, texts := allKeys(), allTexts()
	b.WriteString("\n## Outside of blocks\n" + hclfile.Table(all, texts, ""))
	for _, k := range all {
		if k.Type == "block" && k.Path != "settings" {
			b.WriteString("\n## " + strings.ReplaceAll(k.Path, ".", " ") + "\n" + hclfile.Table(all, texts, k.Path))
		}
	}
	return b.String()
}

// allKeys lists every key of the files of servers and agents, in the order of keys.
func allKeys() []hclfile.Key { return hclfile.Keys(keys(defaults())...) }

// allTexts returns the texts of the attributes that allKeys lists, by path.
func allTexts() map[string]hclfile.KeyText {
	all := map[string]hclfile.KeyText{}
	for _, b := range fileTexts {
		for key, text := range b.keys {
			if b.path != "" {
				key = b.path + "." + key
			}
			all[key] = text
		}
	}
	for _, s := range SettingTexts() {
		if s.File != "" {
			all["settings."+s.File] = hclfile.KeyText{Means: s.Means, Default: s.Default, Example: s.Example}
		}
	}
	return all
}

// fileTexts has the texts of the attributes of every block but settings, whose texts are in SettingTexts.
var fileTexts = []struct {
	path string
	keys map[string]hclfile.KeyText
}{
	{"", processTexts},
	{"log", map[string]hclfile.KeyText{
		"level": {Means: "how much is logged: `trace`, `debug`, `info`, `warn` or `error`. SIGHUP reloads it",
			Default: `"info"`, Example: `"debug"`},
		"format": {Means: "`text`, or `json` with one object a line", Default: `"text"`, Example: `"json"`},
	}},
	{"server", map[string]hclfile.KeyText{
		"bootstrap_expect": {Means: "how many new servers begin a cluster together: 1, 3, 5 or 7; 0: it joins one",
			Default: "0", Example: "3"},
		"retry_join": {
			Means:   "where the other servers gossip, HOST:PORT, or `exec:/path` of a program that prints such addresses",
			Example: `["10.0.0.2:7642"]`,
		},
		"raft_multiplier": {Means: "stretches the timeouts of raft, for slow networks and disks", Default: "1", Example: "2"},
	}},
	{"agent", agentTexts},
	{"agent.reserve", resourcesTexts("kept for the machine itself")},
	{"agent.capacity", resourcesTexts("what the machine has, in place of what the agent finds; 0: as found")},
	{"agent.ports", map[string]hclfile.KeyText{
		"min": {Means: "the lowest port that instances get. Agents that share an address need ranges of their own",
			Default: "20000", Example: "21000"},
		"max": {Means: "the highest port that instances get", Default: "29999", Example: "21999"},
	}},
	{"agent.container", map[string]hclfile.KeyText{
		"socket": {
			Means:   "the socket of containerd. With the block, the agent runs [containers](containers.md); without it, none",
			Default: `"/run/containerd/containerd.sock"`, Example: `"/run/k3s/containerd/containerd.sock"`,
		},
		"runtime": {Means: "the OCI runtime that makes containers, a path or a name in the agent's PATH",
			Default: `"runc"`, Example: `"/usr/local/sbin/runc"`},
		"certs_dir": {
			Means: "a directory with `HOST/hosts.toml` and certificates for registries and their mirrors, as containerd and " +
				"nerdctl read them; `\"\"`: none",
			Default: `"/etc/containerd/certs.d"`, Example: `"/etc/outspan.d/certs.d"`,
		},
		"docker_config": {Means: "docker's `config.json` with credentials for registries. Default: none",
			Example: `"/root/.docker/config.json"`},
		"pull_timeout": {Means: "how long the pull of an image may take", Default: `"15m"`, Example: `"1h"`},
		"images_disk_high": {
			Means: "percent; while the disk of the images is fuller, images that nothing on the node needs are deleted, the " +
				"least recently used first; 0: never", Default: "85", Example: "90",
		},
		"images_disk_low": {Means: "percent; how full the disk may be when the deletion ends", Default: "80", Example: "70"},
		"subnet": {
			Means: "addresses of the containers with `network = \"bridge\"` on this node; a change takes effect when none of " +
				"them runs. Default: a /22 below 172.24.0.0/14 that overlaps with no network of the machine, and stays the same",
			Example: `"10.88.0.0/22"`,
		},
		"cni_plugins": {
			Means:   "the directory with the CNI plugins. Default: `/usr/lib/cni`, or else `/opt/cni/bin`",
			Example: `"/opt/cni/bin"`,
		},
	}},
	{"listen", map[string]hclfile.KeyText{
		"address": {Means: "the IP address to listen on", Default: `"127.0.0.1"`, Example: `"0.0.0.0"`},
		"port": {
			Means: "of the API, on servers of raft too; 0: any free one. While another process holds an agent's, the agent " +
				"works without and tries again", Default: "7640", Example: "7650",
		},
		"gossip_port": {
			Means:   "of gossip, UDP and TCP; 0: any free one. While another process holds an agent's, it uses another one",
			Default: "7642", Example: "7652",
		},
		"socket": {Means: "the unix socket of the API. Default: `api.sock` in `data_dir`",
			Example: `"/run/outspan/api.sock"`},
	}},
	{"advertise", map[string]hclfile.KeyText{
		"address": {
			Means: "the IP address at which others reach this machine, or a template that finds one. " +
				"Default: `listen.address`",
			Example: `"10.0.0.1"`,
		},
	}},
	{"tls", map[string]hclfile.KeyText{
		"ca_file": {Means: "the certificate of the cluster's CA. SIGHUP reloads the three files",
			Example: `"/etc/outspan.d/tls/ca.pem"`},
		"cert_file": {Means: "the certificate of this server or agent", Example: `"/etc/outspan.d/tls/server-s1.pem"`},
		"key_file":  {Means: "its private key", Example: `"/etc/outspan.d/tls/server-s1-key.pem"`},
		"dir": {
			Means: "in place of the three: a directory in which CA, certificates and gossip key are made; for " +
				"clusters on one machine",
			Example: `"/tmp/outspan/tls"`,
		},
		"managed": {
			Means: "in place of all others, and of `gossip.key_file`: certificates and gossip key are in `DATA_DIR/tls`, " +
				"and the cluster issues and renews them. `outspan up` writes this key. SIGHUP reloads the certificates",
			Default: "false", Example: "true",
		},
		"issue": {
			Means: "on servers with the three files: `exec:/path` of a program that asks the CA for the certificates of " +
				"machines that join by token. All servers need it. See [join](join.md#with-a-ca-of-your-own)",
			Example: `"exec:/etc/outspan.d/issue"`,
		},
	}},
	{"auth.oidc", oidcTexts},
	{"gossip", map[string]hclfile.KeyText{
		"key_file": {Means: "the key that all servers and agents share. Needed without `tls.dir` and `tls.managed`",
			Example: `"/etc/outspan.d/gossip.key"`},
		"profile": {Means: "how fast gossip is: `lan`, `wan` or `fast`", Default: `"lan"`, Example: `"wan"`},
	}},
	{"telemetry", map[string]hclfile.KeyText{
		"prometheus": {Means: "serve `/metrics`", Default: "true", Example: "false"},
	}},
	{"auth", map[string]hclfile.KeyText{
		"tokens": {
			Means: "on servers: take access tokens of scripts, also over connections without a certificate. See " +
				"[rights](rights.md#scripts-and-ci)",
			Default: "false", Example: "true",
		},
	}},
	{"limits", map[string]hclfile.KeyText{
		"requests_per_second": {
			Means:   "requests a second of one caller of the API. The leader counts over all servers. SIGHUP reloads it",
			Default: "200", Example: "500",
		},
		"connections": {Means: "connections of the API. SIGHUP reloads it", Default: "16384", Example: "4096"},
	}},
	{"audit", auditTexts},
	{"ui", uiTexts},
}

var processTexts = map[string]hclfile.KeyText{
	"name": {Means: "of this server or node, and in its certificate. Default: the name of the host", Example: `"s1"`},
	"cluster": {Means: "the name of the cluster, part of certificates and gossip",
		Default: `"outspan"`, Example: `"prod"`},
	"data_dir": {Means: "where the process keeps its data, 0700. An agent with another one is a new node. Needed",
		Example: `"/var/lib/outspan"`},
}

var auditTexts = map[string]hclfile.KeyText{
	"file": {
		Means: "on servers: the audit log, with mode 0600. SIGHUP opens it again. Default: none. See " +
			"[rights](rights.md#audit)", Example: `"/var/log/outspan/audit.log"`,
	},
	"max_size": {Means: "the size at which the file is renamed to FILE.1", Default: `"64MiB"`, Example: `"256MiB"`},
	"keep":     {Means: "how many renamed files are kept", Default: "10", Example: "30"},
	"stdout":   {Means: "write the lines to the standard output", Default: "false", Example: "true"},
	"syslog":   {Means: "write the lines to the syslog of this machine", Default: "false", Example: "true"},
	"required": {
		Means: "refuse what can't be recorded: each write, each join and each read that reveals waits until its line is on " +
			"disk", Default: "false", Example: "true",
	},
}

var agentTexts = map[string]hclfile.KeyText{
	"servers": {Means: "the API of servers, HOST:PORT. Default: the server of this process", Example: `["10.0.0.1:7640"]`},
	"labels": {
		Means:   "for constraints, affinities and spreads of jobs, as `node.label.KEY`. SIGHUP reloads them",
		Example: `{ rack = "r1" }`,
	},
	"on_shutdown": {
		Means: "what becomes of instances when the agent is told to end: `keep` lets them run, `drain` " +
			"empties the node first",
		Default: `"keep"`, Example: `"drain"`,
	},
	"drivers":    {Means: "what runs programs; there is only `exec`", Default: `["exec"]`, Example: `[]`},
	"allow_root": {Means: "let instances run as uid 0", Default: "false", Example: "true"},
	"allow_users": {
		Means: "names or numbers of users that a job file may name, and no others but those of `min_uid`. " +
			"Default: any but root",
		Example: `["postgres"]`,
	},
	"min_uid": {Means: "the number from which on a job file may name any user; 0: as `allow_users` says",
		Default: "0", Example: "1000"},
	"instance_uids": {
		Means: "user ids FIRST-LAST for instances whose job file names no user, at least 1000; `off`: they all " +
			"run as `nobody`. " +
			"Default of an agent that runs as root: 2100000000-2100065535", Example: `"2000000-2065535"`,
	},
	"cgroup_root": {Means: "the parent of the instances' cgroups", Default: `"outspan"`, Example: `"apps"`},
	"backup_dir": {Means: "where backups of volumes are written and read, typically a shared mount. Default: none",
		Example: `"/mnt/backups"`},
	"volume_paths": {
		Means: "absolute directories below which the path of a volume is made when it is missing; " +
			"an empty list allows none. Default: `/data`, `/mnt`, `/opt`, `/srv`, `/tmp`, `/var/tmp`",
		Example: `["/data"]`,
	},
}

func resourcesTexts(what string) map[string]hclfile.KeyText {
	return map[string]hclfile.KeyText{
		"cpu":    {Means: what + ": CPU shares, 1000 for each core", Default: "0", Example: "200"},
		"memory": {Means: what + ": memory", Default: `"0B"`, Example: `"256MiB"`},
	}
}
