package door

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	// connectTimeout is how long a client's connection waits until a backend is reached. After this time the connection is
	// reset.
	connectTimeout = 3 * time.Second
	dialTimeout    = time.Second
	// downFor is how long a backend that could not be reached is marked as down. Backends that are down are tried last.
	// The time doubles with each failure in a row, up to downForMost.
	downFor     = time.Second
	downForMost = 10 * time.Second
)

// served is one exposed service with its backends and connections. Safe for concurrent use.
type served struct {
	relay   *Relay
	name    model.ServiceName
	address string
	close   func()        // stops the listener
	slots   chan struct{} // one token for each connection, at most Limits.Places

	mu         sync.Mutex
	listener   *net.TCPListener // nil while the port is not open
	problem    string           // why the port is not open, or accepts no connections; otherwise ""
	code       model.PortCode
	generation uint64
	backends   []*backend
	changed    chan struct{}              // closed and replaced when the backends change
	clients    map[*net.TCPConn]time.Time // open connections of clients, and when each began
	sources    map[netip.Addr]int
	accepted   uint64
	refused    uint64
}

// backend is an instance to which connections are forwarded.
type backend struct {
	model.Backend
	local     bool
	active    int // open connections
	fails     int // failed connects in a row
	downUntil time.Time
}

func newServed(r *Relay, name model.ServiceName, address string) *served {
	return &served{
		relay: r, name: name, address: address, slots: make(chan struct{}, r.limits.Places), changed: make(chan struct{}),
		clients: map[*net.TCPConn]time.Time{}, sources: map[netip.Addr]int{},
	}
}

// set replaces the backends. A backend that is in the old and in the new list keeps its counts of connections and
// failures.
func (s *served) set(node model.NodeID, w transport.ServiceBackends) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := make(map[model.Backend]*backend, len(s.backends))
	for _, b := range s.backends {
		old[b.Backend] = b
	}
	s.generation, s.backends = w.Generation, nil
	for _, b := range w.Backends {
		present, known := old[b]
		if !known {
			present = &backend{Backend: b, local: b.Node == node}
		}
		s.backends = append(s.backends, present)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// pick chooses a backend that is not in tried, and adds a connection to its count. It prefers backends that are not
// down, then local ones, then those with the fewest connections. Among equals it chooses at random. It returns nil if
// all backends are in tried.
func (s *served) pick(tried map[*backend]bool) *backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var best *backend
	equals := 0
	for _, b := range s.backends {
		if tried[b] {
			continue
		}
		switch order := b.compare(best, now); {
		case order < 0:
			best, equals = b, 1
		case order == 0:
			if equals++; rand.IntN(equals) == 0 {
				best = b
			}
		}
	}
	if best != nil {
		best.active++
	}
	return best
}

// compare returns a negative number if b is a better choice than c, and 0 if b and c are equal. Any backend is better
// than nil.
func (b *backend) compare(c *backend, now time.Time) int {
	switch {
	case c == nil:
		return -1
	case b.down(now) != c.down(now):
		return order(!b.down(now))
	case b.local != c.local:
		return order(b.local)
	}
	return b.active - c.active
}

func order(first bool) int {
	if first {
		return -1
	}
	return 1
}

func (b *backend) down(now time.Time) bool { return now.Before(b.downUntil) }

// done removes a connection from the backend's count.
func (s *served) done(b *backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.active--
}

// failed marks a backend as down, because it could not be reached, and removes the connection from its count.
func (s *served) failed(b *backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.active--
	b.fails++
	b.downUntil = time.Now().Add(min(downFor<<min(b.fails-1, 8), downForMost))
}

func (s *served) reached(b *backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.fails, b.downUntil = 0, time.Time{}
}

// connect dials backends until one answers. When all have failed, it waits 100 ms, or until the backends change, and
// tries all again. It returns false after connectTimeout, or if ctx ends. The caller must call done for the returned
// backend.
func connect[C any](ctx context.Context, s *served, dial func(context.Context, string) (C, error)) (conn C,
	b *backend, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for {
		tried := map[*backend]bool{}
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		for b := s.pick(tried); b != nil; b = s.pick(tried) {
			call, done := context.WithTimeout(ctx, dialTimeout)
			conn, err := dial(call, b.Address)
			done()
			if err == nil {
				s.reached(b)
				return conn, b, true
			}
			if ctx.Err() != nil {
				s.done(b)
				return conn, nil, false
			}
			tried[b] = true
			s.failed(b)
			s.relay.log.Debug("backend could not be reached", "service", s.name, "instance", b.Instance, "error", err)
		}
		pause(ctx, 100*time.Millisecond, changed)
		if ctx.Err() != nil {
			return conn, nil, false
		}
	}
}

// count adds one connection to accepted or to refused.
func (s *served) count(forwarded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if forwarded {
		s.accepted++
	} else {
		s.refused++
	}
}

func (s *served) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Name: s.name, Address: s.address, Generation: s.generation, Backends: len(s.backends),
		Connections: len(s.clients), Accepted: s.accepted, Refused: s.refused, Problem: s.problem, Code: s.code,
	}
	now := time.Now()
	for _, b := range s.backends {
		if b.down(now) {
			st.Down++
		}
	}
	return st
}

// pause waits for d and returns true. If ctx ends or wake is closed before that, it returns false.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-wake:
	}
	return false
}
