package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/model"
)

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const serverFile = `
name     = "s1"
data_dir = "/var/lib/outspan"
log {
  level  = "debug"
  format = "json"
}
server {
  bootstrap_expect = 3
  retry_join       = ["10.0.0.1:7642", "exec:/usr/local/bin/peers"]
}
listen {
  address = "127.0.0.1"
  socket  = "/run/outspan/api.sock"
}
tls { dir = "/var/lib/outspan/tls" }
gossip { profile = "fast" }
settings {
  offline_after     = "2s"
  node_drain_policy = "block-if-contains-last-replica"
  drain_deadline    = "1h"
  rescheduler       = "balanced"
}
telemetry { prometheus = true }
limits { requests_per_second = 100 }
`

// The files of a directory are read in name order. A key that a later file does not set keeps its earlier value.
func TestLoadOverlay(t *testing.T) {
	dir := write(t, map[string]string{
		"10-server.hcl": serverFile,
		"20-site.hcl":   "name = \"s2\"\nlisten { port = 8000 }\nsettings { offline_after = \"5s\" }\n",
		"ignored.txt":   "not HCL {",
	})
	c, err := config.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "s2" || c.Listen.Port != 8000 || c.Listen.Socket != "/run/outspan/api.sock" ||
		c.Advertise != "127.0.0.1" {
		t.Errorf("overlay went wrong: %+v", c)
	}
	if c.Settings.OfflineAfter != 5*model.Second || c.Settings.DrainDeadline != model.Hour ||
		c.Server.BootstrapExpect != 3 {
		t.Errorf("settings went wrong: %+v", c.Settings)
	}
}

func TestLoadMistakes(t *testing.T) {
	tests := []struct{ name, add, want string }{
		{"typo", "lissten { port = 1 }", `Did you mean "listen"?`},
		{"typo in a block", "agent { sevrers = [] }", `Did you mean "servers"?`},
		{"typo in containers", "agent {\n  container { sokcet = \"/s\" }\n}", `Did you mean "socket"?`},
		{"twice in a file", "server { raft_multiplier = 1 }", "Duplicate block"},
		{"issuer", "auth {\n  oidc { issuer = \"http://id.example.org\" }\n}", "does not use https"},
		{"no issuer", "auth {\n  oidc { client_id = \"outspan\" }\n}", "auth.oidc.issuer"},
		{"no client", "auth {\n  oidc { issuer = \"https://id.example.org\" }\n}", "auth.oidc.client_id"},
		{"session", "auth {\n  oidc {\n    issuer = \"https://id.example.org\"\n    client_id = \"outspan\"\n" +
			"    session = \"1m\"\n  }\n}", "it must be 15m to 720h"},
		{"scope", "auth {\n  oidc {\n    issuer = \"https://id.example.org\"\n    client_id = \"outspan\"\n" +
			"    scopes = [\"a b\"]\n  }\n}", "a scope has no blanks"},
		{"secret", "auth {\n  oidc {\n    client_secret = \"x\"\n  }\n}", "client_secret"},
		{"unit", "agent {\n  reserve { memory = 256 }\n}", "memory takes a text"},
	}
	for _, test := range tests {
		_, err := config.Load(write(t, map[string]string{"a.hcl": serverFile + test.add + "\n"}))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "a.hcl:") {
			t.Errorf("%s: got %v, want %q with file and line", test.name, err, test.want)
		}
	}
}

