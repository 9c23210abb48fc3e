package local

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// newConfig returns what every new configuration of a managed machine has.
func (o *setupFlags) newConfig() *config.Config {
	return &config.Config{
		Name: o.name, DataDir: o.dataDir, Advertise: o.advertise, TLS: config.TLS{Managed: true},
		Listen: config.Listen{Port: model.DefaultPort, GossipPort: model.DefaultGossipPort},
	}
}

// certificateKeys returns the fields that say where certificates and keys are.
func certificateKeys(cfg *config.Config) []hclfile.Field {
	if cfg.TLS.Managed {
		return []hclfile.Field{hclfile.Block("tls", hclfile.Flag("managed", &cfg.TLS.Managed))}
	}
	return []hclfile.Field{
		hclfile.Block("tls", hclfile.Text("ca_file", &cfg.TLS.CAFile), hclfile.Text("cert_file", &cfg.TLS.CertFile),
			hclfile.Text("key_file", &cfg.TLS.KeyFile)),
		hclfile.Block("gossip", hclfile.Text("key_file", &cfg.Gossip.KeyFile)),
	}
}

// writeConfig writes the configuration of a new machine. It has no secret, so everybody may read it. Code: file_error.
func (o *setupFlags) writeConfig(cfg *config.Config) error {
	printer := &hclfile.Printer{}
	text, err := printer.Print(append([]hclfile.Field{
		hclfile.Text("name", &cfg.Name), hclfile.Text("cluster", &cfg.Cluster), hclfile.Text("data_dir", &cfg.DataDir),
		hclfile.Optional("server", &cfg.Server, config.Server{}, func(s *config.Server) []hclfile.Field {
			return []hclfile.Field{hclfile.Number("bootstrap_expect", &s.BootstrapExpect),
				hclfile.Texts("retry_join", &s.RetryJoin)}
		}),
		hclfile.Optional("agent", &cfg.Agent, config.Agent{}, func(a *config.Agent) []hclfile.Field {
			return []hclfile.Field{hclfile.Texts("servers", &a.Servers), hclfile.TextMap("labels", &a.Labels)}
		}),
		hclfile.Block("listen", hclfile.Text("address", &cfg.Listen.Address)),
		hclfile.Block("advertise", hclfile.Text("address", &cfg.Advertise)),
	}, certificateKeys(cfg)...)...)
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	head := "# Written by outspan " + o.command + ". Certificates and keys are in data_dir.\n" +
		"# Further keys can stand here, or in other *.hcl files of this directory: outspan config validate checks them.\n"
	return o.replaceConfig([]byte(head + text))
}

// replaceConfig writes the file that outspan owns in the configuration directory. Code: file_error.
func (o *setupFlags) replaceConfig(text []byte) error {
	path := filepath.Join(o.configDir, configFile)
	if err := durable.ReplaceBytes(path, text, 0o644); err != nil {
		return model.Refuse(model.CodeFile, "can't write %s: %v", path, err).
			WithHint("check the disk, and the owner and the mode of the directory; then run outspan %s again", o.command)
	}
	return nil
}

// makeDirs makes the directories above the data, through which instances of all users must pass, and the directory of
// the configuration. The data directory itself is private, and made by transport.
func makeDirs(dataDir, configDir string) error {
	for _, dir := range []string{filepath.Dir(dataDir), configDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return model.Refuse(model.CodeFile, "can't make %s: %v", dir, err).
				WithHint("choose other directories: --config DIR --data DIR")
		}
	}
	return nil
}

// completeConfig sets the name, the address and the address to listen on, where they are missing. Code: invalid.
func completeConfig(cfg *config.Config) error {
	if cfg.Name == "" {
		host, err := os.Hostname()
		if err != nil || !model.ValidName(host) {
			return model.Refuse(model.CodeInvalid, "the host's name %q can't be the name of a machine", host).
				WithHint("choose one with --name, such as s1")
		}
		cfg.Name = host
	}
	if !model.ValidName(cfg.Name) {
		return model.Refuse(model.CodeInvalid, "--name is %q: use 1 to 63 letters, digits, '-', '_' or '.'", cfg.Name).
			WithHint("begin with a letter or digit, as in s1")
	}
	return completeAddress(cfg)
}

// completeAddress sets the advertised address, if it is missing and this machine has only one, and the address to
// listen on.
func completeAddress(cfg *config.Config) error {
	if cfg.Advertise == "" {
		own := globalAddresses()
		switch len(own) {
		case 0:
			return model.Refuse(model.CodeInvalid, "this machine has no global IPv4 address").
				WithHint("name the address at which other machines reach it: --advertise IP")
		case 1:
			cfg.Advertise = own[0]
		default:
			return model.Refuse(model.CodeInvalid, "this machine has %d IPv4 addresses: %s", len(own), strings.Join(own, ", ")).
				WithHint("choose the one at which other machines reach it: --advertise IP")
		}
	}
	ip := net.ParseIP(cfg.Advertise)
	switch {
	case ip == nil || ip.IsUnspecified() || ip.IsMulticast():
		return model.Refuse(model.CodeInvalid, "--advertise is %q, which is not the IP address of a machine", cfg.Advertise).
			WithHint("name the address at which other machines reach this one, such as 10.0.0.1")
	case ip.IsLoopback():
		cfg.Listen.Address = cfg.Advertise
	case ip.To4() == nil:
		cfg.Listen.Address = "::"
	default:
		cfg.Listen.Address = "0.0.0.0"
	}
	return nil
}
