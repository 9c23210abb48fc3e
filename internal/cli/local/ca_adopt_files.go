package local

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// adoption is what ca adopt finds on a machine, and what it writes there.
type adoption struct {
	cfg     *config.Config
	managed bool // the configuration is that of a managed machine already
	files   transport.ManagedFiles
	edit    configEdit
}

// look checks the files that the configuration names, and changes nothing. key is the CA's key in PEM, or nil. Codes:
// conflict if this process can't become a managed one, or if data_dir has files of another cluster;
// certificate_invalid, gossip_key_invalid, file_error; invalid.
func (o *adoptOptions) look(cfg *config.Config, key []byte) (*adoption, error) {
	a := &adoption{cfg: cfg, managed: cfg.TLS.Managed}
	switch {
	case cfg.TLS.Dir != "":
		return nil, adoptRefused(model.CodeConflict, "tls.dir is for a single machine, which makes its certificates itself").
			WithHint("begin a cluster that can grow with: outspan up")
	case key != nil && cfg.Server == nil:
		return nil, adoptRefused(model.CodeConflict, "%s is no server, and only a server needs the CA's key", roleText(cfg)).
			WithHint("leave --ca-key out here, and give it on one server")
	case !exists(cfg.DataDir) || cfg.Server != nil && !cluster.Started(cfg.DataDir):
		return nil, adoptRefused(model.CodeConflict, "%s has not worked yet: %s has no data", roleText(cfg), cfg.DataDir).
			WithHint("adopt a cluster that works; to begin one that makes its certificates: outspan up; a new machine of one: " +
				"outspan join")
	case cfg.TLS.Managed:
		err := a.lookManaged(key)
		return a, err
	}
	root, err := a.lookPairs()
	if err != nil {
		return nil, err
	}
	if err := a.lookGossip(); err != nil {
		return nil, err
	}
	if err := a.lookDir(root); err != nil {
		return nil, err
	}
	if err := a.takeKey(root, key); err != nil {
		return nil, err
	}
	a.edit, err = editOf(o.configs)
	return a, err
}

// lookManaged checks the files of a machine that is adopted already, and takes the CA's key if it is given now.
func (a *adoption) lookManaged(key []byte) error {
	if _, err := daemon.CheckFiles(a.cfg); err != nil || key == nil {
		return err
	}
	roots, err := transport.ManagedDir(a.cfg.DataDir).Roots()
	if err != nil {
		return err
	}
	if len(roots) != 1 {
		return adoptRefused(model.CodeConflict, "the cluster replaces its CA, so it has the key already").
			WithHint("run it without --ca-key; see: outspan ca status")
	}
	return a.takeKey(roots[0], key)
}

// lookPairs loads the certificate of each role, and returns the CA that signed it. The checks are those of a process
// that starts. A managed cluster also has no CAs between the certificate and the root, and one root.
func (a *adoption) lookPairs() (root *x509.Certificate, err error) {
	t := a.cfg.TLS
	a.files.Pairs = map[pki.Role]tls.Certificate{}
	for _, role := range rolesOf(a.cfg) {
		loaded, err := pki.Load(pki.Config{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile, Cluster: a.cfg.Cluster, Role: role,
			Name: a.cfg.Name})
		if err != nil {
			return nil, err
		}
		if len(loaded.CAs) != 1 {
			return nil, adoptRefused(model.CodeConflict, "%s has %d CAs, and a cluster is adopted with one", t.CAFile,
				len(loaded.CAs)).
				WithHint("finish the change of the CA first: leave the CA that signed the certificates of all machines, and reload")
		}
		if root, err = x509.ParseCertificate(loaded.CAs[0]); err != nil {
			return nil, adoptRefused(model.CodeCertificateInvalid, "%s is damaged: %v", t.CAFile, err)
		}
		leaf := loaded.Pair.Leaf
		if leaf.CheckSignatureFrom(root) != nil {
			return nil, adoptRefused(model.CodeCertificateInvalid, "a CA between %s and %s signed %s", t.CAFile, role,
				t.CertFile).
				WithHint("use certificates that the CA itself has signed: outspan tls cert create --%s %s", role, a.cfg.Name)
		}
		if len(root.SubjectKeyId) == 0 || !bytes.Equal(leaf.AuthorityKeyId, root.SubjectKeyId) {
			return nil, adoptRefused(model.CodeCertificateInvalid, "%s does not name the key of its CA (authority key "+
				"identifier)", t.CertFile).
				WithHint("make another one with: outspan tls cert create --%s %s", role, a.cfg.Name)
		}
		a.files.Pairs[role] = loaded.Pair
		a.files.Roots = loaded.CAs
	}
	return root, nil
}

func (a *adoption) lookGossip() error {
	path := a.cfg.Gossip.KeyFile
	keys, err := transport.LoadGossipKeys(path)
	if err != nil {
		return err
	}
	if len(keys) != 1 {
		return adoptRefused(model.CodeConflict, "%s has %d keys, and a cluster is adopted with one", path, len(keys)).
			WithHint("finish the change of the gossip key first: leave the same key on every machine, and restart")
	}
	a.files.GossipKeys = [][]byte{keys[0]}
	return nil
}

