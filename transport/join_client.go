package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// joinRetry is how long Join repeats a request that the servers can't answer yet.
const joinRetry = 30 * time.Second

// Join asks the servers at addresses (host:port) to admit this machine, one after the other until one of them answers.
// It returns the reply, and the server that sent it. It sends the token only to a server that has proved that it
// belongs to the cluster of the token, as pki.JoinPeer says; r.Token is ignored.
//
// While servers answer that they can't admit anybody yet, for example because they elect a leader, Join asks again for
// 30 s. Each attempt has 5 s for the connection and 20 s for the answer. Join also ends when ctx ends. A failed call
// may be repeated with the same r: the token is used once.
//
// Codes: invalid, unreachable (no server answered), certificate_refused (no peer is a server of that cluster),
// not_tls (the peer admits no newcomers), timeout (ctx ended), and the code of the Problem with which a server refuses.
// Join returns that Problem as its error, not in the reply.
func Join(ctx context.Context, addresses []string, token pki.JoinToken,
	r JoinRequest) (JoinReply, pki.JoinServer, error) {
	return newNewcomer().join(ctx, addresses, token, r)
}

// Admitted asks the servers at addresses (host:port) whether they accept the certificate of creds, one after the other
// until one of them answers. It blocks for at most 10 s for each server, or until ctx ends. Codes: certificate_refused
// if a server refuses the certificate; unreachable if no server answered.
func Admitted(ctx context.Context, creds *Credentials, addresses []string) error {
	for _, address := range addresses {
		conn, err := Dialer{Credentials: creds}.DialAPI(ctx, "tcp", address)
		if err != nil {
			continue
		}
		// A server of HTTP/2 speaks first. In TLS 1.3 a refusal arrives after the client's part of the handshake.
		_ = conn.SetDeadline(time.Now().Add(admittedWait)) // if it fails, so does the read
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
		if err == nil {
			return nil
		}
		if err = reach.Explain(address, err); errors.Is(err, &model.Error{Code: model.CodeCertificateRefused}) {
			return err
		}
	}
	return model.Refuse(model.CodeUnreachable, "no server answered: %s", strings.Join(addresses, ", ")).
		WithHint("check the addresses, that a server runs there, and that this machine may reach its port")
}

// admittedWait is how long Admitted waits for the first byte of a server.
const admittedWait = 5 * time.Second

// newcomer is the machine that calls Join or Rejoin. Tests replace its clock, and for how long it retries.
type newcomer struct {
	now   func() time.Time
	retry time.Duration
}

func newNewcomer() newcomer { return newcomer{now: time.Now, retry: joinRetry} }

// errand is what a newcomer wants from the servers.
type errand struct {
	config *tls.Config // of each connection
	// server returns the server at the other end of a connection, and refuses any other peer.
	server func(tls.ConnectionState) (pki.JoinServer, error)
	// request returns the message for a connection.
	request func(tls.ConnectionState) (JoinRequest, error)
}

// joined is the result of one attempt.
type joined struct {
	reply  JoinReply
	server pki.JoinServer
}

func (n newcomer) join(ctx context.Context, addresses []string, token pki.JoinToken,
	r JoinRequest) (JoinReply, pki.JoinServer, error) {
	r.Token = token.Reveal()
	if err := r.check(); err != nil {
		return JoinReply{}, pki.JoinServer{}, err
	}
	return n.seek(ctx, addresses, errand{
		config:  pki.JoinConfig(token, n.now),
		server:  func(state tls.ConnectionState) (pki.JoinServer, error) { return pki.JoinPeer(state, token, n.now()) },
		request: func(tls.ConnectionState) (JoinRequest, error) { return r, nil },
	})
}

