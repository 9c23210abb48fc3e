package config

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/adhocore/gronx"
	"github.com/hashicorp/go-sockaddr/template"
	"github.com/hashicorp/hcl/v2"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// keys returns the fields of a file of a server or an agent. Each field stores its value in c. A key that is missing
// from a file keeps its value from earlier files.
func keys(c *Config) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Text("name", &c.Name), hclfile.Text("cluster", &c.Cluster), hclfile.Text("data_dir", &c.DataDir),
		hclfile.Block("log", hclfile.Text("level", &c.Log.Level), hclfile.Text("format", &c.Log.Format)),
		hclfile.Optional("server", &c.Server, Server{RaftMultiplier: 1}, serverKeys),
		hclfile.Optional("agent", &c.Agent,
			Agent{OnShutdown: "keep", Drivers: []string{"exec"}, PortMin: 20000, PortMax: 29999, CgroupRoot: "outspan"},
			agentKeys),
		hclfile.Block("listen",
			hclfile.Text("address", &c.Listen.Address), hclfile.Number("port", &c.Listen.Port),
			hclfile.Number("gossip_port", &c.Listen.GossipPort), hclfile.Text("socket", &c.Listen.Socket)),
		hclfile.Block("advertise", address("address", &c.Advertise)),
		hclfile.Block("tls",
			hclfile.Text("ca_file", &c.TLS.CAFile), hclfile.Text("cert_file", &c.TLS.CertFile),
			hclfile.Text("key_file", &c.TLS.KeyFile),
			hclfile.Text("dir", &c.TLS.Dir), hclfile.Flag("managed", &c.TLS.Managed),
			hclfile.Text("issue", &c.TLS.Issue)),
		hclfile.Block("gossip", hclfile.Text("key_file", &c.Gossip.KeyFile), hclfile.Text("profile", &c.Gossip.Profile)),
		hclfile.Optional("settings", &c.Settings, model.DefaultSettings(), settingKeys),
		hclfile.Block("telemetry", hclfile.Flag("prometheus", &c.Metrics)),
		hclfile.Block("auth", hclfile.Flag("tokens", &c.Auth.Tokens),
			hclfile.Optional("oidc", &c.Auth.OIDC, OIDC{GroupsClaim: "groups", NameClaim: "email",
				Scopes: []string{"openid", "email"}, Session: 12 * model.Hour}, oidcKeys)),
		hclfile.Block("limits",
			hclfile.Number("requests_per_second", &c.Limits.RequestsPerSecond),
			hclfile.Number("connections", &c.Limits.Connections)),
		hclfile.Block("audit",
			hclfile.Text("file", &c.Audit.File), hclfile.Size("max_size", &c.Audit.MaxBytes),
			hclfile.Number("keep", &c.Audit.Keep), hclfile.Flag("stdout", &c.Audit.Stdout),
			hclfile.Flag("syslog", &c.Audit.Syslog), hclfile.Flag("required", &c.Audit.Required)),
		hclfile.Optional("ui", &c.UI, UI{}, uiKeys),
	}
}

func serverKeys(s *Server) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Number("bootstrap_expect", &s.BootstrapExpect), hclfile.Texts("retry_join", &s.RetryJoin),
		hclfile.Number("raft_multiplier", &s.RaftMultiplier),
	}
}

func agentKeys(a *Agent) []hclfile.Field {
	resources := func(r *model.Resources) []hclfile.Field {
		return []hclfile.Field{hclfile.Number("cpu", &r.CPU), hclfile.Size("memory", &r.MemoryBytes)}
	}
	return []hclfile.Field{
		hclfile.Texts("servers", &a.Servers), hclfile.TextMap("labels", &a.Labels),
		hclfile.Block("reserve", resources(&a.Reserve)...), hclfile.Block("capacity", resources(&a.Capacity)...),
		hclfile.Text("on_shutdown", &a.OnShutdown), hclfile.Texts("drivers", &a.Drivers),
		hclfile.Flag("allow_root", &a.AllowRoot), hclfile.Texts("allow_users", &a.AllowUsers),
		hclfile.Number("min_uid", &a.MinUID), uidRange("instance_uids", &a.FirstUID, &a.LastUID, &a.SharedUser),
		hclfile.Text("cgroup_root", &a.CgroupRoot), hclfile.Text("backup_dir", &a.BackupDir),
		directories("volume_paths", &a.VolumePaths),
		hclfile.Block("ports", hclfile.Number("min", &a.PortMin), hclfile.Number("max", &a.PortMax)),
		hclfile.Optional("container", &a.Container, Container{Socket: "/run/containerd/containerd.sock", Runtime: "runc",
			CertsDir: "/etc/containerd/certs.d", PullTimeout: 15 * model.Minute, DiskHigh: 85, DiskLow: 80}, containerKeys),
	}
}

func containerKeys(c *Container) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Text("socket", &c.Socket), hclfile.Text("runtime", &c.Runtime), hclfile.Text("certs_dir", &c.CertsDir),
		hclfile.Text("docker_config", &c.DockerConfig), hclfile.Duration("pull_timeout", &c.PullTimeout),
		hclfile.Number("images_disk_high", &c.DiskHigh), hclfile.Number("images_disk_low", &c.DiskLow),
		hclfile.Text("subnet", &c.Subnet), hclfile.Text("cni_plugins", &c.CNIPlugins),
	}
}

