package transport

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// MemberTTL is the lifetime of the certificates of servers and agents on managed machines.
const MemberTTL = pki.MemberTTL

// Managed is the directory DATA_DIR/tls of a machine whose certificates the cluster manages (tls { managed = true }):
//
//	ca.pem                         every CA that counts
//	server.pem, server-key.pem     certificate and key of the server, if the process is one
//	agent.pem, agent-key.pem       certificate and key of the agent, if the process is one
//	gossip.key                     the keys of the gossip pool, one on each line: the first encrypts, all decrypt
//	news.json                      what the process knows of servers and revocations; see package trust
//	ca-key.pem                     the CA's key, until the first leader has put it into the cluster's state
//
// The directory has mode 0700, keys have mode 0600. Reading never changes a file. Managed is a value without state.
type Managed struct{ path string }

// ManagedDir returns the directory of a process with this data directory. It touches no file.
func ManagedDir(dataDir string) Managed { return Managed{filepath.Join(dataDir, "tls")} }

// Path returns the path of the directory.
func (m Managed) Path() string { return m.path }

// RootsFile returns the path of the CA certificates.
func (m Managed) RootsFile() string { return m.file(caFile) }

// CAKeyFile returns the path of the CA's key.
func (m Managed) CAKeyFile() string { return m.file(caKeyFile) }

// CertFile returns the path of the certificate of a role.
func (m Managed) CertFile(role pki.Role) string { return m.file(string(role) + ".pem") }

// KeyFile returns the path of the private key of a role.
func (m Managed) KeyFile(role pki.Role) string { return m.file(string(role) + "-key.pem") }

// GossipFile returns the path of the keys of the gossip pool.
func (m Managed) GossipFile() string { return m.file(gossipFile) }

// KeyFiles returns the paths of all secret files that the directory may have.
func (m Managed) KeyFiles() []string {
	files := []string{m.CAKeyFile(), m.file(gossipFile)}
	for _, role := range []pki.Role{pki.RoleServer, pki.RoleAgent} {
		files = append(files, m.KeyFile(role), m.nextKeyFile(role))
	}
	return files
}

func (m Managed) file(name string) string { return filepath.Join(m.path, name) }

// nextKeyFile returns the path of a key whose certificate may not be in its place yet; see Write.
func (m Managed) nextKeyFile(role pki.Role) string { return m.file(string(role) + "-key.pem.next") }

// Credentials loads the certificate of a role, which must be of this cluster and name. Reload reads the files again.
// Code: certificate_invalid.
func (m Managed) Credentials(cluster string, role pki.Role, name string) (*Credentials, error) {
	return m.credentials(cluster, role, name, false)
}

// CredentialsAnyTime does what Credentials does, and also accepts a certificate that has expired or is not valid yet.
// Other processes refuse it, so the caller must see to a new one.
func (m Managed) CredentialsAnyTime(cluster string, role pki.Role, name string) (*Credentials, error) {
	return m.credentials(cluster, role, name, true)
}

func (m Managed) credentials(cluster string, role pki.Role, name string, anyTime bool) (*Credentials, error) {
	return newCredentials(func() (*pki.Certificate, error) {
		cfg := pki.Config{CA: m.RootsFile(), Cert: m.CertFile(role), Key: m.KeyFile(role),
			Cluster: cluster, Role: role, Name: name, AnyTime: anyTime}
		if m.fits(role, m.nextKeyFile(role)) {
			cfg.Key = m.nextKeyFile(role)
		}
		for _, path := range []string{cfg.CA, cfg.Cert, cfg.Key} {
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return nil, model.Refuse(model.CodeCertificateInvalid, "%s does not exist", path).WithHint("%s", managedHint)
			}
		}
		c, err := pki.Load(cfg)
		if err != nil { // the hints of pki are about certificates that people make
			return nil, model.Refuse(model.CodeCertificateInvalid, "%s", model.Reason(err)).WithHint("%s", managedHint)
		}
		return c, nil
	})
}

const managedHint = "check name, cluster and data_dir in the configuration; the files of tls { managed = true } come " +
	"from outspan up and outspan join: put them back from a backup, or let this machine join again"

// GossipKeys loads the keys of the gossip pool: the first encrypts, all decrypt. Code: gossip_key_invalid.
func (m Managed) GossipKeys() ([]GossipKey, error) {
	keys, err := LoadGossipKeys(m.file(gossipFile))
	if err != nil {
		return nil, model.Refuse(model.CodeGossipKeyInvalid, "%s", model.Reason(err)).WithHint("%s", managedHint)
	}
	return keys, nil
}

