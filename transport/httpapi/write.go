package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// WriteParams are the parameters of every write.
type WriteParams struct {
	RequestID string `json:"-" query:"request_id" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._:-]*$" doc:"makes the write idempotent: the same id with the same request gives the stored outcome, with another request a conflict; may also be a field of the body"`
	DryRun    bool   `json:"-" query:"dry_run" doc:"check and show the outcome, change nothing"`
}

func (p *WriteParams) write() *WriteParams { return p }

// body returns the value to decode the JSON body into, or nil for a write without a body. An input with a body
// overrides this method.
func (p *WriteParams) body() any { return nil }

// writeInput is implemented by every input that embeds WriteParams.
type writeInput[I any] interface {
	*I
	write() *WriteParams
	body() any
}

// outcome is the result of a write, and the state after the write.
type outcome struct {
	*reading
	api.Written
	// commands are the proposed commands, or nil if an earlier request with the same id was carried out instead.
	commands []fsm.Command
}

// change contains the functions of one write. The function prepare turns the input into commands that succeed or fail
// together, and answer makes the answer. For a repeated request, only answer is called, with no commands and perhaps
// with a later state. Then answer must find what it shows by the index of the entry.
type change[I, T any] struct {
	prepare func(*reading, *I) ([]fsm.Command, error)
	// consult completes the commands by what agents tell, and reports whether it asked any. It runs after the caller was
	// judged, once for a request, and never for a repeated one. It may be nil.
	consult func(context.Context, *reading, *I, []fsm.Command) (asked bool, err error)
	answer  func(*outcome, *I) (T, error)
	// prove returns who the write is by, if the input proves it; see route.open. It may be nil.
	prove func(context.Context, *I) (caller, error)
	// refused adds details from the state to a refusal. It may be nil.
	refused func(*reading, *I, *api.Problem)
}

func write[I any, P writeInput[I], T any](s *Server, rt route, c change[I, T]) operation {
	rt.run, rt.write = runLeader, true
	if rt.method == "" {
		rt.method = http.MethodPost
	}
	if rt.allow == 0 {
		rt.allow = forCLI
	}
	handle := func(ctx context.Context, in *I) (*body[T], error) {
		p := P(in)
		if err := decodeBody(ctx, p.body()); err != nil {
			return nil, asAnswer(err)
		}
		by := callerFrom(ctx)
		if c.prove != nil {
			var err error
			if by, err = c.prove(ctx, in); err != nil {
				return nil, asAnswer(err)
			}
			noteFrom(ctx).Proved = by.String()
		}
		w := writing{s: s, route: rt, params: *p.write(), by: by, input: in, note: noteFrom(ctx)}
		if c.consult != nil {
			w.consult = func(ctx context.Context, r *reading, commands []fsm.Command) (bool, error) {
				return c.consult(ctx, r, in, commands)
			}
		}
		o, err := w.run(ctx, func(r *reading) ([]fsm.Command, error) { return c.prepare(r, in) })
		if err != nil {
			problem := *api.NewProblem(err)
			if c.refused != nil {
				c.refused(s.reading(), in, &problem)
			}
			return nil, asAnswer(&problem)
		}
		out, err := c.answer(o, in)
		if err != nil {
			return nil, asAnswer(err)
		}
		return &body[T]{Index: decimal(o.Written.Index), Body: out}, nil
	}
	shape := reflect.TypeOf(P(new(I)).body())
	return operation{route: rt, register: func(a huma.API) {
		op := rt.huma()
		if shape != nil {
			op.RequestBody = bodyDocument(a, shape.Elem())
		}
		huma.Register(a, op, handle)
	}}
}

// none is the type of the body for a write that takes no input. The body may be empty or an empty object.
type none struct{}

func decodeBody(ctx context.Context, into any) error {
	raw := bodyFrom(ctx)
	if len(raw) == 0 {
		return nil
	}
	if into == nil {
		into = &none{}
	}
	return decodeStrict(raw, into)
}

// writing is one write that is being carried out.
type writing struct {
	s      *Server
	route  route
	params WriteParams
	by     caller
	input  any
	note   *auditNote

	consult func(context.Context, *reading, []fsm.Command) (asked bool, err error) // see change; may be nil
}

