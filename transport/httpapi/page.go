package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fleet"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/series"
	"github.com/outspan/outspan/transport"
)

// Bounds of the page's streams.
const (
	pagesInAll = 64
	pagesOfOne = 16
)

// contentTypeFrames is the type of the page's stream.
const contentTypeFrames = "application/octet-stream"

// pages answers the page's streams.
type pages struct {
	s         *Server
	places    *streamPlaces
	openings  *rates
	publisher *fleet.Publisher
}

func newPages(s *Server) *pages {
	return &pages{s, &streamPlaces{places: newPlaces(SharePages, pagesInAll, pagesOfOne, s.cfg.Beyond)}, pageRates(),
		fleet.New(fleet.Config{Server: s.cfg.Name, Build: s.cfg.Version, Changes: s.cfg.Store.Changes,
			Leader: func() string {
				if leader, _, ok := s.cfg.Consensus.Leader(); ok {
					return leader.Name
				}
				return ""
			},
			Age: func() time.Duration {
				if !s.cfg.Freshness.CaughtUp() {
					return -1
				}
				return s.cfg.Freshness.StaleFor()
			},
			Problems: s.ProblemCounts})}
}

func (p *pages) operations() []operation {
	rt := getRoute("page-stream", "/v1/page/stream", "page",
		"Stream nodes, groups and instances in columns, at first all of them and then what changes, at most four times a "+
			"second; see docs/page-stream.md. Any server answers, and each frame says how old its state is")
	rt.allow, rt.stream = forCLI|forServer, true
	rows := queryParam("rows", "false: only the banner and the counts; default true")
	rows.Schema.Enum = []any{"true", "false"}
	return []operation{plain(rt, document{answer: contentTypeFrames, params: []*huma.Param{
		queryParam("job", "only the instances of this job, with their nodes"),
		queryParam("node", "only this node, by name or id, with its instances"), rows,
	}}, http.HandlerFunc(p.stream))}
}

func (p *pages) stream(w http.ResponseWriter, r *http.Request) {
	c := callerFrom(r.Context())
	if err := p.open(r, c.Subject); err != nil {
		writeError(w, err)
		return
	}
	life, release, err := p.places.take(r.Context(), c.Subject)
	if err != nil {
		p.openings.giveBack(c.Subject)
		writeError(w, err)
		return
	}
	defer release()
	w.Header().Set("Content-Type", contentTypeFrames)
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	ctx, cancel := context.WithTimeout(life, streamLife)
	defer cancel()
	look := func(state *fsm.State) (fleet.Sight, error) { return p.s.judge.pageSight(state, c) }
	if err := p.publisher.Serve(ctx, transport.Stopping(ctx), p.scope(r), look, sendTo(w)); err != nil {
		p.s.log.Debug("a page's stream ended", "caller", c.Subject, "error", err)
	}
}

// open counts a new stream against its caller's rate, before it may take the place of another one. Codes: invalid,
// rate_limited.
func (p *pages) open(r *http.Request, who model.Subject) error {
	if err := checkQuery(r, "job", "node", "rows"); err != nil {
		return err
	}
	if p.openings.take(who) {
		return nil
	}
	p.s.cfg.Beyond(SharePages)
	return model.Refuse(model.CodeRateLimited, "%s opens the page's stream too often", who).
		WithHint("keep a stream open; a further one is let in every 2 s")
}

// scope returns what a request asks for. A job or node that does not exist is none of its faults: the stream shows it
// once it does.
func (p *pages) scope(r *http.Request) fleet.Scope {
	q := r.URL.Query()
	scope := fleet.Scope{Job: model.JobName(q.Get("job")), Node: q.Get("node"), Bare: q.Get("rows") == "false"}
	if n, ok := p.s.cfg.Store.Current().NodeCalled(scope.Node); ok {
		scope.Node = n.Name
	}
	return scope
}

