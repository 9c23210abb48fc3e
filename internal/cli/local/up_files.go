package local

import (
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// upState is what up finds on a machine. In stageNew, cfg is the configuration to write; later it is the one that is
// there.
type upState struct {
	stage setupStage
	cfg   *config.Config
}

// look finds out how far this machine is, and changes nothing. The configuration is the last file that up writes, so
// all others are complete once it exists. Codes: conflict if the directories belong to something else, or if the flags
// contradict the configuration; forbidden if this user can't write them; invalid.
func (o *upOptions) look() (upState, error) {
	cfg, err := o.configured()
	switch {
	case err != nil:
		return upState{}, err
	case cfg == nil:
		return o.lookNew()
	case cfg.Server == nil:
		return upState{}, model.Refuse(model.CodeConflict, "%s makes this machine %s of the cluster %s",
			filepath.Join(o.configDir, configFile), roleText(cfg), cfg.Cluster).
			WithHint("begin a cluster on another machine, or let this one leave first: %s", o.leaving(cfg))
	case worked(cfg):
		return upState{stageMember, cfg}, nil
	}
	if err := o.contradiction(cfg); err != nil {
		return upState{}, err
	}
	if o.cluster != "" && o.cluster != cfg.Cluster {
		return upState{}, o.differs("cluster", cfg.Cluster, o.cluster)
	}
	if err := o.writable(cfg); err != nil {
		return upState{}, err
	}
	managed := transport.ManagedDir(cfg.DataDir)
	if exists(managed.RootsFile()) && !exists(managed.CAKeyFile()) && !cluster.HasJoined(cfg.DataDir) {
		return upState{}, cluster.NoSecondCluster(cfg.DataDir, managed.Path()+" has certificates of a cluster")
	}
	if _, err := daemon.CheckFiles(cfg); err != nil {
		return upState{}, err
	}
	return upState{stageWritten, cfg}, nil
}

// lookNew is look for a machine without a configuration.
func (o *upOptions) lookNew() (upState, error) {
	managed := transport.ManagedDir(o.dataDir)
	switch {
	case cluster.Started(o.dataDir):
		return upState{}, o.orphaned("%s has the data of a server, but %s has no configuration")
	case exists(managed.RootsFile()) && !exists(managed.CAKeyFile()):
		return upState{}, o.orphaned("%s has certificates of a cluster, but %s has no configuration")
	}
	if cluster.HasJoined(o.dataDir) {
		return upState{}, model.Refuse(model.CodeConflict, "a server has joined a cluster with %s", o.dataDir).
			WithHint("finish that with: outspan join --server; to begin another cluster, remove %s, or choose another --data",
				o.dataDir)
	}
	cfg := o.newConfig()
	cfg.Cluster, cfg.Server = term.First(o.cluster, transport.DefaultCluster), &config.Server{BootstrapExpect: 1}
	if !o.noAgent {
		cfg.Agent = &config.Agent{}
	}
	if !pki.ValidCluster(cfg.Cluster) {
		return upState{}, model.Refuse(model.CodeInvalid, "--cluster is %q: use 1 to 63 letters, digits, '-' or '_'",
			cfg.Cluster).WithHint("begin with a letter or digit, as in prod")
	}
	if err := completeConfig(cfg); err != nil {
		return upState{}, err
	}
	return upState{stageNew, cfg}, o.writable(cfg)
}

// found makes the keys of a new cluster and the certificates of this machine, and writes the configuration last. It
// replaces keys of an up that was interrupted: no server has used them. The caller holds the lock on the directory.
func (o *upOptions) found(cfg *config.Config) error {
	ca, err := transport.NewAuthority(cfg.Cluster, 0)
	if err != nil {
		return err
	}
	files := transport.ManagedFiles{CA: ca, GossipKeys: [][]byte{transport.NewGossipKey()},
		Pairs: map[pki.Role]tls.Certificate{}}
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
	return o.writeConfig(cfg)
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
