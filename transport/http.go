package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
)

// DefaultMaxBody is the largest size of a request's body in bytes, except in operations that stream the body.
const DefaultMaxBody = 1 << 20

// HTTPConfig limits the cost of an API connection, and configures the calls of agents.
type HTTPConfig struct {
	// ReadHeaderTimeout limits how long reading a request's header takes, including the wait for the first request;
	// default 10 s. For the preface of HTTP/2, net/http has its own limit of 10 s.
	ReadHeaderTimeout time.Duration
	// IdleTimeout is how long a connection may be open without a request; default 3 min. If it is shorter, clients dial
	// more often.
	IdleTimeout time.Duration
	// MaxHeaderBytes limits the size of a request's header; default 64 KiB.
	MaxHeaderBytes int
	// MaxStreams is how many requests may be open on one HTTP/2 connection; default 512. A server that forwards more long
	// polls than this opens further connections.
	MaxStreams int
	// ShutdownTimeout is how long running requests may continue after the server begins to stop; default 5 s. After this
	// time they are cut off.
	ShutdownTimeout time.Duration
	// Agents answers the calls of agents, which use their own protocol. If it is nil, agents' connections are closed.
	Agents AnswerAgent
	// Bodies limits the bytes of agents' calls that are held in memory; default NewBodies(0, 0).
	Bodies *Bodies
	// Refused gets the error of each agent's call that is refused before it reaches Agents. It must not block. Optional.
	Refused func(error)
	// Logger gets debug messages about connections. If it is nil, nothing is logged.
	Logger hclog.Logger
}

func (c HTTPConfig) withDefaults() HTTPConfig {
	dur := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	dur(&c.ReadHeaderTimeout, 10*time.Second)
	dur(&c.IdleTimeout, 3*time.Minute)
	dur(&c.ShutdownTimeout, 5*time.Second)
	if c.MaxHeaderBytes <= 0 {
		c.MaxHeaderBytes = 64 << 10
	}
	if c.MaxStreams <= 0 {
		c.MaxStreams = 512
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Bodies == nil {
		c.Bodies = NewBodies(0, 0)
	}
	if c.Refused == nil {
		c.Refused = func(error) {}
	}
	return c
}

// HTTPServer answers HTTP requests on unix sockets and on the API of a Listener, and answers the calls of agents.
// SubjectFrom and Stopping work with the contexts of requests and calls.
type HTTPServer struct {
	srv     *http.Server
	limit   time.Duration
	ending  context.Context // is canceled when the server begins to stop
	end     context.CancelFunc
	cut     context.CancelFunc // cancels the contexts of all requests and calls
	running running
	agents  AnswerAgent
	bodies  *Bodies
	refused func(error)
	log     hclog.Logger
	// agentCalls has the open calls of agents.
	agentCalls openCalls
}

// NewHTTPServer prepares a server; Run starts it. Answers have no time limit, because watches and log streams are
// endless. An HTTP/2 connection is closed if its peer reads nothing for 30 s or does not answer a ping.
func NewHTTPServer(handler http.Handler, cfg HTTPConfig) *HTTPServer {
	cfg = cfg.withDefaults()
	s := &HTTPServer{limit: cfg.ShutdownTimeout, agents: cfg.Agents, bodies: cfg.Bodies,
		refused: cfg.Refused, log: cfg.Logger, agentCalls: openCalls{of: map[model.Subject]int{}}}
	s.ending, s.end = context.WithCancel(context.Background())
	base, cut := context.WithCancel(context.WithValue(context.Background(), stoppingKey{}, s.ending.Done()))
	s.cut = cut
	s.srv = &http.Server{
		Handler:           s.running.count(handler),
		ReadHeaderTimeout: cfg.ReadHeaderTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    cfg.MaxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: cfg.MaxStreams,
			SendPingTimeout:      15 * time.Second,
			PingTimeout:          10 * time.Second,
			WriteByteTimeout:     30 * time.Second,
		},
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: s.connContext,
		// Peers can provoke these errors, so they are logged at debug level.
		ErrorLog: cfg.Logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	if s.agents != nil {
		s.srv.Protocols = new(http.Protocols) // explicit, because TLSNextProto without "h2" would disable HTTP/2
		s.srv.Protocols.SetHTTP1(true)
		s.srv.Protocols.SetHTTP2(true)
		s.srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){protoAgent: s.serveAgent}
	}
	return s
}

// Run serves the listeners until ctx ends or a listener fails. Then it makes long polls answer at once (see Stopping),
// lets other requests continue for ShutdownTimeout, and cuts off those that remain. Call Run only once. Errors:
// listen_failed if a listener failed before ctx ended; otherwise shutdown_timeout if requests had to be cut off.
func (s *HTTPServer) Run(ctx context.Context, listeners ...net.Listener) error {
	ended := make(chan error, len(listeners))
	var serving sync.WaitGroup
	for _, l := range listeners {
		serving.Go(func() { ended <- s.srv.Serve(l) })
	}
	var failed error
	select {
	case <-ctx.Done():
	case err := <-ended:
		if ctx.Err() == nil {
			failed = model.Refuse(model.CodeListen, "the API stopped serving: %v", err)
		}
	}
	err := s.stop()
	serving.Wait()
	if failed != nil {
		return failed
	}
	return err
}

func (s *HTTPServer) stop() error {
	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), s.limit)
	defer cancel()
	err := s.srv.Shutdown(ctx)
	s.cut()
	if err != nil {
		_ = s.srv.Close() // its error is of no use, because Shutdown has already closed the listeners
	}
	// Shutdown waits only for connections. A handler may run longer than its connection is open.
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n := s.running.wait(last); n > 0 {
		return model.Refuse(model.CodeShutdownTimeout, "%d requests did not end when they were cut off", n)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return model.Refuse(model.CodeShutdownTimeout, "requests were cut off after %s", s.limit)
	}
	return nil
}

type stoppingKey struct{}

// connContext is ConnContext. It also makes Stopping follow the end of a connection whose peer is no longer trusted.
func (s *HTTPServer) connContext(ctx context.Context, c net.Conn) context.Context {
	if g := gateOf(c); g != nil {
		ctx = context.WithValue(ctx, stoppingKey{}, g.untilDrained(s.ending).Done())
		if g.bare != nil {
			ctx = context.WithValue(ctx, bareKey{}, g)
		}
	}
	return ConnContext(ctx, c)
}

// Stopping returns a channel that is closed when the server of a request or call begins to stop, or when the connection
// has to end because the CA of its peer was dropped. Long polls and streams must end then. If ctx does not belong to a
// request or call, Stopping returns a nil channel.
func Stopping(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(stoppingKey{}).(<-chan struct{})
	return c
}

// running counts the HTTP handlers and agents' calls that are running.
type running struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // made by wait; closed when n drops to 0
}

func (r *running) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.add(1)
		defer r.add(-1)
		next.ServeHTTP(w, req)
	})
}

func (r *running) add(d int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n += d
	if r.n == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// wait blocks until no handler or call is running or ctx ends. It returns how many are still running. Only one
// goroutine may wait at a time.
func (r *running) wait(ctx context.Context) int {
	r.mu.Lock()
	if r.n == 0 {
		r.mu.Unlock()
		return 0
	}
	idle := make(chan struct{})
	r.idle = idle
	r.mu.Unlock()
	select {
	case <-idle:
		return 0
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}
