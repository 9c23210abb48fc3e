package local

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// configFile is the name of the file that outspan writes into the configuration directory of a machine.
const configFile = "outspan.hcl"

// upStage is how far a machine is on its way to be a member of a cluster.
type upStage int

const (
	stageNew     upStage = iota // there may be keys of an up that was interrupted, but no configuration
	stageWritten                // all files are there, but the server has never started
	stageMember
)

// upState is what up finds on a machine. In stageNew, cfg is the configuration to write; later it is the one that is
// there.
type upState struct {
	stage upStage
	cfg   *config.Config
}

// look finds out how far this machine is, and changes nothing. The configuration is the last file that up writes, so
// all others are complete once it exists. Codes: conflict if the directories belong to something else, or if the flags
// contradict the configuration; forbidden if this user can't write them; invalid.
func (o upOptions) look() (upState, error) {
	files, err := filepath.Glob(filepath.Join(o.configDir, "*.hcl"))
	if err != nil {
		return upState{}, model.Refuse(model.CodeInvalid, "--config %s: %v", o.configDir, err).
			WithHint("name a directory without the characters *, ?, [ and \\")
	}
	if len(files) == 0 {
		return o.lookNew()
	}
	foreign := model.Refuse(model.CodeConflict, "%s has a configuration already: %s", o.configDir,
		filepath.Base(files[0])).
		WithHint("start what it describes, or choose other directories: --config DIR --data DIR")
	if !slices.Contains(files, filepath.Join(o.configDir, configFile)) {
		return upState{}, foreign
	}
	cfg, err := config.Load(o.configDir)
	if err != nil {
		return upState{}, err
	}
	if !cfg.TLS.Managed {
		return upState{}, foreign
	}
	if o.dataGiven && filepath.Clean(cfg.DataDir) != o.dataDir {
		return upState{}, o.differs("data_dir", cfg.DataDir, o.dataDir)
	}
	if cfg.Server == nil || cluster.Started(cfg.DataDir) {
		return upState{stageMember, cfg}, nil
	}
	if err := o.contradiction(cfg); err != nil {
		return upState{}, err
	}
	if err := o.writable(cfg); err != nil {
		return upState{}, err
	}
	if _, err := daemon.CheckFiles(cfg); err != nil {
		return upState{}, err
	}
	return upState{stageWritten, cfg}, nil
}

// contradiction refuses flags that differ from a configuration that is there.
func (o upOptions) contradiction(cfg *config.Config) error {
	for _, one := range [...]struct{ key, flag, value string }{
		{"name", o.name, cfg.Name}, {"cluster", o.cluster, cfg.Cluster}, {"advertise.address", o.advertise, cfg.Advertise},
	} {
		if one.flag != "" && one.flag != one.value {
			return o.differs(one.key, one.value, one.flag)
		}
	}
	if o.noAgent && cfg.Agent != nil {
		return model.Refuse(model.CodeConflict, "%s has an agent block", filepath.Join(o.configDir, configFile)).
			WithHint("edit the file, or remove it and run outspan up again")
	}
	return nil
}

func (o upOptions) differs(key, has, given string) error {
	return model.Refuse(model.CodeConflict, "%s says %s = %q, and the command line says %q",
		filepath.Join(o.configDir, configFile), key, has, given).
		WithHint("leave the flag out; to begin again, remove that file and then run outspan up")
}

// lookNew is look for a machine without a configuration.
func (o upOptions) lookNew() (upState, error) {
	managed := transport.ManagedDir(o.dataDir)
	switch {
	case cluster.Started(o.dataDir):
		return upState{}, o.orphaned("%s has the data of a server, but %s has no configuration")
	case exists(managed.RootsFile()) && !exists(managed.CAKeyFile()):
		return upState{}, o.orphaned("%s has certificates of a cluster, but %s has no configuration")
	}
	cfg := &config.Config{
		Name: o.name, Cluster: o.cluster, DataDir: o.dataDir, Advertise: o.advertise,
		Server: &config.Server{BootstrapExpect: 1}, TLS: config.TLS{Managed: true},
		Listen: config.Listen{Port: model.DefaultPort, GossipPort: model.DefaultGossipPort},
	}
	if !o.noAgent {
		cfg.Agent = &config.Agent{}
	}
	if cfg.Cluster == "" {
		cfg.Cluster = transport.DefaultCluster
	}
	if err := completeNames(cfg); err != nil {
		return upState{}, err
	}
	if err := completeAddress(cfg); err != nil {
		return upState{}, err
	}
	return upState{stageNew, cfg}, o.writable(cfg)
}