// Without the key volume_paths the list is nil. An empty list in the file gives an empty list.
func TestVolumePaths(t *testing.T) {
	for text, want := range map[string][]string{"": nil, "volume_paths = []": {},
		`volume_paths = ["/data", "/var/lib/db"]`: {"/data", "/var/lib/db"}} {
		file := filepath.Join(t.TempDir(), "a.hcl")
		text := "name = \"a\"\ndata_dir = \"/d\"\nagent {\n  servers = [\"10.0.0.1:7640\"]\n  " + text +
			"\n}\ntls { dir = \"/t\" }\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Agent.VolumePaths); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// An empty block gives the defaults, and without a block there are no containers.
func TestContainer(t *testing.T) {
	const file = "name = \"a\"\ndata_dir = \"/d\"\n" +
		"agent {\n  servers = [\"10.0.0.1:7640\"]\n  %s\n}\ntls { dir = \"/t\" }\n"
	for text, want := range map[string]*config.Container{
		"": nil,
		"container {}": {Socket: "/run/containerd/containerd.sock", Runtime: "runc", CertsDir: "/etc/containerd/certs.d",
			PullTimeout: 15 * model.Minute, DiskHigh: 85, DiskLow: 80},
		"container {\n    certs_dir = \"\"\n    docker_config = \"/c\"\n  }": {Socket: "/run/containerd/containerd.sock",
			Runtime: "runc", DockerConfig: "/c", PullTimeout: 15 * model.Minute, DiskHigh: 85, DiskLow: 80},
	} {
		c, err := config.Load(write(t, map[string]string{"a.hcl": fmt.Sprintf(file, text)}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Agent.Container); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// The error for a wrong value names its line, even if only a check of the whole configuration finds the mistake.
func TestLoadTellsTheLine(t *testing.T) {
	const server = "name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\ntls { dir = \"/t\" }\n"
	const agent = "name = \"a\"\ndata_dir = \"/d\"\ntls { dir = \"/t\" }\nagent {\n  servers = [\"h:1\"]\n"
	tests := []struct{ name, text, want string }{
		{"level", server + "log {\n  level = \"loud\"\n}\n", "a.hcl:6,11: log.level is \"loud\"; use trace"},
		{"profile", server + "gossip { profile = \"lann\" }\n", "a.hcl:5,20: gossip.profile is \"lann\""},
		{"port", server + "listen { port = 99999 }\n", "a.hcl:5,17: listen.port is 99999; it must be 0 to 65535"},
		{"gossip port", server + "listen { gossip_port = -1 }\n", "a.hcl:5,24: listen.gossip_port is -1"},
		{"setting", server + "settings {\n  offline_after = \"10ms\"\n}\n", "a.hcl:5,1: settings: offline_after is 10ms"},
		{"count of servers", "name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 2 }\ntls { dir = \"/t\" }\n",
			"a.hcl:3,29: server.bootstrap_expect is 2"},
		{"address to join", "name = \"a\"\ndata_dir = \"/d\"\nserver { retry_join = [\"10.0.0.1\"] }\ntls { dir = \"/t\" }\n",
			"a.hcl:3,23: server.retry_join has \"10.0.0.1\"; write HOST:PORT, such as 10.0.0.1:7642"},
		{"address of a server", "name = \"a\"\ndata_dir = \"/d\"\ntls { dir = \"/t\" }\nagent { servers = [\"s1.lan\"] }\n",
			"a.hcl:4,19: agent.servers has \"s1.lan\"; write HOST:PORT"},
		{"program in place of a server",
			"name = \"a\"\ndata_dir = \"/d\"\ntls { dir = \"/t\" }\nagent { servers = [\"exec:/bin/list\"] }\n",
			"a.hcl:4,19: agent.servers has \"exec:/bin/list\"; write HOST:PORT"},
		{"scheme of a server",
			"name = \"a\"\ndata_dir = \"/d\"\ntls { dir = \"/t\" }\nagent { servers = [\"https://s1.lan:7640\"] }\n",
			"a.hcl:4,19: agent.servers has \"https://s1.lan:7640\"; write HOST:PORT"},
		{"at shutdown", agent + "  on_shutdown = \"kep\"\n}\n", "a.hcl:6,17: agent.on_shutdown is \"kep\""},
		{"program for certificates",
			"name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\ngossip { key_file = \"/g\" }\ntls {\n" +
				"  ca_file = \"/a\"\n  cert_file = \"/c\"\n  key_file = \"/k\"\n  issue = \"exec:issue\"\n}\n",
			"a.hcl:9,11: tls.issue is \"exec:issue\"; it must be exec: and the whole path of a program"},
		{"program without files", "name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\n" +
			"tls {\n  dir = \"/t\"\n  issue = \"exec:/p\"\n}\n",
			"a.hcl:6,11: tls.issue is for servers with certificate files"},
		{"driver", agent + "  drivers = [\"docker\"]\n}\n", "a.hcl:6,13: agent.drivers is [docker]; the only driver is exec"},
		{"socket", agent + "  container {\n    socket = \"s\"\n  }\n}\n",
			"a.hcl:7,14: agent.container.socket is \"s\"; it must be a whole path"},
		{"runtime", agent + "  container {\n    runtime = \"bin/runc\"\n  }\n}\n",
			"a.hcl:7,15: agent.container.runtime is \"bin/runc\""},
		{"pull", agent + "  container {\n    pull_timeout = \"0s\"\n  }\n}\n",
			"a.hcl:7,20: agent.container.pull_timeout is 0s; it must be 1s to 24h"},
		{"high mark", agent + "  container {\n    images_disk_high = 100\n  }\n}\n",
			"a.hcl:7,24: agent.container.images_disk_high is 100; it must be 1 to 99 percent, or 0 to delete no images"},
		{"low mark", agent + "  container {\n    images_disk_low = 86\n  }\n}\n",
			"a.hcl:7,23: agent.container.images_disk_low is 86; it must be 1 to images_disk_high, which is 85"},
		{"missing", "name = \"a\"\ndata_dir = \"/d\"\nagent {\n}\ntls { dir = \"/t\" }\n",
			"a.hcl:3,1: agent.servers is missing"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := config.Load(write(t, map[string]string{"a.hcl": test.text}))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestLoadChecksTheWhole(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"no data dir", "name = \"a\"\nserver { bootstrap_expect = 1 }\ntls { dir = \"/t\" }\n", "data_dir is missing"},
		{"relative data dir", "name = \"a\"\ndata_dir = \"d\"\nserver { bootstrap_expect = 1 }\ntls { dir = \"/t\" }\n",
			"write the whole path"},
		{"no role", "name = \"a\"\ndata_dir = \"/d\"\ntls { dir = \"/t\" }\n", "neither a server nor an agent"},
		{"no certificates", "name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\n", "outspan tls ca create"},
		{"dir off loopback",
			"name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\n" +
				"tls { dir = \"/t\" }\nlisten { address = \"10.0.0.1\" }\n", "single machine"},
		{"managed beside a directory",
			"name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\n" +
				"tls {\n managed = true\n dir = \"/t\"\n}\n", "tls can have no other key"},
		{"managed beside a file",
			"name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\n" +
				"tls {\n managed = true\n key_file = \"/k\"\n}\n", "tls can have no other key"},
		{"managed beside a gossip key",
			"name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\n" +
				"tls { managed = true }\ngossip { key_file = \"/k\" }\n", "gossip can have no key_file"},
		{"any address",
			"name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\n" +
				"tls {\n ca_file = \"a\"\n cert_file = \"b\"\n key_file = \"c\"\n" +
				"}\ngossip { key_file = \"k\" }\nlisten { address = \"0.0.0.0\" }\n", "GetPrivateIP"},
		{"a path that is none", "agent {\n  volume_paths = [\"data\"]\n}", "such as volume_paths = [\"/data\"]"},
		{"user ids", "agent {\n  instance_uids = \"200000\"\n}", "such as \"2000000-2065535\""},
		{"user ids by a word", "agent {\n  instance_uids = \"none\"\n}", "or \"off\""},
		{"too few user ids", "agent {\n  instance_uids = \"200000-200100\"\n}", "at least 1000"},
		{"user ids of the machine", "agent {\n  instance_uids = \"1000-65533\"\n}", "above 65534"},
		{"a label of operators",
			"name = \"a\"\ndata_dir = \"/d\"\nagent {\n  servers = [\"h:1\"]\n" +
				"  labels = { \"operator.trusted\" = \"yes\" }\n}\ntls { dir = \"/t\" }\n", "set by operators alone"},
		{"a port too much",
			"name = \"a\"\ndata_dir = \"/d\"\nagent {\n  servers = [\"10.0.0.1:76400\"]\n}\ntls { dir = \"/t\" }\n",
			"write HOST:PORT"},
		{"agent alone", "name = \"a\"\ndata_dir = \"/d\"\nagent {}\ntls { dir = \"/t\" }\n", "agent.servers is missing"},
		{"two servers", "name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 2 }\ntls { dir = \"/t\" }\n",
			"bootstrap_expect is 2"},
		{"an audit log without a file", "name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\n" +
			"tls { dir = \"/t\" }\naudit { required = true }\n", "audit has no destination"},
		{"a relative audit log", "name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\n" +
			"tls { dir = \"/t\" }\naudit { file = \"a.log\" }\n", "must be a whole path"},
		{"an audit log of an agent", "name = \"a\"\ndata_dir = \"/d\"\nagent { servers = [\"h:1\"] }\n" +
			"tls { dir = \"/t\" }\naudit { stdout = true }\n", "audit is for servers"},
		{"short threshold",
			"name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\n" +
				"tls { dir = \"/t\" }\nsettings { offline_after = \"10ms\" }\n", "offline_after is 10ms"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := config.Load(write(t, map[string]string{"a.hcl": test.text}))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// A managed machine needs no other key, and may listen on any address.
func TestLoadManaged(t *testing.T) {
	c, err := config.Load(write(t, map[string]string{"a.hcl": "name = \"a\"\ndata_dir = \"/d\"\n" +
		"server { bootstrap_expect = 1 }\ntls { managed = true }\n" +
		"listen { address = \"0.0.0.0\" }\nadvertise { address = \"10.0.0.1\" }\n"}))
	if err != nil || !c.TLS.Managed {
		t.Errorf("got %+v, %v", c, err)
	}
}

// The error for a job file has a hint with the command that checks job files.
func TestLoadJobFile(t *testing.T) {
	file := filepath.Join(write(t, map[string]string{"web.hcl": "job \"web\" {}\n"}), "web.hcl")
	_, err := config.Load(file)
	var refusal *model.Error
	if want := "outspan job validate " + file; !errors.As(err, &refusal) || !strings.Contains(refusal.Hint, want) {
		t.Errorf("got %v, want the hint %q", err, want)
	}
}
