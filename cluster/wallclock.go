package cluster

import (
	"slices"
	"time"

	"github.com/outspan/outspan/model"
)

// The wall clock in entries is for people. One server's clock may be wrong, so the leader uses the median of all
// servers' clocks. It learns these from the answers to its ticks.

// clockSkew is how far a server's clock must differ from the median before the difference is logged.
const clockSkew = 2 * time.Second

// clockRepeat is the shortest time between two log lines about the same clock.
const clockRepeat = 10 * time.Minute

// clock records how far a server's wall clock is ahead of the leader's. shown is the reading of the server's clock, in
// Unix ms, and own is the leader's reading at that moment. If shown is 0, the server did not report its clock, and
// clock does nothing.
func (f *followers) clock(id model.ServerID, shown int64, own time.Time) {
	if shown == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[model.ServerID]follower{}
	}
	one := f.all[id]
	one.ahead, one.clocked = time.UnixMilli(shown).Sub(own), true
	f.all[id] = one
}

// aheads returns how far the clocks of servers that answered recently are ahead of the leader's.
func (f *followers) aheads() map[model.ServerID]time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := map[model.ServerID]time.Duration{}
	for id, one := range f.all {
		if one.clocked && one.answered() {
			list[id] = one.ahead
		}
	}
	return list
}

// clocksKnown reports whether the leader knows the clocks of a majority of the servers, including its own.
func (s *Server) clocksKnown() bool {
	return (len(s.state.follower.aheads())+1)*2 > len(s.servers())
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

// wall returns the median of the servers' wall clocks in Unix ms. It is meant for entries that this server writes as
// the leader; on other servers it may be wrong.
func (s *Server) wall() int64 {
	return s.cfg.Wall().Add(time.Duration(s.state.medianAhead.Load())).UnixMilli()
}

// clockAhead returns how far a server's wall clock is ahead of the median. It returns 0 if this server does not know
// the other server's clock or does not lead.
func (s *Server) clockAhead(id model.ServerID) time.Duration {
	if s.Term() == 0 {
		return 0
	}
	all := s.state.follower.aheads()
	ahead, known := all[id]
	if !known && id != s.dir.id {
		return 0
	}
	return ahead - medianAhead(all)
}

// clockWatch keeps the median up to date, and logs which clocks are wrong. Only the goroutine of ticks uses it.
type clockWatch struct{ said map[model.ServerID]time.Time }

func (w *clockWatch) look(s *Server) {
	all := s.state.follower.aheads()
	median := medianAhead(all)
	s.state.medianAhead.Store(int64(median))
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
