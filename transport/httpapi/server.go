package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Server answers the API. It is an http.Handler for transport.HTTPServer, which puts the caller into the context of
// each request. Safe for concurrent use.
type Server struct {
	cfg      Config
	log      hclog.Logger
	clock    *clock
	mux      *http.ServeMux
	huma     huma.API
	routes   []route
	byMatch  map[string]route // by method and path; used only while operations are registered
	plainOps []operation
	document []byte

	rates         *rates // of requests
	registrations *rates
	inventories   *rates
	reportBytes   *rates // of the reports of each agent
	wrongTokens   *rates // of requests without a good access token, by source
	logins        *rates // of logins that don't succeed, by source
	providers     *rates // of requests for the providers, by source
	newTokens     newTokens
	streams       *streamPlaces
	pages         *pages
	snapshots     *places
	blocking      *places // reads that wait for a change
	turns         *turns
	held          *places           // refusals that wait before they are sent
	openBodies    *transport.Bodies // bytes of bodies of open operations, by source
	answers       *transport.Bodies // bytes of answers that are not read yet
	watches       *watches
	waiting       *sharedWaiting
	judge         judge
	agents        agentCallState
	contact       *pollGuard // ends streams when the server is no longer inContact
	asking        questions  // to all agents
	measuring     questions  // to the agents of a job
	comparing     questions  // to all servers; one may wait long for those that are behind
}

// New makes a server from its parts. Codes: invalid if a required part is missing; internal if the OpenAPI document
// can't be made.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil || cfg.Consensus == nil || cfg.Freshness == nil || cfg.Liveness == nil ||
		cfg.Explainer == nil || cfg.Planner == nil {
		return nil,
			model.Refuse(model.CodeInvalid, "the API needs a store, consensus, freshness, liveness, an explainer and a planner")
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	cfg.Limits = cfg.Limits.withDefaults()
	cfg.Format = cmp.Or(cfg.Format, model.CurrentFormat)
	if cfg.Bodies == nil {
		cfg.Bodies = transport.NewBodies(0, 0)
	}
	if cfg.Copies == nil {
		cfg.Copies = transport.NewCopies()
	}
	if cfg.Refused == nil {
		cfg.Refused = func(error) {}
	}
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	if cfg.Beyond == nil {
		cfg.Beyond = func(Share) {}
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, clock: &clock{cfg.Wall}, mux: http.NewServeMux(), byMatch: map[string]route{},
		rates: requestRates(cfg.Limits.RequestsPerSecond), registrations: registrationRates(), inventories: inventoryRates(),
		reportBytes: reportRates(), wrongTokens: wrongTokenRates(), logins: loginRates(),
		providers: providerRates(), newTokens: make(newTokens, newTokenWaits),
		watches: newWatches(cfg.Store), waiting: &sharedWaiting{}, judge: judge{store: cfg.Store},
	}
	s.openShares()
	s.pages = newPages(s)
	s.agents = agentCallState{
		guard: &pollGuard{look: s.caughtUp, every: staleLook}, assigned: newAnswerDelay(delayAssigned),
		services: newAnswerDelay(delayServices), peers: newAnswerDelay(delayPeers),
		known: &sharedServices{}, lists: newSharedPeers(),
		relay: newRelay(s), reports: s.newReports(), calls: s.agentCalls(),
	}
	s.contact = &pollGuard{look: s.inContact, every: staleLook}
	s.huma = humago.New(&guardedMux{s}, documentConfig(cfg.Version))
	s.huma.UseMiddleware(statusFromCode)
	for _, op := range s.operations() {
		s.add(op)
	}
	s.mux.Handle("/", http.HandlerFunc(s.noRoute))
	document, err := s.finishDocument()
	if err != nil {
		return nil, model.Refuse(model.CodeInternal, "the API has no document: %v", err)
	}
	s.document = document
	return s, nil
}

