package reach

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Attempt sends a request once, to one of the servers.
type Attempt func(ctx context.Context, to Endpoint) error

// fetch sends a request over HTTP and passes a successful answer to take. take reads the body to its end, or keeps the
// response as a stream. If take returns an error, fetch closes the body.
func (c *Caller) fetch(ctx context.Context, r *Request, take func(*http.Response) error) error {
	r.prepare()
	if c.token != "" {
		r.Header = r.Header.Clone()
		if r.Header == nil {
			r.Header = http.Header{}
		}
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.Deliver(ctx, r, func(ctx context.Context, to Endpoint) error { return to.fetch(ctx, r, take) })
}

// quietFor is how long a call is repeated before Config.Waiting is called.
const quietFor = time.Second

// Deliver calls try until a server gives a final answer or the call may not be repeated any more. Package transport
// uses it for calls over the agents' protocol. Only the method, Once, Lineage and the request id of r are used. Deliver
// blocks and fails as Send does.
func (c *Caller) Deliver(ctx context.Context, r *Request, try Attempt) error {
	giveUp := time.Now().Add(c.retryFor)
	sent, told := false, c.waiting == nil
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := c.round(ctx, r, try, &sent)
		if err == nil || ctx.Err() != nil {
			return ended(ctx, err)
		}
		if r.Once || !worthRetry(err) || c.retryFor < 0 || time.Now().Add(pause).After(giveUp) {
			return r.verdict(err, sent)
		}
		if left := time.Until(giveUp); !told && left < c.retryFor-quietFor {
			told = true
			c.waiting(err, left)
		}
		timer := time.NewTimer(pause/2 + rand.N(pause)) // random, so that callers don't all repeat at the same moment
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ended(ctx, err)
		}
	}
}

// ended returns the error of a call that failed with err: the cause if ctx was canceled, an error with the code timeout
// if the deadline of ctx has passed, otherwise err. If err is nil, ended returns nil.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return model.Refuse(model.CodeTimeout, "no answer in time: %s", model.Reason(err)).
		WithHint("try again; see: outspan server members")
}

// verdict returns the error of a call that is not repeated any more. If sent is true, a server may have carried out the
// request. The outcome of a write is then unknown, even if no server can be reached any more.
func (r *Request) verdict(err error, sent bool) error {
	var unknown *model.Error
	if r.Method == http.MethodGet || !errors.As(err, &unknown) {
		return err
	}
	switch unknown.Code {
	case model.CodeUnknownOutcome:
	case model.CodeUnreachable, model.CodeNoLeader, model.CodeBusy, model.CodeRateLimited, model.CodeAuditUnavailable:
		if !sent {
			return err
		}
		unknown = model.Refuse(model.CodeUnknownOutcome,
			"a server took the request and did not answer; it may have been carried out. Then: %s", unknown.Message)
	default:
		return err
	}
	if id := r.Query.Get("request_id"); id != "" {
		return unknown.WithHint("send it again with the same request id (--request-id %s): it is carried out at most once",
			id)
	}
	return unknown.WithHint("look at the state before you send it again")
}

// worthRetry reports whether the call may succeed after a short wait: the servers are electing a leader, starting or
// overloaded, or one of them does not know the outcome. If no server can be reached, the call fails at once, so that a
// wrong address is noticed at once.
func worthRetry(err error) bool {
	var e *model.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case model.CodeNoLeader, model.CodeStaleTerm, model.CodeUnknownOutcome, model.CodeNotCaughtUp, model.CodeRateLimited,
		model.CodeBusy:
		return true
	}
	return false
}

