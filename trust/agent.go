package trust

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Agent renews the certificate of an agent. All fields but Rejoin are required.
type Agent struct {
	Name string            // of the node
	Dir  transport.Managed // with the agent's certificate
	// Credentials are the agent's, and Reload makes the process use the files of Dir after they have changed.
	Credentials *transport.Credentials
	Reload      func() error
	// Renew asks the servers for the next certificate. It must show them the certificate that Credentials have at the
	// time of the call. transport.Client implements it.
	Renew func(context.Context, transport.RenewRequest) (transport.RenewReply, error)
	// Rejoin asks the servers for the next certificate when that of the agent, old, has expired. It may be nil: then
	// something else renews an expired certificate.
	Rejoin func(ctx context.Context, old tls.Certificate, request []byte) (transport.RenewReply, error)
	Logger hclog.Logger
}

// agentWork is what an Agent remembers between two looks.
type agentWork struct {
	// request is repeated with its key until it is answered, so that a lost answer costs no second key.
	request   []byte
	key       *ecdsa.PrivateKey
	unwritten unwritten
	told      []byte // the key that the servers know to be in the agent's files
	// superseded is the certificate that was seen to be of another CA than the active one, and since when.
	superseded struct {
		leaf  *x509.Certificate
		since time.Time
	}
}

// Run renews the certificate each time when about half of its life has passed, and within a minute after another CA has
// become active, until ctx ends. After a failed attempt it tries again, with pauses that grow from 1 s to 10 min. The
// certificate in use stays meanwhile. Run also uses a certificate that another process puts into the files, as outspan
// join does, within seconds. If the certificate has expired, the agent returns by Rejoin. It returns nil.
func (a Agent) Run(ctx context.Context) error {
	retry := backoff{first: time.Second, last: 10 * time.Minute}
	var work agentWork
	for ctx.Err() == nil {
		wait, err := a.step(ctx, &work)
		if err != nil {
			wait = retry.after()
			a.Logger.Warn("the agent's certificate needs another attempt", "expires", pki.Stamp(a.Credentials.NotAfter()),
				"retry_in", wait, "error", err)
		} else {
			retry.reset()
		}
		pauseUnlessReplaced(ctx, wait, a.Dir.CertFile(pki.RoleAgent), a.Dir.RootsFile())
	}
	return nil
}

// step does what is due, and returns when to look again.
func (a Agent) step(ctx context.Context, work *agentWork) (wait time.Duration, err error) {
	inFile, found, err := a.Dir.Pair(pki.RoleAgent)
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, model.Refuse(model.CodeCertificateInvalid, "%s does not exist", a.Dir.CertFile(pki.RoleAgent)).
			WithHint("let this machine join again")
	}
	pair, writeErr := work.unwritten.settle(ctx, a.Dir, pki.RoleAgent, inFile)
	if err := a.use(pair, work); err != nil { // before a renewal, because the servers go by the certificate that they see
		return 0, err
	}
	superseded, err := a.untilSuperseded(pair.Leaf, work)
	if err != nil {
		return 0, err
	}
	if due(pair.Leaf) || superseded <= 0 {
		if err := a.renew(ctx, inFile.Leaf, pair, work); err != nil {
			return 0, a.orExpired(pair.Leaf, err)
		}
		pair, writeErr = work.unwritten.settle(ctx, a.Dir, pki.RoleAgent, inFile)
		if err := a.use(pair, work); err != nil {
			return 0, err
		}
		superseded = math.MaxInt64
	}
	if writeErr != nil { // the key before still counts, because this process may end before the new one is in the files
		return 0, writeErr
	}
	return min(untilRenewal(pair.Leaf), superseded), a.tell(ctx, pair.Leaf, work)
}

// untilSuperseded returns how long to wait until a certificate is renewed because another CA has become active. That is
// the last one in the file of roots. It returns forever if the certificate is of that CA.
func (a Agent) untilSuperseded(leaf *x509.Certificate, work *agentWork) (time.Duration, error) {
	roots, err := a.Dir.Roots()
	if err != nil {
		return 0, err
	}
	signed := slices.IndexFunc(roots, func(root *x509.Certificate) bool {
		return bytes.Equal(root.SubjectKeyId, leaf.AuthorityKeyId)
	})
	if signed < 0 || signed == len(roots)-1 {
		return math.MaxInt64, nil
	}
	if !leaf.Equal(work.superseded.leaf) {
		work.superseded.leaf, work.superseded.since = leaf, time.Now()
	}
	return max(spreadOf(leaf, agentSpread)-time.Since(work.superseded.since), 0), nil
}

