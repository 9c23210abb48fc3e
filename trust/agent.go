package trust

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Agent renews the certificate of an agent. All fields are required.
type Agent struct {
	Name string            // of the node
	Dir  transport.Managed // with the agent's certificate
	// Credentials are the agent's, and Reload makes the process use the files of Dir after they have changed.
	Credentials *transport.Credentials
	Reload      func() error
	// Renew asks the servers for the next certificate. transport.Client implements it.
	Renew  func(context.Context, transport.RenewRequest) (transport.RenewReply, error)
	Logger hclog.Logger
}

// nextKey is the key of a request that is repeated until it is answered, so that a lost answer costs no second key.
type nextKey struct {
	request []byte
	key     *ecdsa.PrivateKey
}

// Run renews the certificate each time when about half of its life has passed, until ctx ends. After a failed attempt
// it tries again, with pauses that grow from 1 s to 10 min. The certificate in use stays meanwhile. It returns nil.
func (a Agent) Run(ctx context.Context) error {
	retry := backoff{first: time.Second, last: 10 * time.Minute}
	var next nextKey
	for ctx.Err() == nil {
		wait, err := a.step(ctx, &next)
		if err != nil {
			wait = retry.after()
			a.Logger.Warn("the certificate is not renewed yet", "expires", pki.Stamp(a.Credentials.NotAfter()),
				"retry_in", wait, "error", err)
		} else {
			retry.reset()
		}
		sleep(ctx, wait)
	}
	return nil
}

// step does what is due, and returns when to look again.
func (a Agent) step(ctx context.Context, next *nextKey) (wait time.Duration, err error) {
	pair, found, err := a.Dir.Pair(pki.RoleAgent)
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, model.Refuse(model.CodeCertificateInvalid, "%s does not exist", a.Dir.CertFile(pki.RoleAgent)).
			WithHint("let this machine join again")
	}
	if !time.Now().Before(renewAt(pair.Leaf)) {
		if pair, err = a.renew(ctx, pair.Leaf, next); err != nil {
			return 0, err
		}
		*next = nextKey{}
	}
	if !a.Credentials.NotAfter().Equal(pair.Leaf.NotAfter) { // also after an earlier reload that failed
		if err := a.Reload(); err != nil {
			return 0, err
		}
		a.Logger.Info("the agent has a new certificate", "expires", pki.Stamp(pair.Leaf.NotAfter))
	}
	return untilRenewal(pair.Leaf), nil
}

func (a Agent) renew(ctx context.Context, old *x509.Certificate, next *nextKey) (pair tls.Certificate, err error) {
	if next.key == nil {
		if next.request, next.key, err = pki.NewRequest(pki.RoleAgent, a.Name, hostsOf(old)); err != nil {
			return tls.Certificate{}, err
		}
	}
	reply, err := a.Renew(ctx, transport.RenewRequest{Request: next.request})
	if err != nil {
		return tls.Certificate{}, err
	}
	if pair, err = checkReply(reply, next.key); err != nil {
		return tls.Certificate{}, err
	}
	return pair, write(a.Dir, pki.RoleAgent, pair, reply.Roots, reply.GossipKeys)
}

// checkReply refuses a reply that would leave the agent without a certificate. Code: certificate_invalid.
func checkReply(reply transport.RenewReply, key *ecdsa.PrivateKey) (tls.Certificate, error) {
	refuse := func(what string) (tls.Certificate, error) {
		return tls.Certificate{}, model.Refuse(model.CodeCertificateInvalid, "the reply of the servers has %s", what).
			WithHint("compare the versions of the servers and of this agent with: outspan version")
	}
	pool := x509.NewCertPool()
	for _, der := range reply.Roots {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			return refuse("a damaged root")
		}
		pool.AddCert(root)
	}
	if len(reply.Chain) == 0 {
		return refuse("no certificate")
	}
	leaf, err := x509.ParseCertificate(reply.Chain[0])
	if err != nil || !key.PublicKey.Equal(leaf.PublicKey) {
		return refuse("a certificate for another key")
	}
	between := x509.NewCertPool()
	for _, der := range reply.Chain[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(cert)
		}
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return refuse("a certificate that is not good under its roots")
	}
	return tls.Certificate{Certificate: reply.Chain, PrivateKey: key, Leaf: leaf}, nil
}
