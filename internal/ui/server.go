package ui

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
)

// Config says how a Server reaches the cluster, and for whom it works.
type Config struct {
	// Forward sends a request to the servers, as Client.Forward does. Required.
	Forward func(context.Context, client.ForwardedRequest) (*http.Response, error)
	// Dir is the directory for the file that opens the page; "" means that for temporary files.
	Dir string
	// Idle is how long the page may be unused before Run ends. Default 8 h.
	Idle time.Duration
	// Now returns the time. Default time.Now.
	Now func() time.Time
}

// Server serves the page to one person. Its methods are safe for concurrent use; Run is called once.
type Server struct {
	cfg      Config
	listener net.Listener
	host     string // the only host that requests may name
	file     string
	entry    *entry
	late     time.Duration // how long Run waits for somebody to enter
	entered  chan struct{} // has an element once somebody has entered
	used     atomic.Int64  // time of the last request with the secret, in ns
	http     *http.Server
}

// Open listens on a free port of 127.0.0.1, and writes the file that opens the page. The caller calls Run next, which
// closes and removes both. Codes: file, internal.
func Open(cfg Config) (*Server, error) {
	if cfg.Idle == 0 {
		cfg.Idle = 8 * time.Hour
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	files, err := loadAssets()
	if err != nil {
		return nil, model.Refuse(model.CodeInternal, "%v", err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, model.Refuse(model.CodeInternal, "can't listen on 127.0.0.1: %v", err)
	}
	s := &Server{cfg: cfg, listener: listener, host: listener.Addr().String(), entry: newEntry(cfg.Now), late: codeLife,
		entered: make(chan struct{}, 1)}
	s.touch()
	if s.file, err = writeRedirect(cfg.Dir, s.Address()+"/#"+s.entry.code); err != nil {
		_ = listener.Close() // nothing has used it
		return nil, err
	}
	s.http = &http.Server{Handler: s.guard(s.routes(files)), ConnContext: withUser, ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	return s, nil
}

// Address returns the address of the page. It is of no use without the file.
func (s *Server) Address() string { return "http://" + s.host }

// File returns the path of the file that opens the page.
func (s *Server) File() string { return s.file }

// Close closes and removes what Open made. It is for a caller that does not call Run.
func (s *Server) Close() error {
	return errors.Join(s.listener.Close(), removeRedirect(s.file))
}

func (s *Server) touch() { s.used.Store(s.cfg.Now().UnixNano()) }

func (s *Server) routes(files assets) http.Handler {
	enter, pass := s.ownOnly(s.enter), s.ownOnly(s.pass)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v1/"):
			pass(w, r)
		case r.URL.Path == "/ui/session" && r.Method == http.MethodPost:
			enter(w, r)
		default:
			files.serve(w, r)
		}
	})
}

// Run serves the page until ctx ends, and then returns the cause of ctx at once: requests that run are broken off. It
// returns nil once nobody has used the page for Config.Idle. Code: page_not_entered if nobody has opened the page while
// the code was good.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() {
		if gone := removeRedirect(s.file); err == nil {
			err = gone
		}
	}()
	requests, cancel := context.WithCancel(ctx)
	defer cancel()
	s.http.BaseContext = func(net.Listener) context.Context { return requests }
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	stop := func() {
		_ = s.http.Close() // the listener's error, if any, is of no use any more
		<-served           //nolint:errcheck // it was closed
	}
	idle, late := time.NewTimer(s.cfg.Idle), time.NewTimer(s.late)
	defer idle.Stop()
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			stop()
			return context.Cause(ctx)
		case err := <-served:
			return fmt.Errorf("serve the page: %w", err)
		case <-s.entered:
			late.Stop()
			if err := removeRedirect(s.file); err != nil {
				stop()
				return err
			}
		case <-late.C:
			stop()
			return notEntered("nobody has opened the page within %s", s.late)
		case <-idle.C:
			left := s.cfg.Idle - s.cfg.Now().Sub(time.Unix(0, s.used.Load()))
			if left <= 0 {
				stop()
				return nil
			}
			idle.Reset(left)
		}
	}
}
