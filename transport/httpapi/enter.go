package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/duplex"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport"
)

const (
	greetTime   = 10 * time.Second // for the first message of a caller
	agentStarts = 30 * time.Second // for the agent's answer, which comes once a command runs
	enterLife   = 24 * time.Hour   // after which a stream ends
)

func (s *Server) enterOperations() []operation {
	doc := document{body: api.ContentTypeDuplex, answer: api.ContentTypeDuplex}
	exec := route{id: "exec-instance", method: http.MethodPost, path: "/v1/instances/{id}/exec", tag: "instances",
		summary: "Run a command in an instance, with its input and output as lanes of the stream",
		allow:   forCLI, stream: true}
	forward := route{id: "forward-instance", method: http.MethodPost, path: "/v1/instances/{id}/forward", tag: "instances",
		summary: "Pass connections to a port of an instance, each as a lane of the stream",
		allow:   forCLI, stream: true}
	return []operation{
		plain(exec, doc, s.enter(exec, transport.PathAgentExec, checkExec)),
		plain(forward, doc, s.enter(forward, transport.PathAgentForward, checkForward)),
	}
}

// greets lists the streams whose handlers call beginAudit themselves, once the first message says what is wanted.
var greets = map[string]bool{"exec-instance": true, "forward-instance": true}

// beginAtOnce is beginAudit for all operations but those that greet.
func (s *Server) beginAtOnce(rt route, r *http.Request) error {
	if greets[rt.id] {
		return nil
	}
	return s.beginAudit(rt, r)
}

// checkExec checks the first message of exec. The audit log gets the name of the program and how many arguments it has,
// because arguments may be secrets. Code: invalid.
func checkExec(first []byte, n *auditNote) error {
	var start api.ExecStart
	if err := decodeFirst(first, &start); err != nil {
		return err
	}
	if len(start.Command) > 0 {
		n.program, n.arguments = path.Base(start.Command[0]), len(start.Command)-1
	}
	return start.Check()
}

// checkForward checks the first message of forward. Code: invalid.
func checkForward(first []byte, n *auditNote) error {
	var start api.ForwardStart
	if err := decodeFirst(first, &start); err != nil {
		return err
	}
	n.port = start.Port
	return start.Check()
}

func decodeFirst(first []byte, into any) error {
	if json.Unmarshal(first, into) != nil {
		return model.Refuse(model.CodeInvalid, "the first message of the stream is not what the operation takes")
	}
	return nil
}

// enter returns the handler of a stream about an instance, which any server passes on to the instance's agent. It reads
// the first message, which says what is wanted, before it looks for the instance. Then it copies in both directions
// until the agent or the caller ends the stream, the caller loses the right, or this server stops.
func (s *Server) enter(rt route, agentPath string, check func(first []byte, n *auditNote) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := ownStream(r)
		if err == nil {
			err = checkQuery(r)
		}
		if err != nil {
			writeError(w, err)
			return
		}
		life, release, err := s.streams.take(r.Context(), callerFrom(r.Context()).Subject)
		if err != nil {
			writeError(w, err)
			return
		}
		defer release()
		r = r.WithContext(life)
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex() // HTTP/2 always is
		first, err := readFirst(control, r.Body)
		if err == nil {
			err = check(first.Body, noteFrom(r.Context()))
		}
		if err != nil {
			writeError(w, err)
			return
		}
		s.passOn(rt, w, r, agentPath, first)
	})
}

// ownStream refuses a stream that a page of another site may have made the user's browser send. Codes: forbidden,
// unsupported_media_type.
func ownStream(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return model.Refuse(model.CodeForbidden, "the request comes from another site")
	}
	if r.Header.Get("Content-Type") != api.ContentTypeDuplex {
		return model.Refuse(model.CodeMediaType, "the body must be %s", api.ContentTypeDuplex).
			WithHint("use the command line or package client, which speak that protocol")
	}
	return nil
}

func readFirst(control *http.ResponseController, body io.Reader) (duplex.Frame, error) {
	_ = control.SetReadDeadline(deadline(greetTime)) // if this fails, only the life of the stream is bounded
	f, err := duplex.ReadFrame(body)
	_ = control.SetReadDeadline(time.Time{})
	if err == nil && f.Kind != duplex.KindMessage {
		err = duplex.ErrFrame
	}
	if err != nil {
		return f, model.Refuse(model.CodeInvalid, "the stream does not begin with a message: %v", err)
	}
	return f, nil
}

