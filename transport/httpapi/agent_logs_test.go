package httpapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// logAgent serves a log for any instance. A log that is followed stays open until the channel end is closed, the
// request is canceled, or the server stops.
type logAgent struct {
	mu    sync.Mutex
	asked []string
	end   chan struct{}
}

func (a *logAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if who, ok := transport.SubjectFrom(r.Context()); !ok || who.Kind != model.SubjectServer {
		http.Error(w, "not a server", http.StatusForbidden)
		return
	}
	a.mu.Lock()
	a.asked = append(a.asked, r.URL.Path+"?"+r.URL.RawQuery)
	a.mu.Unlock()
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	w.Header().Set("Outspan-Log-Offset", "7")
	io.WriteString(w, name+" one\n"+name+" two")
	_ = http.NewResponseController(w).Flush()
	if r.URL.Query().Get("follow") == "true" {
		select {
		case <-a.end:
		case <-r.Context().Done():
		case <-transport.Stopping(r.Context()):
		}
		io.WriteString(w, " and a half\n")
	}
}

// runAgent is runAgentOf for a logAgent.
func (r *rig) runAgent(id model.NodeID, name string, a *logAgent) { r.runAgentOf(id, name, a) }

// runAgentOf starts a server with the given handler, registers its address as that of the node's agent, and reports the
// node's instances again.
func (r *rig) runAgentOf(id model.NodeID, name string, a http.Handler) {
	creds := must(r.ca.Credentials(pki.RoleAgent, name))(r.t)
	raw := must(transport.ListenTCP(r.t.Context(), "127.0.0.1:0"))(r.t)
	l := must(transport.NewListener(raw, transport.ListenerConfig{Credentials: creds}))(r.t)
	r.serve(l, a, nil)
	n, _ := r.machine.State().Nodes.Get(id)
	agent := n.Agent
	agent.APIAddress = l.Addr().String()
	r.apply(&fsm.NodeRegister{ID: id, Name: name, Agent: agent, Shape: n.Shape})
	n, _ = r.machine.State().Nodes.Get(id)
	var all []model.InstanceStatus
	s := r.machine.State()
	for i := range s.InstancesOn(id) {
		status := i.Status
		status.Generation++
		all = append(all, status)
	}
	r.apply(&fsm.NodeReport{ID: id, Epoch: n.Agent.Epoch, Full: true, Instances: all})
}

// A follower passes on the logs of an instance from its node's agent.
func TestInstanceLogs(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	a := &logAgent{end: make(chan struct{})}
	r.runAgent("01N1", "n1", a)
	resp := must(r.cli("s2").
		Open(t.Context(), reach.Request{Path: "/v1/instances/inst-a/logs", Query: values("stream=stderr&tail=5")}))(t)
	text := must(io.ReadAll(resp.Body))(t)
	resp.Body.Close()
	if string(text) != "inst-a one\ninst-a two" || resp.Header.Get("Outspan-Log-Offset") != "7" {
		t.Errorf("got %q, header %v", text, resp.Header)
	}
	if a.asked[0] != "/v1/agent/logs/inst-a?stream=stderr&tail=5" {
		t.Errorf("the agent was asked for %s", a.asked[0])
	}
}

// Following a job's logs shows whole lines of all its instances, including instances that are placed later.
func TestJobLogs(t *testing.T) {
	r := newRig(t)
	r.world()
	a := &logAgent{end: make(chan struct{})}
	r.runAgent("01N1", "n1", a)
	r.runAgent("01N2", "n2", a)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	resp := must(r.cli().Open(ctx, reach.Request{Path: "/v1/jobs/web/logs", Query: values("follow=true")}))(t)
	defer resp.Body.Close()
	var mu sync.Mutex
	var text strings.Builder
	go func() {
		buf := make([]byte, 1024)
		for {
			n, err := resp.Body.Read(buf)
			mu.Lock()
			text.Write(buf[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	has := func(lines ...string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, l := range lines {
				if !strings.Contains(text.String(), l+"\n") {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "lines of both instances", has("http[0] inst-a | inst-a one", "http[1] inst-b | inst-b one"))
	r.place("inst-c", 2, "01N2", model.ObservedBooting)
	eventually(t, "lines of the new instance", has("http[2] inst-c | inst-c one"))
	if has("http[0] inst-a | inst-a two")() {
		t.Error("half a line was shown as a whole one")
	}
	close(a.end)
	eventually(t, "the end of the lines",
		has("http[0] inst-a | inst-a two and a half", "http[2] inst-c | inst-c two and a half"))
}

// goneAgent has the logs of one instance, and answers not_found for all others.
type goneAgent struct{ has string }

func (a goneAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; name == a.has {
		io.WriteString(w, name+" one\n")
		return
	}
	p := api.NewProblem(model.Refuse(model.CodeNotFound, "there are no logs of that instance"))
	w.Header().Set("Content-Type", api.ContentTypeProblem)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// After the logs, one line says how many instances have no logs. With running=true, stopped instances are not counted.
func TestJobLogsThatAreGone(t *testing.T) {
	r := newRig(t)
	r.world()
	r.runAgentOf("01N1", "n1", goneAgent{has: "inst-a"})
	r.runAgentOf("01N2", "n2", goneAgent{})
	for _, id := range []model.InstanceID{"inst-c", "inst-d"} {
		r.place(id, 2, "01N2", model.ObservedBooting)
		r.apply(&fsm.InstanceStop{ID: id, Cause: model.CauseUser, Bypass: true})
		n, _ := r.machine.State().Nodes.Get("01N2")
		r.apply(&fsm.NodeReport{ID: "01N2", Epoch: n.Agent.Epoch,
			Instances: []model.InstanceStatus{{ID: id, Generation: 9, Observed: model.ObservedStopped}}})
	}
	read := func(query string) string {
		resp := must(r.cli().Open(t.Context(), reach.Request{Path: "/v1/jobs/web/logs", Query: values(query)}))(t)
		defer resp.Body.Close()
		return string(must(io.ReadAll(resp.Body))(t))
	}
	if got, want := read(""), "http[0] inst-a | inst-a one\n(3 instances have no logs any more)\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, want := read("running=true"), "http[0] inst-a | inst-a one\n(1 instance has no logs any more)\n"; got != want {
		t.Errorf("of those that run: got\n%swant\n%s", got, want)
	}
	if _, err := r.cli().
		Open(t.Context(), reach.Request{Path: "/v1/jobs/web/logs", Query: values("running=perhaps")}); err == nil {
		t.Error("running=perhaps is taken")
	}
}
