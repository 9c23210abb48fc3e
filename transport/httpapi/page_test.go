package httpapi_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api/frame"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport"
)

// follow reads the page's stream of a person through the Go client, until enough returns true for a picture.
func follow(t *testing.T, r *rig, name string, o client.PageOptions, enough func(*frame.Picture) bool) error {
	t.Helper()
	c := goClient(t, r, name)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // generous
	defer cancel()
	for p, err := range c.Page.Follow(ctx, o) {
		if err != nil {
			return err
		}
		if enough(p) {
			return nil
		}
	}
	return nil
}

// goClient returns a Go client of a person, which calls all servers of the rig.
func goClient(t *testing.T, r *rig, name string) *client.Client {
	t.Helper()
	var addresses []string
	for _, s := range r.servers {
		addresses = append(addresses, "https://"+s.address)
	}
	slices.Sort(addresses)
	creds := must(r.ca.Credentials(pki.RoleCLI, name))(t)
	secure := func() *tls.Config { return creds.ClientConfig(pki.RoleServer) }
	c := must(client.New(client.Config{Addresses: addresses, TLS: secure, RetryFor: -1}))(t)
	t.Cleanup(c.Close)
	return c
}

// rowsOf returns the names of the nodes, and the groups of the instances, that a picture shows.
func rowsOf(p *frame.Picture) (nodes, groups []string) {
	for h, name := range p.Nodes.Names {
		if p.Nodes.Has(uint32(h)) {
			nodes = append(nodes, name)
		}
	}
	for h := range p.Instances.Len() {
		if p.Instances.Has(uint32(h)) {
			groups = append(groups, p.Groups.Names[p.Instances.Columns[frame.InstanceGroup][h]])
		}
	}
	slices.Sort(nodes)
	slices.Sort(groups)
	return nodes, slices.Compact(groups)
}

// The page's stream shows the state over TLS, then what changes, and what the health of the cluster is.
func TestPageStream(t *testing.T) {
	r := newRig(t)
	r.world()
	var first, whole uint64
	err := follow(t, r, "alice", client.PageOptions{}, func(p *frame.Picture) bool {
		if !p.Whole {
			return false
		}
		if first == 0 {
			first = p.Index
			if s := r.machine.Current(); p.Counts.Nodes["total"] != s.Nodes.Len() || p.Nodes.Len() != s.Nodes.Len() {
				t.Errorf("%d nodes, want %d: %+v", p.Nodes.Len(), s.Nodes.Len(), p.Counts)
			}
			if p.Server != "s1" || p.Banner.Leader != "s1" || p.Banner.Build != "1.2.3" || p.Banner.Cluster != "test" ||
				!p.Banner.Status || p.Age < 0 || p.Alone() {
				t.Errorf("header %+v, banner %+v", p.Header, p.Banner)
			}
			whole = r.apply(&fsm.NodeIntent{ID: "01N1", Intent: model.IntentCordoned})
			return false
		}
		n1 := slices.Index(p.Nodes.Names, "n1")
		return p.Index >= whole && p.Nodes.Columns[frame.State][n1] == frame.NodeCordoned && len(p.Banner.Problems) > 0
	})
	if err != nil || first == 0 {
		t.Fatalf("first whole picture at %d: %v", first, err)
	}
}

