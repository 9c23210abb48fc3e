package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// consistency is how fresh a read must be.
type consistency string

const (
	readDefault    consistency = "default"
	readConsistent consistency = "consistent"
	readStale      consistency = "stale"
)

// ReadParams are the parameters of every read.
type ReadParams struct {
	Consistency string `query:"consistency" enum:"default,consistent,stale" doc:"default: the leader with its lease in force; consistent: everything acknowledged before the request; stale: any server, with Outspan-Stale-Ms"`
	Index       uint64 `query:"index" doc:"the Outspan-Index of an earlier answer: answer when the object changed after it"`
	Wait        string `query:"wait" doc:"with index: how long to wait for a change, at most 60s; default 60s" example:"30s"`
}

func (p *ReadParams) read() *ReadParams { return p }

// readInput is implemented by every input that embeds ReadParams.
type readInput[I any] interface {
	*I
	read() *ReadParams
}

// wait returns how long a blocking read may wait for a change. Code: invalid.
func (p *ReadParams) wait() (time.Duration, error) {
	return parseWait(p.Wait)
}

func parseWait(text string) (time.Duration, error) {
	if text == "" {
		return maxWait, nil
	}
	d, err := model.ParseDuration(text)
	if err != nil {
		return 0, model.Refuse(model.CodeInvalid, "wait is not a duration").
			WithHint("write a number with a unit, such as 30s")
	}
	if d > model.Duration(maxWait.Milliseconds()) {
		return 0, model.Refuse(model.CodeInvalid, "wait is at most 60s").WithHint("ask again with the index of the answer")
	}
	return time.Duration(d) * time.Millisecond, nil
}

// reading is a state to answer a read from, and everything else that the answer needs.
type reading struct {
	fsm.State
	fsm.Finder            // of everything, or of what the caller may see; see judge.lookAs
	now        model.Time // cluster time, which also advances between entries
	logged     model.Time // time of the newest entry
	wall       time.Time
	seen       Liveness
	explain    Explainer
	planner    Planner
	live       map[model.NodeID]fsm.Liveness // nil until question is called
	waits      *Waiting                      // nil until waiting is called
	shared     *sharedWaiting                // shared by readings of the published state; nil for any other state
	by         caller                        // the caller of a write; zero for a read
	reads      func(subject string) bool     // whether the caller may read an object; nil until judge.lookAs is called
	drains     func(roll *model.Roll) bool   // whether the caller may drain its nodes; nil until judge.lookAs is called
	veil       *veil                         // of the caller; nil until judge.lookAs is called
	issues     bool                          // machines join by token although the cluster makes no certificates itself

	// undecided is true after a write that changed a job, because the leader has not placed its instances yet. The answer
	// to the write then does not say why instances wait. To find out, the server would compute the placement once more.
	undecided bool
}

// reading returns a reading of the published state.
func (s *Server) reading() *reading {
	state, _ := s.cfg.Store.Watch()
	r := s.readingOf(state)
	r.shared = s.waiting
	return r
}

func (s *Server) readingOf(state fsm.State) *reading {
	r := &reading{State: state, logged: state.Now, now: max(state.Now, s.cfg.Consensus.Now()), wall: s.clock.time(),
		issues: s.cfg.JoinRoot != nil,
		seen:   s.cfg.Liveness, explain: s.cfg.Explainer, planner: s.cfg.Planner}
	r.State.Now = r.now // deadlines are compared with the current cluster time
	r.Finder = r.State.Finder(nil)
	return r
}

// question returns what the Explainer and the Planner need to explain this reading. The first call collects the
// liveness of every node.
func (r *reading) question() Question {
	if r.live == nil {
		r.live = r.seen.Live()
	}
	return Question{State: r.State, Live: r.live, Now: r.now}
}

// waiting returns why instances and drains wait. Call it only when something waits, because it computes a whole
// decision. It does so once per reading, and readings of the published state share the result.
func (r *reading) waiting() *Waiting {
	if r.waits == nil {
		var w Waiting
		if r.shared != nil {
			w = r.shared.of(r)
		} else {
			w = r.explain.Waiting(r.question())
		}
		r.waits = &w
	}
	return r.waits
}

// nodeName returns a node's name, or its id if the node is gone.
func (r *reading) nodeName(id model.NodeID) string {
	if n, ok := r.Nodes.Get(id); ok {
		return n.Name
	}
	return string(id)
}

// body is the answer of every JSON operation: the JSON, and the index of the state that it shows.
type body[T any] struct {
	Index string `header:"Outspan-Index" doc:"the log index that the answer is of"`
	Body  T
}