func (o upOptions) orphaned(format string) error {
	return model.Refuse(model.CodeConflict, format, o.dataDir, o.configDir).
		WithHint("put %s back from a backup, name its directory with --config, or choose another --data", configFile)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// found makes the keys of a new cluster and the certificates of this machine, and writes the configuration last. It
// replaces keys of an up that was interrupted: no server has used them. The caller holds the lock on the directory.
func (o upOptions) found(cfg *config.Config) error {
	ca, err := transport.NewAuthority(cfg.Cluster, 0)
	if err != nil {
		return err
	}
	files := transport.ManagedFiles{CA: ca, GossipKey: transport.NewGossipKey(), Pairs: map[pki.Role]tls.Certificate{}}
	roles := []pki.Role{pki.RoleServer}
	if cfg.Agent != nil {
		roles = append(roles, pki.RoleAgent)
	}
	for _, role := range roles {
		cert, key, err := ca.Issue(transport.CertRequest{Role: role, Name: cfg.Name, Hosts: []string{cfg.Advertise},
			TTL: transport.MemberTTL})
		if err != nil {
			return err
		}
		if files.Pairs[role], err = tls.X509KeyPair(cert, key); err != nil {
			return fmt.Errorf("use the new certificate of the %s: %w", role, err)
		}
	}
	if err := transport.ManagedDir(cfg.DataDir).Write(files); err != nil {
		return err
	}
	if err := makeKeyring(filepath.Join(cfg.DataDir, keyring.FileName)); err != nil {
		return err
	}
	return writeConfig(filepath.Join(o.configDir, configFile), cfg)
}

// makeKeyring makes a keyring, unless there is one.
func makeKeyring(path string) error {
	_, err := keyring.Open(path)
	var refusal *model.Error
	if errors.As(err, &refusal) && refusal.Code == model.CodeNotFound {
		_, err = keyring.Create(path)
	}
	return err
}

// writeConfig writes the configuration of a managed machine. It has no secret, so everybody may read it.
func writeConfig(path string, cfg *config.Config) error {
	printer := &hclfile.Printer{}
	text, err := printer.Print(
		hclfile.Text("name", &cfg.Name), hclfile.Text("cluster", &cfg.Cluster), hclfile.Text("data_dir", &cfg.DataDir),
		hclfile.Optional("server", &cfg.Server, config.Server{}, func(s *config.Server) []hclfile.Field {
			return []hclfile.Field{hclfile.Number("bootstrap_expect", &s.BootstrapExpect)}
		}),
		hclfile.Optional("agent", &cfg.Agent, config.Agent{}, func(*config.Agent) []hclfile.Field { return nil }),
		hclfile.Block("listen", hclfile.Text("address", &cfg.Listen.Address)),
		hclfile.Block("advertise", hclfile.Text("address", &cfg.Advertise)),
		hclfile.Block("tls", hclfile.Flag("managed", &cfg.TLS.Managed)),
	)
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	const head = "# Written by outspan up. Certificates and keys are in data_dir.\n" +
		"# Further keys can stand here, or in other *.hcl files of this directory: outspan config validate checks them.\n"
	if err := durable.ReplaceBytes(path, []byte(head+text), 0o644); err != nil {
		return model.Refuse(model.CodeFile, "can't write %s: %v", path, err).
			WithHint("check the disk, and the owner and the mode of the directory; then run outspan up again")
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

// completeNames sets a missing name, and refuses names that certificates or files can't have.
func completeNames(cfg *config.Config) error {
	if cfg.Name == "" {
		host, err := os.Hostname()
		if err != nil || !model.ValidName(host) {
			return model.Refuse(model.CodeInvalid, "the host's name %q can't be the name of a server", host).
				WithHint("choose one with --name, such as s1")
		}
		cfg.Name = host
	}
	if !model.ValidName(cfg.Name) {
		return model.Refuse(model.CodeInvalid, "--name is %q: use 1 to 63 letters, digits, '-', '_' or '.'", cfg.Name).
			WithHint("begin with a letter or digit, as in s1")
	}
	if !pki.ValidCluster(cfg.Cluster) {
		return model.Refuse(model.CodeInvalid, "--cluster is %q: use 1 to 63 letters, digits, '-' or '_'", cfg.Cluster).
			WithHint("begin with a letter or digit, as in prod")
	}
	return nil
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
