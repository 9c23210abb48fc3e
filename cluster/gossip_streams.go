package cluster

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-metrics"
)

// Bounds of incoming streams on the gossip port. The sender of a stream is authenticated only when the whole stream has
// arrived and been decrypted. Without these bounds, memberlist would buffer up to 20 MiB of each stream until then.
const (
	maxStreams          = 256
	maxStreamsOfSource  = 64
	smallStream         = 64 << 10    // bytes; a stream with more is a large stream
	maxStreamBytes      = 8 << 20     // of one stream; the state of 5,000 members takes about 2 MiB
	maxLargeStreams     = 3           // large streams at a time; another one waits
	maxLargeOfSource    = 1           // large streams of one IP address at a time; a member never sends two at a time
	largeStreamWaitTime = joinTimeout // the sender waits no longer than this
)

var (
	errStreamTooLarge = errors.New("a gossip stream is larger than 8 MiB")
	errStreamBusy     = errors.New("too many large gossip streams are open")
)

// streamLimits counts the open incoming streams of the gossip port. It is safe for concurrent use.
type streamLimits struct {
	mu      sync.Mutex
	all     streamCount
	sources map[netip.Addr]streamCount
	freed   chan struct{} // is closed and replaced when a large stream is closed
}

type streamCount struct{ open, large int }

func newStreamLimits() *streamLimits {
	return &streamLimits{sources: map[netip.Addr]streamCount{}, freed: make(chan struct{})}
}

// admit counts conn as an open stream and returns it with bounds on its size. It returns false if too many streams are
// open, in all or from the same IP address.
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

// tryLarge counts one more large stream from source. If there are too many large streams, it counts none, and returns a
// channel that is closed when a large stream is closed.
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

// boundedStream is an incoming stream with a bound on its size. Only one goroutine may read it at a time. Close may be
// called from any goroutine, and more than once.
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

// Read implements net.Conn. After smallStream bytes it waits until the stream may be counted as large. It fails with
// errStreamBusy after largeStreamWaitTime, and with errStreamTooLarge after maxStreamBytes.
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

// tryLarge counts this stream as large until Close is called, and returns true. If that is not possible, it returns
// false and a channel that is closed when another call may succeed. After Close, it counts nothing and returns no
// channel.
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
