package httpapi

import (
	"context"
	"sync"
	"time"
)

const (
	// lineWait is how long a line waits, with follow, for older lines of other instances.
	lineWait = 300 * time.Millisecond
	// lineRoom is how many bytes of lines of one instance may wait.
	lineRoom = 256 << 10
)

// logLine is one line of an instance, as it will be shown.
type logLine struct {
	at   string // time of writing, as UTC text of equal length that sorts by time; "" or "-": not known
	text []byte
	came time.Time
}

// logOrder merges the lines of several instances by time. It is safe for many goroutines.
//
// Without follow the order is exact: a line is written once every instance that has not ended has a line. With follow
// an instance may be silent for long, so a line waits at most lineWait.
type logOrder struct {
	follow bool
	write  func([]byte) bool // returns false once nobody reads; called by one goroutine at a time

	mu      sync.Mutex
	room    *sync.Cond
	sources map[*logSource]bool
	gone    bool // nobody reads any more
}

// logSource is one instance in a logOrder.
type logSource struct {
	name  string // breaks ties
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

// close ends an instance. It must be called for each instance, because otherwise the others wait for its lines.
func (o *logOrder) close(s *logSource) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.ended = true
	o.pass()
}

// add takes over a line. It blocks while too many bytes of its instance wait. It returns false once nobody reads.
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

// run writes the lines that have waited for long enough, until ctx ends.
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

// stop ends all waits, because nobody reads any more.
func (o *logOrder) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = true
	o.room.Broadcast()
}

// tick writes the lines that have waited for long enough.
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

// pass writes the lines that no other instance can precede.
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

// oldest returns the instance whose next line is the oldest; nil if there is no line.
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
