package trust

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// ownCertificates renews the certificate of this server, and that of the agent of its process if it has expired. It
// owns a certificate that could not be written yet. Only Engine.Run calls it: keepServer from one goroutine, and
// keepAgent from another. Both share nothing but the files.
type ownCertificates struct {
	cfg     *Config
	self    model.Subject // this server
	dir     transport.Managed
	keyring *serverKeyring
	record  func(ctx context.Context, who model.Subject, q ownRenewal) error // Engine.record
	log     hclog.Logger

	unwritten unwritten // only keepServer uses it
}

// keepServer renews this server's certificate before it expires, and has the leader record the new key. The certificate
// needs no leader: the key of the CA is in the local state, and the key that decrypts it in the keyring.
func (o *ownCertificates) keepServer(ctx context.Context) {
	retry := backoff{first: time.Second, last: 10 * time.Minute}
	for ctx.Err() == nil {
		woken, cancel := o.cfg.Store.WatchTopic(fsm.Topic("member/" + o.self.String()))
		keys, cancelKeys := o.cfg.Store.WatchTopic("keys")
		wait, err := o.keepServerNow(ctx)
		if err != nil {
			wait = retry.after()
			o.log.Warn("this server's certificate is not renewed yet", "retry_in", wait, "error", err)
		} else {
			retry.reset()
		}
		timer := time.NewTimer(wait)
		select {
		case <-woken:
		case <-keys:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		cancel()
		cancelKeys()
	}
}

// keepServerNow does what is due, and returns when to look again.
func (o *ownCertificates) keepServerNow(ctx context.Context) (wait time.Duration, err error) {
	state := o.cfg.Store.Current()
	row, ok := state.TrustMemberOf(o.self)
	switch {
	case !state.Managed(): // this server has not caught up yet
		return time.Minute, nil
	case ok && row.RevokedIndex != 0 && pki.AdmittedAt(o.cfg.Credentials.Leaf()) >= row.VoidBefore:
		// The certificate is younger than the revocation: this server has joined again, and its state does not know yet.
		return time.Minute, nil
	case ok && row.RevokedIndex != 0:
		return 0, revoked(o.self)
	}
	inFile, found, err := o.dir.Pair(pki.RoleServer)
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, model.Refuse(model.CodeCertificateInvalid, "%s does not exist", o.dir.CertFile(pki.RoleServer)).
			WithHint("let this machine join again")
	}
	pair, writeErr := o.unwritten.settle(ctx, o.dir, pki.RoleServer, inFile)
	own := ownRenewal{Old: pki.KeyHash(pair.Leaf)}
	var made *x509.Certificate
	if due(pair.Leaf) || o.untilSuperseded(state, pair.Leaf) <= 0 {
		if err := o.caughtUp(state, pair.Leaf); err != nil {
			return 0, err
		}
		if o.unwritten, err = o.mint(state, pair); err != nil {
			return 0, err
		}
		made, o.unwritten.over = o.unwritten.pair.Leaf, inFile.Leaf.Raw
		pair, writeErr = o.unwritten.settle(ctx, o.dir, pki.RoleServer, inFile)
	}
	if err := o.use(pair); err != nil {
		return 0, err
	}
	if made == pair.Leaf && o.cfg.Renewed != nil { // another process may have replaced it meanwhile
		o.cfg.Renewed(made)
	}
	own.Key, own.NotAfter = pki.KeyHash(pair.Leaf), pair.Leaf.NotAfter.UnixMilli()
	if writeErr == nil { // the certificate in the files counts, because this process may end
		own.CA = caWithID(state, pair.Leaf.AuthorityKeyId)
	}
	if ok {
		own.Old = row.Key
	}
	if !ok || !bytes.Equal(own.Old, own.Key) || own.NotAfter != row.NotAfter || own.CA != "" && own.CA != row.CA {
		if err := o.tell(ctx, own); err != nil {
			return 0, errors.Join(err, writeErr)
		}
	}
	return max(min(untilRenewal(pair.Leaf), o.untilSuperseded(state, pair.Leaf)), time.Millisecond), writeErr
}