// Lock creates the directory if it is missing, and calls f while this process alone has the lock on it. It waits for
// the lock until ctx ends, and at most 10 s. Commands that set up a machine hold it, so that two of them can't mix
// their files. Code: file_error; the cause of ctx if ctx ended first; and the error of f.
func (m Managed) Lock(ctx context.Context, f func() error) error {
	if err := m.makeDir(); err != nil {
		return err
	}
	return locked(ctx, m.path, f)
}

func (m Managed) makeDir() error {
	if err := makeDir(m.path); err != nil {
		return err
	}
	if err := os.Chmod(m.path, 0o700); err != nil {
		return fileError("close to other users", m.path, err)
	}
	return nil
}

// ManagedFiles is the content that Write gives to a managed directory. A zero field leaves its files as they are.
type ManagedFiles struct {
	CA    *Authority                   // becomes the only root; its key is written too
	Roots [][]byte                     // the CA certificates (DER) that replace the roots
	Pairs map[pki.Role]tls.Certificate // certificate chains with their keys
	// GossipKeys are the keys of the gossip pool: the first encrypts, all decrypt.
	GossipKeys [][]byte
	// News is the content of news.json. It is written after the roots and the gossip keys.
	News []byte
}

// Write creates the directory if it is missing, and replaces files one after the other. After a crash each file has
// either its old or its new content, and each certificate still has its key. Write blocks until everything is on disk.
// Calls for one directory must not overlap. Codes: certificate_invalid if a pair has no usable key; file_error.
func (m Managed) Write(f ManagedFiles) error {
	if err := m.makeDir(); err != nil {
		return err
	}
	if f.CA != nil {
		if err := writeAuthority(m.path, f.CA); err != nil {
			return err
		}
	}
	if len(f.Roots) > 0 {
		if err := writeFile(m.RootsFile(), encodeChain(f.Roots), 0o644); err != nil {
			return err
		}
	}
	if len(f.GossipKeys) > 0 {
		if err := writeFile(m.file(gossipFile), encodeGossipKeys(f.GossipKeys), 0o600); err != nil {
			return err
		}
	}
	if len(f.News) > 0 {
		if err := writeFile(m.file(newsFile), f.News, 0o600); err != nil {
			return err
		}
	}
	// The pairs come last: whoever repeats a failed call must not take a new certificate for the end of the work.
	for _, role := range []pki.Role{pki.RoleServer, pki.RoleAgent} {
		if pair, ok := f.Pairs[role]; ok {
			if err := m.writePair(role, pair); err != nil {
				return err
			}
		}
	}
	return nil
}

// writePair replaces a certificate and its key. No file system replaces two files at once. So the new key is first
// written under a second name, which readers use from the moment at which the certificate fits it.
func (m Managed) writePair(role pki.Role, pair tls.Certificate) error {
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return model.Refuse(model.CodeCertificateInvalid, "the certificate of %s has no key that can sign", role)
	}
	key, err := encodeKey(signer)
	if err != nil {
		return err
	}
	next := m.nextKeyFile(role)
	if m.fits(role, next) { // an earlier call ended early, and the present certificate needs this key
		if err := m.promote(role); err != nil {
			return err
		}
	}
	if err := writeFile(next, key, 0o600); err != nil {
		return err
	}
	if err := writeFile(m.CertFile(role), encodeChain(pair.Certificate), 0o644); err != nil {
		return err
	}
	return m.promote(role)
}

// promote gives the second key its final name.
func (m Managed) promote(role pki.Role) error {
	err := os.Rename(m.nextKeyFile(role), m.KeyFile(role))
	if err == nil {
		err = syncDir(m.path)
	}
	if err != nil {
		return fileError("replace", m.KeyFile(role), err)
	}
	return nil
}

// fits reports whether the certificate of a role belongs to the key in a file.
func (m Managed) fits(role pki.Role, keyFile string) bool {
	key, err := pki.ReadFile(keyFile)
	if err != nil {
		return false
	}
	cert, err := pki.ReadFile(m.CertFile(role))
	if err != nil {
		return false
	}
	_, err = tls.X509KeyPair(cert, key)
	return err == nil
}

func encodeChain(chain [][]byte) []byte {
	var b bytes.Buffer
	for _, der := range chain {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return b.Bytes()
}
