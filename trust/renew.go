package trust

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Renew is httpapi.Config.Renew: it issues an agent's next certificate, or ends the key before the one in use if q has
// no Request. transport.ShownFrom(ctx) must be the certificate with which the agent called. Codes: busy while the state
// has no CA; invalid; forbidden (another name or role); certificate_refused (the certificate in use has expired); those
// of fsm.MemberRenew, and those of the log.
func (e *Engine) Renew(ctx context.Context, who model.Subject, q transport.RenewRequest) (transport.RenewReply, error) {
	switch {
	case !e.cfg.Store.Current().Managed(): // agents of a cluster that is adopted may be managed earlier than it is
		return transport.RenewReply{}, noCAYet()
	case len(q.Request) == 0:
		return transport.RenewReply{}, e.arrived(ctx, who)
	}
	request, err := pki.ParseRequest(q.Request, pki.RoleAgent)
	if err != nil {
		return transport.RenewReply{}, err
	}
	shown := transport.ShownFrom(ctx)
	switch {
	case who != model.Subject{Kind: model.SubjectAgent, Name: request.Name}:
		return transport.RenewReply{}, notItsOwn(who, request)
	case time.Now().UnixMilli() >= shown.NotAfter: // its connection is older than that
		return transport.RenewReply{}, model.Refuse(model.CodeCertificateRefused, "the certificate of %s has expired", who).
			WithHint("let that machine join again with a token: outspan join")
	case bytes.Equal(request.KeyHash(), shown.Key):
		return transport.RenewReply{}, sameKey(who)
	}
	return e.issue(ctx, e.cfg.Store.Current(), who, request, shown.Key)
}

func noCAYet() *model.Error {
	return model.Refuse(model.CodeBusy, "the cluster has no CA yet").
		WithHint("try again in a moment; if it stays so, the log of the leading server says why")
}

func notItsOwn(who model.Subject, request pki.Request) *model.Error {
	return model.Refuse(model.CodeForbidden, "%s asks for a certificate of the agent %s", who, request.Name).
		WithHint("an agent renews only its own certificate")
}

func sameKey(who model.Subject) *model.Error {
	return model.Refuse(model.CodeInvalid, "%s asks for a certificate of the key that it has", who).
		WithHint("make a new key for each certificate")
}

// issue signs and records an agent's next certificate. old is the key that the agent has proved. Codes: those of
// fsm.MemberRenew, and those of the log.
func (e *Engine) issue(ctx context.Context, state *fsm.State, who model.Subject, request pki.Request,
	old []byte) (transport.RenewReply, error) {
	request.AdmittedAt = state.MomentNumber()
	renew := &fsm.MemberRenew{Subject: who, Old: old, Key: request.KeyHash(), NotAfter: 1, CA: activeCA(state)}
	if err := e.tryGroup(state, []fsm.Command{renew}); err != nil {
		return transport.RenewReply{}, err
	}
	ring, err := e.keyring()
	if err != nil {
		return transport.RenewReply{}, err
	}
	ca, err := authority(ring, state)
	if err != nil {
		return transport.RenewReply{}, err
	}
	cert, err := ca.Sign(request, e.cfg.Lifetime)
	if err != nil {
		return transport.RenewReply{}, err
	}
	renew.NotAfter = cert.NotAfter.UnixMilli()
	if err := e.cfg.Servers.Submit(ctx, []fsm.Command{renew}); err != nil {
		return transport.RenewReply{}, err
	}
	state = e.cfg.Store.Current()
	reply := transport.RenewReply{Chain: [][]byte{cert.Raw}, Roots: roots(state)}
	reply.Servers, _ = e.cfg.Servers.Addresses()
	reply.GossipKeys, err = gossipKeys(ring, state)
	return reply, err
}