// run returns the stored outcome of an earlier request with the same id. If there is no such request, it prepares the
// commands and commits them. For a dry run, it tries the commands instead, and commits nothing.
func (w *writing) run(ctx context.Context, prepare func(*reading) ([]fsm.Command, error)) (*outcome, error) {
	if err := workFrom(ctx).begin(ctx); err != nil {
		return nil, err
	}
	before := w.s.reading()
	before.by = w.by
	w.s.judge.lookAs(before, w.route, w.by)
	stored, err := w.stored(before)
	if err != nil {
		return nil, err
	}
	if stored != nil {
		return w.again(stored, prepare)
	}
	commands, err := prepare(before)
	if err == nil {
		for _, one := range commands {
			w.note.about(commandObjects(&before.State, one)...)
			w.note.about(people(&before.State, one)...)
		}
		err = w.s.judge.mayWrite(before, w.route, w.by, commands)
	}
	if err == nil && w.consult != nil {
		before, err = w.consulted(ctx, before, commands)
	}
	if err != nil {
		return nil, err
	}
	w.s.judge.pin(before, w.route, w.by, commands)
	if w.params.DryRun {
		return w.try(before, commands)
	}
	workFrom(ctx).end()
	return w.commit(ctx, before, commands)
}

// consulted calls consult. If that waited for agents, consulted judges the caller again and returns a reading of the
// state that the servers have by then.
func (w *writing) consulted(ctx context.Context, before *reading, commands []fsm.Command) (*reading, error) {
	asked, err := w.consult(ctx, before, commands)
	if err != nil || !asked {
		return before, err
	}
	if err := workFrom(ctx).begin(ctx); err != nil {
		return nil, err
	}
	now := w.s.reading()
	now.by = w.by
	w.s.judge.lookAs(now, w.route, w.by)
	return now, w.s.judge.mayWrite(now, w.route, w.by, commands)
}

// stored returns the stored outcome of an earlier request with the same id. If that request was refused, it returns the
// refusal as an error. It returns nil if there was no such request, and for a dry run. Codes: request_id_conflict, and
// that of the stored refusal.
func (w *writing) stored(r *reading) (*outcome, error) {
	old, ok := r.Requests.Get(model.RequestID(w.params.RequestID))
	if !ok || w.params.RequestID == "" || w.params.DryRun {
		return nil, nil
	}
	if refusal := old.Conflict(w.by.Actor(), w.hash(&r.State, old.Body)); refusal != nil {
		return nil, refusal
	}
	w.note.entry(old.Index, true)
	if refusal := old.FirstRefusal(); refusal != nil {
		return nil, refusedAt(refusal, old.Index)
	}
	return w.outcome(r, nil, old.Index, true), nil
}

// again returns the outcome of a repeated request, unless the caller has lost the right to do what the request does.
// To judge that, it prepares the commands again. They may differ from the first ones, because the state has changed
// since, or can't be prepared any more. Then the caller gets an answer with what it may see. Code: forbidden.
func (w *writing) again(stored *outcome, prepare func(*reading) ([]fsm.Command, error)) (*outcome, error) {
	verb, _ := verbs[w.route.id].Info()
	if verb.Scope == 0 { // guard has judged the caller already; and prepare may do more than make commands
		return stored, nil
	}
	w.s.judge.lookAs(stored.reading, w.route, w.by)
	stored.by = w.by
	commands, err := prepare(stored.reading)
	if err != nil {
		return stored, nil
	}
	if err := w.s.judge.mayWrite(stored.reading, w.route, w.by, commands); err != nil {
		return nil, err
	}
	return stored, nil
}

// hash returns a hash of the operation and its input. A request with a known id is a repetition only if its hash is the
// same. The argument like is the stored hash that the result is compared with, or "" for a new request. In a cluster
// with a keyring the hash is that of Config.HashBody, unless like is from before. The hash does not cover the server
// that received the request, so that a caller may repeat the request through another server.
func (w *writing) hash(state *fsm.State, like string) string {
	input, err := json.Marshal(w.input)
	if err != nil {
		input = []byte(err.Error()) // can't happen: the input was decoded from JSON
	}
	body := append([]byte(w.route.id+"\x00"), input...)
	plain := like != "" && !strings.Contains(like, ".")
	if keyed := w.s.cfg.HashBody; keyed != nil && state.Managed() && !plain {
		return keyed(state, like, body)
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:16])
}

