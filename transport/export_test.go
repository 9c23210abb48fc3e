package transport

import (
	"context"
	"crypto"
	"crypto/tls"
	"time"

	"github.com/outspan/outspan/pki"
)

// JoinAt is Join on a machine whose clock is wrong by the duration off. It repeats a request for at most retry.
func JoinAt(ctx context.Context, off, retry time.Duration, addresses []string, token pki.JoinToken,
	r JoinRequest) (JoinReply, pki.JoinServer, error) {
	n := newcomer{now: func() time.Time { return time.Now().Add(off) }, retry: retry}
	return n.join(ctx, addresses, token, r)
}

// SignRejoin makes the signature of a request for a connection.
func SignRejoin(r *RejoinRequest, state tls.ConnectionState, key crypto.PrivateKey) error {
	return r.sign(state, key)
}
