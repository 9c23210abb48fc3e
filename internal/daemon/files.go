package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// NamedFiles is the result of CheckFiles.
type NamedFiles struct {
	ReadableKeys []string               // paths of the private keys that every user of the machine can read
	Ends         map[pki.Role]time.Time // when the certificate expires, by the role for which it was checked
	OtherHosts   []string               // those of ui.hosts that ui.cert_file is not for
}

// CheckFiles checks the certificates, the keys, the audit log and the CA of the provider that a configuration names, as
// the process does when it starts. An error says why the process would not start. On a managed machine an expired
// certificate is no error: a server makes itself a new one, and an agent starts without. If the configuration names a
// TLS directory, CheckFiles looks at no certificate of the process and at no gossip key.
func CheckFiles(c *config.Config) (NamedFiles, error) {
	found := NamedFiles{ReadableKeys: readableKeys(c), Ends: map[pki.Role]time.Time{}}
	if c.Audit.File != "" {
		if err := audit.CheckFile(c.Audit.File); err != nil {
			return found, err
		}
	}
	if _, _, err := signIn(c.Name, c.Auth.OIDC, nil, hclog.NewNullLogger()); err != nil {
		return found, err
	}
	if c.UI != nil {
		cert, err := transport.LoadPageCertificate(pageFiles(c.UI))
		if err != nil {
			return found, err
		}
		found.OtherHosts = cert.NotFor(c.UI.Hosts)
	}
	if c.TLS.Dir != "" {
		return found, nil // the process makes the files in the directory when it first starts
	}
	p := process{cfg: c, ends: newCertificateEnd()}
	var roles []pki.Role
	if c.Server != nil {
		roles = append(roles, pki.RoleServer)
	}
	if c.Agent != nil {
		roles = append(roles, pki.RoleAgent)
	}
	for _, role := range roles {
		load := p.credentials
		if c.TLS.Managed {
			load = func(role pki.Role) (*transport.Credentials, error) {
				return transport.ManagedDir(c.DataDir).CredentialsAnyTime(c.Cluster, role, c.Name)
			}
		}
		creds, err := load(role)
		if err != nil {
			return found, err
		}
		found.Ends[role] = creds.NotAfter()
	}
	_, err := p.gossipKeys()
	return found, err
}

// readableKeys returns the paths of the private keys that every user of the machine can read.
func readableKeys(c *config.Config) []string {
	keys := []string{c.TLS.KeyFile, c.Gossip.KeyFile}
	switch {
	case c.TLS.Managed:
		keys = append(transport.ManagedDir(c.DataDir).KeyFiles(), filepath.Join(c.DataDir, keyring.FileName))
	case c.TLS.Dir != "":
		keys = []string{filepath.Join(c.TLS.Dir, "ca-key.pem"), filepath.Join(c.TLS.Dir, "gossip.key")}
	}
	if c.UI != nil {
		keys = append(keys, c.UI.KeyFile)
	}
	return slices.DeleteFunc(keys, func(path string) bool {
		info, err := os.Stat(path)
		return path == "" || err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0
	})
}