// use makes the process use a certificate, unless it does so already. It also repeats a reload that failed.
func (o *ownCertificates) use(pair tls.Certificate) (err error) {
	if o.cfg.Credentials.Uses(pair.Leaf) {
		return nil
	}
	if o.unwritten.pair.Leaf == nil {
		err = o.cfg.Reload()
	} else {
		err = o.cfg.Credentials.Use(pair, o.unwritten.roots)
	}
	if err == nil {
		o.log.Info("this server has a new certificate", "expires", pki.Stamp(pair.Leaf.NotAfter))
	}
	return err
}

// tell has the leader record this server's new key.
func (o *ownCertificates) tell(ctx context.Context, own ownRenewal) error {
	leader, self, ok := o.cfg.Servers.Leader()
	switch {
	case self:
		return o.record(ctx, o.self, own)
	case !ok:
		return noLeader()
	}
	return ask(ctx, o.cfg.Peers, leader, questionRenew, own, &struct{}{})
}

// caughtUp refuses to make a certificate from a state that is older than the one that the files come from: its CA may
// have been dropped since. A server that starts has the state of its last snapshot until it hears from the leader. The
// state of a leader is the newest one that there is. Code: stale.
func (o *ownCertificates) caughtUp(state *fsm.State, leaf *x509.Certificate) error {
	known, err := readNotes(o.dir)
	if err != nil { // the certificate tells too
		known = notes{}
	}
	_, leads, _ := o.cfg.Servers.Leader()
	if leads || state.MomentNumber() >= knownAt(known, leaf) {
		return nil
	}
	return model.Refuse(model.CodeStale, "this server's state is older than its files").
		WithHint("it makes no certificate until it has caught up with the other servers")
}

// ownKey returns the key of a server's next certificate: a new one. Without a leader it is that of the one before,
// because nobody could record another, and the servers know this one by it if it has to join again.
func ownKey(servers Cluster, old tls.Certificate) (*ecdsa.PrivateKey, error) {
	_, _, led := servers.Leader()
	if key, ok := old.PrivateKey.(*ecdsa.PrivateKey); ok && !led {
		return key, nil
	}
	return pki.NewKey()
}

// mint makes a certificate for this server, for the key of ownKey.
func (o *ownCertificates) mint(state *fsm.State, old tls.Certificate) (unwritten, error) {
	ring, err := o.keyring.get()
	if err != nil {
		return unwritten{}, err
	}
	ca, err := authority(ring, state)
	if err != nil {
		return unwritten{}, err
	}
	key, err := ownKey(o.cfg.Servers, old)
	if err != nil {
		return unwritten{}, err
	}
	der, err := pki.RequestFor(key, pki.RoleServer, o.cfg.Name, hostsOf(old.Leaf))
	if err != nil {
		return unwritten{}, err
	}
	request, err := pki.ParseRequest(der, pki.RoleServer)
	if err != nil {
		return unwritten{}, err
	}
	request.AdmittedAt = pki.AdmittedAt(old.Leaf)
	cert, err := ca.Sign(request, o.cfg.Lifetime)
	if err != nil {
		return unwritten{}, err
	}
	gossip, err := gossipKeys(ring, state)
	if err != nil {
		return unwritten{}, err
	}
	pair := tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
	return unwritten{pair: pair, roots: roots(state), gossip: gossip, at: state.MomentNumber()}, nil
}

// untilSuperseded returns how long to wait until a certificate of this server is renewed because its CA was retired. It
// is forever if the CA is not retired, or if the state does not know it: a server that was off for a whole rotation and
// joined again has a certificate of a CA that is newer than its state.
func (o *ownCertificates) untilSuperseded(state *fsm.State, cert *x509.Certificate) time.Duration {
	row, ok := state.TrustKeys.Get(caWithID(state, cert.AuthorityKeyId))
	if !ok || row.Phase != model.KeyRetired {
		return math.MaxInt64
	}
	passed := time.Duration(o.cfg.Servers.Now()-row.At) * time.Millisecond
	return spreadOf(cert, serverSpread) - passed
}