// sendTo returns the function that writes frames to a reader. It returns an error if the reader has not received a
// frame within writeBound.
func sendTo(w http.ResponseWriter) func([]byte) error {
	flush := http.NewResponseController(w)
	return func(frame []byte) error {
		if err := flush.SetWriteDeadline(time.Now().Add(writeBound)); err != nil {
			return fmt.Errorf("bound the write of a stream: %w", err)
		}
		if _, err := w.Write(frame); err != nil {
			return fmt.Errorf("write to a stream: %w", err)
		}
		if err := flush.Flush(); err != nil {
			return fmt.Errorf("flush a stream: %w", err)
		}
		return nil
	}
}

// pageSight returns what a caller may see of the page. Callers with equal rights get equal keys.
func (j *judge) pageSight(state *fsm.State, c caller) (fleet.Sight, error) {
	if err := c.counts(state); err != nil {
		return fleet.Sight{}, err
	}
	who, ok := c.person(state)
	if !ok {
		return fleet.Sight{Status: true}, nil
	}
	p := j.books.permissions(state, who)
	if !slices.ContainsFunc(anyOf["page-stream"], p.MayAny) {
		return fleet.Sight{}, refusedRight(c, "instance.read", rights.Object{})
	}
	sight := fleet.Sight{Status: p.MayAny("server.read")}
	if p.Reach("node.read") != rights.Everything {
		sight.Key = "nodes" + grantsText(p, "node.read")
		sight.Node = func(name string) bool {
			_, may := p.May("node.read", rights.Object{Node: name})
			return may
		}
	}
	if p.Reach("instance.read") != rights.Everything {
		sight.Key += "instances" + grantsText(p, "instance.read")
		sight.Instance = func(job model.JobName, class model.ClassName, node string) bool {
			_, may := p.May("instance.read", rights.Object{Job: string(job), Class: string(class), Node: node})
			return may
		}
	}
	return sight, nil
}

// grantsText returns a text that is equal for callers whose grants allow the verb on the same objects.
func grantsText(p *rights.Permissions, verb rights.Verb) string {
	var all []string
	for _, why := range p.By(verb, nil) {
		all = append(all, fmt.Sprintf("%q %q %q", why.Grant.Jobs, why.Grant.Nodes, why.Grant.Classes))
	}
	slices.Sort(all)
	return fmt.Sprintf("%q", slices.Compact(all))
}

// Series keeps the figures of the last day; series.Recorder implements it.
type Series interface {
	// ReadOf answers a query with what a server sampled. An empty name means this server. Codes: invalid, not_found, and
	// those of a call to the other server.
	ReadOf(ctx context.Context, server string, q series.Query) (api.Series, error)
}

// seriesSpan is how much time an answer covers, unless the question says so.
const seriesSpan = time.Hour

// seriesOperations returns the read of the plots' figures. Each server answers from its own memory, so the read needs
// no leader.
// seriesReader answers questions about the figures of the last day.
type seriesReader struct{ *Server }

func (s seriesReader) operations() []operation {
	rt := getRoute("series", "/v1/series", "page",
		"Read figures of the last day in columns: of the cluster, of a server, of one of the largest jobs, or of a node")
	rt.allow = forCLI | forServer
	params := []*huma.Param{
		queryParam("names", "separated by commas; default: all that the caller may read"),
		queryParam("job", "the series of this job"), queryParam("node", "the series of this node, by name or id"),
		queryParam("from", "a time (RFC 3339), or a duration ago such as 6h; default 1h"),
		queryParam("to", "as from; default: now"),
		queryParam("step", "a duration, a multiple of 10s, of a job of 1m, of a node of 2m; default: a suitable one"),
		queryParam("server", "name of the server that sampled; default: the one that is asked"),
	}
	return []operation{plain(rt, document{answer: contentTypeJSON, schema: api.Series{}, params: params},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got, err := s.readSeries(r)
			if err != nil {
				writeError(w, err)
				return
			}
			w.Header().Set(api.HeaderIndex, decimal(s.cfg.Store.Current().Index))
			writeJSON(w, http.StatusOK, contentTypeJSON, got)
		}))}
}

