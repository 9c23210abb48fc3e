package cluster

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-metrics"
)

// Bounds of the streams that others open to the gossip port. Nobody has authenticated the sender until a whole stream
// has arrived and can be decrypted, and memberlist would buffer 20 MiB of each.
const (
	maxStreams          = 256
	maxStreamsOfSource  = 64
	smallStream         = 64 << 10    // bytes that every stream may carry
	maxStreamBytes      = 8 << 20     // the state of 5,000 members takes about 2 MiB
	maxLargeStreams     = 3           // streams beyond smallStream at a time; others wait
	maxLargeOfSource    = 1           // one member never sends two at a time
	largeStreamWaitTime = joinTimeout // the sender gives up by then
)

var (
	errStreamTooLarge = errors.New("a gossip stream is larger than 8 MiB")
	errStreamBusy     = errors.New("too many large gossip streams are open")
)

// streamLimits counts the open streams of the gossip port. Safe for many goroutines.
type streamLimits struct {
	mu      sync.Mutex
	all     streamCount
	sources map[netip.Addr]streamCount
	freed   chan struct{} // closed and replaced when a large stream ends
}

type streamCount struct{ open, large int }

func newStreamLimits() *streamLimits {
	return &streamLimits{sources: map[netip.Addr]streamCount{}, freed: make(chan struct{})}
}

// admit returns the stream with bounds on it, or false if too many are open.
func (l *streamLimits) admit(conn net.Conn) (net.Conn, bool) {
	var source netip.Addr
	if at, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		source = at.AddrPort().Addr().Unmap()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	count := l.sources[source]
	if l.all.open >= maxStreams || count.open >= maxStreamsOfSource {
		countRefusedStream()
		return nil, false
	}
	l.all.open++
	count.open++
	l.sources[source] = count
	return &boundedStream{Conn: conn, limits: l, source: source, closed: make(chan struct{})}, true
}

// tryLarge takes a place among the large streams. If there is none, it returns a channel that is closed when a place
// may have become free.
func (l *streamLimits) tryLarge(source netip.Addr) (taken bool, freed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := l.sources[source]
	if l.all.large >= maxLargeStreams || count.large >= maxLargeOfSource {
		return false, l.freed
	}
	l.all.large++
	count.large++
	l.sources[source] = count
	return true, nil
}

func (l *streamLimits) leave(source netip.Addr, large bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := l.sources[source]
	l.all.open--
	count.open--
	if large {
		l.all.large--
		count.large--
		close(l.freed)
		l.freed = make(chan struct{})
	}
	l.sources[source] = count
	if count.open == 0 {
		delete(l.sources, source)
	}
}

func countRefusedStream() { metrics.IncrCounter([]string{"memberlist", "tcp", "refused"}, 1) }

// boundedStream is a stream that another member opened. Only one goroutine may read it at a time. Close may be called
// from any goroutine, and more than once.
type boundedStream struct {
	net.Conn
	limits *streamLimits
	source netip.Addr
	read   int

	once   sync.Once
	closed chan struct{}
	mu     sync.Mutex
	large  bool
}

// Read implements net.Conn. Beyond smallStream it waits for a place among the large streams.
func (s *boundedStream) Read(b []byte) (int, error) {
	most := smallStream
	if s.read >= smallStream {
		if err := s.becomeLarge(); err != nil {
			countRefusedStream()
			return 0, err
		}
		most = maxStreamBytes
	}
	if s.read >= most {
		countRefusedStream()
		return 0, errStreamTooLarge
	}
	n, err := s.Conn.Read(b[:min(len(b), most-s.read)])
	s.read += n
	return n, err
}

func (s *boundedStream) becomeLarge() error {
	timer := time.NewTimer(largeStreamWaitTime)
	defer timer.Stop()
	for {
		done, freed := s.tryLarge()
		if done {
			return nil
		}
		select {
		case <-freed:
		case <-timer.C:
			return errStreamBusy
		case <-s.closed:
			return net.ErrClosed
		}
	}
}

// tryLarge takes a place that Close gives back. A stream that was closed meanwhile takes none.
func (s *boundedStream) tryLarge() (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.large {
		return true, nil
	}
	select {
	case <-s.closed:
		return false, nil
	default:
	}
	taken, freed := s.limits.tryLarge(s.source)
	s.large = taken
	return taken, freed
}

// Close implements net.Conn.
func (s *boundedStream) Close() error {
	err := s.Conn.Close()
	s.once.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.closed)
		s.limits.leave(s.source, s.large)
	})
	return err
}