// SetLimits changes how many requests per second each caller may send from now on. It does not change the limit of
// streams. It is called when the configuration is read again (SIGHUP).
func (s *Server) SetLimits(l Limits) { s.rates.set(l.withDefaults().RequestsPerSecond) }

// operations returns all operations of the API, by noun.
func (s *Server) operations() []operation {
	var all []operation
	for _, noun := range [...]func() []operation{
		s.statusOperations, s.nodeOperations, s.drainOperations, s.jobOperations, s.deploymentOperations,
		s.instanceOperations, s.rebalanceOperations, s.volumeOperations, s.serviceOperations, s.budgetOperations,
		s.classOperations, s.settingsOperations, s.memberOperations, s.verifyOperations, s.tokenOperations,
		s.trustOperations, s.newcomerOperations, s.caOperations,
		s.unknownOperations, s.foundOperations, s.statsOperations,
		s.snapshotOperations, s.eventOperations, s.pages.operations, s.logOperations, s.enterOperations,
		s.peerOperations,
		s.healthOperations, s.loginOperations,
	} {
		all = append(all, noun()...)
	}
	return slices.Concat(all, imageOperations(s), seriesReader{s}.operations())
}

func (s *Server) add(op operation) {
	op.typed = op.register != nil
	s.routes = append(s.routes, op.route)
	s.byMatch[op.match()] = op.route
	if op.typed {
		op.register(s.huma)
		return
	}
	s.plainOps = append(s.plainOps, op)
	s.mux.Handle(op.match(), s.guard(op.route, op.handler))
}

// guardedMux wraps every handler that huma registers in the guard of its route.
type guardedMux struct{ s *Server }

// HandleFunc implements humago.Mux.
func (g *guardedMux) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	g.s.mux.Handle(pattern, g.s.guard(g.s.byMatch[pattern], http.HandlerFunc(h)))
}

// ServeHTTP implements humago.Mux.
func (g *guardedMux) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.s.ServeHTTP(w, r) }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recovered(w, r)
	w.Header().Set("Cache-Control", "no-store")
	if leader, _, ok := s.cfg.Consensus.Leader(); ok {
		w.Header().Set(api.HeaderLeader, leader.Name)
	}
	s.mux.ServeHTTP(w, r)
}

// recovered answers a request whose handler panicked, so that one bad request does not end the server. Only a panic in
// Apply may end it. A panic with http.ErrAbortHandler continues to net/http, which closes the connection.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	reason := recover()
	if reason == nil {
		return
	}
	if err, ok := reason.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(reason)
	}
	writeError(w, s.panicked(r.Method, clip(r.URL.Path), reason))
}

// panicked logs a panic, and returns the error that the caller may see.
func (s *Server) panicked(method, path string, reason any) *model.Error {
	s.log.Error("request handler panicked", "method", method, "path", path, "reason", reason,
		"stack", string(debug.Stack()))
	return model.Refuse(model.CodeInternal, "the server failed").WithHint("its log says why")
}

// noRoute answers a request that matches no operation with a problem. If the path has operations with other methods,
// the answer has status 405 and names these methods.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range [...]string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = method
		if _, pattern := s.mux.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		writeError(w, model.Refuse(model.CodeNoRoute, "there is no %s %s", clip(r.Method), clip(r.URL.Path)).
			WithHint("the operations are listed in /openapi.json"))
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	p := api.NewProblem(model.Refuse(model.CodeNoRoute, "%s can't be done with %s", clip(r.URL.Path), clip(r.Method)).
		WithHint("use %s", strings.Join(allowed, " or ")))
	p.Status, p.Title = http.StatusMethodNotAllowed, http.StatusText(http.StatusMethodNotAllowed)
	writeProblem(w, p)
}

// Routes lists every operation as "METHOD /path".
func (s *Server) Routes() []string {
	all := make([]string, 0, len(s.routes))
	for _, rt := range s.routes {
		all = append(all, rt.match())
	}
	return all
}
