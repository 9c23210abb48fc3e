package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/outspan/outspan/model"
)

// refuse returns an error about a key, such as "log.level". The error begins with the file and line of the key.
type refuse func(key, format string, args ...any) *model.Error

// check checks the whole configuration after all files were read, and returns the first mistake. It also sets a missing
// Advertise, and the places in UI. placeOf is Decoder.PlaceOf. If no file has the key or a block around the key, the
// error begins with files, a list of all file names.
func (c *Config) check(files string, placeOf func(key, otherwise string) string) error {
	invalid := func(key, format string, args ...any) *model.Error {
		e := model.Refuse(model.CodeInvalid, format, args...)
		e.Message = placeOf(strings.ReplaceAll(key, ".", "/"), files) + ": " + e.Message
		return e
	}
	switch {
	case !model.ValidName(c.Name):
		return invalid("name", "name is %q: use 1 to 63 letters, digits, '-', '_' or '.'", c.Name)
	case !model.ValidName(c.Cluster):
		return invalid("cluster", "cluster is %q: use 1 to 63 letters, digits, '-', '_' or '.'", c.Cluster)
	case c.DataDir == "":
		return invalid("data_dir", "data_dir is missing").WithHint("add a line such as: data_dir = \"/var/lib/outspan\"")
	case !filepath.IsAbs(c.DataDir):
		return invalid("data_dir", "data_dir is %q, which depends on the directory that the program is started in",
			c.DataDir).WithHint("write the whole path, such as /var/lib/outspan")
	case c.Server == nil && c.Agent == nil:
		return invalid("", "there is neither a server nor an agent block")
	case !slices.Contains([]string{"trace", "debug", "info", "warn", "error"}, c.Log.Level):
		return invalid("log.level", "log.level is %q; use trace, debug, info, warn or error", c.Log.Level)
	case c.Log.Format != "text" && c.Log.Format != "json":
		return invalid("log.format", "log.format is %q; use text or json", c.Log.Format)
	case !slices.Contains([]string{"lan", "wan", "fast"}, c.Gossip.Profile):
		return invalid("gossip.profile", "gossip.profile is %q; use lan, wan or fast", c.Gossip.Profile)
	case c.Auth.Tokens && c.Server == nil:
		return invalid("auth.tokens", "auth.tokens is set, and the process is no server").
			WithHint("access tokens are for the API of servers: remove auth.tokens")
	case c.Limits.RequestsPerSecond < 1 || c.Limits.Connections < 1:
		return invalid("limits", "limits must be at least 1")
	}
	if c.UI != nil {
		c.UI.CertAt, c.UI.KeyAt = placeOf("ui/cert_file", files), placeOf("ui/key_file", files)
	}
	for _, test := range []func(refuse) *model.Error{c.checkListen, c.checkTLS, c.checkAuth, c.checkServer,
		c.checkAgent, c.checkAudit, c.checkUI} {
		if refusal := test(invalid); refusal != nil {
			return refusal
		}
	}
	if c.Settings != nil {
		if refusal := c.Settings.Check(); refusal != nil {
			return invalid("settings", "settings: %s", refusal.Message).WithHint("%s", refusal.Hint)
		}
	}
	return nil
}

func (c *Config) checkListen(invalid refuse) *model.Error {
	listen, err := netip.ParseAddr(c.Listen.Address)
	if err != nil {
		return invalid("listen.address", "listen.address is %q; it must be an IP address", c.Listen.Address)
	}
	if c.Advertise == "" {
		if listen.IsUnspecified() {
			return invalid("listen.address", "listen.address is %s, so others need to be told an address", c.Listen.Address).
				WithHint("add: advertise { address = \"{{ GetPrivateIP }}\" }")
		}
		c.Advertise = c.Listen.Address
	}
	if _, err := netip.ParseAddr(c.Advertise); err != nil {
		return invalid("advertise.address", "advertise.address is %q; it must be an IP address", c.Advertise)
	}
	if badPort(c.Listen.Port) {
		return invalid("listen.port", "listen.port is %d; it must be 0 to 65535", c.Listen.Port)
	}
	if badPort(c.Listen.GossipPort) {
		return invalid("listen.gossip_port", "listen.gossip_port is %d; it must be 0 to 65535", c.Listen.GossipPort)
	}
	return nil
}

