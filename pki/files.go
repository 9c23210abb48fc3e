package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/outspan/outspan/model"
)

// checkChain refuses a certificate that is not good under the CAs, or that a TLS client can't use. With Config.AnyTime,
// it checks an expired certificate as of its last moment, and one that is not valid yet as of its first.
func checkChain(cfg Config, c *Certificate) error {
	between := x509.NewCertPool()
	for _, der := range c.Pair.Certificate[1:] {
		if one, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(one)
		}
	}
	at := time.Now()
	switch leaf := c.Pair.Leaf; {
	case cfg.AnyTime && at.After(leaf.NotAfter):
		at = leaf.NotAfter
	case cfg.AnyTime && at.Before(leaf.NotBefore):
		at = leaf.NotBefore
	}
	_, err := c.Pair.Leaf.Verify(x509.VerifyOptions{
		Roots: c.Roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return model.Refuse(model.CodeCertificateInvalid, "certificate %s is not good under CA file %s: %v",
			cfg.Cert, cfg.CA, err).
			WithHint("use the certificate and the ca.pem of one CA")
	}
	return nil
}

func loadPair(cfg Config) (tls.Certificate, error) {
	cert, err := readPEM("cert_file", cfg.Cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readPEM("key_file", cfg.Key)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{},
			model.Refuse(model.CodeCertificateInvalid, "certificate %s and key %s don't fit: %v", cfg.Cert, cfg.Key, err).
				WithHint("both come from one call of: outspan tls cert create")
	}
	return pair, nil
}

func readPEM(key, path string) ([]byte, error) {
	if path == "" {
		return nil, model.Refuse(model.CodeCertificateInvalid, "tls.%s is not set", key).
			WithHint("set ca_file, cert_file and key_file, or dir on a single machine")
	}
	b, err := ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, model.Refuse(model.CodeCertificateInvalid, "tls.%s %s does not exist", key, path).
			WithHint("make one with: outspan tls ca create, then: outspan tls cert create")
	}
	if err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "can't read tls.%s %s: %s", key, path, err).
			WithHint("check its owner and mode")
	}
	return b, nil
}

// parseRoots reads one or more CA certificates. A file has several while one CA replaces another.
func parseRoots(path string, data []byte) (roots *x509.CertPool, ders [][]byte, err error) {
	roots = x509.NewCertPool()
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, model.Refuse(model.CodeCertificateInvalid, "CA file %s: certificate %d is damaged: %v", path,
				len(ders)+1, err)
		}
		if !cert.IsCA {
			return nil, nil,
				model.Refuse(model.CodeCertificateInvalid, "CA file %s: %q is not a CA", path, model.Clip(cert.Subject.CommonName)).
					WithHint("give the ca.pem that outspan tls ca create made")
		}
		roots.AddCert(cert)
		ders = append(ders, cert.Raw)
	}
	if len(ders) == 0 {
		return nil, nil, model.Refuse(model.CodeCertificateInvalid, "CA file %s holds no certificate", path).
			WithHint("give the ca.pem that outspan tls ca create made")
	}
	return roots, ders, nil
}

// maxFile is the largest file that ReadFile reads, in bytes. PEM files are far smaller. The limit prevents a wrong
// path, such as that of a disk image, from filling the memory.
const maxFile = 1 << 20

// ReadFile reads a regular file of at most 1 MiB. Its errors do not contain the path. For a missing file,
// errors.Is(err, fs.ErrNotExist) is true.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, cause(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if info.Size() > maxFile {
		return nil, errors.New("it is larger than 1 MiB")
	}
	text, err := os.ReadFile(path)
	return text, cause(err)
}

// cause returns the error inside an *fs.PathError, and any other error unchanged.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
