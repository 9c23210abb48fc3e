package client

import (
	"crypto/tls"

	"github.com/outspan/outspan/pki"
)

// Files are the paths of PEM files: the CA of the cluster, and a certificate with its key. The command "outspan tls
// cert create --cli NAME" makes such a certificate.
type Files struct{ CA, Cert, Key string }

// LoadTLS reads the files once and returns a function for Config.TLS. Connections then accept only servers of the
// certificate's own cluster. Code: certificate_invalid.
func LoadTLS(f Files) (func() *tls.Config, error) {
	c, err := pki.Load(pki.Config{CA: f.CA, Cert: f.Cert, Key: f.Key})
	if err != nil {
		return nil, err
	}
	return func() *tls.Config { return c.ClientConfig(pki.RoleServer) }, nil
}

// LoadRoots reads the CA of the cluster once and returns a function for Config.TLS, for clients that have an access
// token and no certificate. Connections then accept only servers. Code: certificate_invalid.
func LoadRoots(ca string) (func() *tls.Config, error) {
	cfg, err := pki.LoadRoots(ca)
	if err != nil {
		return nil, err
	}
	return func() *tls.Config { return cfg.ClientConfig(pki.RoleServer) }, nil
}
