package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// AnswerAgent answers a call of an authenticated agent. The context ends when the call's time limit has passed, when
// the connection ends, or when the agent no longer waits. Stopping may be called with this context. An error reaches
// the agent as an *api.Problem.
type AnswerAgent func(
	ctx context.Context, who model.Subject, call AgentCall, question []byte,
) (answer []byte, err error)

// Bounds of an agent's connection.
const (
	agentCallsOpen  = 32                 // calls at once on one connection; an agent needs four
	agentCallsInAll = 8 * agentCallsOpen // calls at once of one agent, through all its connections to a server
	agentCallTime   = 90 * time.Second   // for one call, as for a read over HTTP
	agentSilence    = 25 * time.Second   // a connection without a frame for this time ends; a waiting agent sends pings
)

// agentConn is the server's end of an agent's connection. It costs one goroutine, plus one for each open call.
// Thousands of agents have two long polls open each, and these dominate a server's memory.
type agentConn struct {
	frameConn
	who    model.Subject
	answer AnswerAgent
	open   sync.WaitGroup

	mu    sync.Mutex
	calls map[uint32]context.CancelFunc
}

// serveAgent is a function for http.Server.TLSNextProto. It returns when the connection has ended and its calls have
// returned. If the server stops first, it returns when all calls are answered. Until it returns, the http.Server counts
// the connection as active.
func (s *HTTPServer) serveAgent(_ *http.Server, conn *tls.Conn, h http.Handler) {
	of, ok := h.(interface{ BaseContext() context.Context })
	if !ok {
		return // can't happen: net/http passes a handler with BaseContext
	}
	ctx, cancel := context.WithCancel(context.WithValue(of.BaseContext(), remoteKey{}, conn.RemoteAddr()))
	c := &agentConn{answer: s.agents, calls: map[uint32]context.CancelFunc{},
		frameConn: newFrameConn(conn, DefaultMaxBody)}
	c.who, _ = SubjectFrom(ctx)
	c.take = func(n int64) error { return s.bodies.Take(c.who, n) }
	c.give = func(n int64) { s.bodies.Give(c.who, n) }
	wake := context.AfterFunc(s.ending, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	err := c.serve(ctx, s)
	wake()
	if s.ending.Err() == nil { // a server that stops still answers open calls
		cancel()
		s.log.Debug("an agent's connection ended", "agent", c.who.Name, "remote", conn.RemoteAddr(), "error", err)
	}
	c.open.Wait()
	cancel()
}

// serve reads frames and starts calls until the connection fails or the server stops, and returns the reason.
func (c *agentConn) serve(ctx context.Context, s *HTTPServer) error {
	for {
		if err := c.SetReadDeadline(time.Now().Add(agentSilence)); err != nil {
			return err
		}
		if err := s.ending.Err(); err != nil {
			return err
		}
		f, err := c.read()
		if refused, ok := errors.AsType[*frameRefused](err); ok {
			s.refused(refused.why)
			c.refuse(refused.call, refused.why)
			continue
		}
		if err != nil {
			return err
		}
		switch {
		case f.kind == frameCancel:
			c.cancel(f.call)
		case f.kind == framePing:
			c.tryWrite(frame{kind: framePong}, frameWriteTime) // if another frame is being sent, that serves as the pong
		case f.kind < frameAnswer:
			if err = c.begin(ctx, s, f); err == nil {
				continue
			}
		default:
			err = errUnknownFrame
		}
		c.give(int64(len(f.body)))
		if refusal, ok := errors.AsType[*model.Error](err); ok {
			s.refused(refusal)
			c.refuse(f.call, refusal)
		} else if err != nil {
			return err
		}
	}
}

var (
	errUnknownFrame = errors.New("a frame of unknown kind")
	errCallTwice    = errors.New("two open calls of one number")
)

// begin starts a call. The room of the call's body is freed when the call is answered. Errors: busy, errCallTwice.
func (c *agentConn) begin(ctx context.Context, s *HTTPServer, f frame) error {
	if err := s.agentCalls.add(c.who); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, agentCallTime)
	if err := c.enter(f.call, cancel); err != nil {
		cancel()
		s.agentCalls.done(c.who)
		return err
	}
	s.running.add(1)
	c.open.Go(func() {
		defer s.running.add(-1)
		defer s.agentCalls.done(c.who)
		defer c.give(int64(len(f.body)))
		c.run(ctx, f)
	})
	return nil
}

// openCalls counts the calls of each agent through all its connections to one server.
type openCalls struct {
	mu sync.Mutex
	of map[model.Subject]int
}

// add counts one more call until done is called. Code: busy.
func (o *openCalls) add(who model.Subject) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[who] >= agentCallsInAll {
		return model.Refuse(model.CodeBusy, "%s has %d calls open on this server, which is its share", who, o.of[who]).
			WithHint("see whether several machines use its certificate")
	}
	o.of[who]++
	return nil
}

func (o *openCalls) done(who model.Subject) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[who]--; o.of[who] == 0 {
		delete(o.of, who)
	}
}

// enter adds a call to the open ones. Errors: busy, errCallTwice.
func (c *agentConn) enter(call uint32, cancel context.CancelFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[call] != nil {
		return errCallTwice
	}
	if len(c.calls) >= agentCallsOpen {
		return model.Refuse(model.CodeBusy, "%s has %d calls open on one connection", c.who, agentCallsOpen)
	}
	c.calls[call] = cancel
	return nil
}

// run answers a call. It sends no answer if the agent no longer waits for one.
func (c *agentConn) run(ctx context.Context, f frame) {
	body, err := c.answer(ctx, c.who, AgentCall(f.kind), f.body)
	gone := ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded)
	c.cancel(f.call)
	switch {
	case gone:
	case err != nil:
		c.refuse(f.call, err)
	default:
		if c.write(frame{f.call, frameAnswer, body}) != nil {
			_ = c.Close() // then serve fails, and all other calls are canceled
		}
	}
}

// cancel cancels the context of a call, and frees the call's number.
func (c *agentConn) cancel(call uint32) {
	c.mu.Lock()
	cancel := c.calls[call]
	delete(c.calls, call)
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func (c *agentConn) refuse(call uint32, refusal error) {
	body, err := EncodeCBOR(api.NewProblem(refusal))
	if err == nil {
		err = c.write(frame{call, frameProblem, body})
	}
	if err != nil {
		_ = c.Close() // then serve fails, as in run
	}
}