// arrived records that an agent has the certificate with which it calls in its files.
func (e *Engine) arrived(ctx context.Context, who model.Subject) error {
	if who.Kind != model.SubjectAgent {
		return model.Refuse(model.CodeForbidden, "%s is no agent", who)
	}
	shown := transport.ShownFrom(ctx)
	return e.record(ctx, who, ownRenewal{Old: shown.Key, Key: shown.Key, NotAfter: shown.NotAfter,
		CA: caWithID(e.cfg.Store.Current(), shown.Issuer)})
}

// ownRenewal says that the server that sends it has made itself a certificate. The fields are those of fsm.MemberRenew.
type ownRenewal struct {
	Old      []byte `cbor:"1,keyasint"`
	Key      []byte `cbor:"2,keyasint"`
	NotAfter int64  `cbor:"3,keyasint"`

	CA model.KeyName `cbor:"4,keyasint,omitempty"`
}

// renewServer records the new key of the server that asks.
func (e *Engine) renewServer(ctx context.Context, q ownRenewal) error {
	who, _ := transport.SubjectFrom(ctx)
	if who.Kind != model.SubjectServer {
		return model.Refuse(model.CodeForbidden, "%s is no server", who)
	}
	return e.record(ctx, who, q)
}

// record commits a renewal, unless the state has it already. Codes: those of fsm.MemberRenew, and those of the log.
func (e *Engine) record(ctx context.Context, who model.Subject, q ownRenewal) error {
	row, ok := e.cfg.Store.Current().TrustMemberOf(who)
	switch {
	case ok && row.RevokedIndex == 0 && !row.AnyKey && len(row.PreviousKey) == 0 && row.NotAfter == q.NotAfter &&
		(q.CA == "" || row.CA == q.CA) && bytes.Equal(row.Key, q.Key) && bytes.Equal(q.Old, q.Key):
		return nil
	case !ok && who.Kind == model.SubjectServer && !e.cfg.Servers.Includes(who.Name):
		return model.Refuse(model.CodeNotFound, "%s is no member of the cluster", who).
			WithHint("let that machine join with a token: outspan join --server")
	case !ok && who.Kind == model.SubjectServer:
		e.log.Warn("a server of the cluster is no member in the state, and becomes one", "server", who.Name)
	}
	renew := []fsm.Command{&fsm.MemberRenew{Subject: who, Old: q.Old, Key: q.Key, NotAfter: q.NotAfter, CA: q.CA}}
	if err := e.tryGroup(e.cfg.Store.Current(), renew); err != nil {
		return err
	}
	return e.cfg.Servers.Submit(ctx, renew)
}