// Who opens and closes the stream all the time is refused after some streams, and others are not.
func TestPageStreamOpenedTooOften(t *testing.T) {
	r := newRig(t)
	r.world()
	clients := map[string]*transport.Client{"alice": r.client(pki.RoleCLI, "alice"), "bob": r.client(pki.RoleCLI, "bob")}
	open := func(name string, i int) error {
		resp, err := clients[name].Open(t.Context(),
			reach.Request{Path: "/v1/page/stream", Query: values(fmt.Sprint("job=job-", i))})
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	begun, n := time.Now(), 0
	var err error
	for err == nil && n < 1000 {
		if err = open("alice", n); err == nil {
			n++
		} else if errors.Is(err, &model.Error{Code: model.CodeBusy}) {
			err = nil // those before have not ended yet
		}
	}
	wantCode(t, err, model.CodeRateLimited)
	if most := 32 + int(time.Since(begun).Seconds()); n > most {
		t.Errorf("%d streams were opened, at most %d may be", n, most)
	}
	if err := open("bob", 1); err != nil {
		t.Errorf("another person: %v", err)
	}
	// The Go client waits until it is let in again.
	if err := follow(t, r, "alice", client.PageOptions{}, func(*frame.Picture) bool { return true }); err != nil {
		t.Error(err)
	}
}

// A server that does not lead answers too. It says its age, and when it knows no leader.
func TestPageStreamWithoutLeader(t *testing.T) {
	r := newRig(t)
	r.world()
	steps := 0
	err := follow(t, r, "alice", client.PageOptions{}, func(p *frame.Picture) bool {
		switch {
		case steps == 0 && p.Whole && !p.Alone():
			r.setLeader("")
			steps = 1
		case steps == 1 && p.Alone() && p.Banner.Leader == "":
			steps = 2
			return p.Age == 7*time.Millisecond
		}
		return false
	})
	if err != nil || steps != 2 {
		t.Fatalf("after step %d: %v", steps, err)
	}
}

// Whoever may read only some jobs or nodes gets only those, and how many others there are. A change of rights changes
// the picture of an open stream, and the loss of all rights ends it.
func TestPageStreamShowsWhatOneMayRead(t *testing.T) {
	r := newRig(t)
	r.world()
	all := r.machine.Current()
	jobs := map[string]int{}
	for _, i := range all.Instances.All() {
		if job, _ := i.Group.Split(); !i.Terminal() {
			jobs[string(job)]++
		}
	}
	if len(jobs) < 1 || jobs["web"] == 0 {
		t.Fatalf("the world has %v", jobs)
	}
	grant := func(verb rights.VerbPattern, jobs, nodes []string) rights.Grant {
		return rights.Grant{Verbs: []rights.VerbPattern{verb}, Jobs: jobs, Nodes: nodes}
	}
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "web", Allow: []rights.Grant{
		grant("instance.read", []string{"web"}, nil)}}})
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "other", Allow: []rights.Grant{
		grant("instance.read", []string{"nothing"}, nil), grant("node.read", nil, []string{"n1"})}}})
	r.bind("web cert:bob", "admin cert:alice", "viewer cert:vera")
	total := 0
	for _, n := range jobs {
		total += n
	}
	steps := 0
	err := follow(t, r, "bob", client.PageOptions{}, func(p *frame.Picture) bool {
		nodes, groups := rowsOf(p)
		switch {
		case !p.Whole:
		case steps == 0:
			steps = 1
			if p.Counts.HiddenInstances != total-jobs["web"] || p.Counts.HiddenNodes != all.Nodes.Len() ||
				p.Counts.Instances["total"] != jobs["web"] || p.Banner.Status || p.Banner.Problems != nil {
				t.Errorf("%+v %+v", p.Counts, p.Banner)
			}
			for _, g := range groups {
				if !strings.HasPrefix(g, "web/") {
					t.Errorf("bob sees %s", g)
				}
			}
			for h := range p.Nodes.Len() {
				if s := p.Nodes.Columns[frame.State][h]; s != 0 && s != frame.NodeNamed {
					t.Errorf("bob sees the state %d of node %s", s, p.Nodes.Names[h])
				}
			}
			r.apply(&fsm.BindingAdd{Role: "other", To: "cert:bob"})
			r.apply(&fsm.BindingRemove{Role: "web", To: "cert:bob"})
		case slices.Equal(nodes, []string{"n1"}) && groups == nil:
			steps = 2
			r.apply(&fsm.BindingRemove{Role: "other", To: "cert:bob"})
		}
		return false
	})
	if steps != 2 || !errors.Is(err, &model.Error{Code: model.CodeForbidden}) {
		t.Fatalf("after step %d: %v", steps, err)
	}
	err = follow(t, r, "vera", client.PageOptions{}, func(p *frame.Picture) bool {
		return p.Whole && p.Banner.Status && p.Counts.HiddenInstances == 0 && p.Counts.Instances["total"] == total
	})
	must(0, err)(t)
	if !forbidden(t, r.client(pki.RoleCLI, "nobody"), http.MethodGet, "/v1/page/stream", nil, nil) {
		t.Error("somebody without rights opens the stream")
	}
}

// One caller may open 16 streams of the page, and a server has 64. A reader that leaves frees its place.
func TestPageStreamLimit(t *testing.T) {
	r := newRig(t)
	r.world()
	open := func(name string) (io.Closer, error) {
		resp, err := r.client(pki.RoleCLI, name).Open(t.Context(), reach.Request{Path: "/v1/page/stream"})
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.Body, nil
	}
	var places []io.Closer
	for n := range 64 {
		places = append(places, must(open([]string{"a", "b", "c", "d"}[n/16]))(t))
	}
	_, err := open("a")
	wantCode(t, err, model.CodeBusy)
	places[0].Close()
	eventually(t, "the place is free again", func() bool {
		_, err := open("a")
		return err == nil
	})
}

// The parameters of the stream are checked.
func TestPageStreamParameters(t *testing.T) {
	r := newRig(t)
	r.world()
	_, err := r.cli().Open(t.Context(), reach.Request{Path: "/v1/page/stream", Query: values("nodes=n1")})
	wantCode(t, err, model.CodeInvalid)
	for _, o := range []client.PageOptions{{Node: "01N1"}, {Node: "n1"}} {
		err := follow(t, r, "alice", o, func(p *frame.Picture) bool {
			nodes, _ := rowsOf(p)
			return p.Whole && slices.Equal(nodes, []string{"n1"})
		})
		must(0, err)(t)
	}
}

// When a server stops, its streams end, and the client goes on at another server with a whole new picture.
func TestPageStreamMovesToAnotherServer(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	first, breaks := "", 0
	err := follow(t, r, "alice", client.PageOptions{Broken: func(error) { breaks++ }}, func(p *frame.Picture) bool {
		switch {
		case !p.Whole:
		case first == "":
			first = p.Server
			r.servers[first].stop()
		case p.Server != first:
			return p.Counts.Nodes["total"] == r.machine.Current().Nodes.Len()
		}
		return false
	})
	if err != nil || first == "" || breaks == 0 {
		t.Fatalf("first %q, %d breaks: %v", first, breaks, err)
	}
}
