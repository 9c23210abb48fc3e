package trust

import (
	"bytes"
	"context"
	"crypto/x509"
	"net"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Questions between servers that AnswerPeer answers.
const (
	questionJoin   = "trust-join"
	questionRejoin = "trust-rejoin"
	questionRenew  = "trust-renew"
	questionPin    = "trust-pin"
	questionHolds  = "trust-holds"

	// Any server answers these.
	questionKeyring = "trust-keyring"
	questionProve   = "trust-prove"
	questionTakeKey = "trust-take-key"

	questionKeptKeys = "trust-kept-keys"
	questionDropKeys = "trust-drop-keys"
	questionCA       = "trust-ca"
)

// maxJoining is how many newcomers a server answers at once. Further ones get busy, and try again.
const maxJoining = 32

// askTime limits a question to the leader.
const askTime = 15 * time.Second

// AnswerJoin is a transport.AnswerJoin. Any server may be asked; one that does not lead asks the leader. A newcomer
// that repeats its request gets certificates again, and uses its token once. A source that was refused too often waits;
// see strangers. While join_approval is on, a newcomer is recorded and refused until a person approves it. Codes:
// invalid, forbidden, busy, rate_limited, no_leader, those of fsm.MemberAdmit, fsm.NewcomerWait and rejoin, and those
// of the log.
func (e *Engine) AnswerJoin(ctx context.Context, source net.Addr,
	r transport.JoinRequest) (transport.JoinReply, error) {
	from := e.blamed(source, r)
	if !e.strangers.allowed(from) {
		err := model.Refuse(model.CodeRateLimited, "%s made too many wrong requests to join", from).
			WithHint("wait a few seconds, then try again with a good token")
		e.noteRefusedJoin(source, r, err)
		return transport.JoinReply{}, err
	}
	if r.Rejoin != nil {
		reply, err := e.answerRejoin(ctx, source, r.Rejoin)
		if err != nil {
			e.noteRefusedJoin(source, r, err)
		}
		if isStrangers(err) || isReturners(err) {
			e.strangers.refused(from)
		}
		return reply, err
	}
	reply, err := e.answerJoin(ctx, source, r)
	if err != nil {
		e.noteRefusedJoin(source, r, err)
	}
	if isStrangers(err) {
		e.strangers.refused(from)
	}
	return reply, err
}

func (e *Engine) answerJoin(ctx context.Context, source net.Addr,
	r transport.JoinRequest) (transport.JoinReply, error) {
	r.Address = transport.HostOf(source) // the leader does not see the newcomer's connection
	leader, self, ok := e.cfg.Servers.Leader()
	if self {
		return e.join(ctx, r)
	}
	token, err := pki.ParseJoinToken(r.Token)
	if err != nil {
		return transport.JoinReply{}, err
	}
	state := e.cfg.Store.Current()
	if state.JoinTokens.Has(model.TokenID(token.ID())) { // otherwise it may be too new for this server's state
		if err := checkToken(state, token); err != nil {
			return transport.JoinReply{}, err
		}
	}
	done, err := e.enterJoin()
	if err != nil {
		return transport.JoinReply{}, err
	}
	defer done()
	if !ok {
		return transport.JoinReply{}, noLeader()
	}
	e.log.Debug("a newcomer's request goes to the leader", "newcomer", source, "leader", leader.Name)
	var reply transport.JoinReply
	err = ask(ctx, e.cfg.Peers, leader, questionJoin, r, &reply)
	return reply, err
}

// checkToken refuses a newcomer by its token alone, so that the request of a stranger costs one look into the state.
func checkToken(state *fsm.State, token pki.JoinToken) error {
	verifier := token.Verifier()
	if _, refusal := fsm.TokenWith(state, model.TokenID(token.ID()), verifier[:]); refusal != nil {
		return refusal
	}
	return nil
}

// enterJoin counts a join in progress until done is called. Code: busy.
func (e *Engine) enterJoin() (done func(), err error) {
	select {
	case e.joining <- struct{}{}:
		return func() { <-e.joining }, nil
	default:
		return nil, model.Refuse(model.CodeBusy, "too many newcomers join at once").WithHint("try again in a moment")
	}
}

func noLeader() *model.Error {
	return model.Refuse(model.CodeNoLeader, "the cluster has no leader now").WithHint("try again in a few seconds")
}

// ask sends a question to another server, and decodes its answer. It blocks for at most askTime.
func ask(ctx context.Context, peers Asker, server transport.ServerInfo, question string, q, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	body, err := transport.EncodeCBOR(q)
	if err != nil {
		return err
	}
	got, err := peers.AskPeer(ctx, server.APIAddress, question, body)
	if err != nil {
		return err
	}
	return transport.DecodeCBOR(got, answer)
}

// AnswerPeer answers the questions of other servers' engines. known is false for questions of others. The certificate
// of the asking server must have been checked, and its subject must be in ctx. Codes: no_leader, forbidden, and those
// of the question.
func (e *Engine) AnswerPeer(ctx context.Context, question string, body []byte) (answer []byte, known bool, err error) {
	switch question {
	case questionJoin:
		answer, err = answerPeer(e, body, func(r transport.JoinRequest) (transport.JoinReply, error) {
			return e.join(ctx, r)
		})
		return answer, true, err
	case questionRejoin:
		answer, err = answerPeer(e, body, func(c transport.RejoinClaim) (transport.RenewReply, error) {
			return e.rejoin(ctx, c)
		})
		return answer, true, err
	case questionRenew:
		answer, err = answerPeer(e, body, func(q ownRenewal) (struct{}, error) { return struct{}{}, e.renewServer(ctx, q) })
		return answer, true, err
	case questionKeyring:
		answer, err = answerAnywhere(body, func(struct{}) (keysReply, error) { return e.keyring.give(ctx) })
		return answer, true, err
	case questionProve:
		answer, err = answerAnywhere(body, func(q proveQuestion) (proveReply, error) { return e.keyring.prove(ctx, q) })
		return answer, true, err
	case questionTakeKey:
		answer, err = answerAnywhere(body, func(q givenKey) (struct{}, error) { return struct{}{}, e.keyring.take(ctx, q) })
		return answer, true, err
	case questionKeptKeys:
		answer, err = answerAnywhere(body, func(struct{}) (keptKeys, error) { return e.rotation.giveKept(ctx) })
		return answer, true, err
	case questionDropKeys:
		answer, err = answerAnywhere(body, func(q dropKeys) (struct{}, error) {
			return struct{}{}, e.rotation.dropFor(ctx, q)
		})
		return answer, true, err
	case questionCA:
		answer, err = answerAnywhere(body, func(struct{}) (caReply, error) { return e.founding.giveCA(ctx) })
		return answer, true, err
	case questionPin:
		answer, err = answerPeer(e, body, func(p shownKey) (struct{}, error) { return struct{}{}, e.pins.pinFor(ctx, p) })
		return answer, true, err
	case questionHolds:
		answer, err = answerPeer(e, body, func(q []fsm.MemberHolds) (struct{}, error) {
			return struct{}{}, e.claims.recordFor(ctx, q)
		})
		return answer, true, err
	}
	return nil, false, nil
}

func answerPeer[Q, A any](e *Engine, body []byte, f func(Q) (A, error)) ([]byte, error) {
	if _, self, _ := e.cfg.Servers.Leader(); !self {
		return nil, noLeader() // leadership has moved on; the newcomer asks again
	}
	return answerAnywhere(body, f)
}

func answerAnywhere[Q, A any](body []byte, f func(Q) (A, error)) ([]byte, error) {
	var q Q
	if err := transport.DecodeCBOR(body, &q); err != nil {
		return nil, err
	}
	a, err := f(q)
	if err != nil {
		return nil, err
	}
	return transport.EncodeCBOR(a)
}

// newcomer is one member-to-be of a join request.
type newcomer struct {
	request pki.Request
	admit   *fsm.MemberAdmit
	cert    *x509.Certificate
}

// join admits the newcomers of a request. Only the leader calls it. It looks at the token first: checking the signature
// of a request takes time, and the places for newcomers are few.
func (e *Engine) join(ctx context.Context, r transport.JoinRequest) (transport.JoinReply, error) {
	token, err := pki.ParseJoinToken(r.Token)
	if err != nil {
		return transport.JoinReply{}, err
	}
	if err := checkToken(e.cfg.Store.Current(), token); err != nil {
		return transport.JoinReply{}, err
	}
	done, err := e.enterJoin()
	if err != nil {
		return transport.JoinReply{}, err
	}
	defer done()
	all, err := newcomers(r, token)
	if err != nil {
		return transport.JoinReply{}, err
	}
	state := e.cfg.Store.Current()
	if r.Known {
		if err := knows(e.cfg.Servers, state, all[0]); err != nil {
			return transport.JoinReply{}, err
		}
	}
	if err := tryGroup(e.cfg.Servers, state, group(all)); err != nil {
		return transport.JoinReply{}, e.recordWaiting(ctx, r, all, err)
	}
	if e.issuer != nil {
		return e.issuer.join(ctx, e, r, token, all)
	}
	ring, err := e.keyring.get()
	if err != nil {
		return transport.JoinReply{}, err
	}
	ca, err := authority(ring, state)
	if err != nil {
		return transport.JoinReply{}, err
	}
	left, again := e.repeated(state, all)
	lifetime := e.cfg.Lifetime
	if again {
		if !e.repeats.take(token.ID()) {
			return transport.JoinReply{}, model.Refuse(model.CodeRateLimited,
				"machines that joined by token %s repeat it too often", token.ID()).
				WithHint("wait a few seconds, then try again")
		}
		lifetime = left
	}
	for i := range all {
		all[i].admit.CA = activeCA(state)
		// The draft above accepted the name, so each earlier revocation of it is in this state.
		all[i].request.AdmittedAt = state.MomentNumber()
		if all[i].cert, err = ca.SignAt(e.cfg.Credentials.Now(), all[i].request, lifetime); err != nil {
			return transport.JoinReply{}, err
		}
		all[i].admit.NotAfter = all[i].cert.NotAfter.UnixMilli()
	}
	if again {
		e.log.Debug("a member repeated its join", "member", all[0].admit.Subject, "token", token.ID())
		return e.joinReply(ring, all, model.TokenID(token.ID()))
	}
	if err := commitJoin(ctx, e, r, token, all); err != nil {
		return transport.JoinReply{}, err
	}
	return e.joinReply(ring, all, model.TokenID(token.ID()))
}

// commitJoin commits the admission of newcomers, whose certificates are made. Codes: those of the log and of
// fsm.MemberAdmit.
func commitJoin(ctx context.Context, e *Engine, r transport.JoinRequest, token pki.JoinToken,
	all []newcomer) error {
	if err := e.cfg.Servers.Submit(ctx, group(all)); err != nil {
		return err
	}
	for _, n := range all {
		e.log.Info("a member joined", "member", n.admit.Subject, "token", token.ID(), "version", r.Version)
	}
	return nil
}

// knows refuses a newcomer that is no server of this cluster, or that has another key than the cluster knows. So a
// server that kept its data comes back to its own cluster, whatever CA the cluster has now. Code: conflict.
func knows(servers Cluster, state *fsm.State, n newcomer) error {
	who := n.admit.Subject
	row, ok := state.TrustMemberOf(who)
	const hint = "check that the token is of the cluster of this machine. If it is, stop the server, remove its data " +
		"directory, run outspan server revoke %s --force on another server, and join with a new token"
	switch {
	case who.Kind != model.SubjectServer || !ok || row.RevokedIndex != 0 || !servers.Includes(who.Name):
		return model.Refuse(model.CodeConflict, "%s is no server of this cluster", who).WithHint(hint, who.Name)
	case !row.Had(n.admit.Key):
		return model.Refuse(model.CodeConflict, "%s has another key than this cluster knows", who).WithHint(hint, who.Name)
	}
	return nil
}

// repeated reports whether a join that was accepted on a draft of state changes nothing: all newcomers are members by
// this token with these keys, and the CA that signed their certificates signs still, and
// more than half the lifetime of the certificates is left. The newcomer then gets
// certificates that end with the recorded ones, after the time left. So a repeated request does not fill the log.
func (e *Engine) repeated(state *fsm.State, all []newcomer) (left time.Duration, again bool) {
	left = e.cfg.Lifetime
	for _, n := range all {
		row, ok := state.TrustMemberOf(n.admit.Subject)
		if !ok || row.Token != n.admit.Token || row.CA != activeCA(state) || !bytes.Equal(row.Key, n.admit.Key) {
			return 0, false
		}
		left = min(left, time.UnixMilli(row.NotAfter).Sub(e.cfg.Credentials.Now()))
	}
	return left, left > e.cfg.Lifetime/2
}

// newcomers checks the requests for certificates. Both must be for the same name. Codes: invalid, forbidden.
func newcomers(r transport.JoinRequest, token pki.JoinToken) ([]newcomer, error) {
	var all []newcomer
	verifier := token.Verifier()
	for _, one := range [...]struct {
		role pki.Role
		der  []byte
	}{{pki.RoleServer, r.Server}, {pki.RoleAgent, r.Agent}} {
		if len(one.der) == 0 {
			continue
		}
		request, err := pki.ParseRequest(one.der, one.role)
		if err != nil {
			return nil, err
		}
		if len(all) > 0 && all[0].request.Name != request.Name {
			return nil, model.Refuse(model.CodeInvalid, "the server asks for the name %s and its agent for %s",
				all[0].request.Name, request.Name).
				WithHint("give both the same name")
		}
		who, _ := memberOf(pki.Identity{Role: one.role, Name: request.Name})
		all = append(all, newcomer{request: request, admit: &fsm.MemberAdmit{Subject: who, Key: request.KeyHash(),
			NotAfter: 1, Token: model.TokenID(token.ID()), Verifier: verifier[:]}})
	}
	if len(all) == 0 {
		return nil, model.Refuse(model.CodeInvalid, "the newcomer asks for no certificate").
			WithHint("ask for one as a server, as an agent or as both")
	}
	return all, nil
}

func group(all []newcomer) []fsm.Command {
	commands := make([]fsm.Command, 0, len(all))
	for _, n := range all {
		commands = append(commands, n.admit)
	}
	return commands
}

// tryGroup returns the refusal that a group of commands would get on a state now. Strangers and agents may send the
// same wrong request again and again, and it must not fill the log.
func tryGroup(servers Cluster, state *fsm.State, group []fsm.Command) error {
	if refusal := state.NewDraft(max(state.Now, servers.Now())).Try(group...); refusal != nil {
		return refusal
	}
	return nil
}

func (e *Engine) joinReply(ring *keyring.Ring, all []newcomer, id model.TokenID) (reply transport.JoinReply,
	err error) {
	state := e.cfg.Store.Current()
	reply = transport.JoinReply{Cluster: e.cfg.Cluster, Roots: roots(state)}
	if reply.GossipKeys, err = gossipKeys(ring, state); err != nil {
		return transport.JoinReply{}, err
	}
	for _, n := range all {
		if n.request.Role == pki.RoleAgent {
			reply.Agent = [][]byte{n.cert.Raw}
			continue
		}
		reply.Server = [][]byte{n.cert.Raw}
		reply.Keyring = encodedKeys(ring)
	}
	addPlaces(&reply, e, state, id)
	return reply, nil
}

// addPlaces adds the addresses of the servers and the labels of the token.
func addPlaces(reply *transport.JoinReply, e *Engine, state *fsm.State, id model.TokenID) {
	reply.Servers, reply.Gossip = e.cfg.Servers.Addresses()
	if token, ok := state.JoinTokens.Get(id); ok {
		reply.Labels = token.Labels
	}
}
