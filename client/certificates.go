package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/outspan/outspan/api"
)

// Certificates are the operations on the certificates of people and scripts. They need a cluster that makes
// certificates itself; in any other cluster each has the code not_supported.
type Certificates struct{ calls }

// List returns the newest certificate of each person, and the names that were revoked. It reads all pages.
func (c Certificates) List(ctx context.Context, o ListOptions) (List[api.Certificate], error) {
	return list[api.Certificate](ctx, c.calls, route("certificates"), o.query())
}

// All yields what List returns, and reads each page when it is needed. If a read fails, All yields the error and stops.
func (c Certificates) All(ctx context.Context, o ListOptions) iter.Seq2[api.Certificate, error] {
	return each[api.Certificate](ctx, c.calls, route("certificates"), o.query())
}

// Create has the cluster's CA sign a certificate. Earlier certificates of the same person stay good. A repeated request
// with the same id gets the certificate again. Codes: invalid; forbidden for a request of another role; member_revoked
// if the key was revoked; busy if the cluster has no CA yet; conflict if there are too many people.
func (c Certificates) Create(
	ctx context.Context, body api.CertificateBody, o WriteOptions,
) (Response[api.NewCertificateReply], error) {
	return write[api.NewCertificateReply](ctx, c.calls, http.MethodPost, route("certificates"), o.query(), body)
}

// Revoke revokes all certificates of a name for ever, also those that the cluster did not make. Codes: invalid (the
// name or the reason); conflict if there are too many people.
func (c Certificates) Revoke(
	ctx context.Context, name string, body api.RevokeBody, o WriteOptions,
) (Response[api.CertificateReply], error) {
	return write[api.CertificateReply](ctx, c.calls, http.MethodPost, route("certificates", name, "revoke"), o.query(),
		body)
}