// passOn finds the instance, and passes the stream on to its agent.
func (s *Server) passOn(rt route, w http.ResponseWriter, r *http.Request, agentPath string, first duplex.Frame) {
	ctx, cancel := streamContext(r.Context(), enterLife)
	defer cancel()
	state, _ := s.cfg.Store.Watch()
	i, refusal := state.Finder(s.judge.sight(&state, callerFrom(ctx), verbs[rt.id])).NamedInstance(r.PathValue("id"))
	if refusal != nil {
		writeError(w, refusal)
		return
	}
	job, _ := i.Group.Split()
	c := callerFrom(ctx)
	may := func(state *fsm.State) error { return s.judge.mayEnter(state, c, rt, i) }
	noteFrom(ctx).about(instanceObject(&state, i))
	err := may(&state)
	if err == nil {
		var leave func()
		ctx, leave = s.judge.whileAllowed(ctx, c, may, "job/"+fsm.Topic(job))
		defer leave()
		err = s.beginAudit(rt, r)
	}
	var resp *http.Response
	if err == nil {
		resp, err = s.callAgent(ctx, &state, i, agentPath, io.MultiReader(newFrameReader(first), r.Body))
	}
	if err != nil {
		writeError(w, err)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", api.ContentTypeDuplex)
	w.WriteHeader(http.StatusOK)
	out := &boundedWriter{ResponseWriter: w, flush: http.NewResponseController(w)}
	_ = out.flush.Flush() // the caller waits for the header; an error is found by the first write
	if copyFrames(out, resp.Body) == nil {
		return
	}
	last, err := duplex.Message(api.ExecEnd{Error: api.NewProblem(s.whyCut(ctx, may))})
	if err == nil {
		_ = out.writeFrame(last) // an error means that the caller is gone
	}
}

// mayEnter refuses a caller that may not call the operation on an instance, and one that may not run commands as the
// user of its program. Codes: forbidden, unauthenticated.
func (j *judge) mayEnter(state *fsm.State, c caller, rt route, i *fsm.Instance) error {
	on := instanceObject(state, i) // also of an instance whose row is gone meanwhile
	if err := j.mayDo(state, c, verbs[rt.id], on); err != nil {
		return err
	}
	who, ok := c.person(state)
	on.Asks = enteredUsers(state, i)
	if !ok || verbs[rt.id] != "instance.exec" || len(on.Asks) == 0 {
		return nil
	}
	if _, may := j.books.permissions(state, who).May(verbs[rt.id], on); !may {
		user := clip(on.Asks[len(on.Asks)-1].Name)
		return model.Refuse(model.CodeForbidden, "%s may not run commands as the user %q of %s", c.Subject, user, on.Name).
			WithHint("ask an administrator for a role with instance.exec and users = [%q]", user)
	}
	return nil
}

// enteredUsers returns the users that a command in an instance may be, as its job asked for them; see rights.Asks. If
// the program is not known any more, it returns "*", which only a grant for all users allows.
func enteredUsers(state *fsm.State, i *fsm.Instance) []rights.Ask {
	job, group := i.Group.Split()
	if v, ok := state.JobVersion(job, i.Version); ok {
		for g := range v.Spec.Groups {
			if v.Spec.Groups[g].Name == group {
				return slices.DeleteFunc(rights.Asks(&v.Spec.Groups[g]), func(a rights.Ask) bool { return a.List != "users" })
			}
		}
	}
	return []rights.Ask{{List: "users", Name: "*"}}
}

// whyCut returns why a stream ended before the agent ended it.
func (s *Server) whyCut(ctx context.Context, may func(*fsm.State) error) error {
	if err := may(s.cfg.Store.Current()); err != nil {
		return err
	}
	cause, known := errors.AsType[*model.Error](context.Cause(ctx))
	switch {
	case known:
		return cause
	case stops(ctx):
		return model.Refuse(model.CodeUnreachable, "the server that passes it on stops").WithHint("run the command again")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return model.Refuse(model.CodeTimeout, "it has run for %s", enterLife).WithHint("run the command again")
	}
	return model.Refuse(model.CodeAgentUnreachable, "the connection to the agent broke off; what ran was killed").
		WithHint("run the command again")
}

// callAgent begins a stream to the agent of an instance. The caller must close the response's body. Codes: not_found,
// agent_unreachable, and those of the agent.
func (s *Server) callAgent(ctx context.Context, state *fsm.State, i *fsm.Instance, agentPath string,
	body io.Reader) (*http.Response, error) {
	n, ok := state.Nodes.Get(i.Node)
	if !ok {
		return nil, nodeGone(i)
	}
	silent := model.Refuse(model.CodeAgentUnreachable, "the agent of node %s does not answer", n.Name).
		WithHint("see: outspan node status %s", n.Name)
	if n.Agent.APIAddress == "" || s.cfg.AgentTransport == nil {
		return nil, silent
	}
	target := url.URL{Scheme: "https", Host: n.Agent.APIAddress, Path: agentPath + string(i.ID)}
	limited, cancel := context.WithCancel(reach.ExpectPeer(ctx, n.Name))
	late := time.AfterFunc(agentStarts, cancel)
	// net/http notices the end of a context only between two reads of the body. So the body ends with the context.
	sent, in := io.Pipe()
	context.AfterFunc(limited, func() { _ = sent.Close() })
	go func() { // it ends with the handler of the caller's request, which closes body
		_, err := io.Copy(in, body)
		_ = in.CloseWithError(err)
	}()
	req, err := http.NewRequestWithContext(limited, http.MethodPost, target.String(), sent)
	if err != nil {
		cancel()
		return nil, silent
	}
	req.Header.Set("Content-Type", api.ContentTypeDuplex)
	req.Header.Set(transport.HeaderOnBehalf, callerFrom(ctx).forwardedFor())
	resp, err := s.cfg.AgentTransport.RoundTrip(req)
	late.Stop()
	if err != nil {
		cancel()
		s.log.Warn("can't reach an agent", "node", n.Name, "address", n.Agent.APIAddress, "error", err)
		return nil, silent
	}
	resp.Body = &canceledBody{resp.Body, cancel}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, api.ProblemOf(resp)
	}
	return resp, nil
}

// canceledBody ends the request when the body of its answer is closed.
type canceledBody struct {
	io.ReadCloser
	cancel func()
}

// Close implements io.Closer. It cancels first: to close the answer waits for the request, whose body may wait for
// bytes.
func (b *canceledBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}
