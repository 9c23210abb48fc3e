package trust

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Renew is httpapi.Config.Renew: it issues an agent's next certificate. transport.ShownFrom(ctx) must be the
// certificate with which the agent called. Codes: invalid, forbidden (another name or role), certificate_refused
// (the certificate in use has expired), those of fsm.MemberRenew, and those of the log.
func (e *Engine) Renew(ctx context.Context, who model.Subject, q transport.RenewRequest) (transport.RenewReply, error) {
	request, err := pki.ParseRequest(q.Request, pki.RoleAgent)
	if err != nil {
		return transport.RenewReply{}, err
	}
	shown := transport.ShownFrom(ctx)
	switch {
	case who != model.Subject{Kind: model.SubjectAgent, Name: request.Name}:
		return transport.RenewReply{}, model.Refuse(model.CodeForbidden, "%s asks for a certificate of the agent %s", who,
			request.Name).
			WithHint("an agent renews only its own certificate")
	case time.Now().UnixMilli() >= shown.NotAfter: // its connection is older than that
		return transport.RenewReply{}, model.Refuse(model.CodeCertificateRefused, "the certificate of %s has expired", who).
			WithHint("let that machine join again with a token: outspan join")
	case bytes.Equal(request.KeyHash(), shown.Key):
		return transport.RenewReply{}, model.Refuse(model.CodeInvalid, "%s asks for a certificate of the key that it has",
			who).
			WithHint("make a new key for each certificate")
	}
	renew := &fsm.MemberRenew{Subject: who, Old: shown.Key, Key: request.KeyHash(), NotAfter: 1}
	if err := e.tryGroup([]fsm.Command{renew}); err != nil {
		return transport.RenewReply{}, err
	}
	ring, err := e.keyring()
	if err != nil {
		return transport.RenewReply{}, err
	}
	ca, err := authority(ring, e.cfg.Store.Current())
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
	state := e.cfg.Store.Current()
	reply := transport.RenewReply{Chain: [][]byte{cert.Raw}, Roots: roots(state)}
	reply.Servers, _ = e.cfg.Servers.Addresses()
	reply.GossipKeys, err = gossipKeys(ring, state)
	return reply, err
}

// ownRenewal says that the server that sends it has made itself a certificate. The fields are those of fsm.MemberRenew.
type ownRenewal struct {
	Old      []byte `cbor:"1,keyasint"`
	Key      []byte `cbor:"2,keyasint"`
	NotAfter int64  `cbor:"3,keyasint"`
}

// renewServer records the new key of the server that asks.
func (e *Engine) renewServer(ctx context.Context, q ownRenewal) error {
	who, _ := transport.SubjectFrom(ctx)
	if who.Kind != model.SubjectServer {
		return model.Refuse(model.CodeForbidden, "%s is no server", who)
	}
	return e.record(ctx, who, q)
}

func (e *Engine) record(ctx context.Context, who model.Subject, q ownRenewal) error {
	renew := []fsm.Command{&fsm.MemberRenew{Subject: who, Old: q.Old, Key: q.Key, NotAfter: q.NotAfter}}
	if err := e.tryGroup(renew); err != nil {
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
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		cancel()
	}
}

// keepOwnNow does what is due, and returns when to look again.
func (e *Engine) keepOwnNow(ctx context.Context) (wait time.Duration, err error) {
	state := e.cfg.Store.Current()
	row, ok := state.TrustMemberOf(e.self)
	switch {
	case !ok: // this server has not caught up yet
		return time.Minute, nil
	case row.RevokedIndex != 0:
		return 0, revoked(e.self)
	}
	pair, found, err := e.dir.Pair(pki.RoleServer)
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, model.Refuse(model.CodeCertificateInvalid, "%s does not exist", e.dir.CertFile(pki.RoleServer)).
			WithHint("let this machine join again")
	}
	if !time.Now().Before(renewAt(pair.Leaf)) {
		if pair, err = e.mintOwn(state, pair.Leaf); err != nil {
			return 0, err
		}
	}
	if !e.cfg.Credentials.NotAfter().Equal(pair.Leaf.NotAfter) { // also after an earlier reload that failed
		if err := e.cfg.Reload(); err != nil {
			return 0, err
		}
		e.log.Info("this server has a new certificate", "expires", pki.Stamp(pair.Leaf.NotAfter))
	}
	own := ownRenewal{Old: row.Key, Key: pki.KeyHash(pair.Leaf), NotAfter: pair.Leaf.NotAfter.UnixMilli()}
	if !bytes.Equal(own.Old, own.Key) {
		if err := e.recordOwn(ctx, own); err != nil {
			return 0, err
		}
	}
	return untilRenewal(pair.Leaf), nil
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

// mintOwn makes a new key and a certificate for this server, and writes them to its files.
func (e *Engine) mintOwn(state *fsm.State, old *x509.Certificate) (tls.Certificate, error) {
	ring, err := e.keyring()
	if err != nil {
		return tls.Certificate{}, err
	}
	ca, err := authority(ring, state)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, key, err := pki.NewRequest(pki.RoleServer, e.cfg.Name, hostsOf(old))
	if err != nil {
		return tls.Certificate{}, err
	}
	request, err := pki.ParseRequest(der, pki.RoleServer)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := ca.Sign(request, e.cfg.Lifetime)
	if err != nil {
		return tls.Certificate{}, err
	}
	gossip, err := gossipKeys(ring, state)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair := tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
	if err := write(e.dir, pki.RoleServer, pair, roots(state), gossip); err != nil {
		return tls.Certificate{}, err
	}
	return pair, nil
}

// write replaces the files of a role. Server and agent of a process share the directory, so it takes the lock.
func write(dir transport.Managed, role pki.Role, pair tls.Certificate, roots, gossip [][]byte) error {
	files := transport.ManagedFiles{Roots: roots, Pairs: map[pki.Role]tls.Certificate{role: pair}}
	if len(gossip) > 0 {
		files.GossipKey = gossip[0]
	}
	return dir.Lock(func() error { return dir.Write(files) })
}

// hostsOf returns the hosts of a certificate, without those that each certificate of its role has.
func hostsOf(cert *x509.Certificate) []string {
	var hosts []string
	for _, name := range cert.DNSNames {
		if name != pki.RoleServer.ServerName() && name != pki.RoleAgent.ServerName() && name != "localhost" {
			hosts = append(hosts, name)
		}
	}
	for _, ip := range cert.IPAddresses {
		if !ip.Equal(net.IPv4(127, 0, 0, 1)) && !ip.Equal(net.IPv6loopback) {
			hosts = append(hosts, ip.String())
		}
	}
	return hosts
}
