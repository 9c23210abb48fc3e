package trust

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// answerRejoin answers an agent whose certificate has expired. The proof is tied to the agent's connection, so the
// server at its end checks it, and then passes the claim to the leader. Codes: those of rejoin, and no_leader.
func (e *Engine) answerRejoin(ctx context.Context, source net.Addr,
	r *transport.RejoinRequest) (transport.JoinReply, error) {
	if _, _, err := former(e.cfg.Store.Current(), r.Certificate); err != nil {
		return transport.JoinReply{}, err
	}
	claim, err := r.Claim()
	if err != nil {
		return transport.JoinReply{}, err
	}
	var issued transport.RenewReply
	switch leader, self, ok := e.cfg.Servers.Leader(); {
	case self:
		issued, err = e.rejoin(ctx, claim)
	case !ok:
		err = noLeader()
	default:
		done, busy := e.enterJoin()
		if busy != nil {
			return transport.JoinReply{}, busy
		}
		defer done()
		e.log.Debug("the request of an agent that returns goes to the leader", "agent", source, "leader", leader.Name)
		err = ask(ctx, e.cfg.Peers, leader, questionRejoin, claim, &issued)
	}
	if err != nil {
		return transport.JoinReply{}, err
	}
	return transport.JoinReply{Cluster: e.cfg.Cluster, Roots: issued.Roots, Agent: issued.Chain,
		GossipKeys: issued.GossipKeys, Servers: issued.Servers}, nil
}

// former returns the agent that a CA of the state gave a certificate, which may have expired. Codes: those of
// pki.Former; forbidden for a certificate of another role.
func former(state *fsm.State, der []byte) (model.Subject, *x509.Certificate, error) {
	var cas []*x509.Certificate
	for _, raw := range roots(state) {
		if ca, err := x509.ParseCertificate(raw); err == nil { // another CA may have issued the certificate
			cas = append(cas, ca)
		}
	}
	leaf, id, err := pki.Former(der, cas)
	if err != nil {
		return model.Subject{}, nil, err
	}
	who, _ := memberOf(id)
	if who.Kind != model.SubjectAgent {
		return model.Subject{}, nil, model.Refuse(model.CodeForbidden,
			"only agents return with an expired certificate, not %s", id).
			WithHint("a server renews its own certificate when it starts")
	}
	return who, leaf, nil
}

// rejoin issues the next certificate of an agent whose certificate has expired, and which has proved its key. Only the
// leader calls it. Codes: invalid; forbidden (another name or role, or rejoin_grace is 0); conflict if the certificate
// has not expired; certificate_refused if it expired too long ago or does not count; member_revoked; node_taken if the
// node is in use; busy; rate_limited; those of fsm.MemberRenew, and those of the log.
func (e *Engine) rejoin(ctx context.Context, claim transport.RejoinClaim) (transport.RenewReply, error) {
	done, err := e.enterJoin()
	if err != nil {
		return transport.RenewReply{}, err
	}
	defer done()
	state := e.cfg.Store.Current()
	who, leaf, err := former(state, claim.Certificate)
	if err != nil {
		return transport.RenewReply{}, err
	}
	if err := e.mayRejoin(state, who, leaf, claim.Boot); err != nil {
		return transport.RenewReply{}, err
	}
	request, err := pki.ParseRequest(claim.Request, pki.RoleAgent)
	switch {
	case err != nil:
		return transport.RenewReply{}, err
	case request.Name != who.Name:
		return transport.RenewReply{}, notItsOwn(who, request)
	case bytes.Equal(request.KeyHash(), pki.KeyHash(leaf)):
		return transport.RenewReply{}, sameKey(who)
	case !e.repeats.take(who.String()):
		return transport.RenewReply{}, model.Refuse(model.CodeRateLimited, "%s returns again and again", who).
			WithHint("look at its log; it may go on in a few seconds")
	}
	reply, err := e.issue(ctx, state, who, request, pki.KeyHash(leaf))
	if err == nil {
		e.log.Warn("an agent returned whose certificate had expired", "agent", who.Name, "expired", pki.Stamp(leaf.NotAfter))
	}
	return reply, err
}