// seek runs an errand at the servers at addresses, as Join describes.
func (n newcomer) seek(ctx context.Context, addresses []string, visit errand) (JoinReply, pki.JoinServer, error) {
	if len(addresses) == 0 {
		return JoinReply{}, pki.JoinServer{}, model.Refuse(model.CodeInvalid, "no server is given").
			WithHint("give the address of at least one server, such as 10.0.0.1:7640")
	}
	giveUp := time.Now().Add(n.retry)
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 3*time.Second) {
		done, err := round(ctx, addresses, visit)
		if err == nil {
			return done.reply, done.server, nil
		}
		if !notYet(err) || time.Now().Add(pause).After(giveUp) {
			return JoinReply{}, pki.JoinServer{}, err
		}
		sleep(ctx, pause/2+rand.N(pause)) // random, so that newcomers don't all ask at the same moment
	}
}

// notYet reports whether a server answered that it can't admit the newcomer now, but perhaps in a moment.
func notYet(err error) bool {
	p, answered := errors.AsType[*api.Problem](err)
	return answered && p.Retryable
}

// round asks each server once. It ends early if a server admits the newcomer or refuses it for good. Otherwise it
// returns the most useful error: that of a server that may admit the newcomer in a moment, else that of a peer that
// can't admit anybody, else unreachable.
func round(ctx context.Context, addresses []string, visit errand) (joined, error) {
	var unreached []string
	var best error
	for _, address := range addresses {
		done, err := visit.ask(ctx, address)
		if err == nil {
			return done, nil
		}
		if ctx.Err() != nil {
			return joined{}, joinEnded(ctx, address, err)
		}
		_, answered := errors.AsType[*api.Problem](err)
		_, known := errors.AsType[*model.Error](err)
		switch {
		case answered && !notYet(err):
			return joined{}, err
		case !known:
			unreached = append(unreached, address+": "+unreachedReason(err))
		case !notYet(best):
			best = err
		}
	}
	if best != nil {
		return joined{}, best
	}
	return joined{}, model.Refuse(model.CodeUnreachable, "no server answered: %s", strings.Join(unreached, "; ")).
		WithHint("check the addresses, that a server runs there, and that this machine may reach its port")
}

// joinEnded returns the error of a newcomer whose context has ended.
func joinEnded(ctx context.Context, address string, err error) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return model.Refuse(model.CodeTimeout, "%s did not admit this machine in time: %s", address, model.Reason(err)).
		WithHint("try again with the same token; on a server, outspan server members shows whether there is a leader")
}

func unreachedReason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}

// ask makes one attempt. Its error wraps an *api.Problem if the server refused the newcomer, and a *model.Error if the
// peer is of no use. It is any other error if the peer could not be reached or did not answer.
func (e errand) ask(ctx context.Context, address string) (joined, error) {
	conn, err := reach.DialTLS(ctx, "tcp", address, e.config, (&net.Dialer{}).DialContext)
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		hint := refusal.Hint
		if refusal.Code == model.CodeNotTLS {
			hint = "check that it is the address and port of a server, and that the server has tls { managed = true }"
		}
		return joined{}, model.Refuse(refusal.Code, "%s can't admit this machine: %s", address, refusal.Message).
			WithHint("%s", hint)
	}
	if err != nil {
		return joined{}, err
	}
	defer func() { _ = conn.Close() }()
	server, err := e.server(conn.ConnectionState())
	if err != nil {
		return joined{}, err
	}
	r, err := e.request(conn.ConnectionState())
	if err != nil {
		return joined{}, err
	}
	// The server ends the connection after joinTime. It may begin to count a little later.
	_ = conn.SetDeadline(time.Now().Add(joinTime + time.Second)) // if it fails, so does the write
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	// A busy server answers and hangs up before it reads the request. Then the write fails, but the answer has the reason.
	wrong := writeJoin(conn, r)
	var reply JoinReply
	err = readJoin(conn, &reply)
	switch {
	case err != nil && wrong != nil:
		return joined{}, wrong
	case err != nil:
		return joined{}, err
	case reply.Problem != nil:
		return joined{}, reply.Problem
	}
	return joined{reply, server}, nil
}
