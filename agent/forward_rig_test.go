package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/door"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// sets answers polls for services. The test sets the services with put.
type sets struct {
	mu    sync.Mutex
	now   transport.Services
	moved chan struct{}
}

func newSets() *sets { return &sets{moved: make(chan struct{})} }

func (s *sets) put(services ...transport.ServiceBackends) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Index++
	for i := range services {
		services[i].Generation = s.now.Index
	}
	s.now.Services = services
	close(s.moved)
	s.moved = make(chan struct{})
}

func (s *sets) poll(ctx context.Context, r transport.ServicesRequest) (transport.Services, error) {
	for {
		s.mu.Lock()
		now, moved := s.now, s.moved
		s.mu.Unlock()
		if now.Index != r.Index {
			return now, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return transport.Services{}, ctx.Err()
		}
	}
}

// gate is a forwarder with one exposed service.
type gate struct {
	*sets
	t        *testing.T
	limit    func(*door.Limits)
	file     string // where the forwarder stores the last known services
	end      func()
	f        *forwarder
	port     int
	problems sync.Map
}

func newGate(t *testing.T) *gate {
	t.Parallel()
	d := &gate{sets: newSets(), t: t, port: freePort(t, "127.0.0.1"),
		file: filepath.Join(t.TempDir(), "services"), end: func() {}}
	d.start(d.poll)
	t.Cleanup(func() { d.end() })
	return d
}

// start starts a forwarder. If one runs already, start first stops it.
func (d *gate) start(poll func(context.Context, transport.ServicesRequest) (transport.Services, error)) {
	d.end()
	limits := door.DefaultLimits()
	if d.limit != nil {
		d.limit(&limits)
	}
	way := innerDoor{door.NewRelay(limits, hclog.NewNullLogger())}
	d.f = newForwarder("here", "127.0.0.1", d.file, way, func(part, problem string) {
		d.problems.Store(part, problem)
	}, hclog.NewNullLogger())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.f.run(ctx, poll)
	}()
	d.end = func() { cancel(); <-done }
}

func (d *gate) address() string { return hostPort("127.0.0.1", d.port) }

// serve sets the backends of the service, and waits until the forwarder has them.
func (d *gate) serve(backends ...model.Backend) {
	d.t.Helper()
	d.put(transport.ServiceBackends{Name: "web", Expose: d.port, Backends: backends})
	d.known()
}

// status returns the status of the only service, or a zero Status if the door has no service.
func (d *gate) status() door.Status {
	list := d.f.door.(innerDoor).Status()
	if len(list) == 0 {
		return door.Status{}
	}
	return list[0]
}

func (d *gate) count() int { return d.status().Connections }

func (d *gate) known() {
	d.t.Helper()
	eventually(d.t, "the forwarder to follow", func() bool {
		d.mu.Lock()
		want := d.now.Index
		d.mu.Unlock()
		st := d.f.status()
		return len(st) == 1 && st[0].Generation == want
	})
}

// house is a backend: an HTTP server that counts its requests and answers with its name.
type house struct {
	model.Backend
	srv  *http.Server
	hits atomic.Int64
}

func newHouse(t *testing.T, name string, node model.NodeID, h http.HandlerFunc) *house {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &house{Backend: model.Backend{Instance: model.InstanceID(name), Node: node, Address: l.Addr().String()}}
	b.srv = &http.Server{ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.hits.Add(1)
			if h != nil {
				h(w, r)
			}
			fmt.Fprint(w, name)
		})}
	done := make(chan struct{})
	go func() { defer close(done); _ = b.srv.Serve(l) }()
	t.Cleanup(func() { b.srv.Close(); <-done })
	return b
}

// caller returns an HTTP client. Unless keep is true, the client uses a new connection for each request.
func caller(t *testing.T, keep bool) *http.Client {
	tr := &http.Transport{DisableKeepAlives: !keep}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

func get(c *http.Client, address string) (string, error) {
	resp, err := c.Get("http://" + address + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}