// try runs the commands on a fork and commits nothing.
func (w *writing) try(before *reading, commands []fsm.Command) (*outcome, error) {
	draft := before.NewDraft(before.now)
	if refusal := draft.Try(commands...); refusal != nil {
		return nil, refusedAt(refusal, before.Index)
	}
	o := w.outcome(w.s.readingOf(*draft.State()), commands, before.Index, false)
	o.DryRun = true
	return o, nil
}

func (w *writing) commit(ctx context.Context, before *reading, commands []fsm.Command) (*outcome, error) {
	entry := fsm.Entry{
		Format: before.Format, At: before.now, Wall: time.Now().UnixMilli(), Actor: w.by.Actor(),
		Groups: [][]fsm.Command{commands},
	}
	// The entry is refused if the rights change before it is applied. Before any rights are set (RightsIndex 0), everybody
	// with a certificate is an administrator, so that is needed only for a token, which may be revoked meanwhile.
	if _, judged := w.by.person(&before.State); judged && (before.RightsIndex > 0 || w.by.token != "") {
		entry.Rights = before.RightsIndex + 1
	}
	if w.params.RequestID != "" {
		if refusal := before.RequestsBeyondShare(entry.Actor); refusal != nil {
			w.s.cfg.Refused(refusal)
			w.s.cfg.Beyond(ShareRows)
			return nil, refusal
		}
		entry.Request, entry.Body = model.RequestID(w.params.RequestID), w.hash(&before.State, "")
	}
	result, err := w.s.propose(ctx, entry)
	if err != nil {
		return nil, err
	}
	w.note.entry(result.Index, result.Replay)
	index := result.Index
	if result.Replay { // an equal request was committed after the call of stored: use the index of that one
		r := w.s.reading()
		if old, ok := r.Requests.Get(entry.Request); ok {
			index = old.Index
		}
		commands = nil
	}
	if result.Refusal != nil {
		// Since the call of stored, an equal request may have been committed whose hash is by another key.
		if result.Refusal.Code == model.CodeRequestConflict {
			if stored, err := w.stored(w.s.reading()); stored != nil || err != nil {
				return stored, err
			}
		}
		if result.Refusal.Code == model.CodeBusy {
			w.s.cfg.Refused(result.Refusal)
		}
		return nil, refusedAt(result.Refusal, index)
	}
	return w.outcome(w.s.reading(), commands, index, result.Replay), nil
}

func (w *writing) outcome(r *reading, commands []fsm.Command, index uint64, replayed bool) *outcome {
	r.by, r.veil, r.drains = w.by, w.s.judge.veil(&r.State, w.by, verbs[w.route.id]), w.s.judge.drains(r, w.by)
	return &outcome{reading: r, commands: commands,
		Written: api.Written{Index: index, RequestID: w.params.RequestID, Replayed: replayed}}
}

// propose commits an entry of one group and returns the group's outcome. Codes: those of proposeAll.
func (s *Server) propose(ctx context.Context, entry fsm.Entry) (fsm.Result, error) {
	results, err := s.proposeAll(ctx, entry)
	if err != nil {
		return fsm.Result{}, err
	}
	return results[0], nil
}

// proposeAll commits an entry with at least one group, and returns the outcome of each group. Codes: unknown (the entry
// may have been committed), and those of Consensus.Propose.
func (s *Server) proposeAll(ctx context.Context, entry fsm.Entry) ([]fsm.Result, error) {
	results, err := s.cfg.Consensus.Propose(ctx, entry)
	var known *model.Error
	switch {
	case err == nil && len(results) == len(entry.Groups) && len(results) > 0:
		return results, nil
	case errors.As(err, &known):
		return nil, known
	}
	s.log.Warn("outcome of an entry is unknown", "actor", entry.Actor, "request_id", entry.Request, "error", err)
	return nil, unknownOutcome()
}

func unknownOutcome() *model.Error {
	return model.Refuse(model.CodeUnknownOutcome, "it is not known whether the request was carried out").
		WithHint("send it again with the same request_id: it is carried out at most once")
}
