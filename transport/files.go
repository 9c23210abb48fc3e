package transport

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Names of the files in a certificate directory.
const (
	caFile     = "ca.pem"
	caKeyFile  = "ca-key.pem"
	gossipFile = "gossip.key"
)

// lockWait limits how long a process waits for the lock on a directory.
const lockWait = 10 * time.Second

// CertFiles has the paths of a certificate and its key.
type CertFiles struct{ Cert, Key string }

// CAOptions describes a CA to create.
type CAOptions struct {
	// Cluster is the cluster's name, which all certificates of this CA will contain; default "outspan".
	Cluster string
	// TTL is the CA's lifetime; default DefaultCATTL.
	TTL time.Duration
	// Force replaces an existing CA. Processes that load the new CA refuse every certificate that the old one issued.
	Force bool
}

// DefaultCluster is the cluster name when none is configured.
const DefaultCluster = "outspan"

// CreateCA writes ca.pem and ca-key.pem (mode 0600) into dir. It creates dir (mode 0700) if it is missing. Errors:
// file_exists, file_error, invalid.
func CreateCA(dir string, o CAOptions) (CertFiles, error) {
	if o.Cluster == "" {
		o.Cluster = DefaultCluster
	}
	files := CertFiles{Cert: filepath.Join(dir, caFile), Key: filepath.Join(dir, caKeyFile)}
	ca, err := NewAuthority(o.Cluster, o.TTL)
	if err != nil {
		return CertFiles{}, err
	}
	if err := makeDir(dir); err != nil {
		return CertFiles{}, err
	}
	err = locked(context.Background(), dir, func() error {
		if err := refuseExisting(o.Force, files); err != nil {
			return err
		}
		return writeAuthority(dir, ca)
	})
	if err != nil {
		return CertFiles{}, err
	}
	return files, nil
}

// IssueCert issues a certificate with the CA in dir. It writes <role>-<name>.pem and <role>-<name>-key.pem (mode 0600)
// into dir. It replaces existing files only if force is true. Errors: certificate_invalid (no usable CA), file_exists,
// file_error, invalid.
func IssueCert(dir string, r CertRequest, force bool) (CertFiles, error) {
	files, err := certFiles(dir, r.Role, r.Name)
	if err != nil {
		return CertFiles{}, err
	}
	ca, err := readAuthority(dir)
	if err != nil {
		return CertFiles{}, err
	}
	cert, key, err := ca.Issue(r)
	if err != nil {
		return CertFiles{}, err
	}
	err = locked(context.Background(), dir, func() error {
		if err := refuseExisting(force, files); err != nil {
			return err
		}
		if err := writeFile(files.Key, key, 0o600); err != nil {
			return err
		}
		return writeFile(files.Cert, cert, 0o644)
	})
	if err != nil {
		return CertFiles{}, err
	}
	return files, nil
}

// certFiles returns where the certificate of a name and its key are in dir. Code: invalid.
func certFiles(dir string, role pki.Role, name string) (CertFiles, error) {
	if strings.HasSuffix(name, "-key") {
		return CertFiles{},
			model.Refuse(model.CodeInvalid,
				"name %q ends in \"-key\": its certificate would take the name of another's key file", model.Clip(name)).
				WithHint("choose another name")
	}
	base := filepath.Join(dir, string(role)+"-"+name)
	return CertFiles{Cert: base + ".pem", Key: base + "-key.pem"}, nil
}

func refuseExisting(force bool, files CertFiles) error {
	if force {
		return nil
	}
	for _, path := range []string{files.Cert, files.Key} {
		if _, err := os.Lstat(path); err == nil {
			return model.Refuse(model.CodeFileExists, "%s exists already", path).
				WithHint("replace it with --force, or choose another directory or name")
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fileError("look at", path, err)
		}
	}
	return nil
}

// writeAuthority writes the key first, because OpenDir expects a complete CA once the certificate exists.
func writeAuthority(dir string, ca *Authority) error {
	key, err := encodeKey(ca.key)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, caKeyFile), key, 0o600); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, caFile), ca.PEM(), 0o644)
}

func readAuthority(dir string) (*Authority, error) {
	var pems [2][]byte
	for i, name := range []string{caFile, caKeyFile} {
		b, err := pki.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, model.Refuse(model.CodeCertificateInvalid, "%s does not exist", filepath.Join(dir, name)).
				WithHint("create the CA first: outspan tls ca create --dir %s", dir)
		}
		if err != nil {
			return nil, fileError("read", filepath.Join(dir, name), err)
		}
		pems[i] = b
	}
	ca, err := parseAuthority(pems[0], pems[1])
	if err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "the CA in %s can't be used: %s", dir, model.Reason(err)).
			WithHint("restore %s and %s from a backup, or make a new CA: outspan tls ca create --dir %s --force",
				caFile, caKeyFile, dir)
	}
	return ca, nil
}

// makeDir creates dir with mode 0700 if it is missing.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fileError("make", dir, err)
	}
	return nil
}

// locked runs f while this process alone has the lock on dir. It waits for the lock until ctx ends, and at most
// lockWait. The lock is on the directory itself, so no lock file remains. The kernel releases the lock when the process
// exits. Its error is the cause of ctx if ctx ended before the lock was free.
func locked(ctx context.Context, dir string, f func() error) error {
	d, err := os.Open(dir)
	if err != nil {
		return fileError("open", dir, err)
	}
	defer d.Close()
	wait, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f()
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fileError("lock", dir, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if wait.Err() != nil {
			return model.Refuse(model.CodeFile, "another process has held the lock on %s for %s", dir, lockWait).
				WithHint("find it with: fuser %s", dir)
		}
		sleep(wait, 10*time.Millisecond)
	}
}

// writeFile replaces the file at path in one step. A reader sees the old file or the whole new one, even after a crash.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return fileError("write", path, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // does nothing after the rename
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fileError("write", path, err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func fileError(verb, path string, err error) *model.Error {
	e := model.Refuse(model.CodeFile, "can't %s %s: %s", verb, path, bareError(err))
	if errors.Is(err, fs.ErrPermission) {
		return e.WithHint("check its owner and mode, or run as the user that owns it")
	}
	return e
}

// bareError returns the cause without the operation and the path that package os adds. The caller's message already
// names both.
func bareError(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err.Error()
	}
	return err.Error()
}