// mayRejoin refuses an agent that may not return by itself. boot is the id of its machine's boot.
func (e *Engine) mayRejoin(state *fsm.State, who model.Subject, leaf *x509.Certificate, boot string) error {
	grace := state.Settings.RejoinGrace
	now := e.cfg.Credentials.Now()
	if err := admits(state, who, leaf); err != nil {
		return err
	}
	row, _ := state.TrustMemberOf(who)
	switch {
	case !row.Had(pki.KeyHash(leaf)): // AnyKey admits only certificates that are still good
		return model.Refuse(model.CodeCertificateRefused, "the certificate of %s has expired, and its key is not in the "+
			"recovered state: a newer one may have replaced it", who).
			WithHint("let that machine join with a token: outspan join; it keeps its name and its volumes")
	case now.Before(leaf.NotAfter):
		return model.Refuse(model.CodeConflict, "the certificate of %s has not expired: it ends at %s; the clock of the "+
			"servers says %s, which is %s earlier", who, pki.Stamp(leaf.NotAfter), pki.Stamp(now),
			model.Duration(leaf.NotAfter.Sub(now).Round(time.Second).Milliseconds())).
			WithHint("run date -u on that machine and on the servers, and set the clock that is wrong")
	case grace == 0:
		return model.Refuse(model.CodeForbidden, "the certificate of %s has expired, and rejoin_grace is 0s", who).
			WithHint("let that machine join with a token: outspan join; it keeps its name and its volumes")
	case now.Sub(leaf.NotAfter) >= time.Duration(grace)*time.Millisecond:
		return model.Refuse(model.CodeCertificateRefused, "the certificate of %s expired at %s, longer ago than "+
			"rejoin_grace (%s); the clock of the servers says %s", who, pki.Stamp(leaf.NotAfter), grace, pki.Stamp(now)).
			WithHint("let that machine join with a token: outspan join; it keeps its name and its volumes")
	}
	if row.AnyKey {
		boot = ""
	}
	return e.nodeFree(state, who.Name, boot)
}

// nodeFree refuses an agent that asks for a node which another agent uses: the node's heartbeats arrive, and they are
// not those of the asking agent. They are its own if it ran on while its certificate expired. That is so if boot, the
// id of the boot of its machine, is the registered one. An empty boot proves nothing. After a recovery the caller must
// pass an empty boot: everyone can read the id in the gossip, and the key in the row may have been replaced since.
// Code: node_taken.
func (e *Engine) nodeFree(state *fsm.State, name, boot string) error {
	n, refusal := state.Finder(nil).NamedNode(name)
	if refusal != nil || boot != "" && n.Agent.BootID == boot || !e.cfg.Servers.Heard(n.ID) {
		return nil
	}
	return model.Refuse(model.CodeNodeTaken, "node %s is in use by the agent at %s, which was heard a moment ago", n.Name,
		n.Agent.Address).
		WithHint("if that is another machine with the same files, stop this agent and give it a name of its own; if not, " +
			"restart this agent: it is let in once the servers hear no more of the one before")
}

// blamedAgent returns the key under which strangers counts a refusal of a returning agent. If the state has the key of
// its certificate, that is the address with the agent's name, so that the agent does not wait for what others did in
// its network. Otherwise it is the source. blamedAgent does not check the certificate, because that costs more.
func (e *Engine) blamedAgent(from net.Addr, r *transport.RejoinRequest) string {
	source := transport.SourceOf(from)
	leaf, err := x509.ParseCertificate(r.Certificate)
	if err != nil {
		return source
	}
	id, err := pki.Holder(leaf)
	if err != nil {
		return source
	}
	who, _ := memberOf(id)
	if row, ok := e.cfg.Store.Current().TrustMemberOf(who); ok && row.Counts(pki.KeyHash(leaf)) {
		return transport.HostOf(from) + " as " + who.String()
	}
	return source
}

// isReturners reports whether an error is the fault of a returning agent, so that another attempt would get it too.
func isReturners(err error) bool {
	refusal, ok := errors.AsType[*model.Error](err)
	return ok && slices.Contains([]model.Code{model.CodeCertificateRefused, model.CodeConflict, model.CodeNodeTaken,
		model.CodeStale, model.CodeNotFound}, refusal.Code)
}
