package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/duplex"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// echoAgent runs each command as if it were cat, until its input ends.
type echoAgent struct {
	behalf chan string
	gone   chan struct{} // gets a value when a stream has broken off
}

func (a *echoAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if who, ok := transport.SubjectFrom(r.Context()); !ok || who.Kind != model.SubjectServer {
		http.Error(w, "not a server", http.StatusForbidden)
		return
	}
	a.behalf <- r.Header.Get(transport.HeaderOnBehalf)
	first, err := duplex.ReadFrame(r.Body)
	if err != nil || first.Kind != duplex.KindMessage {
		return
	}
	w.WriteHeader(http.StatusOK)
	out := flushed{w, http.NewResponseController(w)}
	_ = out.control.Flush()
	conn := duplex.NewConn(r.Body, out)
	in, stdout := conn.Lane(api.LaneStdin), conn.Lane(api.LaneStdout)
	go func() { _ = conn.Run(duplex.Handler{}) }()
	if _, err := io.Copy(stdout, in); err != nil {
		a.gone <- struct{}{}
		return
	}
	_ = stdout.CloseWrite()
	_ = conn.SendMessage(api.ExecEnd{ExitCode: 3})
}

type flushed struct {
	io.Writer
	control *http.ResponseController
}

func (f flushed) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	_ = f.control.Flush()
	return n, err
}

// entered is a stream of exec, as a client has it.
type entered struct {
	conn *duplex.Conn
	out  *duplex.Lane
	in   *duplex.Lane
	end  chan api.ExecEnd // what came last
}

// enter begins a stream of exec on inst-a through a server.
func (r *rig) enter(ctx context.Context, c *transport.Client, command ...string) (*entered, error) {
	r.t.Helper()
	first := must(duplex.Message(api.ExecStart{Command: command, Stdin: true}))(r.t)
	from, to := io.Pipe()
	r.t.Cleanup(func() { to.Close() })
	resp, err := c.Open(ctx, reach.Request{Method: http.MethodPost, Path: "/v1/instances/inst-a/exec", Once: true,
		Content: api.ContentTypeDuplex,
		Duplex: func(ctx context.Context) io.Reader {
			context.AfterFunc(ctx, func() { from.Close() })
			return io.MultiReader(bytes.NewReader(first.Append(nil)), from)
		}})
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	e := &entered{conn: duplex.NewConn(resp.Body, to), end: make(chan api.ExecEnd, 1)}
	e.in, e.out = e.conn.Lane(api.LaneStdin), e.conn.Lane(api.LaneStdout)
	go func() {
		defer close(e.end)
		_ = e.conn.Run(duplex.Handler{Message: func(body []byte) error {
			var end api.ExecEnd
			err := json.Unmarshal(body, &end)
			e.end <- end
			return err
		}})
	}()
	return e, nil
}

func (e *entered) ended(t *testing.T) api.ExecEnd {
	t.Helper()
	select {
	case end := <-e.end:
		return end
	case <-time.After(15 * time.Second): // generous
		t.Fatal("the stream goes on")
	}
	return api.ExecEnd{}
}

// A follower passes a command on to the agent, both ways. The audit log says which program ran, and no argument.
func TestExecThroughAFollower(t *testing.T) {
	r := newRig(t)
	r.world()
	a := &echoAgent{behalf: make(chan string, 9), gone: make(chan struct{}, 9)}
	r.runAgentOf("01N1", "n1", a)
	sink, _ := r.startAudited("s2", true)
	c := r.client(pki.RoleCLI, "alice", "s2")
	e := must(r.enter(t.Context(), c, "/usr/bin/psql", "--password", "hunter2"))(t)
	_, _ = e.in.Write([]byte("some words"))
	_ = e.in.CloseWrite()
	got, err := io.ReadAll(e.out)
	if end := e.ended(t); string(got) != "some words" || err != nil || end.ExitCode != 3 || end.Error != nil {
		t.Errorf("%q, %v, %+v", got, err, end)
	}
	if who := <-a.behalf; who != "cert:alice" {
		t.Errorf("the agent counts for %q", who)
	}
	all := sink.next(0)
	if strings.Contains(sink.String(), "hunter2") || len(all) != 2 || all[0].Stage != audit.Begun ||
		all[1].Outcome != audit.Done || !slices.Equal(all[1].Objects, []string{"instance/inst-a"}) {
		t.Errorf("audit: %s", sink)
	}
	for _, line := range all {
		if line.Program != "psql" || line.Arguments != 2 || line.Verb != "instance.exec" || line.Call != all[0].Call {
			t.Errorf("audit: %+v", line)
		}
	}

	// The command ends with its caller.
	ctx, cancel := context.WithCancel(t.Context())
	_ = must(r.enter(ctx, c, "cat"))(t)
	cancel()
	select {
	case <-a.gone:
	case <-time.After(15 * time.Second): // generous
		t.Error("the agent does not notice that the caller is gone")
	}
}

