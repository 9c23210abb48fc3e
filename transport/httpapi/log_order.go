package httpapi

import (
	"context"
	"sync"
	"time"
)

const (
	// lineWait is how long a line of a followed log waits for older lines of other instances.
	lineWait = 300 * time.Millisecond
	// lineRoom is how many bytes of one instance's lines may wait.
	lineRoom = 256 << 10
)

// logLine is one line of an instance, with its prefix.
type logLine struct {
	at   string // when the program wrote it: UTC text of fixed length that sorts by time; "" or "-" if not known
	text []byte
	came time.Time
}

// logOrder merges the lines of several instances by time. Safe for concurrent use.
//
// If follow is false, the order is exact: a line is written only when every instance that has not ended has a waiting
// line. If follow is true, an instance may be silent for long, so a line waits at most lineWait.
type logOrder struct {
	follow bool
	write  func([]byte) bool // returns false if nobody reads any more; called by one goroutine at a time

	mu      sync.Mutex
	room    *sync.Cond
	sources map[*logSource]bool
	gone    bool // nobody reads any more
}

// logSource has the waiting lines of one instance.
type logSource struct {
	name  string // orders lines of the same time
	lines []logLine
	bytes int
	ended bool
}

func newLogOrder(follow bool, write func([]byte) bool) *logOrder {
	o := &logOrder{follow: follow, write: write, sources: map[*logSource]bool{}}
	o.room = sync.NewCond(&o.mu)
	return o
}

func (o *logOrder) open(name string) *logSource {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &logSource{name: name}
	o.sources[s] = true
	return s
}

// close records that an instance has no more lines. It must be called for each instance, because otherwise the others
// wait for its lines.
func (o *logOrder) close(s *logSource) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.ended = true
	o.pass()
}

// add adds a line of an instance. While too many bytes of the instance wait, add blocks if o.follow is false, and
// writes the oldest lines if o.follow is true. It returns false if nobody reads any more.
func (o *logOrder) add(s *logSource, at string, text []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for s.bytes > lineRoom && !o.gone {
		if !o.follow {
			o.room.Wait()
		} else {
			o.show(o.oldest())
		}
	}
	s.lines = append(s.lines, logLine{at, text, time.Now()})
	s.bytes += len(text)
	o.pass()
	return !o.gone
}

// run writes the lines that have waited long enough, until ctx ends.
func (o *logOrder) run(ctx context.Context) {
	tick := time.NewTicker(lineWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			o.tick(now)
		}
	}
}

// stop is called when nobody reads any more. It ends all waits in add.
func (o *logOrder) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = true
	o.room.Broadcast()
}

// tick writes the oldest lines until no instance's next line has waited for lineWait.
func (o *logOrder) tick(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for s := o.oldest(); s != nil && !o.gone && o.overdue(now); s = o.oldest() {
		o.show(s)
	}
}

func (o *logOrder) overdue(now time.Time) bool {
	for s := range o.sources {
		if len(s.lines) > 0 && now.Sub(s.lines[0].came) >= lineWait {
			return true
		}
	}
	return false
}

// pass writes the oldest lines while every instance that has not ended has a waiting line. The caller holds o.mu.
func (o *logOrder) pass() {
	for !o.gone {
		var waits bool
		for s := range o.sources {
			if len(s.lines) == 0 && s.ended {
				delete(o.sources, s)
			} else if len(s.lines) == 0 {
				waits = true
			}
		}
		next := o.oldest()
		if waits || next == nil {
			return
		}
		o.show(next)
	}
}

// oldest returns the instance whose next line is the oldest, or nil if no line waits.
func (o *logOrder) oldest() *logSource {
	var next *logSource
	for s := range o.sources {
		if len(s.lines) == 0 {
			continue
		}
		if next == nil || s.lines[0].at < next.lines[0].at || s.lines[0].at == next.lines[0].at && s.name < next.name {
			next = s
		}
	}
	return next
}

func (o *logOrder) show(s *logSource) {
	line := s.lines[0]
	s.lines = s.lines[1:]
	s.bytes -= len(line.text)
	if !o.write(line.text) {
		o.gone = true
	}
	o.room.Broadcast()
}
