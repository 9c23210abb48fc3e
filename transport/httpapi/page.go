package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/fleet"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
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
	publisher *fleet.Publisher
}

func newPages(s *Server) *pages {
	return &pages{s, &streamPlaces{places: newPlaces(SharePages, pagesInAll, pagesOfOne, s.cfg.Beyond)},
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
	life, release, err := p.places.take(r.Context(), c.Subject)
	if err == nil {
		defer release()
		err = checkQuery(r, "job", "node", "rows")
	}
	if err != nil {
		writeError(w, err)
		return
	}
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
