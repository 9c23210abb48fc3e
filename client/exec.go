package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/duplex"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

// ExecOptions say how a command runs in an instance.
type ExecOptions struct {
	Command []string // the program, looked up in the PATH of the instance, and its arguments
	// Terminal is the first size of the terminal on which the command runs. nil means pipes. With a terminal, all output
	// goes to Stdout.
	Terminal *api.TerminalSize
	Term     string                  // the kind of the terminal, for TERM; "" means xterm
	Resize   <-chan api.TerminalSize // further sizes; may be nil
	Stdin    io.Reader               // nil means that the command has no input
	Stdout   io.Writer               // nil means that the output is discarded
	Stderr   io.Writer               // as Stdout
}

// Exec runs a command in an instance, as the user and within the limits of its program. It blocks until the command has
// ended, and returns its exit code, or 128 plus the number of the signal that killed it. When ctx ends or the
// connection breaks, the command and all its descendants are killed. Exec does not wait for a call of Stdin.Read that
// blocks. Codes: not_found, ambiguous, forbidden, busy, agent_unreachable, not_running (the instance has ended),
// start_failed.
func (i Instances) Exec(ctx context.Context, ref string, o ExecOptions) (code int, err error) {
	start := api.ExecStart{Command: o.Command, Stdin: o.Stdin != nil, Terminal: o.Terminal, Term: o.Term}
	if err := start.Check(); err != nil {
		return 0, err
	}
	s, err := i.stream(ctx, route("instances", ref, "exec"), start)
	if err != nil {
		return 0, err
	}
	defer s.close()
	in := s.conn.Lane(api.LaneStdin)
	var copied sync.WaitGroup
	for number, to := range map[uint32]io.Writer{api.LaneStdout: o.Stdout, api.LaneStderr: o.Stderr} {
		lane := s.conn.Lane(number)
		copied.Go(func() {
			if to == nil {
				to = io.Discard
			}
			if _, err := io.Copy(to, lane); err != nil {
				lane.Reset("nobody reads it")
			}
		})
	}
	if o.Stdin != nil {
		go func() {
			_, _ = io.Copy(in, o.Stdin)
			_ = in.CloseWrite() // an error means that the stream has ended
		}()
	}
	over := make(chan struct{})
	defer close(over)
	go s.resize(o.Resize, over)
	var end *api.ExecEnd
	err = s.conn.Run(duplex.Handler{Message: func(body []byte) error {
		end = new(api.ExecEnd)
		return json.Unmarshal(body, end)
	}})
	copied.Wait()
	return s.result(ctx, end, err)
}

// ForwardOptions has the functions that Forward calls. Each may be nil.
type ForwardOptions struct {
	Ready func(port int) // called once, with the number of the port, before connections are accepted
	// Refused is called for each connection that was not passed on, with the reason, such as that nothing accepts
	// connections at the port. Calls may be concurrent.
	Refused func(why string)
}

// Forward passes the connections of a listener to a port of an instance, which is named as its job declares it, or by
// its number. It blocks until ctx or the instance's program ends, or the stream breaks, and closes the listener. Codes:
// as for Exec, and not_found for the port.
func (i Instances) Forward(ctx context.Context, ref, port string, l net.Listener, o ForwardOptions) error {
	defer l.Close()
	start := api.ForwardStart{Port: port}
	if err := start.Check(); err != nil {
		return err
	}
	s, err := i.stream(ctx, route("instances", ref, "forward"), start)
	if err != nil {
		return err
	}
	defer s.close()
	var joined sync.WaitGroup
	defer joined.Wait()
	defer l.Close()
	accept := func() {
		for number := uint32(1); ; number++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			lane, err := s.conn.OpenLane(number)
			if err != nil {
				c.Close()
				return
			}
			joined.Go(func() {
				var reset *duplex.ResetError
				if errors.As(duplex.Join(lane, c), &reset) && reset.Why != "" && o.Refused != nil {
					o.Refused(reset.Why)
				}
			})
		}
	}
	var end *api.ExecEnd
	began := false
	err = s.conn.Run(duplex.Handler{Message: func(body []byte) error {
		if began {
			end = new(api.ExecEnd)
			return json.Unmarshal(body, end)
		}
		var is api.ForwardReady
		if err := json.Unmarshal(body, &is); err != nil {
			return err
		}
		began = true
		if o.Ready != nil {
			o.Ready(is.Port)
		}
		joined.Go(accept)
		return nil
	}})
	s.conn.Fail(io.ErrClosedPipe) // ends the connections
	_, err = s.result(ctx, end, err)
	return err
}

// stream is an open stream of package duplex.
type stream struct {
	conn *duplex.Conn
	body io.Closer
	sent *io.PipeWriter
}

// stream opens a stream whose first message is start.
func (i Instances) stream(ctx context.Context, path string, start any) (*stream, error) {
	first, err := duplex.Message(start)
	if err != nil {
		return nil, model.Refuse(model.CodeTooLarge, "the command can't be sent: %v", err)
	}
	s := new(stream)
	r := reach.Request{Method: http.MethodPost, Path: path, Content: api.ContentTypeDuplex, Once: true}
	r.Duplex = func(ctx context.Context) io.Reader {
		if s.sent != nil {
			_ = s.sent.Close() // of an earlier attempt
		}
		var from *io.PipeReader
		from, s.sent = io.Pipe()
		context.AfterFunc(ctx, func() { _ = from.Close() })
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(first.Append(nil)), from), from}
	}
	resp, err := i.caller.Open(ctx, r) //nolint:bodyclose // close closes it
	if err != nil {
		return nil, err
	}
	s.body, s.conn = resp.Body, duplex.NewConn(resp.Body, s.sent)
	return s, nil
}

func (s *stream) close() {
	_ = s.sent.Close()
	_ = s.body.Close()
}

func (s *stream) resize(sizes <-chan api.TerminalSize, over <-chan struct{}) {
	for {
		select {
		case size, open := <-sizes:
			if !open || s.conn.SendMessage(size) != nil {
				return
			}
		case <-over:
			return
		}
	}
}

// result returns how a stream ended, by its last message and the error of Run.
func (s *stream) result(ctx context.Context, end *api.ExecEnd, err error) (int, error) {
	switch {
	case end != nil && end.Error != nil:
		return 0, end.Error
	case end != nil:
		return end.ExitCode, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return 0, model.Refuse(model.CodeUnreachable, "the connection broke off: %v", err).WithHint("run the command again")
}
