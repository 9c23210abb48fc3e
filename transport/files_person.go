package transport

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// PersonRequest is a new key of a person or script, in memory, and the request for its certificate.
type PersonRequest struct {
	name string
	key  *ecdsa.PrivateKey
	// PEM is the request. It contains nothing secret.
	PEM string
}

// PersonFiles are the paths of what a person needs to connect.
type PersonFiles struct {
	CA   string `json:"ca"`
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// NewPersonRequest makes a key and a request. It creates dir (mode 0700) if it is missing, and refuses files of the
// name in it unless force is true, so that no certificate is made in vain. Codes: invalid, file_exists, file_error.
func NewPersonRequest(dir, name string, force bool) (PersonRequest, error) {
	der, key, err := pki.NewRequest(pki.RoleCLI, name, nil)
	if err != nil {
		return PersonRequest{}, err
	}
	files, err := certFiles(dir, pki.RoleCLI, name)
	if err != nil {
		return PersonRequest{}, err
	}
	if err := makeDir(dir); err != nil {
		return PersonRequest{}, err
	}
	if err := refuseExisting(force, files); err != nil {
		return PersonRequest{}, err
	}
	block := &pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}
	return PersonRequest{name: name, key: key, PEM: string(pem.EncodeToMemory(block))}, nil
}

// Write checks the certificate that a server made for the request, and writes cli-<name>.pem, cli-<name>-key.pem (mode
// 0600) and ca.pem into dir. It replaces files with other content only if force is true. Codes: certificate_invalid,
// file_exists, file_error.
func (p PersonRequest) Write(dir, certPEM, caPEM string, force bool) (PersonFiles, error) {
	roots := decodeAll(caPEM)
	if err := p.check(decodeAll(certPEM), roots); err != nil {
		return PersonFiles{}, err
	}
	key, err := encodeKey(p.key)
	if err != nil {
		return PersonFiles{}, err
	}
	files, err := certFiles(dir, pki.RoleCLI, p.name)
	if err != nil {
		return PersonFiles{}, err
	}
	ca := filepath.Join(dir, caFile)
	err = locked(context.Background(), dir, func() error {
		if err := refuseExisting(force, files); err != nil {
			return err
		}
		if err := refuseOther(force, ca, []byte(caPEM)); err != nil {
			return err
		}
		return errors.Join(writeFile(files.Key, key, 0o600), writeFile(files.Cert, []byte(certPEM), 0o644),
			writeFile(ca, []byte(caPEM), 0o644))
	})
	if err != nil {
		return PersonFiles{}, err
	}
	return PersonFiles{CA: ca, Cert: files.Cert, Key: files.Key}, nil
}

// check refuses a certificate that the person could not use.
func (p PersonRequest) check(chain, roots [][]byte) error {
	holds := pki.Identity{Role: pki.RoleCLI, Name: p.name}
	for _, der := range roots {
		if root, err := x509.ParseCertificate(der); err == nil { // Issued refuses a damaged one
			holds.Cluster, _ = authorityCluster(root)
		}
	}
	_, err := pki.Issued(chain, roots, p.key, holds, time.Now())
	return err
}

func decodeAll(text string) (all [][]byte) {
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all
		}
		all = append(all, block.Bytes)
	}
}

// refuseOther refuses to replace a file that has another content.
func refuseOther(force bool, path string, content []byte) error {
	old, err := os.ReadFile(path)
	switch {
	case force || errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Equal(old, content):
		return nil
	case err != nil:
		return fileError("read", path, err)
	}
	return model.Refuse(model.CodeFileExists, "%s is of another CA", path).
		WithHint("choose another directory, or replace it with --force")
}
