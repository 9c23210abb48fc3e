package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/duplex"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// How many streams of people one agent serves at once: commands in instances, and forwarded ports.
const (
	maxGuests      = 32
	maxGuestsOfOne = 8 // of one subject
)

// greetTime is how long a caller may take to say what it wants.
const greetTime = 10 * time.Second

// guests counts the streams of people. Safe for concurrent use.
type guests struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// take counts a stream of a subject. The caller must call release when it has ended. Code: busy.
func (g *guests) take(node, subject string) (release func(), _ error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all >= maxGuests || g.of[subject] >= maxGuestsOfOne {
		return nil, model.Refuse(model.CodeBusy, "node %s has %d commands and forwards of people, %d of them yours", node,
			g.all, g.of[subject]).WithHint("end one: a node has at most %d, and %d of one caller", maxGuests, maxGuestsOfOne)
	}
	if g.of == nil {
		g.of = map[string]int{}
	}
	g.all++
	g.of[subject]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.all--
		if g.of[subject]--; g.of[subject] == 0 {
			delete(g.of, subject)
		}
	}, nil
}

// guest is one stream of a person. Its methods belong to the goroutine of the request, except Write.
type guest struct {
	r       *http.Request
	control *http.ResponseController
	w       http.ResponseWriter
	conn    *duplex.Conn
	ctx     context.Context
	cancel  context.CancelCauseFunc
	ran     chan struct{} // closed when nothing is read any more
}

// hintStatus is the next step of a person whose instance does not run.
const hintStatus = "see what became of it, and what replaces it: outspan instance status %s"

// receive begins a stream about a running instance, and reads what the caller wants into first. Unless it returns an
// error, the caller must call release. Codes: not_found, busy, invalid.
func (a *Agent) receive(w http.ResponseWriter, r *http.Request, first any) (_ *guest, t Task, release func(), _ error) {
	id := model.InstanceID(r.PathValue("instance"))
	if m := a.supervisors.member(id); m != nil {
		t = m.current()
	}
	if t == nil || !t.Alive() {
		return nil, nil, nil, model.Refuse(driver.CodeNotRunning, "instance %s does not run on node %s", id, a.cfg.Name).
			WithHint(hintStatus, id)
	}
	leave, err := a.guests.take(a.cfg.Name, r.Header.Get(transport.HeaderOnBehalf))
	if err != nil {
		return nil, nil, nil, err
	}
	g := &guest{r: r, w: w, control: http.NewResponseController(w), ran: make(chan struct{})}
	_ = g.control.EnableFullDuplex() // HTTP/2 always is
	_ = g.control.SetReadDeadline(time.Now().Add(greetTime))
	f, err := duplex.ReadFrame(r.Body)
	_ = g.control.SetReadDeadline(time.Time{})
	if err != nil || f.Kind != duplex.KindMessage || json.Unmarshal(f.Body, first) != nil {
		leave()
		return nil, nil, nil, model.Refuse(model.CodeInvalid, "the stream does not begin with what is wanted")
	}
	ctx, stop := until(r.Context(), transport.Stopping(r.Context()))
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	g.conn = duplex.NewConn(r.Body, g)
	return g, t, func() { g.cancel(nil); stop(); leave() }, nil
}

// Write sends whole frames at once. The first call, or begin, sends the header.
func (g *guest) Write(p []byte) (int, error) {
	if err := g.control.SetWriteDeadline(time.Now().Add(logStall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := g.w.Write(p)
	if err == nil {
		err = g.control.Flush()
	}
	return n, err
}

// begin sends the header of the answer, and then reads frames until the caller is gone.
func (g *guest) begin(h duplex.Handler) {
	g.w.Header().Set("Content-Type", api.ContentTypeDuplex)
	g.w.WriteHeader(http.StatusOK)
	_ = g.control.Flush() // an error is found by the first write
	go func() {
		defer close(g.ran)
		err := g.conn.Run(h)
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		g.cancel(err)
	}()
}

// end sends how it ended, as the last frame. Nothing is read or written any more when end has returned, which takes at
// most logStall. If nobody waits for the last frame, end cuts the answer off.
func (g *guest) end(code int, err error) {
	last := api.ExecEnd{ExitCode: code}
	gone := g.ctx.Err() != nil
	if err != nil {
		last.Error = api.NewProblem(err)
	}
	if !gone {
		_ = g.conn.SendMessage(last) // an error means that the caller is gone
	}
	g.cancel(nil)
	g.conn.Close(io.ErrClosedPipe)
	_ = g.control.SetReadDeadline(time.Now())
	<-g.ran
	if gone {
		panic(http.ErrAbortHandler) // so that the caller does not take this for the end of the command
	}
}

// serveExec runs a command in an instance for a person. Codes: not_running, busy, invalid, start_failed, still_running.
func (a *Agent) serveExec(w http.ResponseWriter, r *http.Request) {
	var start api.ExecStart
	g, task, release, err := a.receive(w, r, &start)
	if err == nil {
		defer release()
		err = start.Check()
	}
	if err != nil {
		writeProblem(w, err)
		return
	}
	sizes := make(chan driver.Size, 1)
	out, errs := g.conn.Lane(api.LaneStdout), g.conn.Lane(api.LaneStderr)
	session := driver.Session{Argv: start.Command, Env: map[string]string{}, Stdout: out, Stderr: errs, Resize: sizes}
	if start.Stdin {
		session.Stdin = g.conn.Lane(api.LaneStdin)
	}
	if start.Terminal != nil {
		session.Terminal = &driver.Size{Rows: start.Terminal.Rows, Columns: start.Terminal.Columns}
		session.Env["TERM"] = start.Term
		if start.Term == "" || strings.ContainsRune(start.Term, 0) {
			session.Env["TERM"] = "xterm"
		}
	}
	began := false
	session.Started = func() {
		began = true
		g.begin(duplex.Handler{Message: func(body []byte) error { return putSize(sizes, body) }})
	}
	code, err := task.Enter(g.ctx, session)
	if !began {
		writeProblem(w, err)
		return
	}
	_ = out.CloseWrite() // errors mean that the caller is gone
	_ = errs.CloseWrite()
	g.end(code, err)
}

// putSize leaves the newest size in the channel, which has room for one.
func putSize(sizes chan driver.Size, body []byte) error {
	var s api.TerminalSize
	if err := json.Unmarshal(body, &s); err != nil {
		return err
	}
	select {
	case <-sizes:
	default:
	}
	sizes <- driver.Size{Rows: s.Rows, Columns: s.Columns} // only this goroutine puts any, so there is room
	return nil
}
