package client

import (
	"crypto/tls"

	"github.com/outspan/outspan/pki"
)

// Files are the paths of PEM files: the CA of the cluster, and a certificate with its key, made with "outspan tls cert
// create --cli NAME".
type Files struct{ CA, Cert, Key string }

// LoadTLS reads the files once and returns a function for Config.TLS. The connections accept only servers of the
// cluster that the certificate belongs to. Code: certificate_invalid.
func LoadTLS(f Files) (func() *tls.Config, error) {
	c, err := pki.Load(pki.Config{CA: f.CA, Cert: f.Cert, Key: f.Key})
	if err != nil {
		return nil, err
	}
	return func() *tls.Config { return c.ClientConfig(pki.RoleServer) }, nil
}