// use makes the process use a certificate, unless it does so already. It also repeats a reload that failed.
func (a Agent) use(pair tls.Certificate, work *agentWork) (err error) {
	if a.Credentials.Uses(pair.Leaf) {
		return nil
	}
	if work.unwritten.pair.Leaf == nil {
		err = a.Reload()
	} else {
		err = a.Credentials.Use(pair, work.unwritten.roots)
	}
	if err == nil {
		a.Logger.Info("the agent has a new certificate", "expires", pki.Stamp(pair.Leaf.NotAfter))
	}
	return err
}

// renew gets the next certificate into work.unwritten.
func (a Agent) renew(ctx context.Context, inFile *x509.Certificate, old tls.Certificate, work *agentWork) (err error) {
	if work.key == nil {
		if work.request, work.key, err = pki.NewRequest(pki.RoleAgent, a.Name, hostsOf(old.Leaf)); err != nil {
			return err
		}
	}
	reply, err := a.ask(ctx, old, work.request)
	if refusedAs(err, model.CodeInvalid, model.CodeStale) { // the same request would be refused again
		work.request, work.key = nil, nil
	}
	if err != nil {
		return err
	}
	pair, err := checkReply(reply, work.key)
	if err != nil {
		return err
	}
	work.unwritten = unwritten{pair: pair, roots: reply.Roots, gossip: reply.GossipKeys, over: inFile.Raw,
		at: pki.AdmittedAt(pair.Leaf)}
	work.request, work.key = nil, nil
	return nil
}

// ask asks the servers for the next certificate. They refuse connections with an expired one, so the agent then returns
// over the protocol for newcomers. If they say that the certificate is still good, the clock of this machine is ahead.
func (a Agent) ask(ctx context.Context, old tls.Certificate, request []byte) (transport.RenewReply, error) {
	if a.Rejoin != nil && !time.Now().Before(old.Leaf.NotAfter) {
		reply, err := a.Rejoin(ctx, old, request)
		if !refusedAs(err, model.CodeConflict) {
			return reply, err
		}
	}
	return a.Renew(ctx, transport.RenewRequest{Request: request})
}

// tell tells the servers that the agent has its certificate in its files, so that the key before no longer counts.
func (a Agent) tell(ctx context.Context, leaf *x509.Certificate, work *agentWork) error {
	key := pki.KeyHash(leaf)
	if bytes.Equal(work.told, key) {
		return nil
	}
	_, err := a.Renew(ctx, transport.RenewRequest{})
	if err != nil && !refusedAs(err, model.CodeStale) { // stale: there is a newer key, whose certificate got lost
		return fmt.Errorf("tell the servers that the certificate has arrived: %w", err)
	}
	work.told = key
	return nil
}

// refusedAs reports whether err is a refusal with one of the codes, made here or by a server.
func refusedAs(err error, codes ...model.Code) bool {
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		return slices.Contains(codes, refusal.Code)
	}
	problem, ok := errors.AsType[*api.Problem](err)
	return ok && slices.Contains(codes, problem.Code)
}

// orExpired says what to do if a certificate has expired. Otherwise it returns err.
func (a Agent) orExpired(leaf *x509.Certificate, err error) error {
	if time.Now().Before(leaf.NotAfter) {
		return err
	}
	hint := joinAgainHint
	if a.Rejoin != nil && !refusedAs(err, lastingRefusals()...) {
		hint = "its instances go on meanwhile, and it tries again"
		if p, ok := errors.AsType[*api.Problem](err); ok && p.Hint != "" {
			hint += "; " + p.Hint
		}
	}
	return model.Refuse(model.CodeCertificateInvalid, "the agent's certificate expired at %s, and the servers give it no "+
		"new one: %s", pki.Stamp(leaf.NotAfter), model.Reason(err)).
		WithHint("%s", hint)
}

// lastingRefusals returns the codes with which servers refuse a new certificate for good, once the old one has expired.
func lastingRefusals() []model.Code {
	return []model.Code{model.CodeMemberRevoked, model.CodeCertificateRefused, model.CodeForbidden, model.CodeStale,
		model.CodeNotFound, model.CodeCertificateInvalid}
}

// joinAgainHint says how an agent whose certificate has expired returns.
const joinAgainHint = "its instances go on meanwhile; make a token on a server with: " +
	"outspan token create --role agent; then on this machine: outspan join --token-file FILE ADDRESS"

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
