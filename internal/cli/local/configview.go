package local

import (
	"github.com/outspan/outspan/agent"
	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/model"
)

// configShown is what config show prints of a configuration. Its JSON fields are named after the keys of the files.
type configShown struct {
	Name      string            `json:"name"`
	Cluster   string            `json:"cluster"`
	DataDir   string            `json:"data_dir"`
	Log       logShown          `json:"log"`
	Server    *serverShown      `json:"server,omitempty"`
	Agent     *agentShown       `json:"agent,omitempty"`
	Listen    listenShown       `json:"listen"`
	Advertise map[string]string `json:"advertise"`
	TLS       tlsShown          `json:"tls"`
	Gossip    gossipShown       `json:"gossip"`
	Settings  *model.Settings   `json:"settings,omitempty"`
	Telemetry map[string]bool   `json:"telemetry"`
	Limits    limitsShown       `json:"limits"`
	Auth      *authShown        `json:"auth,omitempty"`
	Audit     *auditShown       `json:"audit,omitempty"`
}

type authShown struct {
	Tokens bool       `json:"tokens"`
	OIDC   *oidcShown `json:"oidc,omitempty"`
}

type oidcShown struct {
	Issuer      string         `json:"issuer"`
	ClientID    string         `json:"client_id"`
	CAFile      string         `json:"ca_file,omitempty"`
	GroupsClaim string         `json:"groups_claim"`
	NameClaim   string         `json:"name_claim"`
	Scopes      []string       `json:"scopes"`
	Session     model.Duration `json:"session"`
}

type auditShown struct {
	File     string `json:"file,omitempty"`
	MaxBytes int64  `json:"max_size_bytes"`
	Keep     int    `json:"keep"`
	Stdout   bool   `json:"stdout"`
	Syslog   bool   `json:"syslog"`
	Required bool   `json:"required"`
}

type logShown struct {
	Level  string `json:"level"`
	Format string `json:"format"`
}

type serverShown struct {
	BootstrapExpect int      `json:"bootstrap_expect"`
	RetryJoin       []string `json:"retry_join,omitempty"`
	RaftMultiplier  int      `json:"raft_multiplier"`
}

type agentShown struct {
	Servers    []string          `json:"servers,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Reserve    model.Resources   `json:"reserve"`
	Capacity   model.Resources   `json:"capacity"`
	OnShutdown string            `json:"on_shutdown"`
	Drivers    []string          `json:"drivers"`
	AllowRoot  bool              `json:"allow_root"`
	AllowUsers []string          `json:"allow_users,omitempty"`
	MinUID     int               `json:"min_uid,omitempty"`
	UIDs       string            `json:"instance_uids"`
	Paths      []string          `json:"volume_paths"`
	Ports      map[string]int    `json:"ports"`
	CgroupRoot string            `json:"cgroup_root"`
}

type listenShown struct {
	Address    string `json:"address"`
	Port       int    `json:"port"`
	GossipPort int    `json:"gossip_port"`
	Socket     string `json:"socket"`
}

type tlsShown struct {
	CAFile   string `json:"ca_file,omitempty"`
	CertFile string `json:"cert_file,omitempty"`
	KeyFile  string `json:"key_file,omitempty"`
	Dir      string `json:"dir,omitempty"`
	Managed  bool   `json:"managed,omitempty"`
}

type gossipShown struct {
	KeyFile string `json:"key_file,omitempty"`
	Profile string `json:"profile"`
}

type limitsShown struct {
	RequestsPerSecond int `json:"requests_per_second"`
	Connections       int `json:"connections"`
}

func configView(c *config.Config) configShown {
	v := configShown{
		Name: c.Name, Cluster: c.Cluster, DataDir: c.DataDir, Log: logShown{c.Log.Level, c.Log.Format},
		Listen:    listenShown{c.Listen.Address, c.Listen.Port, c.Listen.GossipPort, c.Listen.Socket},
		Advertise: map[string]string{"address": c.Advertise},
		TLS: tlsShown{CAFile: c.TLS.CAFile, CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, Dir: c.TLS.Dir,
			Managed: c.TLS.Managed},
		Gossip: gossipShown{c.Gossip.KeyFile, c.Gossip.Profile}, Settings: c.Settings,
		Telemetry: map[string]bool{"prometheus": c.Metrics},
		Limits:    limitsShown{c.Limits.RequestsPerSecond, c.Limits.Connections},
	}
	if a := c.Audit; a.On() {
		v.Audit = &auditShown{a.File, a.MaxBytes, a.Keep, a.Stdout, a.Syslog, a.Required}
	}
	if s := c.Server; s != nil {
		v.Server = &serverShown{s.BootstrapExpect, s.RetryJoin, s.RaftMultiplier}
		v.Auth = &authShown{Tokens: c.Auth.TakesTokens()}
		if o := c.Auth.OIDC; o != nil {
			v.Auth.OIDC = &oidcShown{o.Issuer, o.ClientID, o.CAFile, o.GroupsClaim, o.NameClaim, o.Scopes, o.Session}
		}
	}
	if a := c.Agent; a != nil {
		v.Agent = &agentShown{
			Servers: a.Servers, Labels: a.Labels, Reserve: a.Reserve, Capacity: a.Capacity,
			OnShutdown: a.OnShutdown, Drivers: a.Drivers,
			AllowRoot: a.AllowRoot, AllowUsers: a.AllowUsers, MinUID: a.MinUID, UIDs: uidsShown(a), Paths: pathsShown(a),
			Ports: map[string]int{"min": a.PortMin, "max": a.PortMax}, CgroupRoot: a.CgroupRoot,
		}
	}
	return v
}

func pathsShown(a *config.Agent) []string {
	if a.VolumePaths == nil {
		return driver.DefaultVolumePaths()
	}
	return a.VolumePaths
}

func uidsShown(a *config.Agent) string {
	switch {
	case a.SharedUser:
		return "off"
	case a.LastUID == 0:
		return agent.DefaultUIDs().String()
	}
	return driver.UIDRange{First: a.FirstUID, Last: a.LastUID}.String()
}
