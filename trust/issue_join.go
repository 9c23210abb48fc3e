package trust

import (
	"context"
	"crypto/x509"
	"errors"
	"net"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// FilesEngine answers newcomers of a cluster whose certificates come from a CA of the operator and are files on each
// machine. With a program that calls this CA, newcomers join with tokens. The state has a row of each, so that a token
// is used once and a name has one key. A revocation frees the name; no server refuses a certificate because of its row.
// It is safe for concurrent use.
type FilesEngine struct{ e *Engine }

// NewFilesEngine returns a FilesEngine. program is the absolute path of the program that makes certificates, or "" if
// there is none. Of cfg, it uses Name, Cluster, Store, Servers, Peers, Credentials, Gossip, JoinRefused and Logger.
func NewFilesEngine(cfg Config, program string) *FilesEngine {
	f := &FilesEngine{newEngine(cfg)}
	if program != "" {
		f.e.issuer = newIssuer(program, cfg.Cluster)
	}
	return f
}

// Run logs how many refused joins were not logged. It blocks until ctx ends, and returns nil.
func (f *FilesEngine) Run(ctx context.Context) error {
	f.e.refusedJoins.run(ctx, f.e.log)
	return nil
}

// Root returns the root that join tokens name: that of this server's certificate. Codes: certificate_needed if no
// program makes certificates; certificate_invalid.
func (f *FilesEngine) Root() (*x509.Certificate, error) {
	if f.e.issuer == nil {
		return nil, f.needed()
	}
	return f.e.cfg.Credentials.Root()
}

// AnswerJoin is a transport.AnswerJoin, as Engine.AnswerJoin is. The leader runs the program. Codes: certificate_needed
// if no program makes certificates; issue_failed if it failed; those of Engine.AnswerJoin.
func (f *FilesEngine) AnswerJoin(ctx context.Context, source net.Addr,
	r transport.JoinRequest) (transport.JoinReply, error) {
	if f.e.issuer == nil || r.Rejoin != nil {
		return transport.JoinReply{}, f.needed()
	}
	return f.e.AnswerJoin(ctx, source, r)
}

// AnswerPeer answers the questions of other servers, as Engine.AnswerPeer does.
func (f *FilesEngine) AnswerPeer(ctx context.Context, question string, body []byte) (answer []byte, known bool,
	err error) {
	switch {
	case question != questionJoin:
		return nil, false, nil
	case f.e.issuer == nil:
		return nil, true, f.needed()
	}
	return f.e.AnswerPeer(ctx, question, body)
}

func (f *FilesEngine) needed() *model.Error {
	return model.Refuse(model.CodeCertificateNeeded,
		"certificate needed: this cluster has a CA of its own, and server %s can't ask it for certificates", f.e.cfg.Name).
		WithHint("make a certificate with that CA, copy it with ca_file and the gossip key to the new machine, and name " +
			"the files in its configuration (docs/join.md); or set tls { issue = \"exec:/PROGRAM\" } on every server")
}

// join ends a join that was accepted on a draft of the state. Each attempt that fails or repeats another counts for its
// token, because the program costs more than a signature. Codes: those of FilesEngine.AnswerJoin.
func (i *issuer) join(ctx context.Context, e *Engine, r transport.JoinRequest, token pki.JoinToken,
	all []newcomer) (transport.JoinReply, error) {
	newcomer := &all[0]
	der := r.Agent
	if newcomer.request.Role == pki.RoleServer {
		der = r.Server
	}
	switch {
	case len(all) > 1:
		return transport.JoinReply{}, model.Refuse(model.CodeInvalid,
			"in a cluster with certificate files, a process is either a server or an agent").
			WithHint("join with --server --no-agent; for a worker, with an agent's token and without --server")
	case newcomer.request.Role == pki.RoleAgent && len(newcomer.request.Hosts) > 0:
		return transport.JoinReply{}, model.Refuse(model.CodeInvalid, "the agent %s asks for a certificate with hosts",
			newcomer.request.Name).WithHint("join with the version of outspan that the servers have")
	case !e.repeats.allowed(token.ID()):
		return transport.JoinReply{}, model.Refuse(model.CodeRateLimited,
			"machines with join token %s ask for certificates too often", token.ID()).
			WithHint("wait a few seconds, then try again")
	}
	roots, reply, err := filesReply(e)
	if err != nil {
		return transport.JoinReply{}, err
	}
	row, known := e.cfg.Store.Current().TrustMemberOf(newcomer.admit.Subject)
	chain, err := i.issue(ctx, newcomer.request, der, r.Address, roots)
	if err != nil || known && row.Token == newcomer.admit.Token {
		e.repeats.refused(token.ID())
	}
	if err != nil {
		e.log.Error("no certificate for a newcomer", "newcomer", newcomer.admit.Subject, "token", token.ID(), "error", err)
		return transport.JoinReply{}, i.told(e.cfg.Name, newcomer.admit.Subject, err)
	}
	newcomer.cert, newcomer.admit.NotAfter = chain[0], chain[0].NotAfter.UnixMilli()
	if err := commitJoin(ctx, e, r, token, all); err != nil {
		return transport.JoinReply{}, err
	}
	to := &reply.Agent
	if newcomer.request.Role == pki.RoleServer {
		to = &reply.Server
	}
	for _, cert := range chain {
		*to = append(*to, cert.Raw)
	}
	addPlaces(&reply, e, e.cfg.Store.Current(), model.TokenID(token.ID()))
	return reply, nil
}

// filesReply returns what every newcomer gets in a cluster with certificate files.
func filesReply(e *Engine) (roots []*x509.Certificate, reply transport.JoinReply, err error) {
	reply = transport.JoinReply{Files: true, Cluster: e.cfg.Cluster, Roots: e.cfg.Credentials.Roots(),
		GossipKeys: e.cfg.Gossip.Keys()}
	for _, der := range reply.Roots {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, reply, model.Refuse(model.CodeInternal, "a certificate of ca_file is damaged: %v", err)
		}
		roots = append(roots, root)
	}
	return roots, reply, nil
}

// told returns what a newcomer is told by a server. What the program wrote may be confidential, so only the log has it.
func (i *issuer) told(server string, who model.Subject, err error) error {
	if !errors.Is(err, &model.Error{Code: model.CodeIssueFailed}) {
		return err
	}
	return model.Refuse(model.CodeIssueFailed, "server %s got no certificate for %s from the program %s", server, who,
		i.path).
		WithHint("its log says why; then run outspan join again: the token is not used yet")
}