func settingKeys(s *model.Settings) []hclfile.Field {
	return []hclfile.Field{
		rate("rate_drain", &s.RateDrain), rate("rate_preemption", &s.RatePreemption),
		rate("rate_rescheduler", &s.RateRescheduler), rate("rate_operator", &s.RateOperator),
		hclfile.Duration("offline_after", &s.OfflineAfter), hclfile.Text("node_drain_policy", &s.NodeDrainPolicy),
		hclfile.Text("evict_on", &s.EvictOn), hclfile.Duration("drain_deadline", &s.DrainDeadline),
		hclfile.Text("rescheduler", &s.Rescheduler), hclfile.Text("failure_domain_label", &s.FailureDomainLabel),
		hclfile.Flag("place_on_degraded", &s.PlaceOnDegraded), hclfile.Text("placement_algorithm", &s.Algorithm),
		hclfile.Number("cpu_overcommit_percent", &s.CPUOvercommit), hclfile.Size("instance_overhead", &s.InstanceOverhead),
		hclfile.Duration("start_timeout", &s.StartTimeout), hclfile.Number("event_limit", &s.EventLimit),
		hclfile.Duration("event_age", &s.EventAge), hclfile.Duration("volume_cooling", &s.VolumeCooling),
		hclfile.Duration("rescheduler_min_age", &s.MoveMinAge), hclfile.Duration("rescheduler_cooldown", &s.MoveCooldown),
		hclfile.Duration("rescheduler_cycle", &s.MoveCycle), hclfile.Number("rescheduler_moves", &s.MovesPerCycle),
		hclfile.Number("rescheduler_gain", &s.MoveGain), cron("rescheduler_window", &s.MoveWindow),
		hclfile.Duration("rejoin_grace", &s.RejoinGrace),
		hclfile.Flag("join_approval", &s.JoinApproval),
	}
}

// rate returns a field for the number of stops that an actor may begin in a window, such as "5/1m", or "none".
func rate(name string, to *model.ActorRate) hclfile.Field {
	return hclfile.Attribute(name, "rate", func(d *hclfile.Decoder, a *hcl.Attribute) {
		if v, ok := d.Text(a, name+` = "5/1m"`); ok {
			if err := to.UnmarshalText([]byte(v)); err != nil {
				d.Fail(a.Expr.Range(), "Not a rate", fmt.Sprintf("%s: %v.", name, err))
			}
		}
	})
}

// uidRange returns a field for a range of user ids, such as "2000000-2065535", or "off".
func uidRange(name string, first, last *int, off *bool) hclfile.Field {
	return hclfile.Attribute(name, "range", func(d *hclfile.Decoder, a *hcl.Attribute) {
		v, ok := d.Text(a, name+` = "2000000-2065535"`)
		if !ok {
			return
		}
		if *off = v == "off"; *off {
			*first, *last = 0, 0
			return
		}
		low, high, _ := strings.Cut(v, "-")
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || from <= nobody || to > 1<<31-2 || to-from < leastUIDs-1 {
			d.Fail(a.Expr.Range(), "Not a range of user ids",
				fmt.Sprintf("%s: write FIRST-LAST, above %d and of at least %d user ids, such as \"2000000-2065535\", or \"off\".",
					name, nobody, leastUIDs))
			return
		}
		*first, *last = from, to
	})
}

const (
	nobody    = 65534 // ranges begin above it, because the machine's own accounts have lower user ids
	leastUIDs = 1000  // the least size of a range; a smaller range would use each id again too soon
)

// directories returns a field for a list of absolute paths. An empty list in the file is stored as an empty list that
// is not nil.
func directories(name string, to *[]string) hclfile.Field {
	return hclfile.Attribute(name, "list of texts", func(d *hclfile.Decoder, a *hcl.Attribute) {
		list, ok := d.Texts(a)
		for _, dir := range list {
			if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
				d.Fail(a.Expr.Range(), "Not a directory",
					fmt.Sprintf("%s takes whole paths, such as %s = [\"/data\"]; %q is none.", name, name, dir))
				ok = false
			}
		}
		if ok {
			*to = list
		}
	})
}

// cron returns a field for a cron expression of five parts, or "".
func cron(name string, to *string) hclfile.Field {
	return hclfile.Text(name, to).Takes("cron expression").Checked(func() (summary, detail string) {
		if *to != "" && !gronx.IsValid(*to) {
			return "No cron expression",
				fmt.Sprintf("%s: write minute, hour, day, month and weekday in UTC, such as \"* 1-5 * * *\".", name)
		}
		return "", ""
	})
}

// address returns a field for an IP address, or for a template such as "{{ GetPrivateIP }}" that finds an IP address.
func address(name string, to *string) hclfile.Field {
	return hclfile.Text(name, to).Takes("address or template").Checked(func() (summary, detail string) {
		if !strings.Contains(*to, "{{") {
			return "", ""
		}
		found, err := template.Parse(*to)
		if err != nil || strings.TrimSpace(found) == "" {
			return "No address", fmt.Sprintf("%s: the template finds no address on this machine (%v).", name, err)
		}
		*to = strings.TrimSpace(found)
		return "", ""
	})
}
