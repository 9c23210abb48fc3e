package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/series"
	"github.com/outspan/outspan/transport/httpapi"
)

// asked notes the queries that reach the series of a server.
type asked struct {
	server string
	q      series.Query
}

// ReadOf implements httpapi.Series.
func (a *asked) ReadOf(_ context.Context, server string, q series.Query) (api.Series, error) {
	a.server, a.q = server, q
	return api.Series{Server: "s2", Items: []api.SeriesColumn{}, Marks: []api.SeriesMark{}}, nil
}

// Each series is given to those who may read it: sums to those who may read everything, those of a job or a node to
// those who may read that.
func TestSeriesRights(t *testing.T) {
	r := newRig(t)
	r.world()
	var got asked
	r.startWith("s2", func(c *httpapi.Config) { c.Series = &got })
	grant := func(verb rights.VerbPattern, jobs, nodes []string) rights.Grant {
		return rights.Grant{Verbs: []rights.VerbPattern{verb}, Jobs: jobs, Nodes: nodes}
	}
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "web", Allow: []rights.Grant{grant("job.read", []string{"web"}, nil)}}})
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "n1", Allow: []rights.Grant{grant("node.read", nil, []string{"n1"})}}})
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "nodes", Allow: []rights.Grant{grant("node.read", nil, nil)}}})
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "nothing", Allow: []rights.Grant{grant("settings.read", nil, nil)}}})
	r.bind("web cert:bob", "n1 cert:nora", "nodes cert:nick", "admin cert:alice", "nothing cert:nemo")
	for _, c := range []struct {
		who, query string
		refused    model.Code
		names      int // in the query that the series get; -1: all
	}{
		{"alice", "", "", -1}, {"alice", "names=drains,raft_lag", "", 2}, {"alice", "job=web", "", 3}, {"alice", "node=n1",
			"", 4},
		{"nick", "names=drains", "", 1}, {"nick", "names=drains,raft_lag", model.CodeForbidden, 0},
		{"nick", "names=instances_ready", model.CodeForbidden, 0}, {"nick", "job=web", model.CodeForbidden, 0},
		{"nora", "node=n1", "", 4}, {"nora", "node=n2", model.CodeForbidden, 0}, {"nora", "", model.CodeForbidden, 0},
		{"nora", "names=drains", model.CodeForbidden, 0}, {"nora", "node=none", model.CodeForbidden, 0},
		{"bob", "job=web", "", 3}, {"bob", "job=db", model.CodeForbidden, 0}, {"bob", "names=drains", model.CodeForbidden, 0},
		{"nemo", "", model.CodeForbidden, 0}, {"nemo", "job=web", model.CodeForbidden, 0},
		{"alice", "names=x", model.CodeInvalid, 0}, {"alice", "job=web&node=n1", model.CodeInvalid, 0},
		{"alice", "from=yesterday", model.CodeInvalid, 0}, {"alice", "step=-5s", model.CodeInvalid, 0},
		{"alice", "span=1h", model.CodeInvalid, 0},
	} {
		got = asked{}
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = r.client(pki.RoleCLI, c.who, "s2").Do(t.Context(), http.MethodGet, "/v1/series", query, nil)
		refusal, _ := errors.AsType[*model.Error](err)
		switch want := c.names; {
		case c.refused != "":
			if refusal == nil || refusal.Code != c.refused || got.q.To != (time.Time{}) {
				t.Errorf("%s ?%s: %v", c.who, c.query, err)
			}
		case err != nil:
			t.Errorf("%s ?%s: %v", c.who, c.query, err)
		default:
			if want < 0 {
				want = len(series.Defs())
			}
			if len(got.q.Names) != want {
				t.Errorf("%s ?%s: %v", c.who, c.query, got.q.Names)
			}
		}
	}
	got = asked{} // without names, nick gets what concerns the nodes, and nothing of the servers
	if _, _, err := r.client(pki.RoleCLI, "nick", "s2").Do(t.Context(), http.MethodGet, "/v1/series", nil,
		nil); err != nil ||
		!slices.Contains(got.q.Names, "nodes_active") || slices.ContainsFunc(got.q.Names, func(name string) bool {
		return strings.HasPrefix(name, "raft") || strings.HasPrefix(name, "instances")
	}) {
		t.Errorf("without names: %v (%v)", got.q.Names, err)
	}
}

// silent has no samples of any job or node.
type silent struct{}

// ReadOf implements httpapi.Series.
func (silent) ReadOf(context.Context, string, series.Query) (api.Series, error) {
	return api.Series{Note: "nothing is kept", Items: []api.SeriesColumn{}, Marks: []api.SeriesMark{}}, nil
}

// A job or node that exists is found, also if nothing is kept of it.
func TestSeriesOfNothing(t *testing.T) {
	r := newRig(t)
	r.world()
	r.startWith("s2", func(c *httpapi.Config) { c.Series = silent{} })
	c := goClientOf(t, r, "s2")
	for _, of := range []client.SeriesOptions{{Job: "web"}, {Node: "n1"}} {
		if got, err := c.Series.Read(t.Context(), of); err != nil || got.Value.Note != "nothing is kept" {
			t.Errorf("%+v: %+v (%v)", of, got.Value, err)
		}
	}
	for _, of := range []client.SeriesOptions{{Job: "none"}, {Node: "none"}} {
		if got, err := c.Series.Read(t.Context(), of); !errors.Is(err, &model.Error{Code: model.CodeNotFound}) {
			t.Errorf("%+v: %+v (%v)", of, got.Value, err)
		}
	}
}

// The Go client reads series, and a server that keeps none says so.
func TestSeriesByTheClient(t *testing.T) {
	r := newRig(t)
	r.world()
	c := goClient(t, r, "alice")
	if _, err := c.Series.Read(t.Context(), client.SeriesOptions{}); !errors.Is(err,
		&model.Error{Code: model.CodeNotSupported}) {
		t.Errorf("of a server that keeps none: %v", err)
	}
	var got asked
	r.startWith("s0", func(c *httpapi.Config) { c.Series = &got })
	read, err := goClientOf(t, r, "s0").Series.Read(t.Context(), client.SeriesOptions{Names: []string{"drains",
		"raft_lag"},
		From: "6h", To: "2026-01-01T00:00:00Z", Step: time.Minute, Server: "s1"})
	ago := time.Since(got.q.From)
	if err != nil || read.Value.Server != "s2" || got.server != "s1" || got.q.Step != time.Minute ||
		len(got.q.Names) != 2 ||
		ago < 6*time.Hour || ago > 7*time.Hour || !got.q.To.Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v of %+v (%v)", read.Value, got, err)
	}
	node, err := goClientOf(t, r, "s0").Series.Read(t.Context(), client.SeriesOptions{Node: "n1"})
	if err != nil || got.q.Node != "01N1" {
		t.Errorf("%+v of %+v (%v)", node.Value, got.q, err)
	}
}

// goClientOf returns a Go client of alice that calls one server.
func goClientOf(t *testing.T, r *rig, name string) *client.Client {
	t.Helper()
	all := r.servers
	r.servers = map[string]*server{name: all[name]}
	defer func() { r.servers = all }()
	return goClient(t, r, "alice")
}