// keepOwn renews this server's certificate before it expires, and has the leader record the new key. The certificate
// needs no leader: the key of the CA is in the local state, and the key that decrypts it in the keyring.
func (e *Engine) keepOwn(ctx context.Context) {
	retry := backoff{first: time.Second, last: 10 * time.Minute}
	for ctx.Err() == nil {
		woken, cancel := e.cfg.Store.WatchTopic(fsm.Topic("member/" + e.self.String()))
		keys, cancelKeys := e.cfg.Store.WatchTopic("keys")
		wait, err := e.keepOwnNow(ctx)
		if err != nil {
			wait = retry.after()
			e.log.Warn("this server's certificate is not renewed yet", "retry_in", wait, "error", err)
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

// keepOwnNow does what is due, and returns when to look again.
func (e *Engine) keepOwnNow(ctx context.Context) (wait time.Duration, err error) {
	state := e.cfg.Store.Current()
	row, ok := state.TrustMemberOf(e.self)
	switch {
	case !state.Managed(): // this server has not caught up yet
		return time.Minute, nil
	case ok && row.RevokedIndex != 0 && pki.AdmittedAt(e.cfg.Credentials.Leaf()) >= row.VoidBefore:
		// The certificate is younger than the revocation: this server has joined again, and its state does not know yet.
		return time.Minute, nil
	case ok && row.RevokedIndex != 0:
		return 0, revoked(e.self)
	}
	inFile, found, err := e.dir.Pair(pki.RoleServer)
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, model.Refuse(model.CodeCertificateInvalid, "%s does not exist", e.dir.CertFile(pki.RoleServer)).
			WithHint("let this machine join again")
	}
	pair, writeErr := e.unwritten.settle(ctx, e.dir, pki.RoleServer, inFile)
	own := ownRenewal{Old: pki.KeyHash(pair.Leaf)}
	if due(pair.Leaf) || e.untilSuperseded(state, pair.Leaf) <= 0 {
		if err := e.caughtUp(state, pair.Leaf); err != nil {
			return 0, err
		}
		if e.unwritten, err = e.mintOwn(state, pair); err != nil {
			return 0, err
		}
		e.unwritten.over = inFile.Leaf.Raw
		pair, writeErr = e.unwritten.settle(ctx, e.dir, pki.RoleServer, inFile)
	}
	if err := e.useOwn(pair); err != nil {
		return 0, err
	}
	own.Key, own.NotAfter = pki.KeyHash(pair.Leaf), pair.Leaf.NotAfter.UnixMilli()
	if writeErr == nil { // the certificate in the files counts, because this process may end
		own.CA = caWithID(state, pair.Leaf.AuthorityKeyId)
	}
	if ok {
		own.Old = row.Key
	}
	if !ok || !bytes.Equal(own.Old, own.Key) || own.NotAfter != row.NotAfter || own.CA != "" && own.CA != row.CA {
		if err := e.recordOwn(ctx, own); err != nil {
			return 0, errors.Join(err, writeErr)
		}
	}
	return max(min(untilRenewal(pair.Leaf), e.untilSuperseded(state, pair.Leaf)), time.Millisecond), writeErr
}

// useOwn makes the process use a certificate, unless it does so already. It also repeats a reload that failed.
func (e *Engine) useOwn(pair tls.Certificate) (err error) {
	if e.cfg.Credentials.Uses(pair.Leaf) {
		return nil
	}
	if e.unwritten.pair.Leaf == nil {
		err = e.cfg.Reload()
	} else {
		err = e.cfg.Credentials.Use(pair, e.unwritten.roots)
	}
	if err == nil {
		e.log.Info("this server has a new certificate", "expires", pki.Stamp(pair.Leaf.NotAfter))
	}
	return err
}

// recordOwn has the leader record this server's new key.
func (e *Engine) recordOwn(ctx context.Context, own ownRenewal) error {
	leader, self, ok := e.cfg.Servers.Leader()
	switch {
	case self:
		return e.record(ctx, e.self, own)
	case !ok:
		return noLeader()
	}
	return e.ask(ctx, leader, questionRenew, own, &struct{}{})
}

// caughtUp refuses to make a certificate from a state that is older than the one that the files come from: its CA may
// have been dropped since. A server that starts has the state of its last snapshot until it hears from the leader. The
// state of a leader is the newest one that there is. Code: stale.
func (e *Engine) caughtUp(state *fsm.State, leaf *x509.Certificate) error {
	known, err := readNotes(e.dir)
	if err != nil { // the certificate tells too
		known = notes{}
	}
	_, leads, _ := e.cfg.Servers.Leader()
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

// mintOwn makes a certificate for this server, for the key of ownKey.
func (e *Engine) mintOwn(state *fsm.State, old tls.Certificate) (unwritten, error) {
	ring, err := e.keyring()
	if err != nil {
		return unwritten{}, err
	}
	ca, err := authority(ring, state)
	if err != nil {
		return unwritten{}, err
	}
	key, err := ownKey(e.cfg.Servers, old)
	if err != nil {
		return unwritten{}, err
	}
	der, err := pki.RequestFor(key, pki.RoleServer, e.cfg.Name, hostsOf(old.Leaf))
	if err != nil {
		return unwritten{}, err
	}
	request, err := pki.ParseRequest(der, pki.RoleServer)
	if err != nil {
		return unwritten{}, err
	}
	request.AdmittedAt = pki.AdmittedAt(old.Leaf)
	cert, err := ca.Sign(request, e.cfg.Lifetime)
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