// What can't be run is refused before an agent is asked, and so is who may not run it.
func TestExecRefusals(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.client(pki.RoleCLI, "alice")
	_, err := r.enter(t.Context(), c)
	wantCode(t, err, model.CodeInvalid)
	_, err = r.enter(t.Context(), c, "sh")
	wantCode(t, err, model.CodeAgentUnreachable)
	open := func(content, body string) error {
		_, err := c.Send(t.Context(), reach.Request{Method: http.MethodPost, Path: "/v1/instances/inst-a/exec", Once: true,
			Content: content, Body: []byte(body)})
		return err
	}
	wantCode(t, open("text/plain", "x"), model.CodeMediaType) // as a page of another site could send it
	wantCode(t, open(api.ContentTypeDuplex, "no frame"), model.CodeInvalid)

	r.bind("admin cert:alice", "operator cert:bob", "deployer cert:carol", "viewer cert:dave")
	a := &echoAgent{behalf: make(chan string, 9), gone: make(chan struct{}, 9)}
	r.runAgentOf("01N1", "n1", a)
	for name, may := range map[string]bool{"alice": true, "bob": false, "carol": true, "dave": false} {
		_, err := r.enter(t.Context(), r.client(pki.RoleCLI, name), "sh")
		if may != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if !may {
			wantCode(t, err, model.CodeForbidden)
		}
	}
}

// A program with a user of its own may be entered only by those who may use that user. A container whose image chooses
// the user counts as root.
func TestExecAsAnotherUser(t *testing.T) {
	for name, change := range map[string]func(g *model.GroupSpec){
		"program": func(g *model.GroupSpec) { g.Exec.User = "postgres" },
		"container": func(g *model.GroupSpec) {
			g.Exec = model.ExecSpec{}
			g.Container = &model.ContainerSpec{Image: "web@" + digestOf("a")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.node("01N1", "n1")
			s := spec("web", 1)
			change(&s.Groups[0])
			r.withRuntime("01N1", "")
			r.apply(&fsm.JobSubmit{Spec: s})
			r.place("inst-a", 0, "01N1", model.ObservedReady)
			r.runAgentOf("01N1", "n1", &echoAgent{behalf: make(chan string, 9), gone: make(chan struct{}, 9)})
			r.bind("admin cert:alice", "deployer cert:carol")
			if _, err := r.enter(t.Context(), r.client(pki.RoleCLI, "alice"), "sh"); err != nil {
				t.Error(err)
			}
			_, err := r.enter(t.Context(), r.client(pki.RoleCLI, "carol"), "sh")
			wantCode(t, err, model.CodeForbidden)
		})
	}
}

// A command ends with the right of its caller, and the caller learns why. One subject has a share of the streams.
func TestExecEndsWithTheRight(t *testing.T) {
	r := newRig(t)
	r.world()
	a := &echoAgent{behalf: make(chan string, 999), gone: make(chan struct{}, 999)}
	r.runAgentOf("01N1", "n1", a)
	r.bind("admin cert:alice", "deployer cert:bob")
	e := must(r.enter(t.Context(), r.client(pki.RoleCLI, "bob"), "sh"))(t)
	r.apply(&fsm.BindingRemove{Role: "deployer", To: "cert:bob"})
	if end := e.ended(t); end.Error == nil || end.Error.Code != model.CodeForbidden {
		t.Errorf("the end says %+v", end)
	}
	<-a.gone
}
