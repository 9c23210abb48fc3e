package local

import (
	"path/filepath"
	"time"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A cluster whose CA is the operator's gives a newcomer certificate files, and renews nothing. The files have the same
// places as those of a managed machine, and outspan.hcl names them.

// nameFiles makes a new configuration name the files of its only role.
func nameFiles(cfg *config.Config) {
	dir, role := transport.ManagedDir(cfg.DataDir), rolesOf(cfg)[0]
	cfg.TLS = config.TLS{CAFile: dir.RootsFile(), CertFile: dir.CertFile(role), KeyFile: dir.KeyFile(role)}
	cfg.Gossip.KeyFile = dir.GossipFile()
}

// hasJoinFiles reports whether a configuration names the files that join writes in a cluster with certificate files.
func hasJoinFiles(cfg *config.Config) bool {
	roles := rolesOf(cfg)
	if len(roles) != 1 {
		return false
	}
	want := *cfg
	nameFiles(&want)
	return want.TLS.CAFile == cfg.TLS.CAFile && want.TLS.CertFile == cfg.TLS.CertFile &&
		want.TLS.KeyFile == cfg.TLS.KeyFile && want.Gossip.KeyFile == cfg.Gossip.KeyFile
}

// usableFiles refuses certificate files that a process can't use, or not for long. Code: certificate_invalid.
func usableFiles(cfg *config.Config, role pki.Role) error {
	creds, err := transport.LoadCredentials(transport.CredentialsConfig{CAFile: cfg.TLS.CAFile, CertFile: cfg.TLS.CertFile,
		KeyFile: cfg.TLS.KeyFile, Cluster: cfg.Cluster, Role: role, Name: cfg.Name})
	if err != nil {
		return err
	}
	if creds.Lifetime().NearEnd(time.Now()) {
		return model.Refuse(model.CodeCertificateInvalid, "the certificate %s ends soon", cfg.TLS.CertFile)
	}
	return nil
}

// sameFiles refuses the reply of a cluster that makes its certificates itself, if the configuration of this machine is
// for a cluster that does not, and the other way round. Code: conflict.
func (o *joinOptions) sameFiles(found *joinState, reply transport.JoinReply) error {
	if !found.written || found.cfg.TLS.Managed != reply.Files {
		return nil
	}
	return model.Refuse(model.CodeConflict, "the tls block of %s does not fit: tls.managed has to be %t in this cluster",
		filepath.Join(o.configDir, configFile), !reply.Files).
		WithHint("remove that file, and run outspan join again")
}
