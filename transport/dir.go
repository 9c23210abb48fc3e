package transport

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/outspan/outspan/model"
)

// OpenDir opens the directory of a cluster that lives on one machine (tls { dir = "..." }). The directory contains the
// gossip key, and a CA with its key, with which every process may issue itself a certificate. OpenDir creates what is
// missing: the directory with mode 0700, the keys with mode 0600. Several processes may call OpenDir at once; all get
// the same CA and gossip key. The caller must bind only loopback addresses.
//
// Errors: invalid (cluster name), certificate_invalid (the CA is damaged, expired or of another cluster),
// gossip_key_invalid, file_error.
func OpenDir(dir, cluster string) (*Authority, GossipKey, error) {
	if cluster == "" {
		cluster = DefaultCluster
	}
	if err := makeDir(dir); err != nil {
		return nil, nil, err
	}
	var ca *Authority
	var key GossipKey
	err := locked(context.Background(), dir, func() (err error) {
		if ca, err = openDirAuthority(dir, cluster); err != nil {
			return err
		}
		key, err = openDirGossipKey(dir)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return ca, key, nil
}

func openDirAuthority(dir, cluster string) (*Authority, error) {
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, caFile)); errors.Is(err, fs.ErrNotExist) {
		ca, err := NewAuthority(cluster, 0)
		if err != nil {
			return nil, err
		}
		return ca, writeAuthority(dir, ca)
	}
	ca, err := readAuthority(dir)
	if err != nil {
		return nil, err
	}
	if ca.cluster != cluster {
		return nil,
			model.Refuse(model.CodeCertificateInvalid, "the CA in %s is of cluster %q, not %q", dir, ca.cluster, cluster).
				WithHint("set cluster = %q, or choose another tls.dir", ca.cluster)
	}
	return ca, nil
}

// checkDir refuses a directory in which other users could replace the CA. If the directory is empty, checkDir removes
// other users' access instead.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fileError("look at", dir, err)
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return fileError("read", dir, err)
	}
	if len(names) == 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return fileError("close to other users", dir, err)
		}
		return nil
	}
	if info.Mode().Perm()&0o022 != 0 {
		return model.Refuse(model.CodeFile, "%s may be written by other users (mode %04o): they could replace the CA",
			dir, info.Mode().Perm()).
			WithHint("choose a directory of its own, or: chmod 700 %s", dir)
	}
	return nil
}

func openDirGossipKey(dir string) (GossipKey, error) {
	path := filepath.Join(dir, gossipFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		key := NewGossipKey()
		return key, writeFile(path, key.encode(), 0o600)
	}
	keys, err := LoadGossipKeys(path)
	if err != nil {
		return nil, err
	}
	return keys[0], nil
}
