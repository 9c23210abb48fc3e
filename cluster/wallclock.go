package cluster

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/model"
)

// The wall clock in entries is for people, and certificates expire by it. One server's clock may be wrong, so all use
// the median of the servers' clocks. The leader learns these from the answers to its ticks.

// clockSkew is how far a server's clock must differ from the median before the difference is logged.
const clockSkew = 2 * time.Second

// clockRepeat is the shortest time between two log lines about the same clock.
const clockRepeat = 10 * time.Minute

// clock records the reading of a server's wall clock at a moment, in Unix ms. If it is 0, the server did not report its
// clock, and clock does nothing.
func (f *followers) clock(id model.ServerID, shown int64, at time.Time) {
	if shown == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[model.ServerID]follower{}
	}
	one := f.all[id]
	one.shown, one.shownAt = time.UnixMilli(shown), at
	f.all[id] = one
}

// aheads returns how far the clocks of servers that answered recently are ahead of the leader's, which now says own.
func (f *followers) aheads(own time.Time) map[model.ServerID]time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := map[model.ServerID]time.Duration{}
	for id, one := range f.all {
		if !one.shown.IsZero() && one.answered() {
			list[id] = one.shown.Add(time.Since(one.shownAt)).Sub(own)
		}
	}
	return list
}

// clocksKnown reports whether the leader knows the clocks of a majority of the servers, including its own.
func (s *Server) clocksKnown() bool {
	return (len(s.state.follower.aheads(s.cfg.Wall()))+1)*2 > len(s.servers())
}

// medianAhead returns how far the median of all clocks, including the leader's, is ahead of the leader's. With an even
// number of clocks, the median is the middle clock that is nearer to the leader's.
func medianAhead(others map[model.ServerID]time.Duration) time.Duration {
	all := []time.Duration{0}
	for _, d := range others {
		all = append(all, d)
	}
	slices.Sort(all)
	low, high := all[(len(all)-1)/2], all[len(all)/2]
	if low.Abs() <= high.Abs() {
		return low
	}
	return high
}

// clockAhead returns how far a server's wall clock is ahead of the median. It returns 0 if this server does not know
// the other server's clock or does not lead.
func (s *Server) clockAhead(id model.ServerID) time.Duration {
	if s.Term() == 0 {
		return 0
	}
	all := s.state.follower.aheads(s.cfg.Wall())
	ahead, known := all[id]
	if !known && id != s.dir.id {
		return 0
	}
	return ahead - medianAhead(all)
}

// WallClock returns the median of the servers' wall clocks. The leader knows it, and its ticks tell the other servers.
// Between two ticks it follows the monotonic clock, so a jump of this machine's clock changes nothing. A server that
// has not heard the median for medianKept returns its own clock. WallClock does not block, and is safe for concurrent
// use.
func (s *Server) WallClock() time.Time {
	if m := s.state.median.last.Load(); m != nil {
		if passed := time.Since(m.at); passed < medianKept {
			return m.wall.Add(passed)
		}
	}
	return s.cfg.Wall()
}

// medianKept is how long a server goes by the last median that it heard.
const medianKept = 10 * time.Second

// wallMedian is the last median of the servers' wall clocks that a server has heard.
type wallMedian struct {
	last atomic.Pointer[struct{ wall, at time.Time }] // nil until the first
}

// note records the median, in Unix ms. It does nothing if that is 0.
func (m *wallMedian) note(wall int64) {
	if wall != 0 {
		m.last.Store(&struct{ wall, at time.Time }{time.UnixMilli(wall), time.Now()})
	}
}

// clockWatch keeps the median up to date, and logs which clocks are wrong. Only the goroutine of ticks uses it.
type clockWatch struct{ said map[model.ServerID]time.Time }

func (w *clockWatch) look(s *Server) {
	own := s.cfg.Wall()
	all := s.state.follower.aheads(own)
	median := medianAhead(all)
	if s.clocksKnown() {
		s.state.median.note(own.Add(median).UnixMilli())
	}
	all[s.dir.id] = 0
	for id, ahead := range all {
		skew := ahead - median
		if skew.Abs() < clockSkew || time.Since(w.said[id]) < clockRepeat && !w.said[id].IsZero() {
			continue
		}
		if w.said == nil {
			w.said = map[model.ServerID]time.Time{}
		}
		w.said[id] = time.Now()
		s.log.Warn("a server's clock is wrong", "server", id, "ahead_of_the_median", skew.Round(time.Millisecond), "hint",
			"set it; run a time service such as chrony")
	}
}