// read makes the operation of a read. A blocking read waits for a change of the topics that topics returns. The
// function show makes the answer.
func read[I any, P readInput[I], T any](s *Server, rt route, topics func(*reading, *I) []fsm.Topic,
	show func(context.Context, *reading, *I) (T, error)) operation {
	rt.method, rt.run = http.MethodGet, runRead
	if rt.allow == 0 {
		rt.allow = forCLI | forServer
	}
	handle := func(ctx context.Context, in *I) (*body[T], error) {
		p := P(in).read()
		var watched []fsm.Topic
		if p.Index > 0 { // only on topics that the caller may see, so that the end of the wait reveals nothing else
			watched = topics(s.judge.lookAs(s.reading(), rt, callerFrom(ctx)), in)
		}
		r, err := s.readingFor(ctx, p, watched)
		if err != nil {
			return nil, asAnswer(err)
		}
		s.judge.lookAs(r, rt, callerFrom(ctx))
		out, err := show(ctx, r, in)
		if err == nil {
			err = s.judge.mayRead(ctx, r, rt, out)
		}
		if err == nil && reveals[rt.id] {
			noteFrom(ctx).about(answerObjects(&r.State, out)...)
		}
		if err != nil {
			return nil, asAnswer(err)
		}
		return &body[T]{Index: decimal(r.Index), Body: out}, nil
	}
	return operation{route: rt, register: func(a huma.API) { huma.Register(a, rt.huma(), handle) }}
}

// readingFor returns a reading of the published state, after it has waited as the parameters of the read say. Codes:
// invalid, not_caught_up, busy, and those of ReadBarrier.
func (s *Server) readingFor(ctx context.Context, p *ReadParams, topics []fsm.Topic) (*reading, error) {
	limit, err := p.wait()
	if err != nil {
		return nil, err
	}
	if consistency(p.Consistency) == readConsistent {
		if err := s.cfg.Consensus.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if p.Index > 0 {
		release, err := s.blocking.take(callerFrom(ctx).Subject)
		if err != nil {
			return nil, err
		}
		defer release()
		s.watches.until(ctx, nil, p.Index, limit, topics...)
		if now := s.cfg.Store.Current().Index; now < p.Index && stops(ctx) {
			return nil, model.Refuse(model.CodeNotCaughtUp, "this server is at index %d and stops before it has reached %d", now,
				p.Index).WithHint("ask another server")
		}
	}
	if err := workFrom(ctx).begin(ctx); err != nil {
		return nil, err
	}
	return s.reading(), nil
}

// huma returns the route as huma's operation, without the types of input and answer.
func (r route) huma() huma.Operation {
	return huma.Operation{
		OperationID: r.id, Method: r.method, Path: r.path, Summary: r.summary, Tags: []string{r.tag},
		SkipValidateBody: true, Responses: map[string]*huma.Response{"default": problemResponse()},
		Extensions: r.verbDocument(),
	}
}

// AskParams are the parameters of a read that has a body and is therefore sent with POST.
type AskParams struct {
	Consistency string `json:"-" query:"consistency" enum:"default,consistent,stale"`
	RequestID   string `json:"-" query:"request_id" maxLength:"64" doc:"taken and not needed: nothing is changed"`
}

func (p *AskParams) ask() *AskParams { return p }

// askInput is implemented by every input that embeds AskParams.
type askInput[I any] interface {
	*I
	ask() *AskParams
	body() any
}

// ask makes the operation that says what a command would do. Whether the caller may ask is judged as for the command,
// before show does any work.
func ask[I any, P askInput[I], T any](s *Server, rt route, about func(*I) fsm.Command,
	show func(context.Context, *reading, *I) (T, error)) operation {
	rt.method, rt.run, rt.json = http.MethodPost, runRead, true
	if rt.allow == 0 {
		rt.allow = forCLI | forServer
	}
	handle := func(ctx context.Context, in *I) (*body[T], error) {
		if err := decodeBody(ctx, P(in).body()); err != nil {
			return nil, asAnswer(err)
		}
		r, err := s.readingFor(ctx, &ReadParams{Consistency: P(in).ask().Consistency}, nil)
		if err != nil {
			return nil, asAnswer(err)
		}
		by := callerFrom(ctx)
		if err := s.judge.mayAsk(r, rt, by, about(in)); err != nil {
			return nil, asAnswer(err)
		}
		out, err := show(ctx, s.judge.lookAs(r, rt, by), in)
		if err != nil {
			return nil, asAnswer(err)
		}
		return &body[T]{Index: decimal(r.Index), Body: out}, nil
	}
	shape := reflect.TypeOf(P(new(I)).body()).Elem()
	return operation{route: rt, register: func(a huma.API) {
		op := rt.huma()
		op.RequestBody = bodyDocument(a, shape)
		huma.Register(a, op, handle)
	}}
}