// lookDir keeps the files of an earlier adoption: a member that was managed may have renewed its certificate since, and
// the one before is refused.
func (a *adoption) lookDir(root *x509.Certificate) error {
	managed := transport.ManagedDir(a.cfg.DataDir)
	roots, err := managed.Roots()
	if err != nil {
		return err
	}
	if len(roots) == 0 {
		return nil
	}
	if !slices.ContainsFunc(roots, root.Equal) {
		return adoptRefused(model.CodeConflict, "%s has another CA than %s", managed.Path(), a.cfg.TLS.CAFile).
			WithHint("if it is the newer CA of this cluster, set tls { managed = true } yourself; otherwise move %s away, and "+
				"run this again", managed.Path())
	}
	if _, err := managed.GossipKeys(); err != nil {
		return nil // the earlier adoption was interrupted
	}
	for role := range a.files.Pairs {
		if _, err := managed.Credentials(a.cfg.Cluster, role, a.cfg.Name); err != nil {
			return nil
		}
	}
	a.files.Pairs, a.files.Roots, a.files.GossipKeys = nil, nil, nil
	return nil
}

// takeKey puts the CA with its key among the files, if the key is given.
func (a *adoption) takeKey(root *x509.Certificate, key []byte) (err error) {
	if key == nil {
		return nil
	}
	if a.files.CA, err = transport.AuthorityOf(root, key); err != nil {
		return adoptRefused(model.CodeCertificateInvalid, "the key is not that of the CA of %s: %s", a.cfg.Name,
			model.Reason(err)).
			WithHint("give the unencrypted key of the CA that signed this machine's certificate, in PEM: ca-key.pem, where " +
				"outspan tls ca create wrote it. A CA of another program needs outspan://CLUSTER as the URI of its subject " +
				"alternative name")
	}
	if has := a.files.CA.Cluster(); has != a.cfg.Cluster {
		return adoptRefused(model.CodeCertificateInvalid, "the CA is of the cluster %s, this machine of %s", has,
			a.cfg.Cluster).WithHint("give the key of the CA of this cluster")
	}
	return nil
}

// configEdit is a change of one file of a configuration.
type configEdit struct {
	path   string // "" if nothing is changed
	text   []byte
	mode   fs.FileMode
	byHand []string // what a person must change, if the keys are not in one file
}

// editOf returns the change that makes a configuration that of a managed machine. Codes: invalid; file_error if the
// directory of the file can't be written.
func editOf(paths []string) (configEdit, error) {
	unset := []hclfile.Unset{{Block: "tls", Key: "ca_file"}, {Block: "tls", Key: "cert_file"},
		{Block: "tls", Key: "key_file"}, {Block: "gossip", Key: "key_file"}}
	var edits []configEdit
	var places []string
	complete := false
	files, err := config.Files(paths...)
	if err != nil {
		return configEdit{}, err
	}
	for _, path := range files {
		src, err := os.ReadFile(path)
		if err != nil {
			return configEdit{}, model.Refuse(model.CodeFile, "can't read %s: %v", path, err)
		}
		out, removed, err := hclfile.SetFlag(path, src, "tls", "managed", unset)
		if err != nil {
			return configEdit{}, err
		}
		if len(removed) == 0 {
			continue
		}
		for _, key := range removed {
			places = append(places, fmt.Sprintf("remove %s.%s from %s", key.Block, key.Key, path))
		}
		complete = len(removed) == len(unset)
		edits = append(edits, configEdit{path: path, text: out})
	}
	if len(edits) != 1 || !complete {
		return configEdit{byHand: append(places, "set tls { managed = true }")}, nil
	}
	info, err := os.Stat(edits[0].path)
	if err != nil {
		return configEdit{}, model.Refuse(model.CodeFile, "can't read %s: %v", edits[0].path, err)
	}
	edits[0].mode = info.Mode().Perm()
	return edits[0], nil
}

// beforeAdopt ends the name of the copy of a configuration that ca adopt keeps. Files with it are not read as
// configuration, because they don't end in .hcl.
const beforeAdopt = ".before-adopt"

// write replaces the file, and keeps a copy of the one before. Code: file_error.
func (e configEdit) write() error {
	if e.path == "" {
		return nil
	}
	path, err := filepath.EvalSymlinks(e.path)
	if err == nil {
		var before os.FileInfo
		if before, err = os.Stat(path); err == nil {
			err = keepCopy(path, before)
		}
		if err == nil {
			err = durable.ReplaceBytes(path, e.text, e.mode)
		}
		if err == nil {
			err = chownLike(before, path)
		}
	}
	if err != nil {
		return model.Refuse(model.CodeFile, "can't change %s: %v", e.path, err).
			WithHint("the files in data_dir are written; change the configuration yourself: tls { managed = true } takes the " +
				"place of tls.ca_file, cert_file, key_file and gossip.key_file")
	}
	return nil
}

// keepCopy copies a file to the name with beforeAdopt. A copy that is there stays: it is of before the first adoption.
func keepCopy(path string, info os.FileInfo) error {
	to := path + beforeAdopt
	if exists(to) {
		return nil
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = durable.ReplaceBytes(to, text, info.Mode().Perm())
	}
	if err == nil {
		err = chownLike(info, to)
	}
	return err
}

// ownLike gives paths, and the files in those that are directories, the owner of dir: the process may run as another
// user than the command. Missing paths are skipped. Only root can do it. Code: file_error.
func ownLike(dir string, paths ...string) error {
	owner, err := os.Stat(dir)
	for _, path := range paths {
		if err != nil {
			break
		}
		inside, globErr := filepath.Glob(filepath.Join(path, "*"))
		err = globErr
		for _, one := range append(inside, path) {
			if err == nil && exists(one) {
				err = chownLike(owner, one)
			}
		}
	}
	if err != nil {
		return model.Refuse(model.CodeFile, "can't give the files in %s to the owner of the directory: %v", dir, err).
			WithHint("run it as root, or as the user of the process")
	}
	return nil
}

func chownLike(owner os.FileInfo, path string) error {
	stat, ok := owner.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(path, int(stat.Uid), int(stat.Gid))
}