// noAddress returns the first entry of list that is not HOST:PORT. If programs is true, an entry may also be
// "exec:/path", which names a program that prints addresses.
func noAddress(list []string, programs bool) (bad string, found bool) {
	i := slices.IndexFunc(list, func(address string) bool {
		host, port, err := net.SplitHostPort(address)
		n, notNumber := strconv.Atoi(port)
		isProgram := programs && strings.HasPrefix(address, "exec:")
		return !isProgram && (err != nil || host == "" || notNumber != nil || n < 1 || n > 65535)
	})
	if i < 0 {
		return "", false
	}
	return list[i], true
}

func badPort(p int) bool { return p < 0 || p > 65535 }

func (c *Config) checkTLS(invalid refuse) *model.Error {
	t := c.TLS
	files := t.CAFile != "" && t.CertFile != "" && t.KeyFile != ""
	program, isProgram := strings.CutPrefix(t.Issue, IssueProgram)
	switch {
	case t.Managed && (t.Dir != "" || t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.Issue != ""):
		return invalid("tls", "tls.managed is true, so tls can have no other key").
			WithHint("remove the other keys: certificates and keys are in %s", filepath.Join(c.DataDir, "tls"))
	case t.Managed && c.Gossip.KeyFile != "":
		return invalid("gossip.key_file", "tls.managed is true, so gossip can have no key_file").
			WithHint("remove it: the key is in %s", filepath.Join(c.DataDir, "tls"))
	case t.Managed:
		return nil
	case t.Dir != "" && (t.CAFile != "" || t.CertFile != "" || t.KeyFile != ""):
		return invalid("tls", "tls has both dir and files; give one of them")
	case t.Dir == "" && !files:
		return invalid("tls", "tls needs ca_file, cert_file and key_file").
			WithHint("make them with: outspan tls ca create; on a single machine, tls { dir = \"...\" } makes its own; " +
				"outspan up begins a cluster that makes and renews them")
	case t.Dir == "" && c.Gossip.KeyFile == "":
		return invalid("gossip.key_file", "gossip.key_file is missing").
			WithHint("make one with: outspan gossip key create FILE")
	case t.Dir != "" && !isLoopback(c.Listen.Address):
		return invalid("tls.dir", "tls.dir is for a single machine, but listen.address is %s", c.Listen.Address).
			WithHint("listen on a 127.x address, or use certificate files")
	case t.Issue != "" && (t.Dir != "" || c.Server == nil):
		return invalid("tls.issue", "tls.issue is for servers with certificate files").
			WithHint("remove it: here, no machine asks for a certificate")
	case t.Issue != "" && (!isProgram || !filepath.IsAbs(program)):
		return invalid("tls.issue", "tls.issue is %q; it must be exec: and the whole path of a program", t.Issue).
			WithHint("write, for example: issue = \"exec:/etc/outspan/issue\"")
	}
	return nil
}

func isLoopback(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.IsLoopback()
}

func (c *Config) checkServer(invalid refuse) *model.Error {
	s := c.Server
	switch {
	case s == nil:
		return nil
	case !slices.Contains([]int{0, 1, 3, 5, 7}, s.BootstrapExpect):
		return invalid("server.bootstrap_expect",
			"server.bootstrap_expect is %d; use 1, 3, 5 or 7, or 0 to join a cluster that exists", s.BootstrapExpect)
	case s.BootstrapExpect != 1 && len(s.RetryJoin) == 0:
		return invalid("server.retry_join", "server.retry_join is missing").
			WithHint("name the gossip addresses of the other servers, such as [\"10.0.0.1:7642\"]")
	case s.RaftMultiplier < 1 || s.RaftMultiplier > 10:
		return invalid("server.raft_multiplier", "server.raft_multiplier is %d; it must be 1 to 10", s.RaftMultiplier)
	}
	if bad, ok := noAddress(s.RetryJoin, true); ok {
		return invalid("server.retry_join", "server.retry_join has %q; write HOST:PORT, such as 10.0.0.1:7642", bad)
	}
	return nil
}