func (s seriesReader) readSeries(r *http.Request) (api.Series, error) {
	if err := checkQuery(r, "names", "job", "node", "from", "to", "step", "server"); err != nil {
		return api.Series{}, err
	}
	if s.cfg.Series == nil {
		return api.Series{}, notOffered("series")
	}
	state := s.cfg.Store.Current()
	q, on, err := s.seriesQuery(state, r.URL.Query())
	if err != nil {
		return api.Series{}, err
	}
	if q.Names, err = s.mayReadSeries(state, callerFrom(r.Context()), q, on); err != nil {
		return api.Series{}, err
	}
	got, err := s.cfg.Series.ReadOf(r.Context(), r.URL.Query().Get("server"), q)
	if err != nil || got.Note == "" {
		return got, err
	}
	if _, known := state.Jobs.Get(q.Job); q.Job != "" && !known {
		return got, model.Refuse(model.CodeNotFound, "there is no job %s", clip(string(q.Job)))
	}
	if _, known := state.Nodes.Get(q.Node); q.Node != "" && !known {
		return got, model.Refuse(model.CodeNotFound, "there is no node %s", clip(string(q.Node)))
	}
	return got, nil
}

// seriesQuery returns what a request asks for, and the job or node that it is about. Code: invalid.
func (s seriesReader) seriesQuery(state *fsm.State, values url.Values) (q series.Query, on []rights.Object, err error) {
	q.Job, q.Node = model.JobName(values.Get("job")), model.NodeID(values.Get("node"))
	switch {
	case q.Job != "" && q.Node != "":
		return q, nil, model.Refuse(model.CodeInvalid, "job and node exclude each other")
	case q.Job != "":
		on = []rights.Object{jobObject(state, "job/"+clip(string(q.Job)), q.Job)}
	case q.Node != "":
		if n, ok := state.NodeCalled(string(q.Node)); ok {
			q.Node = n.ID
		}
		on = []rights.Object{nodeObject(state, q.Node)}
		on[0].Name = "node/" + clip(values.Get("node"))
	}
	if names := values.Get("names"); names != "" {
		q.Names = strings.Split(names, ",")
	}
	now := s.cfg.Wall()
	if q.From, err = timeOrAgo("from", values.Get("from"), now, now.Add(-seriesSpan)); err != nil {
		return q, nil, err
	}
	if q.To, err = timeOrAgo("to", values.Get("to"), now, now); err != nil {
		return q, nil, err
	}
	if text := values.Get("step"); text != "" {
		step, bad := model.ParseDuration(text)
		if bad != nil || step <= 0 || step == model.Forever {
			return q, nil, model.Refuse(model.CodeInvalid, "step is no duration above 0s").WithHint("write step=1m")
		}
		q.Step = time.Duration(step) * time.Millisecond
	}
	return q, on, nil
}

// timeOrAgo parses a time, or how long ago it was. Code: invalid.
func timeOrAgo(name, text string, now, usual time.Time) (time.Time, error) {
	if text == "" {
		return usual, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	ago, err := model.ParseDuration(text)
	if err != nil || ago < 0 || ago == model.Forever {
		return now, model.Refuse(model.CodeInvalid, "%s is neither a time nor a duration", name).
			WithHint("write %s=6h, or %s=%s", name, name, now.UTC().Format(time.RFC3339))
	}
	return now.Add(-time.Duration(ago) * time.Millisecond), nil
}

// mayReadSeries refuses a caller that names a series which it may not read. It returns the named ones; of a query
// without names, those that the caller may read. Sums over the cluster need the right on everything. Codes: forbidden,
// unauthenticated, invalid.
func (s seriesReader) mayReadSeries(state *fsm.State, c caller, q series.Query, on []rights.Object) ([]string, error) {
	all, err := q.Select()
	if err != nil {
		return nil, err
	}
	var names []string
	refused := map[rights.Verb]error{}
	var last error
	for _, d := range all {
		if _, judged := refused[d.Verb]; !judged {
			refused[d.Verb] = s.judge.mayDo(state, c, d.Verb, on...)
		}
		switch err := refused[d.Verb]; {
		case err == nil:
			names = append(names, d.Name)
		case len(q.Names) > 0:
			return nil, err
		default:
			last = err
		}
	}
	if len(names) == 0 {
		return nil, last
	}
	return names, nil
}
