package trust

import (
	"bytes"
	"context"

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
	case e.cfg.Credentials.Now().UnixMilli() >= shown.NotAfter: // its connection is older than that
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
	if err := tryGroup(e.cfg.Servers, state, []fsm.Command{renew}); err != nil {
		return transport.RenewReply{}, err
	}
	ring, err := e.keyring.get()
	if err != nil {
		return transport.RenewReply{}, err
	}
	ca, err := authority(ring, state)
	if err != nil {
		return transport.RenewReply{}, err
	}
	cert, err := ca.SignAt(e.cfg.Credentials.Now(), request, e.cfg.Lifetime)
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
	if err := tryGroup(e.cfg.Servers, e.cfg.Store.Current(), renew); err != nil {
		return err
	}
	return e.cfg.Servers.Submit(ctx, renew)
}