func (c *Config) checkAgent(invalid refuse) *model.Error {
	a := c.Agent
	switch {
	case a == nil:
		return nil
	case len(a.Servers) == 0 && c.Server == nil:
		return invalid("agent.servers", "agent.servers is missing").
			WithHint("name the API addresses of the servers, such as [\"10.0.0.1:7640\"]")
	case a.OnShutdown != "keep" && a.OnShutdown != "drain":
		return invalid("agent.on_shutdown", "agent.on_shutdown is %q; use keep or drain", a.OnShutdown)
	case len(a.Drivers) != 1 || a.Drivers[0] != "exec":
		return invalid("agent.drivers", "agent.drivers is %v; the only driver is exec", a.Drivers)
	case a.PortMin > a.PortMax:
		return invalid("agent.ports", "agent.ports: min is %d and max is %d; min must not be above max", a.PortMin, a.PortMax)
	case a.PortMin < 1024 || a.PortMax > 65535:
		return invalid("agent.ports", "agent.ports is %d to %d; it must lie within 1024 to 65535", a.PortMin, a.PortMax)
	case a.MinUID < 0:
		return invalid("agent.min_uid", "agent.min_uid is %d; it must not be negative", a.MinUID)
	case a.Reserve.CPU < 0 || a.Reserve.MemoryBytes < 0 || a.Capacity.CPU < 0 || a.Capacity.MemoryBytes < 0:
		return invalid("agent.reserve", "agent.reserve and agent.capacity must not be negative")
	}
	if bad, ok := noAddress(a.Servers, false); ok {
		return invalid("agent.servers", "agent.servers has %q; write HOST:PORT, such as 10.0.0.1:7640", bad)
	}
	if refusal := model.CheckAgentLabels(a.Labels); refusal != nil {
		return invalid("agent.labels", "agent.labels: %s", refusal.Message).WithHint("%s", refusal.Hint)
	}
	return a.Container.check(invalid)
}

func (c *Container) check(invalid refuse) *model.Error {
	if c == nil {
		return nil
	}
	for _, p := range []struct{ key, path, example string }{
		{"socket", c.Socket, "/run/containerd/containerd.sock"},
		{"certs_dir", c.CertsDir, "/etc/containerd/certs.d"},
		{"docker_config", c.DockerConfig, "/root/.docker/config.json"},
		{"cni_plugins", c.CNIPlugins, "/usr/lib/cni"},
	} {
		if !filepath.IsAbs(p.path) && (p.path != "" || p.key == "socket") {
			key := "agent.container." + p.key
			return invalid(key, "%s is %q; it must be a whole path", key, p.path).
				WithHint("write, for example: %s = %q", p.key, p.example)
		}
	}
	switch {
	case c.Runtime == "" || strings.Contains(c.Runtime, "/") && !filepath.IsAbs(c.Runtime):
		return invalid("agent.container.runtime",
			"agent.container.runtime is %q; it must be a whole path, or the name of a program", c.Runtime).
			WithHint("write, for example: runtime = \"runc\"")
	case c.PullTimeout < model.Second || c.PullTimeout > 24*model.Hour:
		return invalid("agent.container.pull_timeout", "agent.container.pull_timeout is %s; it must be 1s to 24h",
			c.PullTimeout)
	case c.DiskHigh < 0 || c.DiskHigh > 99:
		return invalid("agent.container.images_disk_high",
			"agent.container.images_disk_high is %d; it must be 1 to 99 percent, or 0 to delete no images", c.DiskHigh)
	case c.DiskHigh > 0 && (c.DiskLow < 1 || c.DiskLow > c.DiskHigh):
		return invalid("agent.container.images_disk_low",
			"agent.container.images_disk_low is %d; it must be 1 to images_disk_high, which is %d", c.DiskLow, c.DiskHigh)
	}
	if subnet, err := netip.ParsePrefix(c.Subnet); c.Subnet != "" && (err != nil || !subnet.Addr().Is4() ||
		subnet.Bits() < 8 || subnet.Bits() > 28 || subnet != subnet.Masked()) {
		return invalid("agent.container.subnet",
			"agent.container.subnet is %q; it must be the first address of an IPv4 network and 8 to 28 bits", c.Subnet).
			WithHint("write, for example: subnet = \"10.88.0.0/22\"")
	}
	return nil
}

func (c *Config) checkAudit(invalid refuse) *model.Error {
	a := c.Audit
	switch {
	case (a.On() || a.Required) && c.Server == nil:
		return invalid("audit", "audit is for servers, and this process is none").WithHint("remove the block")
	case a.Required && !a.On():
		return invalid("audit.required", "audit.required is true, and audit has no destination").
			WithHint("add: file = \"/var/log/outspan/audit.log\"")
	case a.File != "" && !filepath.IsAbs(a.File):
		return invalid("audit.file", "audit.file is %q; it must be a whole path", a.File).
			WithHint("write, for example: file = \"/var/log/outspan/audit.log\"")
	case a.MaxBytes < 64<<10:
		return invalid("audit.max_size", "audit.max_size is %d bytes; it must be at least 64KiB", a.MaxBytes)
	case a.Keep < 1 || a.Keep > 1000:
		return invalid("audit.keep", "audit.keep is %d; it must be 1 to 1000", a.Keep)
	}
	return nil
}