// round tries each server at most once, beginning with the server that answered last. It sets *sent if a server may
// have carried out the request.
func (c *Caller) round(ctx context.Context, r *Request, try Attempt, sent *bool) error {
	var failed failures
	servers, first := c.Servers(), 0
	if good := c.good.Load(); good != nil {
		first = max(slices.IndexFunc(servers, func(e Endpoint) bool { return e.Shown == *good }), 0)
	}
	for i := range servers {
		to := &servers[(first+i)%len(servers)]
		err := try(ctx, *to)
		if err == nil {
			c.good.Store(&to.Shown)
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if mayHaveHappened(err) {
			*sent = true
		}
		failed.add(to.Shown, err)
		if !goOn(r, err, *sent) {
			break
		}
	}
	return failed.error()
}

func (to Endpoint) fetch(ctx context.Context, r *Request, take func(*http.Response) error) error {
	limited, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(r.Limit, func() { cancel(ErrNoAnswer) })
	req, err := r.build(limited, to.base)
	if err != nil {
		cancel(nil)
		return err
	}
	resp, err := to.via.RoundTrip(req)
	timer.Stop()
	if err != nil {
		defer cancel(nil)
		if errors.Is(context.Cause(limited), ErrNoAnswer) {
			return &notAnswered{sent: true, err: ErrNoAnswer}
		}
		return Unanswered(to.Shown, err)
	}
	resp.Body = &bodyWithCancel{ReadCloser: resp.Body, cancel: func() { cancel(nil) }}
	if resp.StatusCode >= http.StatusBadRequest {
		defer resp.Body.Close()
		return api.ProblemOf(resp)
	}
	if err := take(resp); err != nil {
		resp.Body.Close()
		return err
	}
	return nil
}

// ErrNoAnswer is the error of an attempt that got no answer before its limit had passed.
var ErrNoAnswer = errors.New("no answer within the time for one attempt")

// bodyWithCancel cancels the context of the request once the answer has been read or closed.
type bodyWithCancel struct {
	io.ReadCloser
	cancel func()
}

// Close implements io.Closer. It also cancels the context.
func (b *bodyWithCancel) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}

// Read implements io.Reader. At the end of the answer it cancels the context.
func (b *bodyWithCancel) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.cancel()
	}
	return n, err
}

// notAnswered is the error of a request without an answer. If sent is true, the server may have carried out the
// request.
type notAnswered struct {
	sent bool
	err  error
}

func (n *notAnswered) Error() string { return n.err.Error() }
func (n *notAnswered) Unwrap() error { return n.err }

// Unanswered returns the error of an attempt that got no answer from address. If Explain knows the reason, the result
// is its *model.Error. Any other result records whether the request may have been carried out, or was surely not sent.
func Unanswered(address string, err error) error {
	err = Explain(address, err)
	if _, known := errors.AsType[*model.Error](err); known {
		return err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return &notAnswered{err: err}
	}
	return &notAnswered{sent: true, err: err}
}

func lostAnswer(r Request, err error) error {
	return &notAnswered{sent: r.Method != http.MethodGet, err: err}
}

// mayHaveHappened reports whether a server may have carried out a request that failed with err.
func mayHaveHappened(err error) bool {
	n, lost := errors.AsType[*notAnswered](err)
	return lost && n.sent || errors.Is(err, &model.Error{Code: model.CodeUnknownOutcome})
}

// goOn reports whether the request should be sent to another server after err. If sent is true, a server may have
// carried out the request.
func goOn(r *Request, err error, sent bool) bool {
	if r.Once && sent {
		return false
	}
	e, answered := errors.AsType[*model.Error](err)
	if !answered {
		return true
	}
	switch e.Code {
	case model.CodeNoLeader, model.CodeNotCaughtUp, model.CodeStaleTerm, model.CodeShutdownTimeout, model.CodeNotTLS,
		model.CodeCertificateRefused, model.CodeMemberRevoked, model.CodeUnknownOutcome, model.CodeBusy,
		model.CodeAuditUnavailable:
		return true
	case model.CodeConflict:
		return r.Lineage
	}
	return false
}

// failures collects the errors of all servers in one round.
type failures struct {
	texts []string
	best  error // the last error that is not a notAnswered, or nil
}

func (f *failures) add(address string, err error) {
	if _, lost := errors.AsType[*notAnswered](err); !lost {
		f.best = err
	}
	f.texts = append(f.texts, address+": "+shortReason(err))
}

func (f *failures) error() error {
	if f.best != nil {
		return f.best
	}
	return model.Refuse(model.CodeUnreachable, "no server could be reached: %s", strings.Join(f.texts, "; ")).
		WithHint("check that a server runs and that OUTSPAN_ADDR (or --address) names it")
}

// shortReason returns the reason of err without the address, since failures.add writes the address before the reason.
func shortReason(err error) string {
	var op *net.OpError
	var address *url.Error
	switch {
	case errors.As(err, &op) && op.Err != nil:
		return op.Err.Error()
	case errors.As(err, &address):
		return address.Err.Error()
	}
	return model.Reason(err)
}
